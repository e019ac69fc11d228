"""Arguments of predicates, and their F1 as `srl-eval.pl` of CoNLL-2005 counts it.

An argument is right if its label and all its pieces are. C-X is a further piece of the argument X
before it; where there is none before it, it is an argument X. V, the predicate itself, and what
goes on with it do not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from elmokit.tasks.metrics.spans import Span, figures, percent

PREDICATE = "V"
CONTINUED = "C-"


class Argument(NamedTuple):
    """A label, and (start, end) of its pieces from left to right."""

    label: str
    pieces: tuple[tuple[int, int], ...]


def arguments_of(spans: Iterable[Span]) -> set[Argument]:
    """Join pieces to arguments, and leave out the predicate."""
    found: list[tuple[str, list[tuple[int, int]]]] = []
    last: dict[str, list[tuple[int, int]]] = {}  # the pieces of the last argument of a label
    for start, end, kind in sorted(spans):
        label = kind.removeprefix(CONTINUED)
        if label != kind and label in last:
            last[label].append((start, end))
            continue
        last[label] = [(start, end)]
        found.append((label, last[label]))
    return {Argument(label, tuple(pieces)) for label, pieces in found if label != PREDICATE}


def srl_scores(
    gold: Sequence[Iterable[Span]], predicted: Sequence[Iterable[Span]]
) -> dict[str, Any]:
    """Score the arguments of predicates, one predicate after the other.

    Returns:
        f1, precision and recall over all arguments, in percent; the numbers behind them; how many
        predicates have all arguments right and no others, in percent; and figures of each label.
    """
    wanted: Counter[str] = Counter()
    given: Counter[str] = Counter()
    right: Counter[str] = Counter()
    perfect = 0
    for true, guess in zip(gold, predicted, strict=True):
        theirs, ours = arguments_of(true), arguments_of(guess)
        wanted.update(argument.label for argument in theirs)
        given.update(argument.label for argument in ours)
        right.update(argument.label for argument in theirs & ours)
        perfect += theirs == ours
    return {
        **figures(wanted.total(), given.total(), right.total()),
        "predicates": len(gold),
        "perfect": percent(perfect, len(gold)),
        "roles": {
            label: figures(wanted[label], given[label], right[label])
            for label in sorted(wanted | given)
        },
    }
