"""The benchmark of `elmo embed`, from text to disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from elmokit.bulk import bench
from elmokit.cli.bench import app
from tests.bulk.test_kill import write_text


def test_each_output_is_measured_and_removed(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "_DISK_BLOCKS", 1)
    text, disk = write_text(tmp_path / "text.txt", 60), tmp_path / "disk"
    disk.mkdir()
    arguments = ["pipeline", str(text), str(disk), "--model", str(model)]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert [row["output"] for row in report["outputs"]] == list(bench.OUTPUTS)
    tokens = sum(len(line.split()) for line in text.read_text("utf-8").splitlines())
    for row in report["outputs"]:
        assert row["tokens"] >= tokens
        assert row["tokens_per_second"] == pytest.approx(row["tokens"] / row["seconds"], rel=0.1)
        assert row["bottleneck"] in row["stages"]
    assert report["disk_mb_per_second"] > 0
    assert not any(disk.iterdir())
