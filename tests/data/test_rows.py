from __future__ import annotations

import itertools

import numpy as np
import pytest

from elmokit.data.rows import Pairs, pack_rows, sentence_pairs

# bilm-tf's own test: 'the unknown .', 'th .', 'the' with <S> 0, </S> 1, <UNK> 2, the 3, . 4
SENTENCES = [[3, 2, 4], [2, 4], [3]]
GOLDEN = {
    False: [
        ([[0, 3, 2], [0, 2, 4]], [[3, 2, 4], [2, 4, 1]]),
        ([[4, 0, 3], [0, 3, 2]], [[1, 3, 1], [3, 2, 4]]),
    ],
    True: [
        ([[1, 4, 2], [1, 4, 2]], [[4, 2, 3], [4, 2, 0]]),
        ([[3, 1, 3], [1, 4, 2]], [[0, 3, 0], [4, 2, 3]]),
    ],
}


@pytest.mark.parametrize("backward", [False, True])
def test_rows_are_packed_as_bilm_tf_packs_them(backward: bool) -> None:
    endless = (sentence_pairs(s, 0, 1, backward=backward) for s in itertools.cycle(SENTENCES))
    batches = pack_rows(endless, rows=2, steps=3)
    for inputs, targets in GOLDEN[backward]:
        batch = next(batches)
        assert batch.inputs.tolist() == inputs
        assert batch.targets.tolist() == targets


@pytest.mark.parametrize("backward", [False, True])
def test_the_opening_symbol_is_no_target_and_the_closing_one_no_input(backward: bool) -> None:
    inputs, targets = sentence_pairs([5, 6, 7], 0, 1, backward=backward)
    opening, closing = (1, 0) if backward else (0, 1)
    assert inputs[0] == opening
    assert targets[-1] == closing
    assert opening not in targets
    assert closing not in inputs


def test_every_token_is_predicted_once_until_the_supply_ends() -> None:
    sentences = [[10 + i] * (i % 5) for i in range(40)]
    pairs = [sentence_pairs(s, 0, 1) for s in sentences]
    found: list[Pairs] = list(pack_rows(iter(pairs), rows=1, steps=4))
    flat = np.concatenate([b.targets[0] for b in found])
    whole = np.concatenate([p.targets for p in pairs])
    assert np.array_equal(flat, whole[: len(flat)])
    assert len(whole) - len(flat) < 4
