"""Labeled spans in sequences of tags, arguments of predicates, and their F1.

Spans are scored as by `conlleval`: a span begins at B-X, or at I-X after O or after a tag
of another type; it ends before the next tag that does not continue it. So IOB1, IOB2 and invalid
sequences of either are all accepted, and E-X and S-X (also called L-X and U-X) close a span.

Arguments are scored as by `srl-eval.pl` of CoNLL-2005: an argument is correct if its label and all
its pieces are. C-X continues the preceding argument X; if there is none, it is an argument X. The
predicate itself (V) and its continuations are not scored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any, NamedTuple, TypeVar

OUTSIDE = "O"
PREDICATE = "V"
CONTINUED = "C-"

_SAME = {"L": "E", "U": "S"}

T = TypeVar("T")


class Span(NamedTuple):
    """Tokens start, ..., end - 1."""

    start: int
    end: int
    type: str


def shown_span(
    tokens: Sequence[str], offsets: Sequence[tuple[int, int]] | None, start: int, end: int
) -> dict[str, Any]:
    """Return the position of a span as JSON values, with character offsets for raw text."""
    values: dict[str, Any] = {"start": start, "end": end, "text": " ".join(tokens[start:end])}
    if offsets is not None:
        values["characters"] = [offsets[start][0], offsets[end - 1][1]]
    return values


def spans_of(tags: Sequence[str]) -> list[Span]:
    """Return the spans in a sequence of tags."""
    spans: list[Span] = []
    start, before = 0, (OUTSIDE, "")
    for place, tag in enumerate([*tags, OUTSIDE]):
        here = _parts(tag)
        continues = here[0] in "IE" and before[0] in "BI" and here[1] == before[1]
        if not continues:
            if before[0] != OUTSIDE:
                spans.append(Span(start, place, before[1]))
            start = place
        before = here
    return spans


def tags_of(spans: Iterable[Span], length: int, scheme: str = "BIO") -> list[str]:
    """Write spans as tags: "BIO" (IOB2) or "BIOES"."""
    tags = [OUTSIDE] * length
    for start, end, kind in spans:
        tags[start:end] = [f"B-{kind}", *[f"I-{kind}"] * (end - start - 1)]
        if scheme == "BIOES":
            tags[end - 1] = f"S-{kind}" if end - start == 1 else f"E-{kind}"
    return tags


def span_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """Score predicted tags against gold ones, sentence by sentence.

    Returns:
        precision, recall and f1 over all spans, in percent; accuracy of the tokens, both sides
        written as IOB2; the numbers of spans; and the same for each type under "types".
    """
    true, guess = ([set(spans_of(tags)) for tags in side] for side in (gold, predicted))
    overall, types = set_figures(true, guess, lambda span: span.type)
    written, guessed = (
        [tag for spans, tags in zip(side, gold, strict=True) for tag in tags_of(spans, len(tags))]
        for side in (true, guess)
    )
    same = sum(a == b for a, b in zip(written, guessed, strict=True))
    return {**overall, "accuracy": percent(same, len(written)), "types": types}


def set_figures(
    gold: Iterable[Set[T]], predicted: Iterable[Set[T]], label_of: Callable[[T], str]
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Compare sets of labeled items, example by example.

    Returns:
        The scores of all items, and those of each label.
    """
    n_gold: Counter[str] = Counter()
    n_predicted: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for true, guess in zip(gold, predicted, strict=True):
        n_gold.update(map(label_of, true))
        n_predicted.update(map(label_of, guess))
        right.update(map(label_of, true & guess))
    labels = {
        label: figures(n_gold[label], n_predicted[label], right[label])
        for label in sorted(n_gold | n_predicted)
    }
    return figures(n_gold.total(), n_predicted.total(), right.total()), labels


def _parts(tag: str) -> tuple[str, str]:
    prefix, _, kind = tag.partition("-")
    return _SAME.get(prefix, prefix), kind


def figures(gold: int, predicted: int, right: int) -> dict[str, float]:
    """Return F1, precision and recall in percent, and their counts."""
    precision, recall = percent(right, predicted), percent(right, gold)
    return {
        "f1": f_score(precision, recall),
        "precision": precision,
        "recall": recall,
        "gold": gold,
        "predicted": predicted,
        "right": right,
    }


def f_score(precision: float, recall: float) -> float:
    """Return F1, the harmonic mean; 0 if both are 0."""
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def percent(part: float, total: int) -> float:
    """Return a percentage; 0 if the total is 0."""
    return 100 * part / total if total else 0.0


class Argument(NamedTuple):
    """A label, and (start, end) of its pieces from left to right."""

    label: str
    pieces: tuple[tuple[int, int], ...]


def arguments_of(spans: Iterable[Span]) -> set[Argument]:
    """Join pieces into arguments, without the predicate."""
    arguments: list[tuple[str, list[tuple[int, int]]]] = []
    last: dict[str, list[tuple[int, int]]] = {}  # the pieces of the last argument of a label
    for start, end, kind in sorted(spans):
        label = kind.removeprefix(CONTINUED)
        if label != kind and label in last:
            last[label].append((start, end))
            continue
        last[label] = [(start, end)]
        arguments.append((label, last[label]))
    return {Argument(label, tuple(pieces)) for label, pieces in arguments if label != PREDICATE}


def srl_scores(
    gold: Sequence[Iterable[Span]], predicted: Sequence[Iterable[Span]]
) -> dict[str, Any]:
    """Score the arguments of predicates, one predicate after the other.

    Returns:
        f1, precision and recall over all arguments, in percent; the numbers behind them; how many
        predicates have exactly the correct arguments, in percent; and scores of each label.
    """
    theirs, ours = ([arguments_of(spans) for spans in side] for side in (gold, predicted))
    overall, roles = set_figures(theirs, ours, lambda argument: argument.label)
    perfect = sum(a == b for a, b in zip(theirs, ours, strict=True))
    return {
        **overall,
        "predicates": len(gold),
        "perfect": percent(perfect, len(gold)),
        "roles": roles,
    }
