"""The state that AllenNLP's classes carry between calls, for each row."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from elmokit.compat.allennlp import Elmo, batch_to_ids
from elmokit.errors import DataError
from tests.compat.conftest import Files

ONE, TWO, THREE = ["a"], ["b", "c"], ["d", "e", "f"]


@pytest.fixture
def elmo(tiny: Files) -> Elmo:
    return Elmo(*tiny, 1).eval()


def lstm(elmo: Elmo) -> Any:
    return elmo._elmo_lstm._elmo_lstm


def run(elmo: Elmo, *batch: list[str]) -> Tensor:
    with torch.no_grad():
        return elmo(batch_to_ids(batch))["elmo_representations"][0]


def test_row_continues_from_its_previous_state(elmo: Elmo, tiny: Files) -> None:
    run(elmo, ONE, TWO)
    carried = run(elmo, THREE, ONE)
    # The same two texts, each on its own.
    for row, (first, second) in enumerate(((ONE, THREE), (TWO, ONE))):
        alone = Elmo(*tiny, 1).eval()
        run(alone, first)
        expected = run(alone, second)[0]
        assert torch.allclose(carried[row, : len(second)], expected, atol=2e-6)


def test_rows_missing_from_a_smaller_batch_keep_their_state(elmo: Elmo) -> None:
    run(elmo, ONE, TWO, THREE)
    before = lstm(elmo)._states
    run(elmo, TWO)
    for old, new in zip(before, lstm(elmo)._states, strict=True):
        assert new.shape == old.shape
        assert torch.equal(new[:, 1:], old[:, 1:])
        assert not torch.equal(new[:, 0], old[:, 0])


def test_new_rows_of_a_larger_batch_start_from_zero(elmo: Elmo, tiny: Files) -> None:
    run(elmo, ONE)
    found = run(elmo, ONE, TWO)
    fresh = run(Elmo(*tiny, 1).eval(), ONE, TWO)
    assert torch.allclose(found[1], fresh[1], atol=2e-6)
    assert (found[0, 0] - fresh[0, 0]).abs().max() > 1e-3


def test_states_have_the_layout_of_allennlp(elmo: Elmo) -> None:
    assert lstm(elmo)._states is None
    run(elmo, ONE, TWO, THREE)
    hidden, memory = lstm(elmo)._states
    assert hidden.shape == (2, 3, 2 * 10)
    assert memory.shape == (2, 3, 2 * 24)
    assert not hidden.requires_grad


def test_states_can_be_restored(elmo: Elmo) -> None:
    run(elmo, ONE, TWO)
    kept = lstm(elmo)._states
    once = run(elmo, TWO, TWO)
    run(elmo, THREE)  # must not modify our copy
    lstm(elmo)._states = kept
    assert torch.equal(run(elmo, TWO, TWO), once)


def test_reset_of_all_or_some_rows(elmo: Elmo, tiny: Files) -> None:
    first = run(elmo, ONE, TWO)
    second = run(elmo, ONE, TWO)
    lstm(elmo).reset_states()
    assert lstm(elmo)._states is None
    assert torch.equal(run(elmo, ONE, TWO), first)
    lstm(elmo).reset_states(torch.tensor([0, 1]))  # integers, as in AllenNLP 0.9
    some = run(elmo, ONE, TWO)
    assert torch.allclose(some[0], second[0], atol=2e-6)
    assert torch.allclose(some[1], first[1], atol=2e-6)
    with pytest.raises(DataError, match=r"shape \[3\]; expected \[2\]"):
        lstm(elmo).reset_states(torch.tensor([True, False, False]))
    fresh = Elmo(*tiny, 1)
    lstm(fresh).reset_states(torch.tensor([True]))  # no state to reset


def test_empty_row_contains_only_its_boundaries(elmo: Elmo, tiny: Files) -> None:
    found = run(elmo, ONE, [])
    assert not found[1].any()
    boundaries = Elmo(*tiny, 1).eval()
    run(boundaries, [])
    for state, alone in zip(lstm(elmo)._states, lstm(boundaries)._states, strict=True):
        assert alone.any()
        assert torch.allclose(state[:, 1], alone[:, 0], atol=2e-6)


def test_stateless_calls_are_identical(tiny: Files) -> None:
    elmo = Elmo(*tiny, 1, stateful=False).eval()
    first = run(elmo, ONE, TWO)
    assert run(elmo, ONE, TWO, THREE).shape == (3, 3, 20)  # larger: AllenNLP fails here
    assert run(elmo, THREE).shape == (1, 3, 20)
    assert torch.equal(run(elmo, ONE, TWO), first)


def test_state_can_be_switched_off_and_on(elmo: Elmo) -> None:
    first = run(elmo, ONE)
    lstm(elmo).stateful = False
    assert torch.equal(run(elmo, ONE), first)
    assert torch.equal(run(elmo, ONE), first)
    lstm(elmo).stateful = True  # continues from the last call, which still updated the state
    assert not torch.equal(run(elmo, ONE), first)


def test_state_is_not_part_of_the_state_dict(elmo: Elmo) -> None:
    run(elmo, ONE)
    before = lstm(elmo)._states
    assert not any("_states" in name for name in elmo.state_dict())
    elmo.load_state_dict(elmo.state_dict())
    elmo.train()
    assert lstm(elmo)._states is before
