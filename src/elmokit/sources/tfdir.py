"""Training checkpoints of bilm-tf.

checkpoint                           names the newest checkpoint
model.ckpt-12.index                  and .data-00000-of-00001: a checkpoint
options.json                         the training options
vocab.txt                            optional: the vocabulary
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from elmokit.convert import tf_checkpoint
from elmokit.convert.tf_bundle import INDEX
from elmokit.errors import WeightsError
from elmokit.sources.modeldir import VOCABULARY, ModelParts
from elmokit.storage.manifest import read_json
from elmokit.text.vocab import SPECIALS, Vocabulary

OPTIONS = "options.json"
_NEWEST = "checkpoint"
_SHARD = re.compile(r"\.data-\d{5}-of-\d{5}$")


@dataclass(frozen=True)
class TfFiles:
    """The files of one checkpoint."""

    prefix: Path
    options: Path
    vocab: Path | None = None


def prefix_of(path: Path) -> Path | None:
    """Return the path of the checkpoint that somebody means by one of its files, or by no ending.

    `checkpoint` is the newest one beside it; a path that is none of this gives None.
    """
    if path.name == _NEWEST and path.is_file():
        return _newest(path.parent)
    bare = _SHARD.sub("", path.name).removesuffix(INDEX)
    prefix = path.with_name(bare) if bare else path
    return prefix if _index(prefix).is_file() else None


def is_tf_dir(path: Path) -> bool:
    """Tell whether a folder holds checkpoints."""
    return any(entry.name.endswith(INDEX) for entry in path.iterdir()) or (path / _NEWEST).is_file()


def find(path: Path) -> TfFiles:
    """Find the files of a checkpoint.

    Args:
        path: A folder, of which the newest checkpoint is taken, or a checkpoint.
    """
    prefix = _newest(path) if path.is_dir() else prefix_of(path)
    if prefix is None:
        raise WeightsError(f"{path} is no checkpoint: there is no {_index(path)}.")
    folder = prefix.parent
    options = folder / OPTIONS
    if not options.is_file():
        raise WeightsError(
            f"There is no {OPTIONS} beside the checkpoint {prefix}, which says the shape of the "
            "model. bilm-tf writes it into the folder of the training when that starts: copy it."
        )
    vocab = folder / VOCABULARY
    return TfFiles(prefix, options, vocab if vocab.is_file() else None)


def load(files: TfFiles, *, vocab: Path | None = None) -> ModelParts:
    """Read a model with all that its training left.

    Args:
        files: Its files.
        vocab: A vocabulary to take instead of the one found.
    """
    found = tf_checkpoint.read(files.options, files.prefix)
    vocab = vocab or files.vocab
    used = found.files if vocab is None else (*found.files, vocab)
    training: dict[str, Any] = {"bilm_tf_options": read_json(files.options)}
    if found.step is not None:
        training = {"steps": found.step, **training}
    parts = ModelParts(
        found.bilm,
        vocabulary=None if vocab is None else Vocabulary.from_file(vocab),
        head=found.head,
        accumulators=found.accumulators,
        metadata={"converted_from": [file.name for file in used], "training": training},
        source=str(files.prefix),
        files=used,
    )
    parts.check()
    _put_specials_first(parts)
    return parts


def _put_specials_first(parts: ModelParts) -> None:
    """Bring the words of the head into the order that training and scoring expect.

    bilm-tf takes the specials wherever they stand; one of its own vocabularies begins with `</S>`.
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
    """Return the checkpoint that TensorFlow calls the newest, or the only one there is."""
    there = sorted(entry for entry in folder.iterdir() if entry.name.endswith(INDEX))
    named = _named(folder / _NEWEST)
    if named is not None and _index(folder / named).is_file():
        return folder / named
    if len(there) == 1:
        return there[0].with_name(there[0].name.removesuffix(INDEX))
    if there:
        listed = ", ".join(entry.name for entry in there[:8])
        raise WeightsError(
            f"There are several checkpoints in {folder}: {listed}; and no file '{_NEWEST}' that "
            "says which is the newest. Give the one that is meant."
        )
    old = named is not None and (folder / named).is_file()
    raise WeightsError(
        f"There is no checkpoint in {folder}: looked for {named or 'model.ckpt-N'}{INDEX}."
        + (
            f" {named} alone is of TensorFlow's format V1, from before 2017, which is not read "
            "here: restore and save it with tf.train.Saver."
            if old
            else ""
        )
    )


def _named(path: Path) -> str | None:
    """Return the name in a file `checkpoint`; a path in it is of another machine, most likely."""
    if not path.is_file():
        return None
    text = path.read_text("utf-8", "replace")
    found = re.search(r'^model_checkpoint_path:\s*"([^"\n]*)"', text, re.MULTILINE)
    return found[1].replace("\\", "/").rsplit("/", 1)[-1] if found and found[1] else None


def _index(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + INDEX)
