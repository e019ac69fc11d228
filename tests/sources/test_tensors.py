"""Storage of tensors: float32, float16, int8 with scales, in one file or several."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from elmokit.errors import ConfigError, WeightsError
from elmokit.sources.tensors import Storage, part_path, read_shapes, read_tensors, write_tensors


@pytest.fixture
def tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "large": torch.randn(200, 130, generator=generator),
        "small": torch.randn(20, 13, generator=generator),
        "conv": torch.randn(60, 20, 20, generator=generator),
        "bias": torch.randn(300, generator=generator),
    }


def shapes(tensors: dict[str, torch.Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


@pytest.mark.parametrize(
    ("storage", "tolerance"), [("float32", 0.0), ("float16", 2e-3), ("int8", 2e-2)]
)
def test_round_trip_is_as_accurate_as_the_storage_type(
    storage: Storage, tolerance: float, tensors: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    write_tensors(tensors, path, storage=storage)
    assert read_shapes(path) == shapes(tensors)
    read = read_tensors(path, shapes(tensors))
    for name, tensor in tensors.items():
        assert read[name].dtype == torch.float32
        assert (read[name] - tensor).abs().max() <= tolerance
        if storage == "int8" and name != "large":
            assert torch.equal(read[name], tensor)  # only large matrices are quantized


def test_int8_takes_a_quarter_and_the_largest_value_per_row_is_exact(
    tensors: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    tensors["large"][3] *= 1e-3
    tensors["large"][4] = 0.0
    path = tmp_path / "model.safetensors"
    write_tensors({"large": tensors["large"]}, path, storage="int8")
    assert path.stat().st_size < 0.3 * 4 * tensors["large"].numel()
    read = read_tensors(path, {"large": (200, 130)})["large"]
    scale = tensors["large"].abs().amax(dim=1, keepdim=True)
    assert ((read - tensors["large"]).abs() <= scale / 127 * 0.5001).all()
    assert not read[4].any()
    # Storing the values again does not change them.
    write_tensors({"large": read}, tmp_path / "again.safetensors", storage="int8")
    again = read_tensors(tmp_path / "again.safetensors", {"large": (200, 130)})["large"]
    torch.testing.assert_close(again, read, rtol=1e-6, atol=0)


def test_several_files_are_read_as_one_and_a_missing_one_is_named(
    tensors: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    write_tensors(tensors, path, part_bytes=100_000)
    parts = sorted(p.name for p in tmp_path.iterdir())
    assert parts == ["model-2.safetensors", "model.safetensors"]
    for name, tensor in read_tensors(path, shapes(tensors)).items():
        assert torch.equal(tensor, tensors[name])
    part_path(path, 2).unlink()
    with pytest.raises(WeightsError, match=r"'conv' \[60, 20, 20\] is missing"):
        read_tensors(path, shapes(tensors))


def test_int8_without_its_scales_is_rejected(
    tensors: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    write_tensors({"large": tensors["large"]}, path, storage="int8")
    stored = load_file(path)
    expected = {"large": (200, 130)}
    save_file({"large": stored["large"]}, path)
    with pytest.raises(WeightsError, match=r"scales 'large\.scale' are missing"):
        read_tensors(path, expected)
    save_file({**stored, "large.scale": stored["large.scale"][:5].contiguous()}, path)
    with pytest.raises(WeightsError, match=r"'large.scale' is not F32 \[200\]"):
        read_tensors(path, expected)
    save_file({**stored, "large.scale": torch.full((200,), float("nan"))}, path)
    with pytest.raises(WeightsError, match="contains NaN"):
        read_tensors(path, expected)


def test_values_that_overflow_float16_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="range of float16"):
        write_tensors({"a": torch.tensor([1e6])}, tmp_path / "a.safetensors", storage="float16")
