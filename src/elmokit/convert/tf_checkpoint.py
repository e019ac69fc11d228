"""Checkpoints of bilm-tf: the biLM, its LM head and the accumulators of Adagrad.

The variables are those of the HDF5 files (`bilm_hdf5.py`) with the names of TensorFlow's training
graph. In addition, there are the softmax and, for each variable, its Adagrad accumulator (the sum
of squared gradients), `<variable>/Adagrad`.

    HDF5        RNN_0/RNN/MultiRNNCell/Cell1/LSTMCell/W_0           W_P_0               B
    checkpoint  lm/RNN_0/rnn/multi_rnn_cell/cell_1/lstm_cell/kernel projection/kernel   bias
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from elmokit.config import BiLMConfig
from elmokit.convert import bilm_hdf5
from elmokit.convert.tf_bundle import INDEX, StoredTensor, read_index
from elmokit.convert.weights import Entry, build_module, read_parameters, same
from elmokit.errors import ConfigError, shortened, warn
from elmokit.model.bilm import BiLM
from elmokit.model.softmax import LMHead

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


@dataclass(frozen=True)
class Checkpoint:
    """The contents of a checkpoint.

    Attributes:
        bilm: The network.
        head: The LM head, if the checkpoint contains it.
        accumulators: Adagrad's sums of squared gradients by parameter name, with the prefix `bilm.`
            or `head.`, if the checkpoint contains all of them.
        step: The number of training steps.
        files: The files of the checkpoint.
    """

    bilm: BiLM
    head: LMHead | None
    accumulators: dict[str, Tensor] | None
    step: int | None
    files: tuple[Path, ...]


def read(options: Path, prefix: Path) -> Checkpoint:
    """Read a checkpoint.

    Args:
        options: The `options.json` of the training run.
        prefix: The path of the checkpoint without `.index`.

    Raises:
        ConfigError: The options do not describe a biLM.
        WeightsError: The checkpoint is damaged, or does not match the options.
    """
    tensors = read_index(prefix)
    config = bilm_hdf5.read_options(options)
    if not any(name.startswith("lm/RNN_1/") for name in tensors):
        raise ConfigError(
            f"{prefix} contains no backward language model (variables lm/RNN_1/...): it was "
            "trained with 'bidirectional' false, or is not a checkpoint of bilm-tf. It contains "
            f"{shortened(tensors)}."
        )
    entries = list(_entries(tensors, config))
    parameters = read_parameters(entries, tensors.get, tensors, prefix)
    slots = [dataclasses.replace(entry, name=entry.name + _SLOT) for entry in entries]
    missing = [slot.name for slot in slots if slot.name not in tensors]
    accumulators = None
    if not missing:
        accumulators = read_parameters(slots, tensors.get, tensors, prefix)
    elif len(missing) < len(slots):
        warn(
            f"{prefix} lacks the Adagrad accumulators {shortened(missing)}. All accumulators are "
            "ignored; further training starts with new ones."
        )
    used = _UNUSED.union(entry.name for entry in (*entries, *slots))
    if unused := sorted(tensors.keys() - used):
        warn(f"Ignoring unknown variables in {prefix}: {shortened(unused)}.")
    step = int(np.asarray(tensors[_STEP]).sum()) if _STEP in tensors else None
    shards = {tensor.shard for tensor in tensors.values()}
    of_head = _with_prefix(parameters, "head.")
    return Checkpoint(
        build_module(lambda: BiLM(config), _with_prefix(parameters, "bilm.")),
        build_module(lambda: LMHead(*of_head["weight"].shape), of_head) if of_head else None,
        accumulators,
        step,
        (options, prefix.with_name(prefix.name + INDEX), *sorted(shards)),
    )


def _entries(tensors: Mapping[str, StoredTensor], config: BiLMConfig) -> Iterator[Entry]:
    """Yield the variables of a checkpoint and the parameters that they contain."""
    for entry in bilm_hdf5.entries(config):
        name = f"lm/{entry.name}"
        for old, new in _RENAMED:
            name = name.replace(old, new)
        # The name is shorter in a model with a single layer.
        short = name.replace("/multi_rnn_cell/cell_0", "")
        if name not in tensors and short in tensors:
            name = short
        parameters = tuple(f"bilm.{parameter}" for parameter in entry.parameters)
        yield dataclasses.replace(entry, name=name, parameters=parameters)
    if (bias := tensors.get(_SOFTMAX_BIAS)) is not None:
        size = bias.shape[0] if len(bias.shape) == 1 else 0
        # With `share_embedding_softmax`, the embeddings of a word-input model are the weight.
        weight = _SOFTMAX_WEIGHT if _SOFTMAX_WEIGHT in tensors else "lm/embedding"
        yield same(weight, (size, config.lstm.projection_dim), "head.weight")
        yield same(_SOFTMAX_BIAS, (size,), "head.bias")


def _with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
