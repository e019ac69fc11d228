"""Modules without values, to be filled from a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_FILLS = frozenset(("uniform_", "normal_", "zero_", "fill_", "constant_", "kaiming_uniform_"))


@contextmanager
def blank() -> Iterator[None]:
    """Create modules in this block without memory and initial values.

    The meta device alone would suffice, but the first random fill on it makes torch import its
    compiler, which takes a second.
    """
    with torch.device("meta"), _NoFill():
        yield


class _NoFill(TorchFunctionMode):
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in _FILLS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)
