from __future__ import annotations

import pytest
import torch

from elmokit.errors import ElmoError
from elmokit.train.config import run_preset
from elmokit.train.step import explain_out_of_memory


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("out of memory"),
        MemoryError("Unable to allocate 9.54 GiB for an array"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
)
def test_out_of_memory_is_an_elmo_error(error: Exception) -> None:
    with (
        pytest.raises(ElmoError, match=r"32 rows.*step\.rows=16"),
        explain_out_of_memory(run_preset("toy").step),
    ):
        raise error


def test_other_errors_are_not_changed() -> None:
    with (
        pytest.raises(RuntimeError, match="size mismatch"),
        explain_out_of_memory(run_preset("toy").step),
    ):
        raise RuntimeError("size mismatch")
