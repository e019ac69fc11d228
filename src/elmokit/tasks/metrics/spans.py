"""Labeled spans in sequences of tags, arguments of predicates, and the F1 of both.

Spans are scored as in `conlleval`: a span begins at B-X, or at I-X after O or after a tag of
another type, and ends before the next tag that does not continue it. Therefore, IOB1, IOB2 and
invalid sequences of either scheme are all accepted. E-X and S-X (or L-X and U-X) end a span.

Arguments are scored as in `srl-eval.pl` of CoNLL-2005: an argument is correct if its label and
all its pieces are correct. C-X continues the preceding argument X; if there is none, C-X
begins an argument X. The predicate itself (V) and its continuations are not scored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from operator import eq
from typing import Any, NamedTuple, TypeVar

OUTSIDE = "O"
PREDICATE = "V"
CONTINUED = "C-"

_ALIASES = {"L": "E", "U": "S"}

T = TypeVar("T")


class Span(NamedTuple):
    """Tokens start, ..., end - 1."""

    start: int
    end: int
    type: str


def span_to_dict(
    tokens: Sequence[str], offsets: Sequence[tuple[int, int]] | None, start: int, end: int
) -> dict[str, Any]:
    """Return the position of a span as JSON values, with character offsets for raw text."""
    values: dict[str, Any] = {"start": start, "end": end, "text": " ".join(tokens[start:end])}
    if offsets is not None:
        values["characters"] = [offsets[start][0], offsets[end - 1][1]]
    return values


def tags_to_spans(tags: Sequence[str]) -> list[Span]:
    """Return the spans in a sequence of tags."""
    spans: list[Span] = []
    start, last_prefix, last_type = 0, OUTSIDE, ""
    for k, tag in enumerate([*tags, OUTSIDE]):
        prefix, _, type_ = tag.partition("-")
        prefix = _ALIASES.get(prefix, prefix)
        if not (prefix in "IE" and last_prefix in "BI" and type_ == last_type):
            if last_prefix != OUTSIDE:
                spans.append(Span(start, k, last_type))
            start = k
        last_prefix, last_type = prefix, type_
    return spans


def spans_to_tags(spans: Iterable[Span], length: int, scheme: str = "BIO") -> list[str]:
    """Convert spans to tags of the scheme "BIO" (IOB2) or "BIOES"."""
    tags = [OUTSIDE] * length
    for start, end, label in spans:
        tags[start:end] = [f"B-{label}", *[f"I-{label}"] * (end - start - 1)]
        if scheme == "BIOES":
            tags[end - 1] = f"S-{label}" if end - start == 1 else f"E-{label}"
    return tags


def span_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """Score predicted tags against gold tags, sentence by sentence.

    Returns:
        f1, precision and recall of all spans, in percent; the span counts; the accuracy of the
        tags in IOB2; and, under "types", the scores of each type.
    """
    true, predictions = ([set(tags_to_spans(tags)) for tags in side] for side in (gold, predicted))
    overall, types = set_scores(true, predictions, lambda span: span.type)
    correct = 0
    for tags, *spans in zip(gold, true, predictions, strict=True):
        correct += sum(map(eq, *(spans_to_tags(side, len(tags)) for side in spans)))
    return {**overall, "accuracy": percent(correct, sum(map(len, gold))), "types": types}


def set_scores(
    gold: Iterable[Set[T]], predicted: Iterable[Set[T]], label_of: Callable[[T], str]
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Score predicted sets of labeled items against gold sets, example by example.

    Returns:
        The scores of all items, and those of each label.
    """
    counts: list[Counter[str]] = [Counter(), Counter(), Counter()]  # gold, predicted, correct
    for true, predictions in zip(gold, predicted, strict=True):
        for count, items in zip(counts, (true, predictions, true & predictions), strict=True):
            count.update(map(label_of, items))
    labels = {
        label: _scores(*(count[label] for count in counts))
        for label in sorted(counts[0] | counts[1])
    }
    return _scores(*(count.total() for count in counts)), labels


def _scores(gold: int, predicted: int, correct: int) -> dict[str, float]:
    """Return F1, precision and recall in percent, and the counts."""
    precision, recall = percent(correct, predicted), percent(correct, gold)
    scores = {"f1": f_score(precision, recall), "precision": precision, "recall": recall}
    return scores | {"gold": gold, "predicted": predicted, "correct": correct}


def f_score(precision: float, recall: float) -> float:
    """Return F1, the harmonic mean of precision and recall; 0 if both are 0."""
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def percent(part: float, total: int) -> float:
    """Return a percentage; 0 if the total is 0."""
    return 100 * part / total if total else 0.0


class Argument(NamedTuple):
    """An argument: its label, and the (start, end) of its pieces from left to right."""

    label: str
    pieces: tuple[tuple[int, int], ...]


def spans_to_arguments(spans: Iterable[Span]) -> set[Argument]:
    """Join pieces into arguments, and remove the predicate."""
    arguments: list[tuple[str, list[tuple[int, int]]]] = []
    last: dict[str, list[tuple[int, int]]] = {}  # pieces of the last argument with each label
    for start, end, piece_label in sorted(spans):
        label = piece_label.removeprefix(CONTINUED)
        if label != piece_label and label in last:
            last[label].append((start, end))
            continue
        last[label] = [(start, end)]
        arguments.append((label, last[label]))
    return {Argument(label, tuple(pieces)) for label, pieces in arguments if label != PREDICATE}


def srl_scores(
    gold: Sequence[Iterable[Span]], predicted: Sequence[Iterable[Span]]
) -> dict[str, Any]:
    """Score the arguments of predicates, predicate by predicate.

    Returns:
        f1, precision and recall of all arguments, in percent; the argument counts; under "perfect",
        the percentage of predicates whose arguments are all correct; and the scores of each label.
    """
    true, predictions = (
        [spans_to_arguments(spans) for spans in side] for side in (gold, predicted)
    )
    overall, roles = set_scores(true, predictions, lambda argument: argument.label)
    perfect = sum(map(eq, true, predictions))
    return {
        **overall,
        "predicates": len(gold),
        "perfect": percent(perfect, len(gold)),
        "roles": roles,
    }
