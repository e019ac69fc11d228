"""Save and load model directories in elmokit's format. Loading validates all files.

config.json           the configuration of the biLM, and metadata
model.safetensors     the weights as float32, float16 or int8, named as in the `state_dict`; may
                      continue in model-2.safetensors, ...
vocab.txt             optional: the words of the head, or of a word-input model
lexicon.json          the words and characters of a model with a lexicon
head.safetensors      optional: the LM head, as the tensors `weight` (V, D) and `bias` (V,)
warm.safetensors      optional: the initial state for `state="warm"`, as the tensors `cell` and
                      `hidden`
adagrad.safetensors   optional: the Adagrad accumulators, to continue training
README.md             the model card
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch

from elmokit.config import BiLMConfig
from elmokit.errors import WeightsError, check_choice
from elmokit.model.bilm import BiLM
from elmokit.model.lexicon_encoder import LexiconEncoder
from elmokit.model.lstm import LstmState
from elmokit.model.skip_init import skip_init
from elmokit.model.softmax import LMHead
from elmokit.progress import plural
from elmokit.sources import card, modelfiles
from elmokit.sources.modelfiles import CARD, CONFIG, LEXICON, VOCABULARY
from elmokit.sources.tensors import (
    STORAGES,
    Shape,
    Storage,
    part_path,
    read_shapes,
    read_tensors,
    write_tensors,
)
from elmokit.storage.atomic import replace_file
from elmokit.storage.manifest import write_json
from elmokit.storage.overwrite import DirectoryKind, new_directory
from elmokit.storage.regular import resolve_output
from elmokit.text.vocab import Vocabulary

M = TypeVar("M", bound=torch.nn.Module)

FORMAT = "elmokit"
FORMAT_VERSION = 1

WEIGHTS = "model.safetensors"
HEAD = "head.safetensors"
WARM = "warm.safetensors"
ADAGRAD = "adagrad.safetensors"
#: Additional weight files that `save` may replace. `load` supports any number of them.
PARTS = tuple(part_path(Path(WEIGHTS), number).name for number in range(2, 10))
FILES = (CONFIG, WEIGHTS, *PARTS, VOCABULARY, LEXICON, HEAD, WARM, ADAGRAD, CARD)


@dataclass
class ModelParts:
    """The parts of a model.

    Attributes:
        bilm: The network.
        vocabulary: The words of the head, or of a word-input model, in the order of the weights.
        head: The LM head.
        warm: The initial state for `state="warm"`: cell (2, L, 1, H), hidden (2, L, 1, D).
        accumulators: Adagrad's sums of squared gradients by parameter name, with the prefix `bilm.`
            or `head.`.
        card: The text of the model card.
        metadata: Other entries of `config.json`, such as `name` and `training`.
        source: Where the model was loaded from, for messages.
        files: The files that the model was loaded from.
    """

    bilm: BiLM
    vocabulary: Vocabulary | None = None
    head: LMHead | None = None
    warm: LstmState | None = None
    accumulators: dict[str, torch.Tensor] | None = None
    card: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    source: str = ""
    files: tuple[Path, ...] = ()

    @property
    def config(self) -> BiLMConfig:
        """The configuration of the biLM."""
        return self.bilm.config

    @property
    def n_parameters(self) -> int:
        """The number of parameters of the biLM, without the head."""
        return sum(parameter.numel() for parameter in self.bilm.parameters())

    def check(self) -> None:
        """Raise an error if the parts do not match."""
        encoder, source = self.bilm.encoder, self.source or "The model"
        if isinstance(encoder, LexiconEncoder):
            try:
                encoder.required_lexicon.check(encoder.config)
            except WeightsError as error:
                raise WeightsError(f"{source}: {error}") from None
        modelfiles.check_vocabulary(self.vocabulary, self.config, source)
        if self.head is not None and self.vocabulary is not None:
            n_words, n_rows = len(self.vocabulary), len(self.head.bias)
            if n_words != n_rows:
                raise WeightsError(
                    f"{source}: the vocabulary has {plural(n_words, 'word')}, but the head has "
                    f"{plural(n_rows, 'row')}. {VOCABULARY} is from a different model, or lines "
                    "are missing."
                )


def is_model_dir(path: Path) -> bool:
    """Return whether a directory is a model directory (it may still be damaged)."""
    return (path / WEIGHTS).is_file() and (path / CONFIG).is_file()


KIND = DirectoryKind("model", FILES, is_model_dir)


def save(
    parts: ModelParts,
    path: Path,
    *,
    overwrite: bool = False,
    storage: Storage = "float32",
    part_bytes: int | None = None,
) -> None:
    """Write a model directory atomically.

    Args:
        parts: The model.
        path: The output directory. Must not contain anything except a model.
        overwrite: Replace an existing model.
        storage: The data type of the stored weights of the biLM and the head.
        part_bytes: Split the weights of the biLM into files of about this size.
    """
    parts.check()
    check_choice("storage", storage, STORAGES)
    path = resolve_output(path)
    values = {"format": FORMAT, "format_version": FORMAT_VERSION, "storage": storage}
    config = {
        **values,
        **modelfiles.select_metadata(parts.metadata),
        "bilm": parts.bilm.config.to_dict(),
    }
    with new_directory(path, KIND, overwrite=overwrite) as folder:
        write_json(folder / CONFIG, config)
        weights = parts.bilm.state_dict()
        write_tensors(weights, folder / WEIGHTS, storage=storage, part_bytes=part_bytes)
        if parts.vocabulary is not None:
            parts.vocabulary.save(folder / VOCABULARY)
        if parts.bilm.lexicon is not None:
            modelfiles.write_lexicon(parts.bilm.lexicon, folder / LEXICON)
        if parts.head is not None:
            write_tensors(parts.head.state_dict(), folder / HEAD, storage=storage)
        if parts.warm is not None:
            write_tensors(parts.warm._asdict(), folder / WARM)
        if parts.accumulators is not None:
            write_tensors(parts.accumulators, folder / ADAGRAD)
        (folder / CARD).write_bytes(_card(parts, path.name).encode("utf-8", "replace"))


def save_warm_state(parts: ModelParts, path: Path) -> None:
    """Write the warm state of a model to its directory, then update the card."""
    assert parts.warm is not None
    path = resolve_output(path)
    with replace_file(path / WARM) as file:
        write_tensors(parts.warm._asdict(), file)
    with replace_file(path / CARD) as file:
        file.write_bytes(_card(parts, path.name).encode("utf-8", "replace"))


def _card(parts: ModelParts, name: str) -> str:
    if parts.card is None:
        return card.generate_card(parts, name)
    rows = [*card.training_rows(parts.metadata), *card.file_rows(parts)]
    return card.update_rows(parts.card, rows)


def load(path: Path, *, vocab: Path | None = None) -> ModelParts:
    """Load a model directory.

    Args:
        path: The directory.
        vocab: A vocabulary file to use instead of the one in the directory.
    """
    config, metadata = modelfiles.read_config(path / CONFIG, FORMAT, FORMAT_VERSION)
    vocab = vocab or (path / VOCABULARY if (path / VOCABULARY).is_file() else None)
    parts = ModelParts(
        bilm=_read_bilm(path / WEIGHTS, config),
        vocabulary=None if vocab is None else Vocabulary.from_file(vocab),
        head=_read_head(path / HEAD, config) if (path / HEAD).exists() else None,
        warm=_read_warm(path / WARM, config) if (path / WARM).exists() else None,
        card=modelfiles.read_card(path / CARD),
        metadata=metadata,
        source=str(path),
        files=tuple(path / name for name in FILES if (path / name).is_file()),
    )
    if (path / ADAGRAD).exists():
        parts.accumulators = read_tensors(path / ADAGRAD, _accumulator_shapes(parts))
    parts.check()
    return parts


def _read_bilm(path: Path, config: BiLMConfig) -> BiLM:
    bilm = _read_module(lambda: BiLM(config), path)
    if isinstance(bilm.encoder, LexiconEncoder):
        limit = bilm.encoder.config.max_characters_per_token
        bilm.encoder.lexicon = modelfiles.read_lexicon(path.parent / LEXICON, limit)
    return bilm


def _read_head(path: Path, config: BiLMConfig) -> LMHead:
    bias = read_shapes(path).get("bias", ())
    # If the bias is invalid, any number of words will do: `_read_module` reports the error.
    n_words = bias[0] if len(bias) == 1 else 1
    return _read_module(lambda: LMHead(n_words, config.lstm.projection_dim), path)


def _read_module(make: Callable[[], M], path: Path) -> M:
    with skip_init():  # the initial values are replaced
        module = make()
    module.load_state_dict(read_tensors(path, _shapes(module)), assign=True)
    return module.eval()


def _accumulator_shapes(parts: ModelParts) -> dict[str, Shape]:
    """Return the expected shapes of the accumulators, one for each parameter."""
    shapes = {f"bilm.{name}": shape for name, shape in _shapes(parts.bilm).items()}
    if parts.head is not None:
        shapes |= {f"head.{name}": shape for name, shape in _shapes(parts.head).items()}
    return shapes


def _read_warm(path: Path, config: BiLMConfig) -> LstmState:
    lstm = config.lstm
    cell = (2, lstm.n_layers, 1, lstm.dim)
    hidden = (2, lstm.n_layers, 1, lstm.projection_dim)
    return LstmState(**read_tensors(path, {"cell": cell, "hidden": hidden}))


def _shapes(module: torch.nn.Module) -> dict[str, Shape]:
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
