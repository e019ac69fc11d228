"""`Elmo.embed` and its relatives: ragged output, order, explicit state, unusual input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elmokit
from elmokit.config import BiLMConfig, CharCnnConfig, LstmConfig
from elmokit.convert.bilm_hdf5 import to_options
from elmokit.embed import blocks
from elmokit.embed.model import ElmoModel
from elmokit.errors import ConfigError, DataError, ElmoWarning
from elmokit.model.bilm import BiLM
from elmokit.model.lstm import LstmState
from elmokit.sources.modeldir import ModelParts
from elmokit.text.vocab import Vocabulary
from tests.conftest import TINY, random_bilm
from tests.model.test_bilm import reference_weights
from tests.reference import elmo_layers, zero_state

TEXTS = [
    "I read the book yesterday.",
    "Can you read the letter now?",
    "Don't!",
    "",
    "The children play in the garden , and then they read .",
]


@pytest.fixture
def elmo(tiny_bilm: BiLM) -> ElmoModel:
    return ElmoModel(ModelParts(tiny_bilm), device="cpu")


def layers_of_reference(bilm: BiLM, words: list[str], state: list | None = None) -> np.ndarray:
    return elmo_layers(words, to_options(bilm.config), reference_weights(bilm), state)


def test_vectors_equal_the_reference(elmo: ElmoModel) -> None:
    for item in elmo.embed(TEXTS):
        expected = layers_of_reference(elmo.bilm, item.tokens)
        np.testing.assert_allclose(item.layers, expected.reshape(item.layers.shape), atol=1e-5)


def test_strings_are_tokenized_with_offsets_and_lists_are_used_as_tokens(
    elmo: ElmoModel,
) -> None:
    text = "It's mine. Don't!"
    item = elmo.embed(text)
    assert item.offsets is not None
    assert [text[a:b] for a, b in item.offsets] == item.tokens
    assert "." in item.tokens
    given = elmo.embed([["It's mine.", "", "<S>"]])[0]
    assert given.tokens == ["It's mine.", "", "<S>"]
    assert given.offsets is None
    assert given.layers.shape == (3, 3, 20)


def test_layer_views(elmo: ElmoModel) -> None:
    item = elmo.embed("read the book , then read")
    assert np.array_equal(item.top, item.layers[2])
    np.testing.assert_allclose(item.average, item.layers.mean(axis=0))
    np.testing.assert_allclose(item.mix(), item.average, atol=1e-6)
    mixed = item.mix([0.5, 0.25, 0.25], gamma=2.0)
    expected = 2 * (0.5 * item.layers[0] + 0.25 * item.layers[1] + 0.25 * item.layers[2])
    np.testing.assert_allclose(mixed, expected, atol=1e-6)
    np.testing.assert_allclose(item.mix(w=[0, 0, 0]), item.average, atol=1e-6)
    assert np.array_equal(item.word("read"), item.layers[:, 0])
    assert np.array_equal(item.word("read", 1), item.layers[:, 5])
    with pytest.raises(DataError, match="occurs 2 times"):
        item.word("read", 2)
    with pytest.raises(DataError, match=r"'books' is not a token.*'book'"):
        item.word("books")
    with pytest.raises(ConfigError, match="3 finite weights"):
        item.mix([1.0])


def test_vectors_do_not_depend_on_the_order_or_the_batch(elmo: ElmoModel) -> None:
    together = elmo.embed(TEXTS)
    elmo.batch_tokens = 1  # each sentence alone
    alone = elmo.embed(TEXTS)
    backwards = elmo.embed(TEXTS[::-1])[::-1]
    for a, b, c in zip(together, alone, backwards, strict=True):
        assert a.layers.shape == b.layers.shape
        assert np.abs(a.layers - b.layers).max(initial=0) <= 2e-6
        assert np.abs(a.layers - c.layers).max(initial=0) <= 2e-6


def test_bundled_model_computes_real_sentences_alone_as_in_a_batch() -> None:
    elmo = elmokit.load(device="cpu")
    lines = Path("examples/corpus.txt").read_text("utf-8").split("\n")
    text = " ".join(line for line in lines[:200] if line)
    sentences = elmokit.split_sentences(text)[:24]
    assert len(sentences) == 24
    for sentence, together in zip(sentences, elmo.embed(sentences), strict=True):
        alone = elmo.embed(sentence).layers
        # Zero on an AMD EPYC. Without the repetition of single rows, the maximum is above 3e-6.
        assert np.abs(alone - together.layers).max() <= 1e-6


# Sizes that are multiples of vector registers, as in all released models. With smaller sizes, the
# position of a row decides which remainder loop computes it, and the last bit may differ.
SIXTEENS = BiLMConfig(
    LstmConfig(dim=32, projection_dim=16), CharCnnConfig(filters=((1, 16), (3, 16)), n_highway=1)
)


def test_results_are_bit_identical_regardless_of_previous_calls() -> None:
    bilm = random_bilm(SIXTEENS)
    fresh = ElmoModel(ModelParts(bilm), device="cpu").embed(TEXTS)
    used = ElmoModel(ModelParts(bilm), device="cpu")
    used.embed(["The letter , the garden", "yesterday"] + [f"word{i}" for i in range(70)])
    for a, b in zip(fresh, used.embed(TEXTS), strict=True):
        assert np.array_equal(a.layers, b.layers)


def test_evictions_from_the_token_cache_do_not_change_vectors() -> None:
    bilm = random_bilm(SIXTEENS)
    elmo = ElmoModel(ModelParts(bilm), device="cpu")
    elmo.cache._capacity = 7
    expected = ElmoModel(ModelParts(bilm), device="cpu").embed(TEXTS)
    for _ in range(3):
        for a, b in zip(expected, elmo.embed(TEXTS), strict=True):
            assert np.array_equal(a.layers, b.layers)
        assert len(elmo.cache) == 7
    assert elmo.cache.misses > elmo.cache.hits


def test_repeated_tokens_are_encoded_once(elmo: ElmoModel) -> None:
    elmo.embed(["the the the", "the book"])
    assert elmo.cache.misses == 4  # the, book and the two boundaries
    assert elmo.cache.hits == 0
    elmo.embed(["the book"])
    assert elmo.cache.misses == 4
    assert elmo.cache.hits == 4


def test_stream_equals_embed(elmo: ElmoModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elmo, "window_tokens", 12)
    for state, rows in (("reset", 1), ("carry", 1), ("carry", 2)):
        whole = elmo.embed(TEXTS, state, rows=rows)
        for a, b in zip(whole, elmo.stream(iter(TEXTS), state, rows=rows), strict=True):
            assert a.tokens == b.tokens
            assert np.abs(a.layers - b.layers).max(initial=0) <= 2e-6


# ---------------------------------------------------------------------------------------- state


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_carry_continues_across_the_sentences_of_a_call(elmo: ElmoModel, rows: int) -> None:
    sentences = [t.split() for t in TEXTS if t] * 2
    states = [zero_state(to_options(TINY)) for _ in range(rows)]
    for i, item in enumerate(elmo.embed(sentences, "carry", rows=rows)):
        expected = layers_of_reference(elmo.bilm, item.tokens, states[i % rows])
        np.testing.assert_allclose(item.layers, expected, atol=2e-5)


def test_carry_starts_from_zero_in_each_call(elmo: ElmoModel) -> None:
    a, b = (elmo.embed(TEXTS, "carry") for _ in range(2))
    assert all(np.array_equal(x.layers, y.layers) for x, y in zip(a, b, strict=True))


def test_empty_sentences_do_not_change_a_carried_state(elmo: ElmoModel) -> None:
    with_gap = elmo.embed(["one two", "", "three"], "carry")
    without = elmo.embed(["one two", "three"], "carry")
    assert np.array_equal(with_gap[2].layers, without[1].layers)


def test_warm_starts_every_sentence_from_the_stored_state(tiny_bilm: BiLM) -> None:
    warm = LstmState(torch.randn(2, 2, 1, 24), torch.randn(2, 2, 1, 10))
    elmo = ElmoModel(ModelParts(tiny_bilm, warm=warm), device="cpu")
    state = [
        [
            [warm.cell[d, j, 0].double().numpy(), warm.hidden[d, j, 0].double().numpy()]
            for j in (0, 1)
        ]
        for d in (0, 1)
    ]
    for item in elmo.embed(["one two", "three", "one two"], "warm"):
        copy = [[list(pair) for pair in direction] for direction in state]
        expected = layers_of_reference(tiny_bilm, item.tokens, copy)
        np.testing.assert_allclose(item.layers, expected, atol=1e-5)


def test_error_for_a_missing_warm_state_names_the_command(elmo: ElmoModel) -> None:
    with pytest.raises(ConfigError, match="elmo warm MODEL TEXT"):
        elmo.embed(["a"], "warm")


def test_error_for_an_unknown_state_suggests_the_nearest_name(elmo: ElmoModel) -> None:
    with pytest.raises(ConfigError, match="'carry'"):
        elmo.embed(["a"], "cary")  # type: ignore[call-overload]


def test_embed_equals_the_golden_vectors(shared: Path) -> None:
    import h5py

    path = shared / "fixtures/allenai-allennlp/test_fixtures/elmo"
    elmo = elmokit.load(path / "options.json", weights=path / "lm_weights.hdf5")
    rows = json.loads((path / "sentences.json").read_text())
    sentences = [rows[k][i].split() for i in range(10) for k in range(3)]
    out = elmo.embed(sentences, state="carry", rows=3)
    for k in range(3):
        with h5py.File(path / f"lm_embeddings_{k}.hdf5") as file:
            for i in range(10):
                expected = np.concatenate(list(file[str(i)][...]), axis=-1)
                assert np.abs(out[3 * i + k].top - expected).max() <= 1e-5


# ------------------------------------------------------------------------------------ unusual input


def test_empty_input_gives_empty_output(elmo: ElmoModel) -> None:
    assert elmo.embed([]) == []
    assert elmo.embed("").layers.shape == (3, 0, 20)
    assert [i.layers.shape for i in elmo.embed([[], [""]])] == [(3, 0, 20), (3, 1, 20)]
    assert list(elmo.stream([])) == []


def test_unusual_characters_are_valid_tokens(elmo: ElmoModel) -> None:
    odd = ["\x00", "\ud800", "a b", "\u200b", "\U0001f600", "\x7f", "\n"]
    item = elmo.embed([odd])[0]
    assert item.tokens == odd
    assert np.isfinite(item.layers).all()
    np.testing.assert_allclose(item.layers, layers_of_reference(elmo.bilm, odd), atol=1e-5)


def test_truncated_tokens_are_counted_in_one_warning(elmo: ElmoModel) -> None:
    with pytest.warns(ElmoWarning, match="Truncated 2 tokens to 48 bytes") as caught:
        elmo.embed([["x" * 49, "ok"], ["\u20ac" * 17]])
    assert len(caught) == 1


def test_stream_counts_truncated_tokens_in_one_warning(
    elmo: ElmoModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elmo, "window_tokens", 4)
    with pytest.warns(ElmoWarning, match="Truncated 5 tokens") as caught:
        list(elmo.stream([["x" * 49]] * 5))
    assert len(caught) == 1


@pytest.mark.parametrize("bad", ["one string", b"bytes", None, 3])
def test_input_that_is_not_a_list_of_sentences_is_rejected(elmo: ElmoModel, bad: object) -> None:
    with pytest.raises(DataError):
        list(elmo.stream(bad))  # type: ignore[arg-type]
    if not isinstance(bad, str):
        with pytest.raises(DataError):
            elmo.embed(bad)  # type: ignore[call-overload]


def test_invalid_rows_and_states_are_rejected(elmo: ElmoModel) -> None:
    for rows, state in ((0, "carry"), (1.5, "carry"), (2, "reset"), (1, None), (1, True)):
        with pytest.raises(ConfigError):
            elmo.embed(["a"], state, rows=rows)  # type: ignore[call-overload]


def test_invalid_mixes_are_rejected(elmo: ElmoModel) -> None:
    item = elmo.embed("a")
    for s, gamma in (("abc", 1.0), (["a", "b", "c"], 1.0), (1.0, 1.0), ([1, 0, 0], float("nan"))):
        with pytest.raises(ConfigError):
            item.mix(s, gamma)  # type: ignore[arg-type]


@pytest.mark.parametrize("state", ["reset", "carry"])
def test_prefetched_blocks_give_the_same_vectors(
    elmo: ElmoModel, monkeypatch: pytest.MonkeyPatch, state: Any
) -> None:
    texts = TEXTS * 40
    expected = elmo.embed(texts, state)
    monkeypatch.setattr(elmo, "_copies_in_background", True)
    monkeypatch.setattr(elmo, "window_tokens", 30)
    monkeypatch.setattr(elmo, "_block_tokens", 30)
    monkeypatch.setattr(blocks, "_SENTENCES_PER_ARRAY", 3)
    for found in (elmo.embed(texts, state), list(elmo.stream(texts, state))):
        for item, wanted in zip(found, expected, strict=True):
            assert item.layers.flags.c_contiguous
            np.testing.assert_allclose(item.layers, wanted.layers, atol=2e-6)


def test_arrays_are_contiguous_and_do_not_overlap(elmo: ElmoModel) -> None:
    items = elmo.embed(TEXTS)
    expected = [item.layers.copy() for item in items]
    for i, item in enumerate(items):
        assert item.layers.flags.c_contiguous
        item.layers[:] = i
    for i, item in enumerate(items):
        assert (item.layers == i).all()
    for item, before in zip(elmo.embed(TEXTS), expected, strict=True):
        np.testing.assert_allclose(item.layers, before, atol=2e-6)


def test_repr_handles_lone_surrogates(elmo: ElmoModel) -> None:
    repr(elmo.embed([["\ud800"]])[0]).encode("utf-8")


@pytest.mark.parametrize("bad", [[3], [None], [["a", 3]], [b"bytes"]])
def test_error_identifies_the_invalid_sentence(elmo: ElmoModel, bad: list) -> None:
    with pytest.raises(DataError, match=r"entence 0"):
        elmo.embed(bad)


def test_sentence_of_10000_tokens_needs_bounded_memory(elmo: ElmoModel) -> None:
    words = [f"w{i % 50}" for i in range(10_000)]
    item = elmo.embed([words, ["short"]])[0]
    assert item.layers.shape == (3, 10_000, 20)
    # The forward states at the beginning cannot depend on the length.
    start = elmo.embed([words[:100]])[0]
    assert np.abs(item.layers[:, :100, :10] - start.layers[:, :, :10]).max() <= 2e-6


def test_global_torch_settings_do_not_affect_exact_vectors(elmo: ElmoModel) -> None:
    expected = elmo.embed(TEXTS)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = elmo.embed(TEXTS)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert all(np.array_equal(a.layers, b.layers) for a, b in zip(expected, found, strict=True))


def test_word_input_models_use_their_vocabulary() -> None:
    words = ["<S>", "</S>", "<UNK>", "the", "book"]
    bilm = random_bilm(BiLMConfig(LstmConfig(dim=9, projection_dim=4), None, n_words=5))
    elmo = ElmoModel(ModelParts(bilm, vocabulary=Vocabulary(words)), device="cpu")
    a, b, c = elmo.embed([["the", "book"], ["the", "<UNK>"], ["the", "zebra"]])
    np.testing.assert_allclose(b.layers, c.layers, atol=2e-6)
    assert np.abs(a.layers - c.layers).max() > 1e-3
    expected = elmo_layers(
        ["the", "book"], to_options(bilm.config), reference_weights(bilm), vocabulary=words
    )
    np.testing.assert_allclose(a.layers, expected, atol=1e-5)


def test_unavailable_device_is_an_error(tiny_bilm: BiLM) -> None:
    with pytest.raises(ConfigError):
        ElmoModel(ModelParts(tiny_bilm), device="cdua")
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="is not available"):
            ElmoModel(ModelParts(tiny_bilm), device="cuda")


def test_repr_describes_the_model(elmo: ElmoModel) -> None:
    assert "3 layers of 20" in repr(elmo)
    assert "[3, 2, 20]: the book" in repr(elmo.embed("the book"))
