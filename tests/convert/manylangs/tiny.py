"""Tiny ELMoForManyLangs models, saved by torch like the published ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from typer.testing import CliRunner

run = CliRunner().invoke

CHARACTERS = [*"abcdeghinort.書И", "<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>"]
WORDS = ["<oov>", "<bos>", "<eos>", "<pad>", "the", "begin", "god", "書", "beginning"]
MAX = 11
SHAPE: dict[str, Any] = {
    "encoder": {
        "name": "elmo",
        "projection_dim": 6,
        "cell_clip": 0.3,
        "proj_clip": 0.2,
        "dim": 10,
        "n_layers": 2,
    },
    "token_embedder": {
        "name": "cnn",
        "activation": "relu",
        "filters": [[1, 3], [2, 4], [3, 5]],
        "n_highway": 2,
        "word_dim": 4,
        "char_dim": 5,
        "max_characters_per_token": MAX,
    },
    "classifier": {"name": "sampled_softmax", "n_samples": 8192},
    "dropout": 0.1,
}
SENTENCES = [
    "the beginning god".split(),
    ["書", "И", "Qx", "begin", "the", "."],
    ["g"],
    "in the beginnings beginning".split(),
]

Tensors = dict[str, torch.Tensor]


def shape_with(**changes: Any) -> dict[str, Any]:
    """Return the shape with some values of its two sections changed."""
    shape = json.loads(json.dumps(SHAPE))
    for key, value in changes.items():
        for section in ("encoder", "token_embedder"):
            if key in shape[section]:
                shape[section][key] = value
    return shape


def make(shape: dict[str, Any], seed: int = 0) -> tuple[Tensors, Tensors]:
    """Create random weights under the original names: token embedder and encoder."""
    rng = torch.Generator().manual_seed(seed)
    cnn, lstm = shape["token_embedder"], shape["encoder"]
    d, h = lstm["projection_dim"], lstm["dim"]

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=rng) * 0.4

    embedder: Tensors = {}
    total = 0
    if cnn["word_dim"]:
        embedder["word_emb_layer.embedding.weight"] = normal(len(WORDS), cnn["word_dim"])
        total += cnn["word_dim"]
    if cnn["char_dim"]:
        embedder["char_emb_layer.embedding.weight"] = normal(len(CHARACTERS), cnn["char_dim"])
        f = sum(count for _, count in cnn["filters"])
        for i, (width, count) in enumerate(cnn["filters"]):
            embedder[f"convolutions.{i}.weight"] = normal(count, cnn["char_dim"], width)
            embedder[f"convolutions.{i}.bias"] = normal(count)
        for i in range(cnn["n_highway"]):
            embedder[f"highways._layers.{i}.weight"] = normal(2 * f, f)
            embedder[f"highways._layers.{i}.bias"] = normal(2 * f)
        total += f
    embedder["projection.weight"] = normal(d, total)
    embedder["projection.bias"] = normal(d)
    encoder: Tensors = {}
    for direction in ("forward", "backward"):
        for layer in range(lstm["n_layers"]):
            name = f"{direction}_layer_{layer}."
            encoder[name + "input_linearity.weight"] = normal(4 * h, d)
            encoder[name + "state_linearity.weight"] = normal(4 * h, d)
            bias = normal(4 * h)
            # Where subtracting 1 is exact.
            bias[h : 2 * h] = torch.rand(h, generator=rng) * 1.5 + 0.5
            encoder[name + "state_linearity.bias"] = bias
            encoder[name + "state_projection.weight"] = normal(d, h)
    return embedder, encoder


def write(
    folder: Path,
    shape: dict[str, Any] = SHAPE,
    *,
    old: bool = False,
    seed: int = 0,
    config_path: str = "cnn_tiny.json",
) -> Path:
    """Write a directory like those of ELMoForManyLangs with torch.save."""
    folder.mkdir(exist_ok=True)
    for name, tensors in zip(("token_embedder", "encoder"), make(shape, seed), strict=True):
        torch.save(tensors, folder / f"{name}.pkl", _use_new_zipfile_serialization=not old)
    (folder / "cnn_tiny.json").write_text(json.dumps(shape))
    (folder / "config.json").write_text(json.dumps({"seed": 1, "config_path": config_path}))
    for name, entries in (("char.dic", CHARACTERS), ("word.dic", WORDS)):
        lines = [f"{entry}\t{place}\n" for place, entry in enumerate(entries)]
        (folder / name).write_text("".join(reversed(lines)), "utf-8")  # the order does not matter
    return folder


SHAPES = {
    "words and characters": SHAPE,
    "characters": shape_with(word_dim=0),
    "words": shape_with(char_dim=0),
    "no clips, tanh, one layer": shape_with(
        cell_clip=0, proj_clip=None, activation="tanh", n_layers=1, n_highway=0
    ),
}
