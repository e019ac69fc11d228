"""The uses of a word on a plane, and the clusters they fall into.

Cosines are what vectors of words are compared by, so all of this is done on vectors of length 1.
A plane is that of the two principal components: where the points spread most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from elmokit.embed.spaces import unit
from elmokit.embed.vectors import FloatArray

Labels = NDArray[np.int64]

_STARTS = 8
_ROUNDS = 50
# Below this silhouette clusters are no more than noise cut into pieces.
_SEPARATE = 0.1


def principal_plane(vectors: FloatArray) -> tuple[FloatArray, tuple[float, float]]:
    """Return the coordinates of points on their principal plane, and what it shows of them.

    Args:
        vectors: One per point, (n, D).

    Returns:
        Coordinates (n, 2), and the shares of the variance along both axes. Points that are all the
        same are all at the origin.
    """
    points = unit(vectors)
    points = points - points.mean(axis=0)
    coordinates = np.zeros((len(points), 2), dtype=np.float32)
    total = float((points.astype(np.float64) ** 2).sum())
    if total < 1e-9 * len(points):
        return coordinates, (0.0, 0.0)
    left, lengths, _ = np.linalg.svd(points, full_matrices=False)
    n_axes = min(2, len(lengths))
    coordinates[:, :n_axes] = left[:, :n_axes] * lengths[:n_axes]
    shares = [*(float(length) ** 2 / total for length in lengths[:2]), 0.0, 0.0]
    return coordinates, (shares[0], shares[1])


def turned_to(coordinates: FloatArray, reference: FloatArray) -> FloatArray:
    """Turn and mirror a plane so that its points lie as near to those of another as they can."""
    left, _, right = np.linalg.svd(coordinates.T @ reference)
    turned: FloatArray = (coordinates @ (left @ right)).astype(np.float32)
    return turned


def cluster(vectors: FloatArray, k: int | None = None, *, most: int = 6, seed: int = 0) -> Labels:
    """Find clusters of points by k-means; the largest is 0.

    Args:
        vectors: One per point, (n, D).
        k: How many; None chooses the number with the best silhouette, 1 if none separates.
        most: Clusters to try at most.
        seed: Of the starts.
    """
    points = unit(vectors)
    if k is not None:
        return _by_size(_k_means(points, min(k, len(points)), seed))
    best, found = _SEPARATE, np.zeros(len(points), dtype=np.int64)
    for number in range(2, min(most, len(points) - 1) + 1):
        labels = _k_means(points, number, seed)
        quality = silhouette(points, labels)
        if quality is not None and quality > best + 1e-6:
            best, found = quality, labels
    return _by_size(found)


def silhouette(vectors: FloatArray, labels: Labels) -> float | None:
    """Return how well groups are apart, from -1 to 1, by cosine; None without two groups."""
    groups = np.unique(labels)
    if len(groups) < 2:
        return None
    points = unit(vectors)
    distances = np.maximum(1.0 - points @ points.T, 0.0)
    members = np.stack([labels == group for group in groups]).astype(np.float32)  # (G, n)
    sizes = members.sum(axis=1)
    sums = distances @ members.T  # (n, G)
    own = np.searchsorted(groups, labels)
    rows = np.arange(len(labels))
    alone = sizes[own] == 1
    inside = sums[rows, own] / np.maximum(sizes[own] - 1, 1)
    means = sums / sizes
    means[rows, own] = np.inf
    outside = means.min(axis=1)
    larger = np.maximum(inside, outside)
    scores = np.where(alone | (larger < 1e-6), 0.0, (outside - inside) / np.maximum(larger, 1e-6))
    return float(scores.mean())


def purity(labels: Sequence[int], senses: Sequence[str]) -> float:
    """Return the share of points that are of the commonest sense of their cluster."""
    pairs = Counter(zip(labels, senses, strict=True))
    best: Counter[int] = Counter()
    for (label, _), count in pairs.items():
        best[label] = max(best[label], count)
    return best.total() / len(labels)


def mean_cosine(vectors: FloatArray) -> float:
    """Return the mean cosine of different points; 1 for a single one."""
    n = len(vectors)
    if n < 2:
        return 1.0
    points = unit(vectors).astype(np.float64)
    lengths = float((points**2).sum())
    return float((points.sum(axis=0) ** 2).sum() - lengths) / (n * (n - 1))


def _k_means(points: FloatArray, k: int, seed: int) -> Labels:
    draw = np.random.default_rng(seed)
    best, found = np.inf, np.zeros(len(points), dtype=np.int64)
    for _ in range(_STARTS if k > 1 else 1):
        labels, spread = _one_start(points, _first_centres(points, k, draw))
        if spread < best - 1e-9:
            best, found = spread, labels
    return found


def _first_centres(points: FloatArray, k: int, draw: np.random.Generator) -> FloatArray:
    """Choose centres among the points, the next one where the others are far (k-means++)."""
    chosen = [int(draw.integers(len(points)))]
    nearest = np.full(len(points), np.inf)
    while len(chosen) < k:
        nearest = np.minimum(nearest, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
        total = nearest.sum()
        if total <= 1e-12:
            break  # there are fewer different points than clusters
        chosen.append(int(draw.choice(len(points), p=nearest / total)))
    centres: FloatArray = points[chosen]
    return centres


def _one_start(points: FloatArray, centres: FloatArray) -> tuple[Labels, float]:
    labels = np.full(len(points), -1, dtype=np.int64)
    for _ in range(_ROUNDS):
        distances = ((points[:, None] - centres[None]) ** 2).sum(axis=2)
        new = distances.argmin(axis=1)
        if (new == labels).all():
            break
        labels = new
        centres = np.stack(
            [
                points[labels == c].mean(axis=0) if (labels == c).any() else centres[c]
                for c in range(len(centres))
            ]
        )
    return labels, float(((points - centres[labels]) ** 2).sum())


def _by_size(labels: Labels) -> Labels:
    """Number clusters by size, the largest first; of equal ones that of the first point first."""
    order = [label for label, _ in Counter(labels.tolist()).most_common()]
    numbers = {label: number for number, label in enumerate(order)}
    return np.array([numbers[label] for label in labels.tolist()], dtype=np.int64)
