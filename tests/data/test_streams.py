from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from elmokit.data.layout import BEGIN_ID, END_ID
from elmokit.data.streams import MIN_TOKENS_TO_SPLIT, Streams, split_long_documents
from elmokit.errors import DataError

RNG = np.random.default_rng(0)
DOCUMENTS = [
    [[int(w) for w in RNG.integers(3, 90, RNG.integers(1, 9))] for _ in range(RNG.integers(1, 30))]
    for _ in range(12)
]


def corpus() -> tuple[np.ndarray, np.ndarray]:
    runs = [[w for sentence in document for w in (*sentence, END_ID)] for document in DOCUMENTS]
    offsets = np.cumsum([0] + [len(run) for run in runs])
    return np.array([w for run in runs for w in run], dtype=np.uint32), offsets


def read(streams: Streams, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    batches = [next(streams) for _ in range(n)]
    return tuple(  # type: ignore[return-value]
        np.concatenate([getattr(b, name) for b in batches], axis=1)
        for name in ("inputs", "targets", "starts")
    )


def expected_pairs(document: list[list[int]], backward: bool) -> list[tuple[int, int]]:
    sentences = document[::-1] if backward else document
    pairs = []
    for sentence in sentences:
        whole = [BEGIN_ID, *sentence, END_ID]
        pairs += itertools.pairwise(whole[::-1] if backward else whole)
    return pairs


def test_rows_read_whole_documents_in_both_directions_once_per_epoch() -> None:
    inputs, targets, starts = read(Streams(*corpus(), rows=3, steps=5), 150)
    wanted = [[expected_pairs(d, backward) for d in DOCUMENTS] for backward in (False, True)]
    seen: list[int] = []
    for row in range(3):
        begins = np.flatnonzero(starts[0, :, row])
        assert np.array_equal(begins, np.flatnonzero(starts[1, :, row]))
        for a, z in itertools.pairwise(begins):
            found = [
                list(zip(inputs[d, a:z, row].tolist(), targets[d, a:z, row].tolist(), strict=True))
                for d in (0, 1)
            ]
            number = wanted[0].index(found[0])
            assert found[1] == wanted[1][number]
            seen.append(number)
    assert set(seen) == set(range(12))


def test_order_depends_on_the_epoch_and_the_seed() -> None:
    first, second = (
        Streams(*corpus(), rows=1, steps=4, seed=s)._shuffled_documents(0) for s in (0, 1)
    )
    assert sorted(first) == sorted(second) == list(range(12))
    assert list(first) != list(second)
    assert list(Streams(*corpus(), rows=1, steps=4)._shuffled_documents(1)) != list(first)


@pytest.mark.parametrize("stop", [0, 1, 31, 32, 33, 64, 70])
def test_stream_resumes_at_its_position(stop: int) -> None:
    def make() -> Streams:
        return Streams(*corpus(), rows=4, steps=3, seed=5, restart=0.3)

    whole = make()
    read(whole, stop) if stop else None
    left = whole.position()
    again = make()
    again.seek(json.loads(json.dumps(left)))
    for a, b in zip(read(whole, 40), read(again, 40), strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("world", [1, 2, 3, 6])
def test_rows_of_several_processes_equal_those_of_one(world: int) -> None:
    def make(share: range | None = None) -> Streams:
        return Streams(*corpus(), rows=6, steps=3, seed=5, restart=0.3, local_rows=share)

    each = 6 // world
    ranges = [range(rank * each, (rank + 1) * each) for rank in range(world)]
    whole, shares = make(), [make(mine) for mine in ranges]
    for _ in range(2):
        found = [read(share, 75) for share in shares]
        for name, expected in enumerate(read(whole, 75)):
            assert np.array_equal(np.concatenate([f[name] for f in found], axis=2), expected)
        for share in shares:
            assert str(share.position()) == str(whole.position())
        # Training can continue with another number of processes: a position covers all rows.
        shares = [make(mine) for mine in ranges]
        for share in shares:
            share.seek(whole.position())


def test_restarts_are_only_at_the_beginning_of_sentences() -> None:
    inputs, _, starts = read(Streams(*corpus(), rows=3, steps=5, restart=0.5), 100)
    opening = np.stack([inputs[0] == BEGIN_ID, inputs[1] == END_ID])
    assert not (starts & ~opening).any()
    assert 0.4 < starts.sum() / opening.sum() < 0.65


def test_opening_symbol_is_never_a_target() -> None:
    inputs, targets, _ = read(Streams(*corpus(), rows=2, steps=7), 50)
    assert not (targets[0] == BEGIN_ID).any()
    assert not (targets[1] == END_ID).any()
    assert not (inputs[0] == END_ID).any()
    assert not (inputs[1] == BEGIN_ID).any()


def one_document(n_sentences: int) -> tuple[np.ndarray, np.ndarray]:
    run = [w for n in range(n_sentences) for w in (*range(3, 12 + n % 5), END_ID)]
    return np.array(run, dtype=np.uint32), np.array([0, len(run)])


def test_single_document_is_distributed_over_the_rows() -> None:
    tokens, documents = one_document(1000)
    tokens[tokens != END_ID] = (
        np.arange(len(tokens))[tokens != END_ID] + 3
    )  # a distinct word at each position
    streams = Streams(tokens, documents, rows=8, steps=10)
    assert streams.n_documents == 8
    inputs, targets, starts = read(streams, len(tokens) // (8 * 10) - 2)
    for direction in (0, 1):
        words = targets[direction][targets[direction] >= 3]
        assert len(np.unique(words)) == len(words)  # nothing is read twice in an epoch
        # Each row starts at the beginning of a sentence.
        assert (inputs[direction, 0] <= END_ID).all()
    assert starts[:, 0].all()


@pytest.mark.parametrize(("rows", "n_sentences"), [(1, 50), (4, 50), (4, 1000), (1000, 1000)])
def test_segments_are_whole_sentences_and_cover_the_text(rows: int, n_sentences: int) -> None:
    tokens, documents = one_document(n_sentences)
    found = split_long_documents(tokens, documents, rows)
    assert (found[0], found[-1]) == (0, len(tokens))
    assert (np.diff(found) > 0).all()
    assert all(tokens[cut - 1] == END_ID for cut in found[1:])
    share = max(MIN_TOKENS_TO_SPLIT, -(-len(tokens) // rows))
    assert np.diff(found).max() <= share + 16  # the sentence at the end of a segment
    assert len(found) - 1 == -(-len(tokens) // share)


def test_short_documents_are_not_split() -> None:
    tokens, documents = corpus()
    assert split_long_documents(tokens, documents, 2) is documents
    endless = np.arange(3, 5000, dtype=np.uint32)  # a sentence without an end cannot be split
    assert list(split_long_documents(endless, np.array([0, len(endless)]), 4)) == [
        0,
        len(endless),
    ]


def test_position_for_other_documents_is_rejected() -> None:
    streams = Streams(*one_document(1000), rows=8, steps=10)
    position = streams.position()
    streams.seek(position)
    position["documents"] = 1
    with pytest.raises(DataError, match="changed from 1 to 8"):
        streams.seek(position)
