"""Checkpoints of bilm-tf's training: the biLM, its LM head and the accumulators of Adagrad.

The variables are those of the HDF5 files (`bilm_hdf5.py`) with the names of TensorFlow's training
graph, and also: the softmax, and for each variable its Adagrad accumulator, the sum of squared
gradients, as `<variable>/Adagrad`.

    HDF5      RNN_0/RNN/MultiRNNCell/Cell1/LSTMCell/W_0           W_P_0               B
    trained   lm/RNN_0/rnn/multi_rnn_cell/cell_1/lstm_cell/kernel projection/kernel   bias
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from elmokit.config import BiLMConfig
from elmokit.convert import bilm_hdf5
from elmokit.convert.bilm_hdf5 import Entry
from elmokit.convert.tf_bundle import Bundle
from elmokit.convert.weights import as_float32, check_shape, make_bilm
from elmokit.errors import ConfigError, WeightsError, warn
from elmokit.model.bilm import BiLM
from elmokit.model.blank import blank
from elmokit.model.softmax import LMHead

_SLOT = "/Adagrad"
_SOFTMAX_WEIGHT = "lm/softmax/W"
_SOFTMAX_BIAS = "lm/softmax/b"
_STEP = "global_step"
#: Variables of the training that are not part of the model.
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
        accumulators: Adagrad's sums of squared gradients by the names of our parameters, with the
            prefix `bilm.` or `head.`, if the checkpoint contains all of them.
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
        options: The `options.json` of the training.
        prefix: The path of the checkpoint without `.index`.

    Raises:
        ConfigError: The options do not describe a biLM.
        WeightsError: The checkpoint is damaged, or not one of such a model.
    """
    bundle = Bundle(prefix)
    config = bilm_hdf5.read_options(options)
    if not any(name.startswith("lm/RNN_1/") for name in bundle.entries):
        raise ConfigError(
            f"{prefix} contains no backward language model (variables lm/RNN_1/...): it was "
            "trained with 'bidirectional' false, or is not a checkpoint of bilm-tf. It contains "
            f"{_listed(bundle.entries)}."
        )
    variables = _variables(bundle, config)
    state = _read(bundle, variables)
    accumulators = _read_accumulators(bundle, variables)
    used = {name + slot for name, _ in variables for slot in ("", _SLOT)} | _UNUSED
    if unused := sorted(bundle.entries.keys() - used):
        warn(f"Ignoring unknown variables in {prefix}: {_listed(unused)}.")
    step = int(bundle.read(_STEP).sum()) if _STEP in bundle.entries else None
    return Checkpoint(
        make_bilm(config, _with_prefix(state, "bilm.")),
        _make_head(_with_prefix(state, "head.")),
        accumulators,
        step,
        (options, *bundle.files),
    )


def _variables(bundle: Bundle, config: BiLMConfig) -> list[tuple[str, Entry]]:
    """Return the variables of a checkpoint with the parameters that they contain."""
    variables = []
    for entry in bilm_hdf5.entries(config):
        names = tuple(f"bilm.{name}" for name in entry.names)
        variables.append((_name(bundle, entry), dataclasses.replace(entry, names=names)))
    bias = bundle.entries.get(_SOFTMAX_BIAS)
    if bias is not None:
        size = bias.shape[0] if len(bias.shape) == 1 else 0
        # With `share_embedding_softmax`, the embeddings of a word-input model are the weight.
        weight = _SOFTMAX_WEIGHT if _SOFTMAX_WEIGHT in bundle.entries else "lm/embedding"
        shape = (size, config.lstm.projection_dim)
        variables += [
            (weight, bilm_hdf5.same(weight, shape, "head.weight")),
            (_SOFTMAX_BIAS, bilm_hdf5.same(_SOFTMAX_BIAS, (size,), "head.bias")),
        ]
    return variables


def _name(bundle: Bundle, entry: Entry) -> str:
    """Return the name of a variable, which is shorter in a model with a single layer."""
    name = f"lm/{entry.dataset}"
    for theirs, trained in _RENAMED:
        name = name.replace(theirs, trained)
    short = name.replace("/multi_rnn_cell/cell_0", "")
    return short if name not in bundle.entries and short in bundle.entries else name


def _read(
    bundle: Bundle, variables: Iterable[tuple[str, Entry]], slot: str = ""
) -> dict[str, Tensor]:
    """Read the parameters in some variables, or their slots of the optimizer."""
    tensors: dict[str, Tensor] = {}
    for name, entry in variables:
        stored = bundle.entries.get(name + slot)
        if stored is None:
            raise WeightsError(
                f"{bundle.prefix} has no variable '{name}' {list(entry.shape)}, which its options "
                f"require. It contains {_listed(bundle.entries)}."
            )
        what = f"Variable '{name}{slot}' of {bundle.prefix}"
        check_shape(what, stored.shape, entry.shape)
        tensors |= entry.tensors(as_float32(what, bundle.read(name + slot)))
    return tensors


def _read_accumulators(
    bundle: Bundle, variables: list[tuple[str, Entry]]
) -> dict[str, Tensor] | None:
    """Read Adagrad's sums, if there is one for every parameter."""
    missing = [name for name, _ in variables if name + _SLOT not in bundle.entries]
    if not missing:
        return _read(bundle, variables, _SLOT)
    if any(name.endswith(_SLOT) for name in bundle.entries):
        warn(
            f"{bundle.prefix} lacks the Adagrad accumulators of {_listed(missing)}. All "
            "accumulators are ignored; a training that continues starts with new ones."
        )
    return None


def _make_head(state: dict[str, Tensor]) -> LMHead | None:
    if not state:
        return None
    with blank():
        head = LMHead(*state["weight"].shape)
    head.load_state_dict(state, assign=True)
    return head.eval()


def _with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


def _listed(names: Iterable[str]) -> str:
    names = sorted(names)
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
