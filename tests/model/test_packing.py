from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmokit.model.packing import Packing


def test_example_in_the_docstring() -> None:
    packing = Packing.of([3, 2, 1])
    letters = np.array([list("abc"), list("de "), list("f  ")])
    assert packing.active == [3, 2, 1]
    assert "".join(letters[packing.rows, packing.steps]) == "adfbec"


@given(st.lists(st.integers(0, 6), max_size=7))
def test_packing_contains_each_token_once_and_is_reversible(lengths: list[int]) -> None:
    packing = Packing.of(lengths)
    longest = max(lengths, default=0)
    padded = torch.zeros(len(lengths), longest, 1)
    for row, length in enumerate(lengths):
        padded[row, :length, 0] = torch.arange(1, length + 1) + 10 * row
    packed = packing.pack(padded)
    assert len(packed) == sum(lengths) == packing.n_tokens
    assert torch.equal(packing.unpack(packed), padded)


@given(st.lists(st.integers(0, 6), max_size=7))
def test_reversal_reverses_each_sentence(lengths: list[int]) -> None:
    packing = Packing.of(lengths)
    turned = packing.reversal
    length = packing.lengths[packing.rows]
    assert np.array_equal(packing.rows[turned], packing.rows)
    assert np.array_equal(packing.steps[turned], length - 1 - packing.steps)
    assert np.array_equal(turned[turned], np.arange(packing.n_tokens))
