"""Load bilm-tf training checkpoints: the biLM, its LM head and the Adagrad accumulators.

    checkpoint                           the name of the newest checkpoint
    model.ckpt-12.index                  the index of a checkpoint
    model.ckpt-12.data-00000-of-00001    the values of its tensors
    options.json                         the training options
    vocab.txt                            optional: the vocabulary

A checkpoint contains the same tensors as the HDF5 files (`bilm_hdf5.py`), with the names of
TensorFlow's training graph. It also contains the softmax and, for each variable, the Adagrad
accumulator (the sum of squared gradients), `<variable>/Adagrad`.

    HDF5        RNN_0/RNN/MultiRNNCell/Cell1/LSTMCell/W_0           W_P_0               B
    checkpoint  lm/RNN_0/rnn/multi_rnn_cell/cell_1/lstm_cell/kernel projection/kernel   bias
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmokit.config import BiLMConfig
from elmokit.convert import bilm_hdf5
from elmokit.convert.tf_bundle import INDEX, StoredTensor, read_index
from elmokit.convert.weights import Entry, build_module, read_parameters, unchanged
from elmokit.errors import ConfigError, WeightsError, join_names, warn
from elmokit.model.bilm import BiLM
from elmokit.model.softmax import LMHead
from elmokit.sources.modeldir import ModelParts
from elmokit.sources.modelfiles import VOCABULARY
from elmokit.storage.manifest import read_json
from elmokit.storage.regular import read_bounded
from elmokit.text.vocab import SPECIALS, Vocabulary

OPTIONS = "options.json"
_NEWEST = "checkpoint"
_SHARD = re.compile(r"\.data-\d{5}-of-\d{5}$")
_SLOT = "/Adagrad"
_SOFTMAX_WEIGHT = "lm/softmax/W"
_SOFTMAX_BIAS = "lm/softmax/b"
_STEP = "global_step"
#: Training variables that are not part of the model.
_UNUSED = frozenset((_STEP, "train_perplexity"))
_RENAMED = (
    ("/RNN/", "/rnn/"),
    ("/MultiRNNCell/Cell", "/multi_rnn_cell/cell_"),
    ("/LSTMCell/", "/lstm_cell/"),
    ("/W_P_0", "/projection/kernel"),
    ("/W_0", "/kernel"),
    ("/B", "/bias"),
)


def find_prefix(path: Path) -> Path | None:
    """Return the prefix of a checkpoint, such as `model.ckpt-12`.

    Args:
        path: The prefix, a file of the checkpoint, or the file `checkpoint`, which contains the
            name of the newest checkpoint. For any other path, the function returns None.
    """
    if path.name == _NEWEST and path.is_file():
        return _find_newest(path.parent)
    name = _SHARD.sub("", path.name).removesuffix(INDEX)
    return path.with_name(name) if name and path.with_name(name + INDEX).is_file() else None


def is_tf_dir(path: Path) -> bool:
    """Return whether a directory contains checkpoints."""
    return any(path.glob("*" + INDEX)) or (path / _NEWEST).is_file()


def load(path: Path, *, vocab: Path | None = None) -> ModelParts:
    """Load a model with its head and the Adagrad accumulators.

    The accumulators are loaded only if the checkpoint contains all of them.

    Args:
        path: A checkpoint, or a directory, from which the newest checkpoint is loaded.
        vocab: The vocabulary. Default: `vocab.txt` in the same directory, if it exists.

    Raises:
        ConfigError: The options do not describe a biLM.
        WeightsError: The checkpoint is damaged, or does not match the options.
    """
    prefix = _find_newest(path) if path.is_dir() else find_prefix(path)
    if prefix is None:
        raise WeightsError(f"The checkpoint {path}{INDEX} does not exist.")
    options = prefix.with_name(OPTIONS)
    if not options.is_file():
        raise WeightsError(
            f"{options} does not exist. Copy it from the directory where bilm-tf trained the model."
        )
    tensors = read_index(prefix)
    config = bilm_hdf5.read_options(options)
    if not any(name.startswith("lm/RNN_1/") for name in tensors):
        raise ConfigError(
            f"{prefix} contains no backward language model (variables lm/RNN_1/...): it was "
            "trained with 'bidirectional': false, or is not a bilm-tf checkpoint. It contains "
            f"{join_names(tensors)}."
        )
    entries = list(_entries(tensors, config))
    parameters = read_parameters(entries, tensors.get, tensors, prefix)
    head = _with_prefix(parameters, "head.")
    training: dict[str, Any] = {"bilm_tf_options": read_json(options)}
    if _STEP in tensors:
        training = {"steps": _read_step(tensors[_STEP]), **training}
    shards = {tensor.shard for tensor in tensors.values()}
    files = [options, prefix.with_name(prefix.name + INDEX), *sorted(shards)]
    if vocab is None and prefix.with_name(VOCABULARY).is_file():
        vocab = prefix.with_name(VOCABULARY)
    if vocab is not None:
        files.append(vocab)
    parts = ModelParts(
        build_module(lambda: BiLM(config), _with_prefix(parameters, "bilm.")),
        vocabulary=None if vocab is None else Vocabulary.from_file(vocab),
        head=build_module(lambda: LMHead(*head["weight"].shape), head) if head else None,
        accumulators=_read_accumulators(tensors, entries, prefix),
        metadata={"converted_from": [file.name for file in files], "training": training},
        source=str(prefix),
        files=tuple(files),
    )
    parts.check()
    _put_specials_first(parts)
    return parts


def _read_step(step: StoredTensor) -> int:
    value = np.asarray(step) if step.shape in ((), (1,)) else np.array(np.nan)
    if not np.isfinite(value).all():
        raise WeightsError(f"{step.description} is damaged: expected a single number.")
    return int(value.sum())


def _read_accumulators(
    tensors: Mapping[str, StoredTensor], entries: list[Entry], prefix: Path
) -> dict[str, Tensor] | None:
    """Read the accumulators if all of them exist, and warn about unknown variables."""
    slots = [dataclasses.replace(entry, name=entry.name + _SLOT) for entry in entries]
    used = _UNUSED.union(entry.name for entry in (*entries, *slots))
    if unused := sorted(tensors.keys() - used):
        warn(f"Ignoring unknown variables in {prefix}: {join_names(unused)}.")
    missing = [slot.name for slot in slots if slot.name not in tensors]
    if not missing:
        return read_parameters(slots, tensors.get, tensors, prefix)
    if len(missing) < len(slots):
        warn(
            f"{prefix} does not contain the Adagrad accumulators {join_names(missing)}. All "
            "accumulators are ignored; further training starts with new ones."
        )
    return None


def _entries(tensors: Mapping[str, StoredTensor], config: BiLMConfig) -> Iterator[Entry]:
    """Yield the variables of a checkpoint and the parameters that they contain."""
    for entry in bilm_hdf5.entries(config):
        name = f"lm/{entry.name}"
        for old, new in _RENAMED:
            name = name.replace(old, new)
        # In models with a single layer, the names are shorter.
        short_name = name.replace("/multi_rnn_cell/cell_0", "")
        if name not in tensors and short_name in tensors:
            name = short_name
        parameters = tuple(f"bilm.{parameter}" for parameter in entry.parameters)
        yield dataclasses.replace(entry, name=name, parameters=parameters)
    if (bias := tensors.get(_SOFTMAX_BIAS)) is not None:
        size = bias.shape[0] if len(bias.shape) == 1 else 0
        # With `share_embedding_softmax`, the softmax weight is the word embedding.
        weight = _SOFTMAX_WEIGHT if _SOFTMAX_WEIGHT in tensors else "lm/embedding"
        yield unchanged(weight, (size, config.lstm.projection_dim), "head.weight")
        yield unchanged(_SOFTMAX_BIAS, (size,), "head.bias")


def _with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


def _put_specials_first(parts: ModelParts) -> None:
    """Move the special symbols to the start of the vocabulary, as training and scoring require.

    In bilm-tf, they can have any index. For example, one of its vocabularies starts with `</S>`.
    """
    words = () if parts.vocabulary is None else parts.vocabulary.words
    specials = [words.index(special) for special in SPECIALS if special in words]
    if (
        parts.head is None
        or parts.bilm.config.n_words is not None  # the order of the embeddings must match
        or len(specials) < len(SPECIALS)
        or specials == list(range(len(SPECIALS)))
    ):
        return
    order = [*specials, *(i for i in range(len(words)) if i not in specials)]
    rows = torch.tensor(order)
    with torch.no_grad():
        for tensor in parts.head.parameters():
            tensor.copy_(tensor[rows])
    if parts.accumulators is not None:
        for name in ("head.weight", "head.bias"):
            parts.accumulators[name] = parts.accumulators[name][rows]
    parts.vocabulary = Vocabulary(words[i] for i in order)


def _find_newest(folder: Path) -> Path:
    """Return the prefix of the newest checkpoint in a directory, or of the only one."""
    name = _read_newest_name(folder / _NEWEST)
    if name is not None and (folder / (name + INDEX)).is_file():
        return folder / name
    files = sorted(entry.name for entry in folder.glob("*" + INDEX))
    if len(files) == 1:
        return folder / files[0].removesuffix(INDEX)
    if files:
        raise WeightsError(
            f"{folder} contains several checkpoints ({join_names(files)}), but no file '{_NEWEST}' "
            "that names one of them. Specify the path of a checkpoint."
        )
    raise WeightsError(
        f"No checkpoint {name or 'model.ckpt-N'}{INDEX} found in {folder}. Copy it from the "
        "directory where bilm-tf trained the model."
    )


def _read_newest_name(path: Path) -> str | None:
    """Return the name in a `checkpoint` file, without its directory, which may no longer exist."""
    if not path.is_file():
        return None
    text = read_bounded(path, WeightsError, max_bytes=1 << 20).decode("utf-8", "replace")
    match = re.search(r'^model_checkpoint_path:\s*"([^"\n]*)"', text, re.MULTILINE)
    return match[1].replace("\\", "/").rsplit("/", 1)[-1] or None if match else None
