"""AllenNLP's layout of the weights, and how elmokit's modules compute with it.

    theirs (AllenNLP)                               ours (elmokit)
    LSTM gates in the order i, f, g, o              i, g, f, o
    forget bias stored with its +1                  the +1 is added at run time
    highway: one matrix [transform; -carry]         two matrices
    character table of 262 rows, the first zero     261 rows

Modules here own parameters in AllenNLP's layout, for compatible names, shapes, optimizers and
checkpoints. They compute with one of elmokit's modules, whose weights are made from these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, Self, TypeVar

import torch
from torch import Tensor, nn

from elmokit.model.blank import blank
from elmokit.model.lstm import FORGET_BIAS

OurModule = TypeVar("OurModule", bound=nn.Module)


class Translation(NamedTuple):
    """One of their parameters, and those of ours that it consists of.

    Attributes:
        theirs: Its name.
        ours: Their names.
        pack: From ours to theirs.
        unpack: From theirs to ours.
    """

    theirs: str
    ours: tuple[str, ...]
    pack: Callable[..., Tensor]
    unpack: Callable[[Tensor], tuple[Tensor, ...]]


class Mirror(nn.Module, Generic[OurModule]):
    """Parameters in AllenNLP's layout, and one of our modules that computes with them.

    A subclass defines the module (`_skeleton`) and the parameters (`_translations`).
    """

    def __init__(self) -> None:
        super().__init__()
        # In a tuple, because nn.Module would register it and its parameters.
        self._made: tuple[OurModule] | None = None
        self._made_from: list[object] = []

    def _skeleton(self) -> OurModule:
        """Return our module, without values."""
        raise NotImplementedError

    def _translations(self) -> Iterable[Translation]:
        """Return the translations of all parameters."""
        raise NotImplementedError

    def _copy_weights(self, ours: nn.Module, requires_grad: bool) -> None:
        """Copy the weights of one of our modules."""
        state = ours.state_dict()
        theirs = {t.theirs: t.pack(*(state[n] for n in t.ours)) for t in self._translations()}
        self.load_state_dict(theirs, assign=True)
        self.requires_grad_(requires_grad)

    def ours(self) -> OurModule:
        """Return our module with the current weights; gradients flow to their parameters."""
        theirs = [self._theirs(translation.theirs) for translation in self._translations()]
        if torch.is_grad_enabled() and any(parameter.requires_grad for parameter in theirs):
            return self._make(theirs)
        made_from = [_identity(parameter) for parameter in theirs]
        if self._made is None or self._made_from != made_from:
            # Outside of inference mode, because a later training step may use it.
            with torch.inference_mode(False), torch.no_grad():
                self._made = (self._make(theirs),)
            self._made_from = made_from
        return self._made[0]

    def _theirs(self, name: str) -> Tensor:
        """Return a parameter; in a replica of `DataParallel` it is a plain tensor."""
        path, _, leaf = name.rpartition(".")
        tensor: Tensor = getattr(self.get_submodule(path), leaf)
        return tensor

    def _make(self, theirs: Iterable[Tensor]) -> OurModule:
        with blank():
            module = self._skeleton()
        for translation, tensor in zip(self._translations(), theirs, strict=True):
            for name, value in zip(translation.ours, translation.unpack(tensor), strict=True):
                path, _, leaf = name.rpartition(".")
                owner = module.get_submodule(path)
                # A plain tensor instead of the parameter, because it may have a history.
                delattr(owner, leaf)
                setattr(owner, leaf, value)
        return module

    def _forget(self) -> None:
        self._made, self._made_from = None, []

    # `.to()`, `.half()`, ... call this method; `.eval()` and `.train()` call the next.
    def _apply(self, *args: Any, **kwargs: Any) -> Self:
        self._forget()
        super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]
        return self

    def train(self, mode: bool = True) -> Self:
        """Set the training mode; weights that were changed through `.data` are read again."""
        self._forget()
        return super().train(mode)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_made": None, "_made_from": []}


def _identity(tensor: Tensor) -> object:
    """Return a value that changes when the tensor is replaced or changed in place."""
    version = None if tensor.is_inference() else tensor._version
    return tensor.data_ptr(), tensor.device, tensor.dtype, version


def same(theirs: str, ours: str) -> Translation:
    """Translate a parameter that is the same in both layouts."""
    return Translation(theirs, (ours,), lambda a: a, lambda a: (a,))


def gates(theirs: str, ours: str) -> Translation:
    """Translate a weight matrix of the gates of an LSTM."""
    return Translation(theirs, (ours,), _swap_gates, lambda w: (_swap_gates(w),))


def gate_bias(theirs: str, ours: str) -> Translation:
    """Translate the bias of the gates of an LSTM."""

    def pack(bias: Tensor) -> Tensor:
        i, g, f, o = bias.chunk(4)
        return torch.cat([i, f + FORGET_BIAS, g, o])

    def unpack(bias: Tensor) -> tuple[Tensor]:
        i, f, g, o = bias.chunk(4)
        return (torch.cat([i, g, f - FORGET_BIAS, o]),)

    return Translation(theirs, (ours,), pack, unpack)


def highway(theirs: str, transform: str, carry: str) -> Translation:
    """Translate the matrix or bias of a highway layer; their gate has the opposite sign."""

    def unpack(both: Tensor) -> tuple[Tensor, Tensor]:
        t, c = both.chunk(2)
        return t, -c

    return Translation(theirs, (transform, carry), lambda t, c: torch.cat([t, -c]), unpack)


def characters(theirs: str, ours: str) -> Translation:
    """Translate the character embeddings; theirs have a row of zeros for padding."""
    return Translation(
        theirs,
        (ours,),
        lambda table: torch.cat([table.new_zeros(1, table.shape[1]), table]),
        lambda table: (table[1:],),
    )


def _swap_gates(weight: Tensor) -> Tensor:
    """Turn i, f, g, o (theirs) into i, g, f, o (ours), and back."""
    first, second, third, last = weight.chunk(4)
    return torch.cat([first, third, second, last])
