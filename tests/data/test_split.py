from __future__ import annotations

import numpy as np
import pytest

from elmokit.data.prepare import choose_documents
from elmokit.errors import DataError


def chosen(n: int, valid: int | float, seed: int = 0) -> list[int]:
    return np.flatnonzero(choose_documents(n, valid, seed)).tolist()


def splitmix64(value: int) -> int:
    """The published generator, in whole numbers without a size."""
    value = (value + 0x9E3779B97F4A7C15) % 2**64
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ value >> 27) * 0x94D049BB133111EB % 2**64
    return value ^ value >> 31


@pytest.mark.parametrize("seed", [0, 1, 2**63])
def test_the_documents_with_the_smallest_hashes_are_chosen(seed: int) -> None:
    assert splitmix64(0) == 0xE220A8397B1DCDAF  # its first number, as published
    by_hash = sorted(range(1000), key=lambda place: splitmix64(splitmix64(seed) ^ place))
    assert chosen(1000, 7, seed) == sorted(by_hash[:7])


def test_more_documents_include_fewer() -> None:
    assert set(chosen(500, 10)) < set(chosen(500, 40))


@pytest.mark.parametrize(("n", "fraction", "expected"), [(1000, 0.05, 50), (20, 0.01, 1)])
def test_a_fraction_is_of_documents_and_at_least_one(
    n: int, fraction: float, expected: int
) -> None:
    assert len(chosen(n, fraction)) == expected


def test_the_choice_spreads_over_the_corpus() -> None:
    quarters = np.bincount(np.array(chosen(40_000, 0.1)) // 10_000)
    assert (abs(quarters - 1000) < 120).all()


@pytest.mark.parametrize("seed", [-1, 2**64 + 3])
def test_any_whole_number_is_a_seed(seed: int) -> None:
    assert len(chosen(100, 10, seed)) == 10


@pytest.mark.parametrize(("n", "valid"), [(1, 1), (1, 0.5), (10, 10), (10, 11)])
def test_something_must_be_left_to_train_on(n: int, valid: int | float) -> None:
    with pytest.raises(DataError, match="--valid-files"):
        choose_documents(n, valid, 0)
