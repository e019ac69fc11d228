"""Checkpoints of bilm-tf's training: the biLM, its LM head and the accumulators of Adagrad.

The variables are those of the HDF5 files (`bilm_hdf5.py`) under the names that TensorFlow gave
them while it trained, and more: the softmax, and for each variable its Adagrad accumulator, the sum
of squared gradients, under `<variable>/Adagrad`.

    HDF5      RNN_0/RNN/MultiRNNCell/Cell1/LSTMCell/W_0           W_P_0               B
    trained   lm/RNN_0/rnn/multi_rnn_cell/cell_1/lstm_cell/kernel projection/kernel   bias
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from elmokit.config import BiLMConfig
from elmokit.convert import bilm_hdf5
from elmokit.convert.bilm_hdf5 import Array, Entry
from elmokit.convert.checks import as_float32, check_shape
from elmokit.convert.tf_bundle import Bundle
from elmokit.errors import ConfigError, ElmoWarning, WeightsError
from elmokit.model.bilm import BiLM
from elmokit.model.blank import blank
from elmokit.model.softmax import LMHead

_SLOT = "/Adagrad"
_SOFTMAX = {"weight": "lm/softmax/W", "bias": "lm/softmax/b"}
_STEP = "global_step"
#: Variables of the training that say nothing of the model.
_UNUSED = frozenset((_STEP, "train_perplexity"))
_RENAMED = (
    ("/RNN/", "/rnn/"),
    ("/MultiRNNCell/Cell", "/multi_rnn_cell/cell_"),
    ("/LSTMCell/", "/lstm_cell/"),
    ("/W_P_0", "/projection/kernel"),
    ("/W_0", "/kernel"),
    ("/B", "/bias"),
)
_SHOWN = 5


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds.

    Attributes:
        bilm: The network.
        head: The LM head, if it is there.
        accumulators: Adagrad's sums of squared gradients by the names of our parameters
            (`bilm.` and `head.` before them), if all of them are there.
        step: Steps of the training so far.
        files: What was read.
    """

    bilm: BiLM
    head: LMHead | None
    accumulators: dict[str, Tensor] | None
    step: int | None
    files: tuple[Path, ...]


def read(options: Path, prefix: Path) -> Checkpoint:
    """Read a checkpoint.

    Args:
        options: The `options.json` of the training.
        prefix: The path of the checkpoint without `.index`.

    Raises:
        ConfigError: The options do not describe a biLM.
        WeightsError: The checkpoint is damaged, or not one of such a model.
    """
    variables = _Variables(Bundle(prefix))
    config = bilm_hdf5.read_options(options)
    if not any(name.startswith("lm/RNN_1/") for name in variables.names):
        raise ConfigError(
            f"{prefix} holds no backward language model (variables lm/RNN_1/...): it was trained "
            "with 'bidirectional' false, or is not of bilm-tf. A biLM has both directions. "
            f"{variables.listing()}"
        )
    bilm = _read_bilm(variables, config)
    head = _read_head(variables, config)
    accumulators = _read_accumulators(variables, config, head)
    step = int(variables.bundle.read(_STEP).item()) if _STEP in variables.names else None
    if left := sorted(variables.names - variables.used - _UNUSED):
        _warn(f"{prefix} holds variables that are not used: {_listed(left)}.")
    return Checkpoint(bilm, head, accumulators, step, (options, *variables.bundle.files))


class _Variables:
    """The variables of a checkpoint, with a note of those that were read."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.names = frozenset(bundle.entries)
        self.used: set[str] = set()

    def read(self, names: Iterable[str], shape: tuple[int, ...]) -> Array:
        """Read the variable that has one of some names."""
        names = list(names)
        name = next((n for n in names if n in self.names), None)
        prefix = self.bundle.prefix
        if name is None:
            raise WeightsError(
                f"{prefix} has no variable '{names[0]}' {list(shape)}, which its options call for. "
                f"{self.listing()}"
            )
        what = f"Variable '{name}' of {prefix}"
        check_shape(what, self.bundle.entries[name].shape, shape)
        self.used.add(name)
        return as_float32(what, self.bundle.read(name))

    def listing(self) -> str:
        return f"It holds: {_listed(sorted(self.names))}."


def _read_bilm(variables: _Variables, config: BiLMConfig) -> BiLM:
    state: dict[str, Tensor] = {}
    for entry in bilm_hdf5.entries(config):
        value = variables.read(_names(entry), entry.shape)
        state |= dict(_parameters(entry, value))
    with blank():
        bilm = BiLM(config)
    bilm.load_state_dict(state, assign=True)
    return bilm.eval()


def _read_head(variables: _Variables, config: BiLMConfig) -> LMHead | None:
    bias = variables.bundle.entries.get(_SOFTMAX["bias"])
    if bias is None:
        return None
    size = bias.shape[0] if len(bias.shape) == 1 else 0
    d = config.lstm.projection_dim
    state = {
        "weight": torch.from_numpy(variables.read(_softmax_weight(variables), (size, d))),
        "bias": torch.from_numpy(variables.read([_SOFTMAX["bias"]], (size,))),
    }
    with blank():
        head = LMHead(size, d)
    head.load_state_dict(state, assign=True)
    return head.eval()


def _read_accumulators(
    variables: _Variables, config: BiLMConfig, head: LMHead | None
) -> dict[str, Tensor] | None:
    """Read Adagrad's sums, if there is one for every parameter."""
    if not any(name.endswith(_SLOT) for name in variables.names):
        return None
    wanted = [(_names(entry), entry) for entry in bilm_hdf5.entries(config)]
    heads = {"weight": _softmax_weight(variables), "bias": [_SOFTMAX["bias"]]}
    needed = [names for names, _ in wanted] + ([] if head is None else list(heads.values()))
    there = variables.names
    missing = [names[0] for names in needed if not any(name + _SLOT in there for name in names)]
    if missing:
        _warn(
            f"{variables.bundle.prefix} lacks the accumulators of {_listed(missing)}: none are "
            "taken, and a training that goes on starts them anew."
        )
        variables.used |= {name for name in variables.names if name.endswith(_SLOT)}
        return None
    found: dict[str, Tensor] = {}
    for names, entry in wanted:
        value = variables.read((name + _SLOT for name in names), entry.shape)
        found |= {f"bilm.{name}": tensor for name, tensor in _parameters(entry, value)}
    if head is not None:
        for name, tensor in head.state_dict().items():
            value = variables.read([n + _SLOT for n in heads[name]], tuple(tensor.shape))
            found[f"head.{name}"] = torch.from_numpy(value)
    return found


def _softmax_weight(variables: _Variables) -> list[str]:
    # `share_embedding_softmax` takes the embeddings of a word-input model for it.
    return [_SOFTMAX["weight"] if _SOFTMAX["weight"] in variables.names else "lm/embedding"]


def _names(entry: Entry) -> list[str]:
    """Return the names a variable may have."""
    name = f"lm/{entry.dataset}"
    for theirs, trained in _RENAMED:
        name = name.replace(theirs, trained)
    return [name, name.replace("/multi_rnn_cell/cell_0", "")]  # the latter with a single layer


def _parameters(entry: Entry, value: Array) -> Iterator[tuple[str, Tensor]]:
    for name, part in zip(entry.names, entry.unpack(value), strict=True):
        yield name, torch.from_numpy(np.ascontiguousarray(part))


def _listed(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _warn(text: str) -> None:
    warnings.warn(text, ElmoWarning, stacklevel=4)
