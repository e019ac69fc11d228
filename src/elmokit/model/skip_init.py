"""Create modules without initializing their weights, which are loaded from a file afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_INITIALIZERS = {"uniform_", "normal_", "zero_", "fill_", "constant_", "kaiming_uniform_"}


@contextmanager
def skip_init() -> Iterator[None]:
    """Create modules in this context without allocating or initializing their weights.

    On the meta device, initializers would spend a second importing torch's compiler, so they are
    skipped.
    """
    with torch.device("meta"), _NoInit():
        yield


class _NoInit(TorchFunctionMode):
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in _INITIALIZERS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)
