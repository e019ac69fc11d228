"""The streaming search, compared with NumPy on all vectors at once."""

from __future__ import annotations

import gc
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import elmokit
from elmokit.errors import ConfigError, DataError, ElmoError
from elmokit.search import neighbors as module
from elmokit.search.neighbors import NeighborFilter, Neighbors, Passage, neighbors
from elmokit.text.marked import MarkedWord
from tests.conftest import TINY_MODEL

WORDS = "the cat Play play plays bank river read a dog on of . ,".split()
QUERIES = [
    MarkedWord(("the", "play", "on", "a", "bank"), 1),
    MarkedWord(("a", "cat", "."), 1),
    MarkedWord(("Play", "on", "."), 0),
]


@pytest.fixture(scope="module")
def elmo() -> elmokit.ElmoModel:
    return elmokit.load(TINY_MODEL, device="cpu")


@pytest.fixture(scope="module")
def text() -> list[list[str]]:
    draw = random.Random(0)
    sentences = [draw.choices(WORDS, k=draw.randint(0, 9)) for _ in range(120)]
    return [*sentences, ["the", "play", "on", "a", "bank"], *sentences[:30]]


def brute_force(
    elmo: elmokit.ElmoModel,
    query: MarkedWord,
    text: Sequence[Sequence[str]],
    k: int,
    filter: NeighborFilter,
) -> dict[str, list[tuple[float, tuple[str, ...], int]]]:
    """Compare with every token, one after another, in NumPy."""
    lists: dict[str, list[tuple[float, tuple[str, ...], int]]] = {}
    asked = elmo.embed([list(query.tokens)])[0]
    vectors = elmo.embed([list(sentence) for sentence in text])
    for j in [*range(len(asked.layers)), -1]:
        q = (asked.average if j < 0 else asked.layers[j])[query.position]
        found, seen = [], set()
        for sentence in vectors:
            for place, word in enumerate(sentence.tokens):
                v = (sentence.average if j < 0 else sentence.layers[j])[place]
                cosine = float(q @ v / np.linalg.norm(q) / np.linalg.norm(v))
                found.append((round(cosine, 6), tuple(sentence.tokens), place, word.casefold()))
        kept = []
        for score, tokens, place, word in sorted(found, key=lambda f: -f[0]):
            same = word == query.word.casefold()
            key = {"token": object(), "sentence": (tokens, place), "word": word}[filter.distinct]
            if (
                (filter.words == "same" and not same)
                or (filter.words == "other" and same)
                or (filter.other_sentences and tokens == query.tokens)
                or key in seen
            ):
                continue
            seen.add(key)
            kept.append((score, tokens, place))
        lists["average" if j < 0 else f"layer {j}"] = kept[:k]
    return lists


def assert_same(found: Neighbors, expected: dict[str, list[tuple[float, Any, Any]]]) -> None:
    """Check for equal scores, and for equal tokens where there are no ties."""
    assert list(found.by_layer) == list(expected)
    for name, listed in expected.items():
        scores = [n.score for n in found.by_layer[name]]
        np.testing.assert_allclose(scores, [score for score, _, _ in listed], atol=3e-6)
        if not listed:
            continue
        last = listed[-1][0]
        clear = {(t, p) for score, t, p in listed if score > last + 1e-5}
        assert clear <= {(n.marked.tokens, n.marked.position) for n in found.by_layer[name]}


@pytest.mark.parametrize(
    "filter",
    [
        NeighborFilter(distinct="token"),
        NeighborFilter(),
        NeighborFilter(distinct="word"),
        NeighborFilter(words="same"),
        NeighborFilter(words="other", distinct="token"),
        NeighborFilter(other_sentences=True),
    ],
)
def test_search_equals_brute_force(
    elmo: elmokit.ElmoModel,
    text: list[list[str]],
    filter: NeighborFilter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_WINDOW_TOKENS", 50)  # many windows
    found = neighbors(elmo, QUERIES, text, k=7, filter=filter)
    for query, result in zip(QUERIES, found, strict=True):
        assert_same(result, brute_force(elmo, query, text, 7, filter))


def test_results_do_not_depend_on_the_windows(
    elmo: elmokit.ElmoModel, text: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = neighbors(elmo, QUERIES, text, k=5)
    monkeypatch.setattr(module, "_WINDOW_TOKENS", 1)
    alone = neighbors(elmo, QUERIES, text, k=5)
    for a, b in zip(whole, alone, strict=True):
        for name in a.by_layer:
            scores = [[n.score for n in found.by_layer[name]] for found in (a, b)]
            np.testing.assert_allclose(*scores, atol=3e-6)


@pytest.mark.parametrize("options", [{"words": "x"}, {"distinct": "lemma"}])
def test_unknown_filter_is_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"Expected '(any|token)'"):
        NeighborFilter(**options)


def test_first_of_several_ties_in_the_text_is_listed(elmo: elmokit.ElmoModel) -> None:
    text = [Passage(["a", "play"], "1"), Passage(["a", "play"], "2"), Passage(["a", "play"], "3")]
    filter = NeighborFilter(distinct="token", words="same")
    found = neighbors(elmo, ["the [play] ."], text, k=2, filter=filter)[0]
    assert [[n.where for n in listed] for listed in found.by_layer.values()] == [["1", "2"]] * 4


def test_repeated_sentence_is_listed_once(elmo: elmokit.ElmoModel) -> None:
    found = neighbors(elmo, ["the [play] ."], [["a", "play"]] * 3 + [["a", "cat"]], k=10)[0]
    shown = [(n.marked.tokens, n.marked.position) for n in found.by_layer["layer 2"]]
    assert sorted(shown) == [(("a", w), p) for w in ("cat", "play") for p in (0, 1)]


def test_k_larger_than_the_text_lists_all_tokens(elmo: elmokit.ElmoModel) -> None:
    found = neighbors(elmo, ["the [play] ."], [["a", "b"], [], ["c"]], k=10)[0]
    assert found.searched_tokens == 3
    assert {n.word for n in found.by_layer["layer 1"]} == {"a", "b", "c"}


def test_empty_text_has_no_neighbors(elmo: elmokit.ElmoModel) -> None:
    found = neighbors(elmo, ["the [play] ."], [])[0]
    assert all(not listed for listed in found.by_layer.values())
    assert "layer 0: no neighbors" in str(found)


def test_text_of_strings_is_tokenized_and_not_split_into_characters(
    elmo: elmokit.ElmoModel,
) -> None:
    found = neighbors(elmo, ["the [play] ."], ["A play.", "A cat."], k=10)[0]
    assert found.searched_tokens == 6
    assert {n.word for n in found.by_layer["layer 2"]} == {"A", "play", "cat", "."}
    with pytest.raises(DataError):
        neighbors(elmo, ["the [play] ."], "A play.")


def test_query_token_has_cosine_1(elmo: elmokit.ElmoModel) -> None:
    text = [["x", "y"], ["the", "play", "."]]
    found = neighbors(elmo, ["the [play] ."], text, k=1)[0]
    for listed in found.by_layer.values():
        assert listed[0].score == pytest.approx(1.0, abs=1e-5)
        assert listed[0].marked == found.query


def test_text_is_read_only_as_far_as_needed(elmo: elmokit.ElmoModel) -> None:
    def endless():  # type: ignore[no-untyped-def]
        while True:
            yield ["a", "b", "c"]

    found = neighbors(elmo, ["the [play] ."], endless(), k=2, max_tokens=10)
    assert found[0].searched_tokens == 12


def test_only_the_best_sentences_are_kept_in_memory(
    elmo: elmokit.ElmoModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory does not grow with the text: only sentences of the k best tokens are kept."""
    monkeypatch.setattr(module, "_WINDOW_TOKENS", 100)
    draw = random.Random(1)
    sentences = [draw.choices(WORDS, k=5) for _ in range(400)]
    held = []

    def count() -> int:
        gc.collect()
        return sum(type(item) is module.Neighbor for item in gc.get_objects())

    before = count()
    found = neighbors(elmo, QUERIES[:1], sentences, k=3, on_window=lambda _: held.append(count()))
    assert found[0].searched_tokens == 2000
    assert len(held) > 10
    assert max(held) <= before + 3 * 4


def test_mix_of_one_layer_equals_that_layer(elmo: elmokit.ElmoModel, text: list[list[str]]) -> None:
    chosen = ["1", "mix", "top", "average"]
    found = neighbors(elmo, QUERIES[:1], text, k=5, layer=chosen, mix=(0, 2, 0))[0]
    assert list(found.by_layer) == ["layer 1", "mix", "layer 2", "average"]
    scores = [[n.score for n in found.by_layer[name]] for name in ("layer 1", "mix")]
    np.testing.assert_allclose(*scores, atol=2e-6)


def test_empty_query_list_is_rejected(elmo: elmokit.ElmoModel) -> None:
    with pytest.raises(ElmoError):
        neighbors(elmo, [], [["a"]])


def test_brackets_are_parsed_in_all_forms() -> None:
    assert MarkedWord.parse("I don't [play].") == MarkedWord(("I", "do", "n't", "play", "."), 3)
    assert MarkedWord.parse("x-y [[play] b", tokenized=False).word == "play"
    assert MarkedWord.parse("do-not [x-y] .", tokenized=True) == MarkedWord(
        ("do-not", "x-y", "."), 1
    )
    assert MarkedWord.parse(["a", "b"], 1).word == "b"


@pytest.mark.parametrize(
    ("given", "position", "message"),
    [
        ("no mark", None, r"found 0"),
        ("[a] [b]", None, r"found 2"),
        ("a [ ] b", None, "empty"),
        ("I [don't] know", None, "not a single token"),
        ("[a] b", 1, "requires a list"),
        (["a"], None, "argument position"),
        (["a"], 1, "expected 0 to 0"),
        (["a"], -1, "expected 0 to 0"),
        ([], 0, "a string or a list"),
        (3, 0, "a string or a list"),
    ],
)
def test_invalid_brackets_say_what_to_do(given: Any, position: int | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        MarkedWord.parse(given, position)


def test_long_sentence_is_shortened_around_the_word() -> None:
    marked = MarkedWord(tuple("a b c d e f g".split()), 3)
    assert marked.format() == "a b c [d] e f g"
    assert marked.format(1) == "... c [d] e ..."
    assert marked.format(0) == "... [d] ..."
    assert marked.format(3) == marked.format()


def test_index_must_be_an_index(elmo: elmokit.ElmoModel) -> None:
    with pytest.raises(ConfigError, match="expected an index"):
        elmo.neighbors("the [play] .", [["a", "b"]])
