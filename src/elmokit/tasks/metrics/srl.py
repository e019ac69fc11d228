"""Arguments of predicates, and their F1 as in `srl-eval.pl` of CoNLL-2005.

An argument is correct if its label and all its pieces are. C-X continues the preceding argument X;
if there is none, it is an argument X. The predicate itself (V) and its continuations are not
scored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from elmokit.tasks.metrics.spans import Span, percent, set_figures

PREDICATE = "V"
CONTINUED = "C-"


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
