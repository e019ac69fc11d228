from __future__ import annotations

import stat
from pathlib import Path

import numpy as np
import pytest
import torch

from elmokit.errors import DataError, WeightsError
from elmokit.storage.tensors import open_tensors, save_tensors


def test_written_file_can_be_read_with_torch_and_numpy(tmp_path: Path) -> None:
    tensors = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(0)}
    save_tensors(tensors, path := tmp_path / "a.safetensors")
    with open_tensors(path, "pt") as file:
        assert torch.equal(file.get_tensor("a"), tensors["a"])
    with open_tensors(path) as file:
        np.testing.assert_array_equal(file.get_tensor("a"), tensors["a"].numpy())
        assert sorted(file.keys()) == ["a", "b"]
    (tmp_path / "other").touch()
    assert stat.filemode(path.stat().st_mode) == stat.filemode((tmp_path / "other").stat().st_mode)


@pytest.mark.parametrize("framework", ["np", "pt"])
@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", "cannot be read as safetensors"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"\x89HDF\r\n", "HDF5"),
        (b"PK\x03\x04", "pickle"),
        (b"\xff" * 64, "cannot be read as safetensors"),
    ],
)
def test_other_file_types_are_identified(
    tmp_path: Path, content: bytes, named: str, framework: str
) -> None:
    (path := tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(WeightsError, match=named):
        open_tensors(path, framework, error=WeightsError)


def test_error_for_a_truncated_file_says_what_to_do(tmp_path: Path) -> None:
    save_tensors({"a": torch.ones(100)}, path := tmp_path / "a.safetensors")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"Delete it\.$"):
        open_tensors(path, hint="Delete it.")
    with pytest.raises(DataError, match=r"none does not exist"):
        open_tensors(tmp_path / "none")
