"""Spans as counted by the official script."""

from __future__ import annotations

import random

import pytest

from elmokit.tasks.metrics.spans import Span, span_scores, spans_to_tags, tags_to_spans


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O O", []),
        ("I-A I-A O", [(0, 2, "A")]),  # IOB1
        ("I-A B-A O", [(0, 1, "A"), (1, 2, "A")]),
        ("B-A I-A B-A I-A", [(0, 2, "A"), (2, 4, "A")]),  # IOB2
        ("B-A I-B I-B", [(0, 1, "A"), (1, 3, "B")]),  # malformed: continues with another type
        ("O I-A", [(1, 2, "A")]),
        ("S-A B-A I-A E-A S-B", [(0, 1, "A"), (1, 4, "A"), (4, 5, "B")]),  # BIOES
        ("U-A B-A L-A", [(0, 1, "A"), (1, 3, "A")]),  # BILOU
        ("B-A E-A E-A", [(0, 2, "A"), (2, 3, "A")]),
        ("E-A I-A O", [(0, 1, "A"), (1, 2, "A")]),
        ("B-X-Y I-X-Y", [(0, 2, "X-Y")]),  # types with a hyphen
        ("", []),
    ],
)
def test_spans(tags: str, expected: list[tuple[int, int, str]]) -> None:
    assert tags_to_spans(tags.split()) == [Span(*span) for span in expected]


@pytest.mark.parametrize("scheme", ["BIO", "BIOES"])
def test_round_trip_of_spans(scheme: str) -> None:
    draw = random.Random(0)
    for _ in range(200):
        length, place, spans = draw.randint(0, 12), 0, []
        while place < length:
            end = draw.randint(place + 1, length)
            if draw.random() < 0.6:
                spans.append(Span(place, end, draw.choice("AB")))
            place = end
        assert tags_to_spans(spans_to_tags(spans, length, scheme)) == spans


def conlleval(gold: list[list[str]], predicted: list[list[str]]) -> tuple[int, int, int]:
    """The counting loop of conlleval.pl, line by line: correct, gold and predicted spans."""

    def start_of_chunk(before: str, tag: str, type_before: str, kind: str) -> bool:
        pairs = [("B", "B"), ("I", "B"), ("O", "B"), ("O", "I")]
        pairs += [("E", "E"), ("E", "I"), ("O", "E")]
        return (before, tag) in pairs or (tag not in ("O", ".") and type_before != kind)

    def end_of_chunk(before: str, tag: str, type_before: str, kind: str) -> bool:
        pairs = [("B", "B"), ("B", "O"), ("I", "B"), ("I", "O")]
        pairs += [("E", "E"), ("E", "I"), ("E", "O")]
        return (before, tag) in pairs or (before not in ("O", ".") and type_before != kind)

    def parts(tag: str) -> tuple[str, str]:
        head, _, kind = tag.partition("-")
        return head, kind

    right = in_gold = in_guess = 0
    in_correct = False
    last_gold = last_guess = ("O", "")
    rows = []
    for true, guess in zip(gold, predicted, strict=True):
        rows += [*zip(true, guess, strict=True), ("O", "O")]  # a boundary is an O
    for true_tag, guess_tag in rows:
        here, said = parts(true_tag), parts(guess_tag)
        ends = end_of_chunk(last_gold[0], here[0], last_gold[1], here[1])
        said_ends = end_of_chunk(last_guess[0], said[0], last_guess[1], said[1])
        starts = start_of_chunk(last_gold[0], here[0], last_gold[1], here[1])
        said_starts = start_of_chunk(last_guess[0], said[0], last_guess[1], said[1])
        if in_correct:
            if ends and said_ends and last_gold[1] == last_guess[1]:
                in_correct = False
                right += 1
            elif ends != said_ends or here[1] != said[1]:
                in_correct = False
        if starts and said_starts and here[1] == said[1]:
            in_correct = True
        in_gold += starts
        in_guess += said_starts
        last_gold, last_guess = here, said
    return right, in_gold, in_guess


def test_counts_equal_conlleval_on_random_tags() -> None:
    draw = random.Random(7)
    tags = ["O", "O", "B-A", "I-A", "B-B", "I-B", "I-C"]
    for _ in range(300):
        gold = [draw.choices(tags, k=draw.randint(1, 9)) for _ in range(4)]
        guess = [[tag if draw.random() < 0.7 else draw.choice(tags) for tag in row] for row in gold]
        right, in_gold, in_guess = conlleval(gold, guess)
        scores = span_scores(gold, guess)
        assert (scores["correct"], scores["gold"], scores["predicted"]) == (
            right,
            in_gold,
            in_guess,
        )


def test_scores_of_a_known_example() -> None:
    # Computed manually: 3 gold spans, 3 predicted, 2 correct, 7 of 8 tokens.
    gold = ["I-PER I-PER O I-LOC".split(), "O I-ORG O O".split()]
    guess = ["B-PER I-PER O B-ORG".split(), "O B-ORG O O".split()]
    scores = span_scores(gold, guess)
    assert scores["precision"] == pytest.approx(200 / 3)
    assert scores["recall"] == pytest.approx(200 / 3)
    assert scores["f1"] == pytest.approx(200 / 3)
    assert scores["accuracy"] == pytest.approx(87.5)
    assert scores["types"]["ORG"]["precision"] == 50
    assert scores["types"]["LOC"] == {
        "f1": 0.0, "precision": 0.0, "recall": 0.0, "gold": 1, "predicted": 0, "correct": 0
    }  # fmt: skip


def test_no_spans_cause_no_division_by_zero() -> None:
    assert span_scores([["O"]], [["O"]])["f1"] == 0.0
    assert span_scores([], [])["accuracy"] == 0.0
