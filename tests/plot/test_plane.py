"""Projections and clusterings of points in known groups."""

from __future__ import annotations

import numpy as np
import pytest

from elmokit.embed.vectors import FloatArray
from elmokit.plot import plane


def groups(*sizes: int, spread: float = 0.1, seed: int = 0) -> tuple[FloatArray, np.ndarray]:
    """Return points around several centers, and the center of each."""
    draw = np.random.default_rng(seed)
    centers = np.linalg.qr(draw.normal(size=(40, 40)))[0][: len(sizes)]
    labels = np.repeat(np.arange(len(sizes)), sizes)
    points = centers[labels] + spread * draw.normal(size=(len(labels), 40)) / 40**0.5
    return points.astype(np.float32), labels


def test_projection_maximizes_the_variance() -> None:
    points, _ = groups(20, 20, 20)
    ((coordinates, shares),) = plane.principal_planes([points], reference=0)
    assert coordinates.shape == (60, 2)
    assert np.abs(coordinates.mean(axis=0)).max() < 1e-5
    units = points / np.linalg.norm(points, axis=1, keepdims=True)
    centered = units - units.mean(axis=0)
    lengths = np.linalg.svd(centered, compute_uv=False)
    assert shares == pytest.approx(tuple(lengths[:2] ** 2 / (lengths**2).sum()), rel=1e-4)
    assert (coordinates**2).sum() == pytest.approx((lengths[:2] ** 2).sum(), rel=1e-4)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_identical_points_are_at_the_origin(n: int) -> None:
    ((coordinates, shares),) = plane.principal_planes([np.ones((n, 3), np.float32)], reference=0)
    assert (coordinates == 0).all()
    assert shares == (0.0, 0.0)
    assert plane.cluster(np.ones((n, 3), np.float32)).tolist() == [0] * n


def test_points_are_rotated_to_match_the_reference() -> None:
    points, labels = groups(20, 12, 6)
    # The same plane, but another group has the largest variance.
    stretched = points + (labels == 2)[:, None] * points * np.float32(0.5)
    both = plane.principal_planes([stretched, points], reference=1)
    (single,) = plane.principal_planes([stretched], reference=0)
    for coordinates, shares in both:
        variances = coordinates.var(axis=0)
        assert variances / variances.sum() == pytest.approx(
            np.array(shares) / sum(shares), rel=1e-4
        )
    assert sum(both[0][1]) == pytest.approx(sum(single[1]), rel=1e-5)
    assert np.abs(both[0][0] - both[1][0]).max() <= np.abs(single[0] - both[1][0]).max()

    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(40, 40)))[0]
    turned, reference = plane.principal_planes([points @ turn.astype(np.float32), points], 1)
    assert np.abs(turned[0] - reference[0]).max() < 1e-4


@pytest.mark.parametrize("k", [None, 3])
def test_groups_are_found(k: int | None) -> None:
    points, labels = groups(30, 20, 10)
    found = plane.cluster(points, k)
    assert (found == labels).all()  # the largest is 0
    assert plane.silhouette(points, found) == pytest.approx(0.99, abs=0.02)


def test_noise_is_one_cluster() -> None:
    noise = np.random.default_rng(0).normal(size=(50, 40)).astype(np.float32)
    assert set(plane.cluster(noise).tolist()) == {0}
    assert plane.silhouette(noise, np.zeros(50, dtype=np.int64)) is None


def test_silhouette_of_a_small_example() -> None:
    points = np.array([[1, 0], [1, 0], [0, 1], [0, -1]], dtype=np.float32)
    labels = np.array([0, 0, 1, 1])
    # The first two: 0 inside, 1 outside. The others: 2 inside, 1 outside.
    assert plane.silhouette(points, labels) == pytest.approx((1 + 1 - 0.5 - 0.5) / 4)


def test_more_clusters_than_points() -> None:
    assert sorted(plane.cluster(groups(3)[0], 12).tolist()) == [0, 1, 2]


def test_purity_and_mean_cosine() -> None:
    assert plane.purity([0, 0, 0, 1], ["a", "a", "b", "b"]) == 0.75
    points = np.array([[1, 0], [0, 2]], dtype=np.float32)
    assert plane.mean_cosine(points) == pytest.approx(0.0, abs=1e-6)
    assert plane.mean_cosine(np.array([[1, 0], [3, 0]], np.float32)) == pytest.approx(1.0)
    assert plane.mean_cosine(points[:1]) == 1.0
