"""AllenNLP's weight layout, which the modules in this package use to save and load their weights.

AllenNLP                                        elmokit
LSTM gates in the order i, f, g, o              i, g, f, o
forget bias stored with its +1                  the +1 is added at run time
highway: one matrix [transform; -carry]         two matrices
character table of 262 rows, the first zero     261 rows
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from elmokit.model.lstm import FORGET_BIAS


class Layout(NamedTuple):
    """Conversion between parameters of elmokit and the single parameter stored by AllenNLP."""

    pack: Callable[..., Tensor]
    unpack: Callable[[Tensor], tuple[Tensor, ...]]


#: For each parameter: its name in AllenNLP, its names in elmokit, and the layout.
ParameterLayout = Iterator[tuple[str, tuple[str, ...], Layout]]


class AllenNlpModule(nn.Module):
    """A module built from elmokit modules whose `state_dict` has AllenNLP's names and layout."""

    def __init__(self) -> None:
        super().__init__()
        self.register_state_dict_post_hook(_save)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(_load)  # type: ignore[no-untyped-call]

    def parameter_layout(self) -> ParameterLayout:
        """Return the layout of all parameters, in AllenNLP's order."""
        raise NotImplementedError


def _save(module: nn.Module, state: dict[str, Any], prefix: str, _: object) -> None:
    assert isinstance(module, AllenNlpModule)
    for theirs, ours, layout in module.parameter_layout():
        state[prefix + theirs] = layout.pack(*(state.pop(prefix + name) for name in ours))


def _load(module: nn.Module, state: dict[str, Any], prefix: str, *_: object) -> None:
    assert isinstance(module, AllenNlpModule)
    for theirs, ours, layout in module.parameter_layout():
        if prefix + theirs in state:  # otherwise torch reports what is missing
            values = layout.unpack(state.pop(prefix + theirs))
            state |= {prefix + name: value for name, value in zip(ours, values, strict=True)}


def _swap_gates(weight: Tensor) -> Tensor:
    first, second, third, last = weight.chunk(4)
    return torch.cat([first, third, second, last])


def _pack_gate_bias(bias: Tensor) -> Tensor:
    i, g, f, o = bias.chunk(4)
    return torch.cat([i, f + FORGET_BIAS, g, o])


def _unpack_gate_bias(bias: Tensor) -> tuple[Tensor]:
    i, f, g, o = bias.chunk(4)
    return (torch.cat([i, g, f - FORGET_BIAS, o]),)


def _unpack_highway(both: Tensor) -> tuple[Tensor, Tensor]:
    transform, carry = both.chunk(2)
    return transform, -carry


SAME = Layout(lambda value: value, lambda value: (value,))
GATES = Layout(_swap_gates, lambda weight: (_swap_gates(weight),))
GATE_BIAS = Layout(_pack_gate_bias, _unpack_gate_bias)
#: The matrix or bias of a highway layer: AllenNLP's gate has the opposite sign.
HIGHWAY = Layout(lambda transform, carry: torch.cat([transform, -carry]), _unpack_highway)
#: The character embeddings: AllenNLP's have a row of zeros for padding.
CHARACTERS = Layout(
    lambda table: torch.cat([table.new_zeros(1, table.shape[1]), table]),
    lambda table: (table[1:],),
)
