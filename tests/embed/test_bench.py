"""The embedding benchmark: what it measures, not the speed of this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from elmokit.embed import bench
from elmokit.embed.bench import BenchSettings, SentenceSupply, measure, read_text
from elmokit.errors import ConfigError, DataError
from tests.conftest import TINY_MODEL


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("The cat sat. It slept on the mat.\n\nNobody came by that day.\n" * 40)
    return path


def test_text_is_read_only_as_far_as_needed(text: Path) -> None:
    read = read_text(text, 10)
    assert read.sentences[0] == ["The", "cat", "sat", "."]
    described = read.describe()
    assert 10 <= described["tokens"] < 20
    assert described["name"] == "text.txt"


def test_example_text_is_the_default() -> None:
    assert bench.EXAMPLE.is_file()
    assert read_text(None, 10).name == "corpus.txt"


def test_words_are_generated_without_the_example_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "EXAMPLE", Path("nowhere"))
    read = read_text(None, 20_000)
    assert read.describe() == read_text(None, 20_000).describe()
    assert 3_000 < read.describe()["distinct_tokens"] < 8_000  # as in English


def test_empty_and_missing_text_are_errors(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    for name in ("empty.txt", "none.txt"):
        with pytest.raises(DataError):
            read_text(tmp_path / name, 10)


def test_supply_returns_new_sentences_and_wraps_around() -> None:
    supply = SentenceSupply([["a"], ["b", "c"], ["d"], ["e"], ["f"]])
    assert supply.take(2) == [["a"], ["b", "c"]]
    assert supply.take(1, batch=2) == [["d"], ["e"]]
    assert supply.n_restarts == 0
    assert supply.take(2) == [["f"], ["a"]]
    assert supply.n_restarts == 1


def test_all_setups_are_measured_on_the_same_text(text: Path) -> None:
    settings = BenchSettings(
        model=str(TINY_MODEL),
        batches=(1, 4),
        precisions=("exact",),
        threads=(1, 2),
        device="cpu",
        tokens=100,
        rounds=3,
        text=str(text),
    )
    report = measure(settings)
    cells = [(row["precision"], row["threads"], row["batch"]) for row in report["cells"]]
    assert cells == [("exact", t, b) for t in (1, 2) for b in (1, 4)]
    by_batch = {row["batch"]: row["tokens"] for row in report["cells"]}
    for row in report["cells"]:
        assert row["tokens"] == by_batch[row["batch"]] >= 100
        assert 0 < row["slowest"] <= row["tokens_per_second"] <= row["fastest"]
        assert row["known_tokens_per_second"] > 0
        assert 0 <= row["hit_rate"] <= 1
    for row in report["loads"]:
        assert row["load_s"] > 0
        assert row["sentence_ms"] > 0
        assert row["first_vector_ms"] > 0
    assert report["peak_gib"] > 0
    assert str(text.parent) not in json.dumps(report)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"model": "a", "preset": "toy"}, "preset"),
        ({"batches": (0,)}, "batches"),
        ({"batches": ()}, "batches"),
        ({"rounds": 0, "tokens": 0}, "tokens"),
    ],
)
def test_invalid_settings_are_reported_immediately(values: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        BenchSettings(**values)
