"""AllenNLP's layout of the biLM's weights, and how our modules compute with it.

    theirs                                          ours
    LSTM gates in the order i, f, g, o              i, g, f, o
    forget bias stored with its +1                  the +1 is added at run time
    highway: one matrix [transform; -carry]         two matrices
    character table of 262 rows, the first zero     261 rows

A module here owns parameters in their layout, so that names, shapes, optimisers and checkpoints
are theirs, and has the arithmetic done by one of our modules that is fed from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, Self, TypeVar

import torch
from torch import Tensor, nn

from elmokit.model.blank import blank
from elmokit.model.lstm import FORGET_BIAS

OurModule = TypeVar("OurModule", bound=nn.Module)

# The name of one of our parameters, the parameter of theirs it is made of, and how.
Translation = tuple[str, Tensor, Callable[[Tensor], Tensor]]


class Mirror(nn.Module, Generic[OurModule]):
    """Parameters in AllenNLP's layout, computed with by a module of ours.

    A subclass says what module (`_skeleton`) and where its tensors come from (`_translations`).
    """

    def __init__(self) -> None:
        super().__init__()
        # In a tuple, or nn.Module would register it and its tensors would be parameters too.
        self._made: tuple[OurModule] | None = None
        self._made_from: list[object] = []

    def _skeleton(self) -> OurModule:
        """Make our module, without values."""
        raise NotImplementedError

    def _translations(self) -> Iterable[Translation]:
        """Say what each of its parameters is made of."""
        raise NotImplementedError

    def ours(self) -> OurModule:
        """Return our module with the present weights; gradients flow through it to theirs."""
        translations = list(self._translations())
        if torch.is_grad_enabled() and any(t.requires_grad for _, t, _ in translations):
            return self._make(translations)
        made_from = [_identity(theirs) for _, theirs, _ in translations]
        if self._made is None or self._made_from != made_from:
            # Outside of inference mode: what is kept may take part in a later training step.
            with torch.inference_mode(False), torch.no_grad():
                self._made = (self._make(translations),)
            self._made_from = made_from
        return self._made[0]

    def _make(self, translations: Iterable[Translation]) -> OurModule:
        with blank():
            module = self._skeleton()
        for name, theirs, translate in translations:
            path, _, leaf = name.rpartition(".")
            owner = module.get_submodule(path)
            # A plain tensor in the place of the parameter, because it may have a history.
            delattr(owner, leaf)
            setattr(owner, leaf, translate(theirs))
        return module

    def _forget(self) -> None:
        self._made, self._made_from = None, []

    # `.to()`, `.half()`, ... end here, and `.eval()` and `.train()` in the next.
    def _apply(self, *args: Any, **kwargs: Any) -> Self:
        self._forget()
        super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]
        return self

    def train(self, mode: bool = True) -> Self:
        """Set training mode; weights changed behind our back are read anew."""
        self._forget()
        return super().train(mode)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_made": None, "_made_from": []}


def _identity(tensor: Tensor) -> object:
    """Return something that changes when the tensor is replaced or changed in place."""
    version = None if tensor.is_inference() else tensor._version
    return tensor.data_ptr(), tensor.device, tensor.dtype, version


def same(weight: Tensor) -> Tensor:
    """Leave a tensor as it is."""
    return weight


def swap_gates(weight: Tensor) -> Tensor:
    """Turn i, f, g, o (theirs) into i, g, f, o (ours), and back."""
    first, second, third, last = weight.chunk(4)
    return torch.cat([first, third, second, last])


def our_bias(bias: Tensor) -> Tensor:
    """Turn their bias of the gates into ours."""
    i, f, g, o = bias.chunk(4)
    return torch.cat([i, g, f - FORGET_BIAS, o])


def their_bias(bias: Tensor) -> Tensor:
    """Turn our bias of the gates into theirs."""
    i, g, f, o = bias.chunk(4)
    return torch.cat([i, f + FORGET_BIAS, g, o])


def our_transform(weight: Tensor) -> Tensor:
    """Take the transform out of a highway's matrix or bias."""
    return weight.chunk(2)[0]


def our_carry(weight: Tensor) -> Tensor:
    """Take the gate out of a highway's matrix or bias; theirs opens where ours closes."""
    return -weight.chunk(2)[1]


def their_highway(transform: Tensor, carry: Tensor) -> Tensor:
    """Put a highway's matrix or bias together."""
    return torch.cat([transform, -carry])


def our_characters(table: Tensor) -> Tensor:
    """Leave out the row of the padding position, which is zero."""
    return table[1:]


def their_characters(table: Tensor) -> Tensor:
    """Add the row of the padding position."""
    return torch.cat([table.new_zeros(1, table.shape[1]), table])
