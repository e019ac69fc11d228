"""Arguments as counted by CoNLL-2005's srl-eval.pl."""

from __future__ import annotations

import random
from typing import Any

import pytest

from elmokit.tasks.metrics.spans import Argument, Span, spans_to_arguments, srl_scores

Spans = list[Span]


def spans(text: str) -> Spans:
    """Parse "A0 0 2, V 2 3": label, start, end."""
    parts = [part.split() for part in text.split(",") if part.strip()]
    return [Span(int(start), int(end), label) for label, start, end in parts]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A0 0 2, V 2 3, A1 3 5", {("A0", ((0, 2),)), ("A1", ((3, 5),))}),
        ("A1 0 2, V 2 3, C-A1 3 5", {("A1", ((0, 2), (3, 5)))}),  # joined
        ("A1 0 1, V 1 2, C-A1 2 3, C-A1 4 5", {("A1", ((0, 1), (2, 3), (4, 5)))}),
        ("C-A1 3 5, A1 0 2", {("A1", ((0, 2), (3, 5)))}),  # regardless of the order in the list
        ("C-A1 0 2, V 2 3, A1 3 5", {("A1", ((0, 2),)), ("A1", ((3, 5),))}),  # nothing before it
        ("A1 0 1, A1 1 2, C-A1 3 4", {("A1", ((0, 1),)), ("A1", ((1, 2), (3, 4)))}),  # the last one
        ("V 1 2, C-V 3 4, R-A0 0 1", {("R-A0", ((0, 1),))}),  # C-V belongs to V
        ("C-V 3 4", set()),
        ("", set()),
    ],
)
def test_discontinuous_arguments_are_joined(text: str, expected: set[Any]) -> None:
    assert spans_to_arguments(spans(text)) == {Argument(*argument) for argument in expected}


def test_manually_computed_scores() -> None:
    gold = [
        "A0 0 1, V 1 2, A1 2 4",  # both correct
        "A0 0 2, V 2 3, A1 3 5, AM-TMP 5 6",  # A0 correct, A1 too short, AM-TMP labeled as AM-LOC
        "A1 0 2, V 2 3, C-A1 3 5",  # the second part is missing: not correct, and one too many
    ]
    guess = [
        "A0 0 1, V 1 2, A1 2 4",
        "A0 0 2, V 2 3, A1 3 4, AM-LOC 5 6",
        "A1 0 2, V 2 3",
    ]
    scores = srl_scores([spans(g) for g in gold], [spans(g) for g in guess])
    assert (scores["correct"], scores["predicted"], scores["gold"]) == (3, 6, 6)
    assert scores["f1"] == scores["precision"] == scores["recall"] == pytest.approx(50)
    assert scores["perfect"] == pytest.approx(100 / 3)
    assert scores["predicates"] == 3
    assert set(scores["roles"]) == {"A0", "A1", "AM-TMP", "AM-LOC"}
    assert scores["roles"]["A1"]["precision"] == pytest.approx(100 / 3)
    assert scores["roles"]["AM-TMP"]["recall"] == 0


def test_the_predicate_itself_does_not_count() -> None:
    scores = srl_scores([spans("V 0 1")], [spans("V 1 2, C-V 3 4")])
    assert (scores["gold"], scores["predicted"], scores["f1"]) == (0, 0, 0.0)
    assert scores["perfect"] == 100
    assert srl_scores([], [])["f1"] == 0.0


def official(gold: Spans, guess: Spans) -> tuple[int, int, int]:
    """Evaluate one proposition like the official script: correct, excess, missed.

    It stores arguments by their first and last token and compares them part by part.
    """

    def load(given: Spans) -> list[dict[str, Any]]:
        arguments: list[dict[str, Any]] = []
        started: dict[str, dict[str, Any]] = {}
        for start, end, kind in sorted(given):
            base = kind[2:] if kind.startswith("C-") else None
            if base is not None and base in started:
                started[base]["pieces"].append((start, end))
                started[base]["end"] = end
            else:
                new = {"type": base or kind, "start": start, "end": end, "pieces": [(start, end)]}
                arguments.append(new)
                started[new["type"]] = new
        return arguments

    there = {(a["start"], a["end"]): a for a in load(gold)}
    correct = excess = 0
    for argument in load(guess):
        like = there.get((argument["start"], argument["end"]))
        same = (
            like is not None
            and like["type"] == argument["type"]
            and len(like["pieces"]) == len(argument["pieces"])
            and all(piece in like["pieces"] for piece in argument["pieces"])
        )
        if same:
            del there[argument["start"], argument["end"]]
        if argument["type"] != "V":
            correct += same
            excess += not same
    return correct, excess, sum(a["type"] != "V" for a in there.values())


def test_counts_equal_the_official_script_on_random_frames() -> None:
    draw = random.Random(5)
    labels = ["A0", "A1", "C-A1", "C-A0", "V", "C-V", "R-A1", "AM-TMP"]

    def some(length: int) -> Spans:
        place, found = 0, []
        while place < length:
            end = draw.randint(place + 1, min(length, place + 3))
            if draw.random() < 0.7:
                found.append(Span(place, end, draw.choice(labels)))
            place = end
        return found

    gold, guess, counted = [], [], [0, 0, 0]
    for _ in range(400):
        true = some(8)
        near = [s if draw.random() < 0.8 else s._replace(type=draw.choice(labels)) for s in true]
        said = near if draw.random() < 0.7 else some(8)
        gold.append(true)
        guess.append(said)
        counted = [a + b for a, b in zip(counted, official(true, said), strict=True)]
    scores = srl_scores(gold, guess)
    correct, excess, missed = counted
    assert correct > 200
    assert scores["correct"] == correct
    assert scores["predicted"] == correct + excess
    assert scores["gold"] == correct + missed
    for figure in ("correct", "predicted", "gold"):
        assert sum(role[figure] for role in scores["roles"].values()) == scores[figure]
