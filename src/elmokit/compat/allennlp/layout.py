"""Convert weights between the parameter layouts of AllenNLP and elmokit.

                         AllenNLP                                elmokit
LSTM gates               i, f, j, o                              i, j, f, o
forget gate bias         includes the constant 1                 1 is added at run time
highway layer            one matrix [transform; -carry]          two matrices
character embeddings     262 rows, the first of which is zero    261 rows
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from elmokit.model.lstm import FORGET_BIAS


class Layout(NamedTuple):
    """Conversions between one or more elmokit parameters and one AllenNLP parameter."""

    pack: Callable[..., Tensor]
    unpack: Callable[[Tensor], tuple[Tensor, ...]]


#: The name of each parameter in AllenNLP, its names in elmokit, and its layout.
ParameterLayout = Iterator[tuple[str, tuple[str, ...], Layout]]


class AllenNlpModule(nn.Module):
    """A module whose `state_dict` has AllenNLP's names and layout, built from elmokit modules."""

    def __init__(self) -> None:
        super().__init__()
        self.register_state_dict_post_hook(_save)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(_load)  # type: ignore[no-untyped-call]

    def parameter_layout(self) -> ParameterLayout:
        """Return the layout of all parameters, in AllenNLP's order."""
        raise NotImplementedError


def _save(module: nn.Module, state: dict[str, Any], prefix: str, _: object) -> None:
    assert isinstance(module, AllenNlpModule)
    for allennlp_name, names, layout in module.parameter_layout():
        state[prefix + allennlp_name] = layout.pack(*(state.pop(prefix + name) for name in names))


def _load(module: nn.Module, state: dict[str, Any], prefix: str, *_: object) -> None:
    assert isinstance(module, AllenNlpModule)
    for allennlp_name, names, layout in module.parameter_layout():
        if prefix + allennlp_name in state:  # otherwise, torch reports the missing parameter
            values = layout.unpack(state.pop(prefix + allennlp_name))
            state |= {prefix + name: value for name, value in zip(names, values, strict=True)}


def _swap_gates(weight: Tensor) -> Tensor:
    first, second, third, fourth = weight.chunk(4)
    return torch.cat([first, third, second, fourth])


def _pack_gate_bias(bias: Tensor) -> Tensor:
    i, j, f, o = bias.chunk(4)
    return torch.cat([i, f + FORGET_BIAS, j, o])


def _unpack_gate_bias(bias: Tensor) -> tuple[Tensor]:
    i, f, j, o = bias.chunk(4)
    return (torch.cat([i, j, f - FORGET_BIAS, o]),)


def _unpack_highway(value: Tensor) -> tuple[Tensor, Tensor]:
    transform, carry = value.chunk(2)
    return transform, -carry


SAME = Layout(lambda value: value, lambda value: (value,))
GATES = Layout(_swap_gates, lambda weight: (_swap_gates(weight),))
GATE_BIAS = Layout(_pack_gate_bias, _unpack_gate_bias)
#: The matrix or bias of a highway layer. AllenNLP's gate has the opposite sign.
HIGHWAY = Layout(lambda transform, carry: torch.cat([transform, -carry]), _unpack_highway)
#: The character embeddings. AllenNLP's have a row of zeros for padding.
CHARACTERS = Layout(
    lambda table: torch.cat([table.new_zeros(1, table.shape[1]), table]),
    lambda table: (table[1:],),
)
