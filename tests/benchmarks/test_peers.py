"""The comparison with other systems, as far as it goes without them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from elmokit.embed.bench.child import Child, ChildError

PEERS = Path(__file__).resolve().parents[2] / "benchmarks" / "peers"
RESULTS = PEERS.parents[1] / "results" / "embed-speed.json"


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The modules of benchmarks/peers, by name, as `python benchmarks/peers/run.py` finds them."""
    names = ("run", "plan", "table", "environments", "protocol")
    monkeypatch.syspath_prepend(str(PEERS))
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)

    def module(name: str) -> ModuleType:
        return __import__(name)

    yield module
    for name in names:
        sys.modules.pop(name, None)


# ------------------------------------------------------------------------------------- the plan


def sentences(n: int) -> list[list[str]]:
    return [[f"w{i}"] * (1 + i * 7 % 13) for i in range(n)]


def test_every_round_has_new_text_and_sorting_keeps_the_pool(peers: Any) -> None:
    plan = peers("plan").make_plan(sentences(400), [1, 8], rounds=3, tokens=50, n_check=4)
    seen = [row[0] for piece in plan.pieces.values() for row in piece]
    seen += [row[0] for row in plan.filling] + [row[0] for row in plan.further]
    assert len(seen) == len(set(seen))
    for batch in (1, 8):
        natural = sorted(row[0] for r in range(3) for row in plan.pieces[batch, r])
        ranked = sorted(row[0] for r in range(3) for row in plan.ranked[batch, r])
        assert natural == ranked
    short, long = plan.ranked[8, 0][:8], plan.ranked[8, 0][8:]
    assert max(map(len, short)) <= min(map(len, long))
    words = set(plan.vocabulary())
    assert {row[0] for piece in plan.pieces.values() for row in piece} <= words


def test_a_text_that_is_too_short_is_said(peers: Any) -> None:
    with pytest.raises(ValueError, match="too short"):
        peers("plan").make_plan(sentences(20), [8], rounds=3, tokens=10)


# --------------------------------------------------------------------------------- the protocol

WORKER = """
import protocol

def load(options, weights, threads, vocabulary=None):
    print("chatter that must not be taken for an answer")
    return {"load_s": 0.5, "versions": {}}

protocol.serve(load=load, time=protocol.timed(lambda batch: None))
"""


def test_a_worker_answers_in_spite_of_chatter(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    command = [sys.executable, str(tmp_path / "worker.py")]
    with Child(command, environment={"PYTHONPATH": str(PEERS)}) as child:
        assert child.ask("load", options="o", weights="w", threads=1)["load_s"] == 0.5
        said = child.ask("time", sentences=[["a", "b"], ["c"]], batch=1)
        assert said["tokens"] == 3
        assert child.ask("memory")["peak_gib"] > 0


def test_ours_speaks_the_same_protocol_and_the_run_writes_its_table(
    peers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = peers("run")
    monkeypatch.setattr(run, "PRECISIONS", ("exact",))
    monkeypatch.setattr(run, "busy_share", lambda: 0.5)
    out = tmp_path / "speed.json"
    arguments = ["--models", "toy", "--batch", "1,4", "--rounds", "2", "--tokens", "100"]
    arguments += ["--threads", "1", "--without", "allennlp", "simple_elmo", "--out", str(out)]
    assert run.main(arguments) == 0
    results = json.loads(out.read_text())
    assert next(iter(results)) == "ratios"
    rows = {row["row"]: row for row in results["models"]["toy"]["rows"]}
    assert set(rows) == {"ours-exact", "ours-exact-sorted"}
    for row in rows.values():
        assert set(row["tokens_per_second"]) == {"1", "4"}
        assert row["cold"]["tokens"] >= 100
    assert rows["ours-exact"]["steady"]["tokens"] >= 100
    assert set(results["missing"]) == {"allennlp", "simple_elmo"}
    assert str(tmp_path) not in out.read_text()
    printed = capsys.readouterr()
    assert "| **elmokit** |" in printed.out
    assert "Other programs use 50%" in printed.err


def test_without_the_python_that_a_peer_needs_it_is_left_out(
    peers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environments = peers("environments")
    monkeypatch.setattr(environments.shutil, "which", lambda _: None)
    with pytest.raises(environments.Unavailable, match=r"no Python 3\.9"):
        environments.environment("allennlp", tmp_path)


def test_an_environment_that_is_ready_is_used_again(peers: Any, tmp_path: Path) -> None:
    environments = peers("environments")
    (tmp_path / "simple_elmo").mkdir()
    recipe = repr(environments.RECIPES["simple_elmo"])
    (tmp_path / "simple_elmo" / "ready.txt").write_text(recipe)
    python = environments.environment("simple_elmo", tmp_path)
    assert python == tmp_path / "simple_elmo" / "bin" / "python"


def test_ratios_are_medians_of_rounds(peers: Any) -> None:
    run = peers("run")
    rows = [row for row in run.ROWS if row.key in ("allennlp", "ours-exact")]
    speeds = {"allennlp": {1: [10.0, 1.0, 10.0]}, "ours-exact": {1: [20.0, 30.0, 40.0]}}
    assert run.ratios(rows, speeds) == {"ours-exact": {"allennlp": {"1": 4.0}}}


class Broken:
    def ask(self, do: str, **values: Any) -> dict[str, Any]:
        raise ChildError("gone")


class Steady:
    def ask(self, do: str, **values: Any) -> dict[str, Any]:
        return {"seconds": 0.5, "tokens": 100}


def test_a_peer_that_fails_does_not_end_the_run(peers: Any) -> None:
    run = peers("run")
    plan = peers("plan").make_plan(sentences(400), [1, 8], rounds=2, tokens=50, n_check=4)
    rows = [row for row in run.ROWS if row.process in ("simple_elmo", "ours-exact")]
    rounds = run.Rounds(rows, {"simple_elmo": Broken(), "ours-exact": Steady()}, plan, [1, 8])
    assert rounds.run(2, deadline=float("inf")) == 2
    assert rounds.speeds() == {"ours-exact": {1: [200.0] * 2, 8: [200.0] * 2}}
    assert "gone" in rounds.notes[0]


# ------------------------------------------------------------------------------------ the table


def made_results() -> dict[str, Any]:
    def row(key: str, speed: float, times: float) -> dict[str, Any]:
        return {
            "row": key,
            "label": key,
            "tokens_per_second": {"1": speed},
            "times_allennlp": {"1": times},
            "load_s": 1.25,
            "peak_gib": 2.0,
        }

    rows = [row("allennlp", 50.0, 1.0), row("ours-exact", 1234.0, 24.7)]
    return {"models": {"small": {"shape": "2 x 1024/128", "rows": rows}}}


def test_the_table_shows_speed_and_ratio(peers: Any) -> None:
    assert peers("table").render(made_results()).splitlines() == [
        "| small (2 x 1024/128) | batch 1 | load s | RSS GiB |",
        "|---|---|---|---|",
        "| allennlp | 50 | 1.2 | 2.00 |",
        "| **ours-exact** | 1,234 (24.7x) | 1.2 | 2.00 |",
    ]


def test_the_readme_is_written_and_a_drift_is_found(peers: Any, tmp_path: Path) -> None:
    table = peers("table")
    results, readme = tmp_path / "r.json", tmp_path / "README.md"
    results.write_text(json.dumps(made_results()))
    readme.write_text(f"Before\n{table.BEGIN}\nold\n{table.END}\nAfter\n")
    arguments = ["--results", str(results)]
    assert table.main([*arguments, "--check", str(readme)]) == 1
    assert table.main([*arguments, "--write", str(readme)]) == 0
    assert table.main([*arguments, "--check", str(readme)]) == 0
    assert readme.read_text().startswith("Before\n")
    assert readme.read_text().endswith("After\n")


@pytest.mark.parametrize(
    ("page", "short"), [("README.md", ["--short"]), ("docs/explanation/speed.md", [])]
)
def test_our_pages_show_what_was_measured(peers: Any, page: str, short: list[str]) -> None:
    path = PEERS.parents[1] / page
    if not RESULTS.is_file() or not path.is_file():
        pytest.skip("a source package has no results")
    assert peers("table").main([*short, "--check", str(path)]) == 0


def test_the_short_table_leaves_out_models_rows_and_batches(peers: Any) -> None:
    table = peers("table")
    results = json.loads(RESULTS.read_text("utf-8"))
    short, whole = table.render(results, short=True), table.render(results)
    assert len(short.splitlines()) == 2 + len(table.SHORT_ROWS)
    assert "batch 64" not in short
    assert set(line.split("|")[1] for line in short.splitlines()[2:]) <= {
        line.split("|")[1] for line in whole.splitlines() if "|" in line
    }
