from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from elmokit.errors import DataError
from elmokit.train.metrics import FILE, Metrics


def test_records_after_the_last_checkpoint_are_removed_on_resume(tmp_path: Path) -> None:
    first = Metrics(tmp_path, 0)
    for step in range(1, 6):
        first.write({"step": step, "tokens": step * 10, "loss": 1.0 / step})
    first.close()
    with (tmp_path / FILE).open("a") as file:
        file.write('{"step": 6, "tok')  # truncated by a kill
    again = Metrics(tmp_path, 3)
    again.write({"step": 4, "tokens": 40, "loss": 0.25})
    again.close()
    lines = [json.loads(line) for line in (tmp_path / FILE).read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4]


def test_named_pipe_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / FILE)
    with pytest.raises(DataError):
        Metrics(tmp_path, 3)


def test_symbolic_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    for target in (FILE, "nowhere/x", "other"):
        (tmp_path / FILE).unlink(missing_ok=True)
        (tmp_path / FILE).symlink_to(target)
        Metrics(tmp_path, 3).close()
        assert not (tmp_path / FILE).is_symlink()
    assert not (tmp_path / "other").exists()


def test_tensorboard_gets_the_same_values(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="elmokit[log] is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    metrics = Metrics(tmp_path, 0, tensorboard=True)
    for step in (1, 2, 3):
        metrics.write({"step": step, "tokens": step * 10, "loss": 1.0 / step, "note": "text"})
    metrics.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, round(e.value, 4)) for e in events.Scalars("loss")] == [
        (1, 1.0),
        (2, 0.5),
        (3, 0.3333),
    ]
    assert "note" not in events.Tags()["scalars"]
