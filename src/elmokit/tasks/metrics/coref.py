"""Metrics for clusters of mentions, as in the official scorer.

    MUC    links; a cluster of n mentions has n - 1                         (Vilain et al. 1995)
    B3     the shared fraction of the cluster of each mention               (Bagga and Baldwin 1998)
    CEAFe  clusters aligned one to one, 2 |K & R| / (|K| + |R|) per pair    (Luo 2005)

The score of CoNLL-2012 is the mean of the three F1 scores. As in version 8 of the scorer (Pradhan
et al. 2014), mentions that are only in the gold or only in the predicted clusters are kept, and
counts are summed over documents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from itertools import starmap
from typing import Any, NamedTuple

import numpy as np

from elmokit.errors import optional_imports
from elmokit.tasks.metrics.spans import f_score, percent

with optional_imports("coref", "Scoring coreference"):
    from scipy.optimize import linear_sum_assignment

#: The clusters of a document. A mention is in at most one of them.
Clusters = Sequence[Collection[Hashable]]


class Counts(NamedTuple):
    """Numerators and denominators of recall and precision, which can be summed over documents."""

    recalled: float
    gold: int
    correct: float
    predicted: int

    def to_dict(self) -> dict[str, float]:
        """Return F1, precision and recall in percent; 0 if a denominator is 0."""
        recall, precision = percent(self.recalled, self.gold), percent(self.correct, self.predicted)
        return {"f1": f_score(precision, recall), "precision": precision, "recall": recall}


def coref_scores(gold: Sequence[Clusters], predicted: Sequence[Clusters]) -> dict[str, Any]:
    """Score the clusters of documents.

    Returns:
        conll, the mean F1 of MUC, B3 and CEAFe, in percent; under "measures", the f1, precision
        and recall of each metric and of the mentions themselves; and the numbers of mentions and
        clusters.
    """
    pairs = list(zip(gold, predicted, strict=True))
    totals = {name: _total(starmap(measure, pairs)) for name, measure in MEASURES.items()}
    measures = {name: counts.to_dict() for name, counts in totals.items()}
    return {
        "conll": sum(measures[name]["f1"] for name in ("muc", "b3", "ceafe")) / 3,
        "gold_mentions": totals["mentions"].gold,
        "predicted_mentions": totals["mentions"].predicted,
        "gold_clusters": totals["ceafe"].gold,
        "predicted_clusters": totals["ceafe"].predicted,
        "measures": measures,
    }


def without_singletons(clusters: Clusters) -> list[Collection[Hashable]]:
    """Remove singletons, which OntoNotes does not annotate."""
    return [cluster for cluster in clusters if len(cluster) > 1]


def mentions(gold: Clusters, predicted: Clusters) -> Counts:
    """Compare the mentions, regardless of their clusters."""
    n_gold, n_predicted = (sum(len(c) for c in side) for side in (gold, predicted))
    correct = sum(_shared(gold, predicted).values())
    return Counts(correct, n_gold, correct, n_predicted)


def muc(gold: Clusters, predicted: Clusters) -> Counts:
    """Count links: n mentions of a gold cluster in the same predicted cluster have n - 1 links."""
    correct = sum(n - 1 for n in _shared(gold, predicted).values())
    n_gold, n_predicted = (sum(len(c) - 1 for c in side if c) for side in (gold, predicted))
    return Counts(correct, n_gold, correct, n_predicted)


def b3(gold: Clusters, predicted: Clusters) -> Counts:
    """Sum the overlap of the gold and the predicted cluster of each mention."""
    shared = _shared(gold, predicted)
    recalled = sum(n * n / len(gold[k]) for (k, _), n in shared.items())
    correct = sum(n * n / len(predicted[r]) for (_, r), n in shared.items())
    n_gold, n_predicted = (sum(len(c) for c in side) for side in (gold, predicted))
    return Counts(recalled, n_gold, correct, n_predicted)


def ceafe(gold: Clusters, predicted: Clusters) -> Counts:
    """Sum the similarities of aligned clusters. The alignment maximizes the sum."""
    similarity = np.zeros((len(gold), len(predicted)))
    for (k, r), n in _shared(gold, predicted).items():
        similarity[k, r] = 2 * n / (len(gold[k]) + len(predicted[r]))
    total = float(similarity[linear_sum_assignment(similarity, maximize=True)].sum())
    n_gold, n_predicted = (sum(len(c) > 0 for c in side) for side in (gold, predicted))
    return Counts(total, n_gold, total, n_predicted)


MEASURES = {"muc": muc, "b3": b3, "ceafe": ceafe, "mentions": mentions}


def _total(counts: Iterable[Counts]) -> Counts:
    return Counts(*(sum(column) for column in zip(Counts(0, 0, 0, 0), *counts, strict=True)))


def _shared(gold: Clusters, predicted: Clusters) -> Mapping[tuple[int, int], int]:
    """Count the shared mentions of each gold cluster k and predicted cluster r that share any."""
    cluster_of = {mention: k for k, cluster in enumerate(gold) for mention in cluster}
    return Counter(
        (cluster_of[mention], r)
        for r, cluster in enumerate(predicted)
        for mention in cluster
        if mention in cluster_of
    )
