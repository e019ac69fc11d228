"""Exact match and F1 of answers, computed manually and with another implementation."""

from __future__ import annotations

import random
import string

import pytest

from elmokit.tasks.metrics.squad import answer_f1, exact_match, normalize_answer, squad_scores


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The  Eiffel\tTower!", ["eiffel", "tower"]),
        ("St. Paul's", ["st", "pauls"]),
        ("a well-known theatre", ["wellknown", "theatre"]),
        ("an A's The-end", ["as", "theend"]),
        # Only ASCII punctuation is removed.
        ("1,000 \u2013 1.5\u201d", ["1000", "\u2013", "15\u201d"]),
        ("the. A (an)", []),
    ],
)
def test_normalization_of_answers(text: str, words: list[str]) -> None:
    assert normalize_answer(text) == words


@pytest.mark.parametrize(
    ("gold", "predicted", "match", "f1"),
    [
        ("Saint Bernadette Soubirous", "the saint, Bernadette Soubirous", True, 1.0),
        ("Saint Bernadette Soubirous", "Bernadette", False, 0.5),  # precision 1, recall 1/3
        ("in the year 1858", "year 1858 of 1858", False, 4 / 7),  # 2 shared of 3 and of 4
        ("to be or not to be", "be be be to", False, 0.6),  # 3 shared of 6 and of 4
        ("Paris", "Oslo", False, 0.0),
        ("Paris", "", False, 0.0),
        ("the", "a", True, 0.0),  # no words on either side, as in the official script
    ],
)
def test_manual_examples(gold: str, predicted: str, match: bool, f1: float) -> None:
    assert exact_match(gold, predicted) is match
    assert answer_f1(gold, predicted) == pytest.approx(f1)
    assert answer_f1(predicted, gold) == pytest.approx(f1)


def test_best_of_several_answers_counts() -> None:
    golds = [["Paris", "the city of Paris"], ["1858"], ["a boat", "boats"]]
    scores = squad_scores(golds, ["city of Paris", "1859", "big boat"])
    assert scores["exact_match"] == pytest.approx(100 / 3)
    assert scores["f1"] == pytest.approx(100 * (1 + 0 + 2 / 3) / 3)


def test_scores_equal_a_simple_implementation() -> None:
    """Compute precision and recall separately, removing words from a list as they are matched."""

    def words(text: str) -> list[str]:
        kept = "".join(c for c in text.lower() if c not in string.punctuation)
        return [word for word in kept.split() if word not in ("a", "an", "the")]

    def f1(gold: str, predicted: str) -> float:
        left, ours = words(gold), words(predicted)
        n_gold, same = len(left), 0
        for word in ours:
            if word in left:
                left.remove(word)
                same += 1
        if not same:
            return 0.0
        precision, recall = same / len(ours), same / n_gold
        return 2 * precision * recall / (precision + recall)

    draw = random.Random(0)
    vocabulary = ["the", "A", "cat,", "Cat", "(dog)", "of", "of", "x-y", "an", "1.5", "..."]

    def text() -> str:
        return " ".join(draw.choices(vocabulary, k=draw.randrange(6)))

    golds = [[text() for _ in range(draw.randrange(1, 4))] for _ in range(300)]
    predicted = [text() for _ in golds]
    pairs = list(zip(golds, predicted, strict=True))
    found = squad_scores(golds, predicted)
    mean = sum(max(f1(gold, p) for gold in given) for given, p in pairs) / len(pairs)
    matches = sum(any(words(gold) == words(p) for gold in given) for given, p in pairs)
    assert 10 < found["f1"] < 90
    assert found["f1"] == pytest.approx(100 * mean)
    assert found["exact_match"] == pytest.approx(100 * matches / len(pairs))
