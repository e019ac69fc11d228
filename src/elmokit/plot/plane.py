"""Projection of vectors to two dimensions, and clustering.

Functions that take vectors normalize them first, because words are compared by cosine similarity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from elmokit.embed.vectors import FloatArray, normalize, similarity
from elmokit.errors import optional_imports

with optional_imports("plot", "Projecting vectors to two dimensions"):
    from scipy.linalg import orthogonal_procrustes
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA
    from sklearn.metrics import silhouette_score
    from sklearn.metrics.cluster import contingency_matrix

Labels = NDArray[np.int64]

_MAX_CLUSTERS = 6
_INITIALIZATIONS = 8
# Clusterings with a lower silhouette score are considered noise.
_MIN_SILHOUETTE = 0.1


def principal_planes(
    layers: Sequence[FloatArray], reference: int
) -> list[tuple[FloatArray, tuple[float, float]]]:
    """Project the vectors of each layer onto their first two principal components.

    The points are then rotated and reflected in the plane to match the points of one layer as
    closely as possible (Procrustes). Only the axes of this layer are the principal components.

    Args:
        layers: The vectors of each layer, shape (n, D).
        reference: The index of the layer that the others are rotated to.

    Returns:
        For each layer, the coordinates, shape (n, 2), and the fraction of the variance along each
        axis. If all vectors are identical, all coordinates and fractions are 0.
    """
    planes = [_principal_plane(vectors) for vectors in layers]
    target, _ = planes[reference]
    return [_rotate(coordinates, target, explained) for coordinates, explained in planes]


def _principal_plane(vectors: FloatArray) -> tuple[FloatArray, float]:
    """Return the coordinates, and the fraction of the variance that the plane explains."""
    points = normalize(vectors)
    points = points - points.mean(axis=0)
    coordinates = np.zeros((len(points), 2), dtype=np.float32)
    total = float((points.astype(np.float64) ** 2).sum())
    if total < 1e-9 * len(points):
        return coordinates, 0.0
    pca = PCA(min(2, *points.shape), svd_solver="full")
    coordinates[:, : pca.n_components] = pca.fit_transform(points)
    return coordinates, float(pca.explained_variance_ratio_.sum())


def _rotate(
    coordinates: FloatArray, target: FloatArray, explained: float
) -> tuple[FloatArray, tuple[float, float]]:
    if not explained:
        return coordinates, (0.0, 0.0)
    rotation, _ = orthogonal_procrustes(coordinates, target)
    rotated: FloatArray = coordinates @ rotation
    variances = rotated.var(axis=0, dtype=np.float64)
    x, y = (explained * variances / variances.sum()).tolist()
    return rotated, (x, y)


def cluster(vectors: FloatArray, k: int | None = None) -> Labels:
    """Cluster vectors with k-means.

    Args:
        vectors: Vectors, shape (n, D).
        k: Number of clusters. Default: the number from 2 to 6 with the best silhouette score, or 1
            if all silhouette scores are low.

    Returns:
        The cluster of each vector, shape (n,). Clusters are numbered from 0 in order of
        decreasing size.
    """
    points = normalize(vectors)
    if k is not None:
        return _number_by_size(_k_means(points, k))
    best_score, best_labels = _MIN_SILHOUETTE, np.zeros(len(points), dtype=np.int64)
    for n_clusters in range(2, min(_MAX_CLUSTERS, len(points) - 1) + 1):
        labels = _k_means(points, n_clusters)
        score = silhouette(points, labels)
        if score is not None and score > best_score + 1e-6:
            best_score, best_labels = score, labels
    return _number_by_size(best_labels)


def silhouette(vectors: FloatArray, labels: Labels) -> float | None:
    """Return the silhouette score of groups (cosine distance), or None for a single group."""
    n_groups = len(np.unique(labels))
    if n_groups < 2:
        return None
    if n_groups == len(labels):
        return 0.0  # scikit-learn raises an error if every group has one point
    distances = 1.0 - similarity(vectors, vectors)
    distances[distances < 1e-6] = 0.0  # rounding errors
    np.fill_diagonal(distances, 0.0)
    return float(silhouette_score(distances, labels, metric="precomputed"))


def purity(labels: Sequence[int], senses: Sequence[str]) -> float:
    """Return the fraction of points that have the most frequent sense of their cluster."""
    return float(contingency_matrix(labels, senses).max(axis=1).sum() / len(labels))


def mean_cosine(vectors: FloatArray) -> float:
    """Return the mean cosine similarity of all pairs of vectors, or 1 for a single vector."""
    n = len(vectors)
    if n < 2:
        return 1.0
    points = normalize(vectors).astype(np.float64)
    squared_norms = float((points**2).sum())
    return float((points.sum(axis=0) ** 2).sum() - squared_norms) / (n * (n - 1))


def _k_means(points: FloatArray, k: int) -> Labels:
    n_distinct = len(np.unique(points.round(5), axis=0))
    k_means = KMeans(min(k, n_distinct), n_init=_INITIALIZATIONS, random_state=0)
    labels: Labels = k_means.fit_predict(points).astype(np.int64)
    return labels


def _number_by_size(labels: Labels) -> Labels:
    """Number clusters in order of decreasing size, then in order of their first points."""
    order = [label for label, _ in Counter(labels.tolist()).most_common()]
    numbers = {label: number for number, label in enumerate(order)}
    return np.array([numbers[label] for label in labels.tolist()], dtype=np.int64)
