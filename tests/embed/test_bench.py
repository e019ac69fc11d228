"""The embedding benchmark: what it counts, not how fast this machine is."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmokit.embed.bench import text as bench_text
from elmokit.embed.bench.child import Child, ChildError, Holder
from elmokit.embed.bench.parts import time_parts
from elmokit.embed.bench.report import BenchReport, BenchSettings
from elmokit.embed.bench.run import compare, make_random, measure
from elmokit.embed.bench.table import render
from elmokit.embed.bench.text import read_text
from elmokit.embed.model import ElmoModel, load
from elmokit.errors import ConfigError, DataError
from elmokit.sources.resolve import load_parts
from tests.conftest import TINY_MODEL

SENTENCES = [["a", "b", "c"], ["d"], ["e", "f"], ["a", "b", "g", "h"]]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("The cat sat. It slept on the mat.\n\nNobody came by that day.\n" * 40)
    return path


# ------------------------------------------------------------------------------------- the text


def test_a_text_is_read_as_far_as_needed_and_says_where_it_is_from(text: Path) -> None:
    found = read_text(text, 10)
    assert found.name == "text.txt"
    assert found.sentences[0] == ["The", "cat", "sat", "."]
    assert 10 <= found.n_tokens < 20
    said = found.describe()
    assert said["tokens"] == found.n_tokens
    assert str(text.parent) not in json.dumps(said)


def test_an_empty_text_and_one_that_is_not_there_are_errors(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(DataError):
        read_text(tmp_path / "empty.txt", 10)
    with pytest.raises(DataError):
        read_text(tmp_path / "none.txt", 10)


def test_without_the_example_text_words_are_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_text, "EXAMPLE", Path("nowhere"))
    found = read_text(None, 20_000)
    assert found.name == "made-up words"
    assert found.digest == read_text(None, 20_000).digest
    types = {token for row in found.sentences for token in row}
    assert 3_000 < len(types) < 8_000  # as English has


# -------------------------------------------------------------------------------- the one process


@pytest.fixture(scope="module")
def holder() -> Holder:
    holder = Holder()
    holder.load(None, device="cpu")
    return holder


def test_tokens_and_look_ups_are_counted(holder: Holder) -> None:
    said = holder.time(SENTENCES, 2, cold=True)
    assert said["tokens"] == 10
    assert said["seconds"] > 0
    # With <S> and </S> 6 distinct tokens in the first batch; then 8, of which 4 were seen.
    assert (said["misses"], said["hits"]) == (10, 4)
    again = holder.time(SENTENCES, 4)
    assert (again["misses"], again["hits"]) == (0, 10)
    assert holder.time(SENTENCES, 2, stream=True)["tokens"] == 10


def test_vectors_are_those_of_the_model(holder: Holder, tmp_path: Path) -> None:
    assert holder.vectors(SENTENCES, str(tmp_path / "v.npy")) == {"tokens": 10}
    found = np.load(tmp_path / "v.npy")
    expected = np.concatenate([v.layers for v in load(device="cpu").embed(SENTENCES)], axis=1)
    np.testing.assert_array_equal(found, expected)


def test_parts_count_tokens_without_boundaries(holder: Holder) -> None:
    said = time_parts(holder.model, SENTENCES, 2, 3)
    assert said["tokens"] == 10
    assert said["types"] == 7 + 5  # longest sentences first, with <S> and </S> in each batch
    assert {len(seconds) for seconds in said["seconds"].values()} == {3}


def test_a_word_model_has_no_parts_to_time() -> None:
    from tests.sources.models import make_parts

    with pytest.raises(ConfigError):
        time_parts(ElmoModel(make_parts("words"), device="cpu"), SENTENCES, 2, 1)


def test_a_process_that_dies_says_why() -> None:
    program = "import sys; sys.exit('out of luck')"
    with Child([sys.executable, "-c", program]) as child, pytest.raises(ChildError, match="luck"):
        child.ask("load")


def test_a_process_that_hangs_is_stopped() -> None:
    program = "import time; time.sleep(60)"
    child = Child([sys.executable, "-c", program], limit=0.2)
    with child, pytest.raises(ChildError, match="no answer to 'load'"):
        child.ask("load")


# ------------------------------------------------------------------------------------ the report


@pytest.fixture(scope="module")
def report(text: Path) -> BenchReport:
    settings = BenchSettings(
        model=str(TINY_MODEL),
        batches=(1, 4),
        precisions=("exact",),
        threads=(1, 2),
        device="cpu",
        tokens=100,
        rounds=3,
        loads=1,
        text=text,
    )
    return measure(settings)


def test_every_cell_is_there(report: BenchReport) -> None:
    cells = [(row["precision"], row["threads"], row["batch"]) for row in report.cells]
    assert cells == [("exact", t, b) for t in (1, 2) for b in (1, 4)]
    assert [(row["precision"], row["threads"]) for row in report.loads] == [
        ("exact", 1),
        ("exact", 2),
    ]


def test_the_numbers_of_a_cell_fit_together(report: BenchReport) -> None:
    for row in report.cells:
        assert row["tokens"] >= 100
        assert 0 < row["slowest"] <= row["tokens_per_second"] <= row["fastest"]
        overall = row["tokens"] / row["seconds"]
        assert row["slowest"] * 0.9 <= overall <= row["fastest"] * 1.1
        assert 0 <= row["cold_hit_rate"] <= row["hit_rate"] <= 1
    by_batch = {row["batch"]: row["tokens"] for row in report.cells}
    assert all(row["tokens"] == by_batch[row["batch"]] for row in report.cells)  # the same text
    for row in report.loads:
        assert 0 < row["loaded_gib"] <= row["peak_gib"]
        assert 0 < row["sentence_ms"] <= row["sentence_p99_ms"]
        assert row["first_vector_ms"] > 0


def test_the_report_is_json_and_a_text(report: BenchReport, text: Path) -> None:
    written = json.dumps(report.to_dict())
    assert str(text.parent) not in written
    assert json.loads(written)["text"]["name"] == "text.txt"
    drawn = render(report)
    assert "2 x 64/16" in drawn
    assert drawn.count("exact") >= len(report.cells)


def test_lengths_show_time_and_memory(text: Path) -> None:
    settings = BenchSettings(
        model=str(TINY_MODEL),
        precisions=("exact",),
        threads=(1,),
        device="cpu",
        loads=1,
        rounds=1,
        text=text,
        lengths=(1_000, 100),
        long_sentence=300,
    )
    found = measure(settings)
    assert not found.cells
    assert [row["tokens"] >= n for row, n in zip(found.lengths, (100, 1_000), strict=True)]
    assert found.lengths[0]["peak_gib"] <= found.lengths[1]["peak_gib"]
    (long,) = found.long_sentence
    assert (long["tokens"], long["short_tokens"]) == (300, 3)
    assert "300-token sentence" in render(found)


def test_vectors_are_compared_layer_by_layer() -> None:
    truth = np.random.default_rng(0).normal(size=(3, 5, 8)).astype(np.float32)
    same = compare(truth, truth)
    assert same["largest_difference"] == 0
    assert same["cosine_worst"] == [1, 1, 1]
    other = truth.copy()
    other[1, 2] *= -1
    found = compare(other, truth)
    assert found["cosine_worst"] == [1, -1, 1]
    assert found["cosine_mean"] == [1, pytest.approx(0.6), 1]


def test_a_preset_gives_the_same_random_weights(tmp_path: Path) -> None:
    one, two = (load_parts(make_random("toy", tmp_path / n, 3)).bilm for n in "ab")
    assert all((p == q).all() for p, q in zip(one.parameters(), two.parameters(), strict=True))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"model": "a", "preset": "toy"}, "exclude"),
        ({"batches": (0,)}, "batches"),
        ({"batches": ()}, "batch size"),
        ({"rounds": 0, "tokens": 0}, "tokens.*rounds"),
    ],
)
def test_what_cannot_be_measured_is_said_at_once(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        BenchSettings(**values)
