"""Padding the vectors of sentences to one array."""

from __future__ import annotations

import numpy as np
import pytest

from elmokit.embed.model import ElmoModel
from elmokit.embed.vectors import padded
from elmokit.errors import DataError
from elmokit.model.bilm import BiLM
from elmokit.sources.modeldir import ModelParts

SENTENCES = [["a"], ["one", "two", "three"], [], ["the", "end"]]


@pytest.fixture
def tiny(tiny_bilm: BiLM) -> ElmoModel:
    return ElmoModel(ModelParts(tiny_bilm), device="cpu")


def test_batch_contains_each_sentence_padded_with_zeros(tiny: ElmoModel) -> None:
    out = tiny.embed(SENTENCES)
    batch, mask = padded([s.average for s in out])
    assert batch.shape == (4, 3, tiny.config.output_dim)
    assert batch.dtype == np.float32
    assert mask.sum(axis=1).tolist() == [1, 3, 0, 2]
    for row, kept, sentence in zip(batch, mask, out, strict=True):
        np.testing.assert_array_equal(row[kept], sentence.average)
        assert not row[~kept].any()


def test_all_layers_have_their_axis_before_the_tokens(tiny: ElmoModel) -> None:
    out = tiny.embed(SENTENCES)
    batch, mask = padded([s.layers for s in out])
    assert batch.shape == (4, tiny.config.n_layers, 3, tiny.config.output_dim)
    np.testing.assert_array_equal(batch[3, :, :2], out[3].layers)
    assert not batch.swapaxes(1, 2)[~mask].any()


def test_no_sentences_give_an_empty_batch() -> None:
    with pytest.raises(DataError):
        padded([])


def test_sentences_without_tokens_give_a_batch_without_tokens(tiny: ElmoModel) -> None:
    batch, mask = padded([s.top for s in tiny.embed([[], []])])
    assert batch.shape == (2, 0, tiny.config.output_dim)
    assert mask.shape == (2, 0)
