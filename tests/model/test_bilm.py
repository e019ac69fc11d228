"""The biLM, compared with the slow reference, and invariants of a language model."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.config import BiLMConfig, CharCnnConfig, LstmConfig
from elmokit.convert.bilm_hdf5 import entries, to_options
from elmokit.errors import DataError
from elmokit.model.bilm import BiLM
from elmokit.model.chars import batch_ids
from tests.conftest import TINY, random_bilm
from tests.reference import elmo_layers, zero_state

WORDS = ["read", "the", "book", "B\u00fccher", "\u672c", "antidisestablishmentarianism", "", "<S>"]


def reference_weights(bilm: BiLM) -> dict[str, np.ndarray]:
    state = {k: v.detach().numpy().astype(np.float64) for k, v in bilm.state_dict().items()}
    return {e.name: e.pack(*(state[n] for n in e.parameters)) for e in entries(bilm.config)}


def bounded_ids(sentences: list[list[str]], max_characters: int = 50) -> torch.Tensor:
    return torch.from_numpy(batch_ids([["<S>", *s, "</S>"] for s in sentences], max_characters))


@st.composite
def configs(draw: st.DrawFn) -> BiLMConfig:
    projected = draw(st.booleans())
    d = draw(st.integers(2, 6))
    clips = st.sampled_from([None, 0.2, 3.0])
    lstm = LstmConfig(
        dim=d + draw(st.integers(1, 5)) if projected else d,
        projection_dim=d,
        n_layers=draw(st.integers(1, 3)),
        cell_clip=draw(clips),
        proj_clip=draw(clips),
        use_skip_connections=draw(st.booleans()),
    )
    widths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    cnn = CharCnnConfig(
        embedding_dim=draw(st.integers(1, 4)),
        filters=tuple((w, draw(st.integers(1, 4))) for w in widths),
        n_highway=draw(st.integers(0, 2)),
        activation=draw(st.sampled_from(["relu", "tanh"])),
        max_characters_per_token=draw(st.sampled_from([5, 12, 50])),
    )
    return BiLMConfig(lstm, cnn)


sentences_of_words = st.lists(st.lists(st.sampled_from(WORDS), max_size=5), min_size=1, max_size=4)


@settings(deadline=None, max_examples=60)
@given(configs(), sentences_of_words, st.integers(0, 100))
def test_biLM_of_any_shape_equals_the_reference(
    config: BiLMConfig, sentences: list[list[str]], seed: int
) -> None:
    # In float64, rounding errors cannot hide a bug or be mistaken for one.
    bilm = random_bilm(config, seed).double()
    weights, options = reference_weights(bilm), to_options(config)
    assert config.char_cnn is not None
    size = config.char_cnn.max_characters_per_token
    states = [zero_state(options) for _ in sentences]
    state = None
    for _ in range(2):  # the second round starts where the first one ended
        layers, mask, state = bilm(bounded_ids(sentences, size), state)
        assert mask.sum(dim=1).tolist() == [len(s) + 2 for s in sentences]
        for row, words in enumerate(sentences):
            expected = elmo_layers(words, options, weights, states[row])
            found = layers[:, row, 1 : len(words) + 1].detach().numpy()
            np.testing.assert_allclose(found, expected.reshape(found.shape), atol=1e-9, rtol=0)
            assert not layers[:, row, len(words) + 2 :].any()


def test_word_input_equals_the_reference() -> None:
    vocabulary = ["<S>", "</S>", "<UNK>", "a", "b"]
    config = BiLMConfig(LstmConfig(dim=9, projection_dim=4), None, n_words=5)
    bilm = random_bilm(config)
    read = ["<S>", "b", "a", "b", "</S>"]
    ids = torch.tensor([[vocabulary.index(w) + 1 for w in read] + [0]])
    layers, mask, _ = bilm(ids)
    expected = elmo_layers(
        read[1:-1], to_options(config), reference_weights(bilm), vocabulary=vocabulary
    )
    np.testing.assert_allclose(layers[:, 0, 1:4].detach(), expected, atol=1e-5)
    assert mask.tolist() == [[True] * 5 + [False]]


def test_forward_lm_never_sees_the_future_and_backward_lm_never_the_past(
    tiny_bilm: BiLM,
) -> None:
    d = tiny_bilm.config.lstm.projection_dim
    before = ["She", "plays", "the", "violin", "."]
    for k in range(len(before)):
        after = [*before[:k], "changed", *before[k + 1 :]]
        a, b = (tiny_bilm(bounded_ids([s])).layers[:, 0] for s in (before, after))
        ahead, back = (a - b)[1:, :, :d], (a - b)[1:, :, d:]
        place = k + 1  # after <S>
        assert not ahead[:, :place].any()
        assert not back[:, place + 1 :].any()
        assert ahead[:, place:].abs().amax(dim=(0, 2)).min() > 0
        assert back[:, : place + 1].abs().amax(dim=(0, 2)).min() > 0


def test_layer_0_depends_only_on_the_word(tiny_bilm: BiLM) -> None:
    layers = tiny_bilm(bounded_ids([["read", "x"], ["y", "read"]])).layers
    assert torch.allclose(layers[0, 0, 1], layers[0, 1, 2], atol=1e-6)
    assert (layers[1, 0, 1] - layers[1, 1, 2]).abs().max() > 1e-3


def test_vectors_do_not_depend_on_padding_batch_or_order(tiny_bilm: BiLM) -> None:
    sentences = [["one"], ["a", "longer", "one", "here"], [], ["the", "book", "."]]
    alone = [tiny_bilm(bounded_ids([s])).layers[:, 0] for s in sentences]
    for order in itertools.permutations(range(4)):
        ids = bounded_ids([sentences[i] for i in order])
        ids = torch.nn.functional.pad(ids, (0, 0, 0, 2))  # and more padding than necessary
        together = tiny_bilm(ids).layers
        for row, i in enumerate(order):
            n = len(sentences[i]) + 2
            assert (together[:, row, :n] - alone[i]).abs().max() <= 2e-6
            assert not together[:, row, n:].any()


def test_same_batch_is_bit_identical(tiny_bilm: BiLM) -> None:
    ids = bounded_ids([["one"], ["a", "longer", "one"]])
    assert torch.equal(tiny_bilm(ids).layers, tiny_bilm(ids).layers)


def test_calls_are_stateless_unless_a_state_is_passed(tiny_bilm: BiLM) -> None:
    ids = bounded_ids([["the", "book"]])
    first = tiny_bilm(ids)
    again = tiny_bilm(ids)
    carried = tiny_bilm(ids, first.state)
    assert torch.equal(first.layers, again.layers)
    assert (first.layers[1:] - carried.layers[1:]).abs().max() > 1e-3


def test_text_can_be_processed_in_parts() -> None:
    bilm = random_bilm(TINY)
    words = ["<S>", "a", "bb", "ccc", "</S>", "<S>", "d", "</S>"]
    whole = bilm(torch.from_numpy(batch_ids([words])))
    state = None
    pieces = []
    for piece in (words[:3], words[3:4], words[4:]):
        layers, _, state = bilm(torch.from_numpy(batch_ids([piece])), state)
        pieces.append(layers)
    d = bilm.config.lstm.projection_dim
    ahead = torch.cat(pieces, dim=2)[..., :d]
    assert torch.allclose(ahead, whole.layers[..., :d], atol=2e-6)
    assert state is not None
    assert torch.allclose(state.cell[0], whole.state.cell[0], atol=2e-6)


def test_long_sentences_are_processed_in_segments_with_identical_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bilm = random_bilm(TINY)
    ids = bounded_ids([["a", "b"] * 20, ["c"] * 7])
    whole = bilm(ids)
    monkeypatch.setattr("elmokit.model.lstm._TOKENS_AT_ONCE", 5)
    cut = bilm(ids)
    assert torch.allclose(whole.layers, cut.layers, atol=2e-6)


def test_state_of_a_row_is_that_of_its_last_token(tiny_bilm: BiLM) -> None:
    state = tiny_bilm(bounded_ids([["a"], ["b", "c", "d"], []])).state
    for row, words in enumerate([["a"], ["b", "c", "d"], []]):
        alone = tiny_bilm(bounded_ids([words])).state
        assert torch.allclose(state.cell[:, :, row], alone.cell[:, :, 0], atol=2e-6)
        assert torch.allclose(state.hidden[:, :, row], alone.hidden[:, :, 0], atol=2e-6)


def test_gradients_reach_every_parameter(tiny_bilm: BiLM) -> None:
    tiny_bilm(bounded_ids([["one", "two"], ["three"]])).layers.square().sum().backward()
    for name, parameter in tiny_bilm.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_padding_in_the_middle_is_rejected(tiny_bilm: BiLM) -> None:
    ids = bounded_ids([["a", "b"]])
    ids[0, 1] = 0
    with pytest.raises(DataError, match="Row 0"):
        tiny_bilm(ids)


def test_empty_batch_is_supported(tiny_bilm: BiLM) -> None:
    layers, mask, _ = tiny_bilm(torch.zeros(2, 3, 50, dtype=torch.long))
    assert layers.shape == (3, 2, 3, 20)
    assert not layers.any()
    assert not mask.any()
