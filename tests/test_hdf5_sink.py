"""h5py can write to a full disk."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from elmokit.hdf5_sink import Hdf5Sink


class SmallDisk(Hdf5Sink):
    limit = 0

    def write(self, data: memoryview) -> int:
        if self.tell() + len(data) > self.limit and self.error is None:
            self.error = OSError(28, "No space left on device")
        return super().write(data)


def write(path: Path) -> None:
    with SmallDisk(path) as sink, h5py.File(sink, "w") as file:
        for number in range(100):
            values = np.full(1000 * (number % 3), number, np.float32)
            file.create_dataset(str(number), data=values).attrs["name"] = f"dataset {number}"
            sink.check()


def test_hdf5_handles_a_full_disk_at_any_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.h5"
    monkeypatch.setattr(SmallDisk, "limit", 2**30)
    write(path)
    size = path.stat().st_size
    limits = np.random.default_rng(0).integers(0, size, size=40).tolist()
    for limit in [0, 1, 95, size - 1, *limits]:
        monkeypatch.setattr(SmallDisk, "limit", limit)
        with pytest.raises(OSError, match="No space left"):
            write(path)
    monkeypatch.setattr(SmallDisk, "limit", size)
    write(path)
    with h5py.File(path) as file:
        assert file["98"][0] == 98
