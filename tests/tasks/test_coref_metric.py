"""Coreference scores: test cases of the reference scorer, and brute force."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.tasks.metrics.coref import coref_scores, without_singletons

# Key, response and (recall, precision) from the test cases of the reference scorer: A by its
# authors, D and E from Bagga and Baldwin (1998), F to L from Vilain et al. (1995).
A = "a bc def"
CASES: list[tuple[str, str, str, dict[str, tuple[float, float]]]] = [
    ("A1", A, A, {"muc": (1, 1), "b3": (1, 1), "ceafe": (1, 1)}),
    ("A2", A, "a de", {"muc": (1 / 3, 1), "b3": (7 / 18, 1), "ceafe": (0.6, 0.9)}),
    (
        *("A3", A, "a bcx defy z"),
        {"muc": (1, 3 / 5), "b3": (1, 55 / 108), "ceafe": (0.88571, 0.66429)},
    ),
    (
        *("A4", A, "a bcx dy z"),
        {"muc": (1 / 3, 1 / 3), "b3": (5 / 9, 17 / 42), "ceafe": (0.73333, 0.55)},
    ),
    (
        *("A5", A, "a bcxB dy z"),
        {"muc": (1 / 3, 1 / 4), "b3": (5 / 9, 5 / 16), "ceafe": (0.68889, 0.51667)},
    ),
    (
        *("A6", A, "a bcx dy Bz"),
        {"muc": (1 / 3, 1 / 4), "b3": (5 / 9, 17 / 48), "ceafe": (0.73333, 0.55)},
    ),
    ("A10", A, "a b c d e f", {"muc": (0, 0), "b3": (1 / 2, 1)}),
    ("A11", A, "abcdef", {"muc": (1, 3 / 5), "b3": (1, 7 / 18)}),
    ("A12", A, "a x y c d e z", {"muc": (0, 0), "b3": (13 / 36, 4 / 7)}),
    ("A13", A, "axycdez", {"muc": (1 / 3, 1 / 6), "b3": (17 / 36, 6 / 49)}),
    ("D1", "12345 67 89ABC", "12345 6789ABC", {"muc": (1, 9 / 10), "b3": (1, 16 / 21)}),
    ("E1", "12345 67 89ABC", "1234589ABC 67", {"muc": (1, 9 / 10), "b3": (1, 7 / 12)}),
    ("F1", "ABCD", "AB CD", {"muc": (2 / 3, 1)}),
    ("G1", "AB CD", "ABCD", {"muc": (1, 2 / 3)}),
    ("H1", "ABCD", "ABCD", {"muc": (1, 1)}),
    ("J1", "ABC", "AC", {"muc": (1 / 2, 1)}),
    ("K1", "BCDEGHJ", "ABC DEF GHI", {"muc": (3 / 6, 3 / 6)}),
    ("L1", "ABC DEFG", "AB CD FGH", {"muc": (2 / 5, 2 / 4)}),
    ("M1", "abcdef", "abcdef", {"muc": (1, 1), "b3": (1, 1), "ceafe": (1, 1)}),
    ("N1", "a b c d e f", "a b c d e f", {"muc": (0, 0), "b3": (1, 1), "ceafe": (1, 1)}),
]


def score(key: str, response: str) -> dict[str, Any]:
    return coref_scores([key.split()], [response.split()])


@pytest.mark.parametrize(("name", "key", "response", "wanted"), CASES)
def test_cases_of_the_reference_scorer(
    name: str, key: str, response: str, wanted: dict[str, tuple[float, float]]
) -> None:
    found = score(key, response)["measures"]
    for measure, (recall, precision) in wanted.items():
        assert found[measure]["recall"] == pytest.approx(100 * recall, abs=1e-3), (name, measure)
        assert found[measure]["precision"] == pytest.approx(100 * precision, abs=1e-3)
        both = recall + precision
        f1 = 200 * recall * precision / both if both else 0
        assert found[measure]["f1"] == pytest.approx(f1, abs=1e-3)


def test_documents_are_summed_and_the_score_is_the_mean_of_three() -> None:
    found = coref_scores([["ab", "c"], ["de"], []], [["ab"], ["d"], ["xy"]])
    measures = found["measures"]
    assert measures["muc"] == pytest.approx({"recall": 50, "precision": 50, "f1": 50})
    assert measures["b3"]["recall"] == pytest.approx(100 * (2 + 1 / 2) / 5)
    assert measures["b3"]["precision"] == pytest.approx(100 * (2 + 1) / 5)
    assert measures["ceafe"]["recall"] == pytest.approx(100 * (1 + 2 / 3) / 3)
    assert measures["mentions"]["recall"] == pytest.approx(100 * 3 / 5)
    assert found["conll"] == pytest.approx(
        sum(measures[name]["f1"] for name in ("muc", "b3", "ceafe")) / 3
    )
    assert (found["gold_mentions"], found["predicted_clusters"]) == (5, 3)


def test_empty_input_has_score_zero() -> None:
    for gold, predicted in (([], []), ([[]], [[]]), ([["ab"]], [[]]), ([[]], [["ab"]])):
        assert coref_scores(gold, predicted)["conll"] == 0


def test_singletons_can_be_excluded() -> None:
    assert without_singletons(["a", "bc", "d", "efg"]) == ["bc", "efg"]


def partition(labels: list[int | None]) -> list[set[int]]:
    """Put mention i in the cluster `labels[i]`; None: it is not a mention."""
    found: dict[int, set[int]] = {}
    for mention, label in enumerate(labels):
        if label is not None:
            found.setdefault(label, set()).add(mention)
    return list(found.values())


labels = st.lists(st.one_of(st.none(), st.integers(0, 4)), min_size=9, max_size=9)


@settings(max_examples=150, deadline=None)
@given(labels, labels)
def test_all_metrics_equal_their_definitions(
    one: list[int | None], other: list[int | None]
) -> None:
    gold, predicted = partition(one), partition(other)
    found = coref_scores([gold], [predicted])["measures"]
    sides = {"recall": (gold, predicted), "precision": (predicted, gold)}
    for side, (own, others) in sides.items():
        for measure, wanted in (("muc", muc(own, others)), ("b3", b3(own, others))):
            assert found[measure][side] == pytest.approx(100 * wanted), (measure, side)
    paired = ceafe(gold, predicted)
    assert found["ceafe"]["recall"] == pytest.approx(100 * paired / max(1, len(gold)))
    assert found["ceafe"]["precision"] == pytest.approx(100 * paired / max(1, len(predicted)))


def muc(own: list[set[int]], others: list[set[int]]) -> float:
    """Count the parts into which the other side splits each cluster."""
    missing = sum(len(pieces(cluster, others)) - 1 for cluster in own)
    links = sum(len(cluster) - 1 for cluster in own)
    return (links - missing) / links if links else 0.0


def pieces(cluster: set[int], others: list[set[int]]) -> list[set[int]]:
    cut = [cluster & other for other in others if cluster & other]
    return cut + [{m} for m in cluster - set().union(*others)]


def b3(own: list[set[int]], others: list[set[int]]) -> float:
    shares = [
        max((len(cluster & o) for o in others if m in o), default=0) / len(cluster)
        for cluster in own
        for m in cluster
    ]
    return sum(shares) / len(shares) if shares else 0.0


def ceafe(gold: list[set[int]], predicted: list[set[int]]) -> float:
    few, many = sorted((gold, predicted), key=len)
    return max(
        sum(2 * len(a & b) / (len(a) + len(b)) for a, b in zip(few, order, strict=True))
        for order in permutations(many, len(few))
    )
