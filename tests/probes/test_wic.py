"""Word in context: reading, token alignment, the two halves, accuracy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elmokit
from elmokit.embed.static import StaticVectors
from elmokit.errors import DataError
from elmokit.probes import wic as module
from elmokit.probes.reports import json_values
from elmokit.probes.wic import WicPair, assign_half, evaluate, find_target, measure_wic, read_wic
from tests.conftest import TINY_MODEL

SENTENCES = ["A play on words .", "They play well.", "She can't play the well-known play today."]


def item(number: int, **other: Any) -> dict[str, Any]:
    first, second = SENTENCES[number % 3], SENTENCES[(number + 1) % 3]
    values: dict[str, Any] = {"id": f"t.{number}", "lemma": f"play{number % 4}", "pos": "NOUN"}
    for i, sentence in enumerate((first, second), start=1):
        start = sentence.index("play")
        values |= {f"sentence{i}": sentence, f"start{i}": str(start), f"end{i}": str(start + 4)}
    return values | other


def write(folder: Path, items: list[Any], gold: list[Any] | None = None) -> Path:
    gold = gold or [{"id": i["id"], "tag": "TF"[n % 2]} for n, i in enumerate(items)]
    (folder / "x.data").write_text(json.dumps(items, indent=1))
    (folder / "x.gold").write_text(json.dumps(gold))
    return folder / "x.data"


# ---------------------------------------------------------------------------------------- alignment


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (4, 6, (1, 2)),
        (4, 9, (1, 3)),
        (0, 2, (0, 1)),  # part of a token
        (5, 8, (1, 3)),  # parts of two tokens
        (3, 6, (1, 2)),  # with the preceding space
        (3, 4, None),  # a space
        (10, 12, None),
        (5, 5, None),
        (7, 5, None),
    ],
)
def test_characters_are_aligned_to_tokens(start: int, end: int, expected: Any) -> None:
    target = find_target("can don't.", start, end)  # can, do, n't, .
    assert (target and (target.start, target.end)) == expected


# ------------------------------------------------------------------------------------------ reading


def test_pairs_are_read_with_their_answers(tmp_path: Path) -> None:
    pairs = read_wic(write(tmp_path, [item(0), item(1)]))
    assert [pair.same for pair in pairs] == [True, False]
    assert (pairs[0].sentence1, pairs[0].start1, pairs[0].end1) == (SENTENCES[0], 2, 6)


@pytest.mark.parametrize(
    ("items", "gold", "message"),
    [
        ([item(0) | {"start1": "two"}], None, "x.data: [0].start1: "),
        ([{"id": "a"}], None, "x.data: [0].lemma: Field required"),
        ([item(0), 7], [{"id": "t.0", "tag": "T"}], "x.data: [1]: "),
        ([item(0)], [{"id": "t.0", "tag": "yes"}], "x.gold: [0].tag: "),
        ([item(0)], [{"id": "t.9", "tag": "T"}], "'t.0' has no gold label"),
        ([], [{"id": "t.9", "tag": "T"}], "contains no pairs"),
    ],
)
def test_invalid_pairs_are_identified(
    tmp_path: Path, items: list[Any], gold: Any, message: str
) -> None:
    data = write(tmp_path, items, gold)
    with pytest.raises(DataError) as raised:
        read_wic(data)
    assert message in str(raised.value)


def test_invalid_json_error_states_the_line(tmp_path: Path) -> None:
    data = write(tmp_path, [item(0)])
    data.write_text(data.read_text()[:-20])
    with pytest.raises(DataError, match=r"x\.data: Invalid JSON: .* at line \d+"):
        read_wic(data)
    with pytest.raises(DataError, match=r"y\.data does not exist"):
        read_wic(tmp_path / "y.data")
    (tmp_path / "y.data").write_text("[]")
    with pytest.raises(DataError, match=r"y\.gold does not exist\. Specify it with --gold"):
        read_wic(tmp_path / "y.data")
    data.write_bytes(b"\xff")
    with pytest.raises(DataError, match=r"x\.data, line 1: .* not valid UTF-8"):
        read_wic(data)
    data.write_text("{}")
    with pytest.raises(DataError):
        read_wic(data)


# ------------------------------------------------------------------------------------------ scoring


@pytest.fixture(scope="module")
def elmo() -> elmokit.ElmoModel:
    return elmokit.load(TINY_MODEL, device="cpu")


def test_scores_equal_the_cosines_of_the_two_tokens(
    tmp_path: Path, elmo: elmokit.ElmoModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = read_wic(write(tmp_path, [item(n) for n in range(7)]))
    seen: dict[str, np.ndarray[Any, Any]] = {}

    def spy(name: str, scores: Any, *args: Any, **options: Any) -> Any:
        seen[name] = scores
        return evaluate(name, scores, *args, **options)

    monkeypatch.setattr(module, "evaluate", spy)
    measure_wic(elmo, pairs)
    for n, pair in enumerate(pairs):
        a, b = (elmo.embed(text).word("play") for text in (pair.sentence1, pair.sentence2))
        for j in range(3):
            expected = a[j] @ b[j] / np.linalg.norm(a[j]) / np.linalg.norm(b[j])
            assert seen[f"layer {j}"][n] == pytest.approx(expected, abs=2e-6)
        expected = np.mean(a, 0) @ np.mean(b, 0)
        expected /= np.linalg.norm(np.mean(a, 0)) * np.linalg.norm(np.mean(b, 0))
        assert seen["average"][n] == pytest.approx(expected, abs=2e-6)


def test_pairs_that_cannot_be_aligned_are_counted_and_skipped(
    tmp_path: Path, elmo: elmokit.ElmoModel
) -> None:
    items = [item(0), item(1, start1="900", end1="904"), item(2), item(3, start2="5", end2="5")]
    items += [item(6, start1="2", end1="9")]  # "play on": two tokens
    report = measure_wic(elmo, read_wic(write(tmp_path, items)))
    assert report.left_out == ("t.1", "t.3")
    assert report.pairs == 5
    assert report.results[0].overall.n == 3


def test_no_aligned_pairs_is_an_error(tmp_path: Path, elmo: elmokit.ElmoModel) -> None:
    pairs = read_wic(write(tmp_path, [item(0, start1="900", end1="904")]))
    with pytest.raises(DataError):
        measure_wic(elmo, pairs)


def test_context_free_baselines_cannot_distinguish_uses_of_one_form(
    tmp_path: Path, elmo: elmokit.ElmoModel
) -> None:
    table = StaticVectors("toy", ["play", "a", "they"], np.eye(3, dtype=np.float32))
    pairs = read_wic(write(tmp_path, [item(n) for n in range(12)]))
    report = measure_wic(elmo, pairs, static=table)
    by_name = {result.name: result for result in report.results}
    for name in ("same form", "toy, the word", "layer 0"):
        assert by_name[name].overall.auc == 0.5
    assert "layer 2" in str(report)
    assert "NaN" not in json.dumps(json_values(report))


def test_words_without_a_static_vector_are_compared_by_form(
    tmp_path: Path, elmo: elmokit.ElmoModel
) -> None:
    table = StaticVectors("toy", ["a"], np.eye(1, dtype=np.float32))
    pairs = read_wic(write(tmp_path, [item(n) for n in range(4)]))
    by_name = {result.name: result for result in measure_wic(elmo, pairs, static=table).results}
    assert by_name["toy, the word"].overall == by_name["same form"].overall


# --------------------------------------------------------------------------------------- evaluation


def make_pairs(n: int) -> list[WicPair]:
    values = {**item(0), "start1": 0, "end1": 0, "start2": 0, "end2": 0}
    return [
        WicPair(
            **values | {"id": str(i), "lemma": f"w{i // 2}", "pos": "NV"[i % 2]}, same=i % 3 == 0
        )
        for i in range(n)
    ]


def test_halves_are_stable_and_contain_whole_lemmas() -> None:
    assert [assign_half(w) for w in ("play", "bass", "Play", "spring", "right")] == [1, 0, 1, 0, 1]
    assert 0.4 < np.mean([assign_half(f"w{i}") for i in range(1000)]) < 0.6


def test_perfect_scores_give_perfect_accuracy() -> None:
    pairs = make_pairs(60)
    scores = np.array([0.9 if pair.same else 0.1 for pair in pairs])
    result = evaluate("x", scores, pairs)
    assert (result.overall.accuracy, result.overall.auc) == (1.0, 1.0)
    assert result.overall.interval == (1.0, 1.0)
    assert {pos: figure.n for pos, figure in result.by_pos.items()} == {"N": 30, "V": 30}


def test_threshold_of_one_half_is_used_on_the_other() -> None:
    pairs = make_pairs(200)
    half = np.array([assign_half(pair.lemma) for pair in pairs])
    same = np.array([pair.same for pair in pairs])
    # The optimum is 0.5 in half 0 and 5.5 in half 1: each threshold is useless on the other half.
    scores = np.where(same, 1.0, 0.0) + np.where(half == 1, 5.0, 0.0)
    result = evaluate("x", scores, pairs)
    assert result.thresholds == (0.5, 5.5)
    expected = np.where(half == 1, same, ~same).mean()  # half 1: all "same"; half 0: all "not"
    assert result.overall.accuracy == pytest.approx(expected)
