"""Training checkpoints of bilm-tf.

checkpoint                           names the newest checkpoint
model.ckpt-12.index                  and .data-00000-of-00001: a checkpoint
options.json                         the training options
vocab.txt                            optional: the vocabulary
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from elmokit.convert import tf_checkpoint
from elmokit.convert.tf_bundle import INDEX
from elmokit.errors import WeightsError
from elmokit.sources.modeldir import VOCABULARY, ModelParts
from elmokit.storage.manifest import read_json
from elmokit.storage.regular import read_bounded
from elmokit.text.vocab import SPECIALS, Vocabulary

OPTIONS = "options.json"
_NEWEST = "checkpoint"
_SHARD = re.compile(r"\.data-\d{5}-of-\d{5}$")


def prefix_of(path: Path) -> Path | None:
    """Return the prefix of a checkpoint, `model.ckpt-12`, for one of its files or itself.

    For the file `checkpoint`, it is that of the newest checkpoint; for other paths, None.
    """
    if path.name == _NEWEST and path.is_file():
        return _newest(path.parent)
    name = _SHARD.sub("", path.name).removesuffix(INDEX)
    return path.with_name(name) if name and path.with_name(name + INDEX).is_file() else None


def is_tf_dir(path: Path) -> bool:
    """Return whether a directory contains checkpoints."""
    return any(path.glob("*" + INDEX)) or (path / _NEWEST).is_file()


def load(path: Path, *, vocab: Path | None = None) -> ModelParts:
    """Load a model with its head and the accumulators of Adagrad.

    Args:
        path: A checkpoint, or a directory with checkpoints, of which the newest is loaded.
        vocab: The vocabulary. Default: `vocab.txt` in the same directory, if it exists.
    """
    prefix = _newest(path) if path.is_dir() else prefix_of(path)
    if prefix is None:
        raise WeightsError(f"The checkpoint {path}{INDEX} does not exist.")
    options = prefix.with_name(OPTIONS)
    if not options.is_file():
        raise WeightsError(
            f"{options} does not exist. Copy it from the directory in which bilm-tf trained the "
            "model."
        )
    checkpoint = tf_checkpoint.read(options, prefix)
    if vocab is None and prefix.with_name(VOCABULARY).is_file():
        vocab = prefix.with_name(VOCABULARY)
    files = checkpoint.files if vocab is None else (*checkpoint.files, vocab)
    training: dict[str, Any] = {"bilm_tf_options": read_json(options)}
    if checkpoint.step is not None:
        training = {"steps": checkpoint.step, **training}
    parts = ModelParts(
        checkpoint.bilm,
        vocabulary=None if vocab is None else Vocabulary.from_file(vocab),
        head=checkpoint.head,
        accumulators=checkpoint.accumulators,
        metadata={"converted_from": [file.name for file in files], "training": training},
        source=str(prefix),
        files=files,
    )
    parts.check()
    _put_specials_first(parts)
    return parts


def _put_specials_first(parts: ModelParts) -> None:
    """Reorder the words of the head as training and scoring expect them.

    bilm-tf accepts the special symbols anywhere; one of its own vocabularies begins with `</S>`.
    """
    words = () if parts.vocabulary is None else parts.vocabulary.words
    specials = [words.index(special) for special in SPECIALS if special in words]
    if (
        parts.head is None
        or parts.bilm.config.n_words is not None  # its own table has that order, too
        or len(specials) < len(SPECIALS)
        or specials == list(range(len(SPECIALS)))
    ):
        return
    order = [*specials, *(place for place in range(len(words)) if place not in specials)]
    rows = torch.tensor(order)
    with torch.no_grad():
        for tensor in parts.head.parameters():
            tensor.copy_(tensor[rows])
    if parts.accumulators is not None:
        for name in ("head.weight", "head.bias"):
            parts.accumulators[name] = parts.accumulators[name][rows]
    parts.vocabulary = Vocabulary(words[place] for place in order)


def _newest(folder: Path) -> Path:
    """Return the prefix of the only checkpoint, or of the newest according to TensorFlow."""
    named = _named(folder / _NEWEST)
    if named is not None and (folder / (named + INDEX)).is_file():
        return folder / named
    files = sorted(entry.name for entry in folder.glob("*" + INDEX))
    if len(files) == 1:
        return folder / files[0].removesuffix(INDEX)
    if files:
        raise WeightsError(
            f"There are several checkpoints in {folder}: {', '.join(files[:8])}; and no file "
            f"'{_NEWEST}' that names the newest. Pass the path of one."
        )
    raise WeightsError(f"No checkpoint {named or 'model.ckpt-N'}{INDEX} found in {folder}.")


def _named(path: Path) -> str | None:
    """Return the name in a file `checkpoint` without its path, often that of another machine."""
    if not path.is_file():
        return None
    text = read_bounded(path, WeightsError, most=1 << 20).decode("utf-8", "replace")
    match = re.search(r'^model_checkpoint_path:\s*"([^"\n]*)"', text, re.MULTILINE)
    return match[1].replace("\\", "/").rsplit("/", 1)[-1] or None if match else None
