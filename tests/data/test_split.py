from __future__ import annotations

import numpy as np
import pytest

from elmokit.data.prepare import choose_documents
from elmokit.errors import DataError


def chosen(n: int, valid: int | float, seed: int = 0) -> list[int]:
    return np.flatnonzero(choose_documents(n, valid, seed)).tolist()


def splitmix64(value: int) -> int:
    """Return the output of the published generator, with unbounded integers."""
    value = (value + 0x9E3779B97F4A7C15) % 2**64
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ value >> 27) * 0x94D049BB133111EB % 2**64
    return value ^ value >> 31


@pytest.mark.parametrize("seed", [0, 1, 2**63])
def test_documents_with_the_smallest_hashes_are_selected(seed: int) -> None:
    assert splitmix64(0) == 0xE220A8397B1DCDAF  # its first value, as published
    by_hash = sorted(range(1000), key=lambda place: splitmix64(splitmix64(seed) ^ place))
    assert chosen(1000, 7, seed) == sorted(by_hash[:7])


def test_larger_selections_include_smaller_ones() -> None:
    assert set(chosen(500, 10)) < set(chosen(500, 40))


@pytest.mark.parametrize(("n", "fraction", "expected"), [(1000, 0.05, 50), (20, 0.01, 1)])
def test_fraction_applies_to_documents_and_selects_at_least_one(
    n: int, fraction: float, expected: int
) -> None:
    assert len(chosen(n, fraction)) == expected


def test_selection_is_spread_over_the_corpus() -> None:
    quarters = np.bincount(np.array(chosen(40_000, 0.1)) // 10_000)
    assert (abs(quarters - 1000) < 120).all()


@pytest.mark.parametrize("seed", [-1, 2**64 + 3])
def test_any_integer_is_a_valid_seed(seed: int) -> None:
    assert len(chosen(100, 10, seed)) == 10


@pytest.mark.parametrize(("n", "valid"), [(1, 1), (1, 0.5), (10, 10), (10, 11)])
def test_at_least_one_document_is_left_for_training(n: int, valid: int | float) -> None:
    with pytest.raises(DataError, match="--valid-file"):
        choose_documents(n, valid, 0)
