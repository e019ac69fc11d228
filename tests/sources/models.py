"""Tiny random models in all formats on disk."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from elmokit.config import BiLMConfig, CharCnnConfig, LstmConfig
from elmokit.convert import bilm_hdf5
from elmokit.model.bilm import BiLM
from elmokit.model.lstm import LstmState
from elmokit.model.softmax import LMHead
from elmokit.sources.modeldir import ModelParts
from elmokit.text.vocab import Vocabulary

LSTM = LstmConfig(dim=6, projection_dim=4)
CHARS = CharCnnConfig(embedding_dim=3, filters=((1, 2), (2, 3)), n_highway=1)
WORDS = ("<S>", "</S>", "<UNK>", "the", "book")

CONFIGS = {
    "characters": BiLMConfig(LSTM, CHARS),
    "words": BiLMConfig(LSTM, None, n_words=len(WORDS)),
    "no projection": BiLMConfig(LstmConfig(dim=4, projection_dim=4, n_layers=1), CHARS),
    "no clips, no skip, tanh": BiLMConfig(
        LstmConfig(6, 5, 3, cell_clip=None, proj_clip=None, use_skip_connections=False),
        CharCnnConfig(4, ((1, 2), (3, 3)), n_highway=0, activation="tanh"),
    ),
}


def make_parts(kind: str = "characters", *, full: bool = False, seed: int = 0) -> ModelParts:
    """Create a random model; `full` adds all optional parts."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = CONFIGS[kind]
        parts = ModelParts(BiLM(config).eval())
        if full or kind == "words":
            parts.vocabulary = Vocabulary(WORDS)
        if full:
            lstm = config.lstm
            parts.head = LMHead(len(WORDS), lstm.projection_dim)
            parts.warm = LstmState(
                torch.randn(2, lstm.n_layers, 1, lstm.dim),
                torch.randn(2, lstm.n_layers, 1, lstm.projection_dim),
            )
            parts.card = "# A card\r\n\nof two lines, with \u00e9."
            parts.metadata = {"name": "test", "training": {"steps": 3}}
    return parts


def same_bits(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    """Test whether two modules have bit-identical tensors."""
    a, b = one.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(
        a[name].dtype == b[name].dtype == torch.float32
        and torch.equal(a[name].view(torch.int32), b[name].view(torch.int32))
        for name in a
    )


def write_hdf5(
    parts: ModelParts,
    folder: Path,
    options: str = "options.json",
    weights: str = "weights.hdf5",
    **char_cnn: object,
) -> Path:
    """Write a model in AllenNLP's format, with some options changed."""
    folder.mkdir(exist_ok=True)
    bilm_hdf5.write(parts.bilm, folder / options, folder / weights)
    if char_cnn:
        values = json.loads((folder / options).read_text())
        values["char_cnn"] |= char_cnn
        (folder / options).write_text(json.dumps(values))
    return folder
