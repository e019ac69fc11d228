"""The comparison with other systems runs, and the pages show its results."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

PEERS = Path(__file__).resolve().parents[2] / "benchmarks" / "peers"
RESULTS = PEERS.parents[1] / "results" / "embed-speed.json"


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Import the modules of benchmarks/peers by name, as `python benchmarks/peers/run.py` does."""
    names = ("run", "plan", "table", "environments", "protocol", "child")
    monkeypatch.syspath_prepend(str(PEERS))
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)

    def module(name: str) -> ModuleType:
        return __import__(name)

    yield module
    for name in names:
        sys.modules.pop(name, None)


@pytest.mark.slow
def test_run_without_the_peers_writes_its_table(
    peers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = peers("run")
    monkeypatch.setattr(run, "PRECISIONS", ("exact",))
    out = tmp_path / "speed.json"
    arguments = ["--models", "toy", "--batch", "1,4", "--rounds", "2", "--tokens", "100"]
    arguments += ["--threads", "1", "--without", "allennlp", "simple_elmo", "--out", str(out)]
    assert run.main(arguments) == 0
    results = json.loads(out.read_text())
    rows = {row["row"]: row for row in results["models"]["toy"]["rows"]}
    assert set(rows) == {"ours-exact", "ours-exact-sorted"}
    for row in rows.values():
        assert set(row["tokens_per_second"]) == {"1", "4"}
    assert set(results["missing"]) == {"allennlp", "simple_elmo"}
    assert str(tmp_path) not in out.read_text()
    assert "| **elmokit** |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("page", "short"), [("README.md", ["--short"]), ("docs/explanation/speed.md", [])]
)
def test_pages_show_the_measured_figures(peers: Any, page: str, short: list[str]) -> None:
    path = PEERS.parents[1] / page
    if not RESULTS.is_file() or not path.is_file():
        pytest.skip("a source package has no results")
    assert peers("table").main([*short, "--check", str(path)]) == 0


def test_crash_of_a_measurement_is_explained(peers: Any) -> None:
    child = peers("child")
    program = [sys.executable, "-c", "import sys; sys.exit('out of luck')"]
    with child.Child(program) as process, pytest.raises(child.ChildError, match="luck"):
        process.ask("load")


def test_hanging_measurement_is_stopped(peers: Any) -> None:
    child = peers("child")
    program = [sys.executable, "-c", "import time; time.sleep(60)"]
    with (
        child.Child(program, limit=0.2) as process,
        pytest.raises(child.ChildError, match="did not respond to 'load'"),
    ):
        process.ask("load")


def test_vectors_are_compared_layer_by_layer(peers: Any) -> None:
    truth = np.random.default_rng(0).normal(size=(3, 5, 8)).astype(np.float32)
    other = truth.copy()
    other[1, 2] *= -1
    compared = peers("run").compare(other, truth)
    assert compared["cosine_worst"] == [1, -1, 1]
    assert compared["cosine_mean"] == [1, pytest.approx(0.6), 1]
