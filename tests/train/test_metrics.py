from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from elmokit.errors import DataError
from elmokit.train.metrics import FILE, Metrics


def test_what_an_interrupted_run_wrote_too_much_is_taken_back(tmp_path: Path) -> None:
    first = Metrics(tmp_path, 0)
    for step in range(1, 6):
        first.write({"step": step, "tokens": step * 10, "loss": 1.0 / step})
    first.close()
    with (tmp_path / FILE).open("a") as file:
        file.write('{"step": 6, "tok')  # cut short by a kill
    again = Metrics(tmp_path, 3)
    again.write({"step": 4, "tokens": 40, "loss": 0.25})
    again.close()
    lines = [json.loads(line) for line in (tmp_path / FILE).read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4]


def test_a_pipe_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / FILE)
    with pytest.raises(DataError):
        Metrics(tmp_path, 3)


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    for target in (FILE, "nowhere/x", "other"):
        (tmp_path / FILE).unlink(missing_ok=True)
        (tmp_path / FILE).symlink_to(target)
        Metrics(tmp_path, 3).close()
        assert not (tmp_path / FILE).is_symlink()
    assert not (tmp_path / "other").exists()


def test_the_same_figures_go_to_tensorboard(tmp_path: Path) -> None:
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
