"""The search of a token index, against plain numpy over all vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmokit.embed.model import ElmoModel
from elmokit.embed.spaces import choose_spaces, unit
from elmokit.errors import ConfigError, DataError
from elmokit.search import index_search
from elmokit.search.index import TokenIndex
from elmokit.search.index_build import (
    build_index,
)
from elmokit.search.index_files import rounded
from elmokit.search.neighbors import Neighbors, Rules, neighbors
from elmokit.text.marked import Marked
from tests.search.conftest import QUERIES, TOKENIZED, build


def assert_same(
    found: Neighbors, expected: Neighbors, tolerance: float, *, by_word: bool = False
) -> None:
    """The same scores; the same tokens too, where no tie leaves a choice."""
    assert list(found.lists) == list(expected.lists)
    for name, listed in expected.lists.items():
        scores = [n.score for n in found.lists[name]]
        np.testing.assert_allclose(scores, [n.score for n in listed], atol=tolerance)
        last = listed[-1].score if listed else 0
        clear = [n for n in listed if n.score > last + 3 * tolerance]
        if by_word or name == "layer 0":  # where any token of a word is as near as any other
            assert {n.word for n in clear} <= {n.word for n in found.lists[name]}
        else:
            assert {n.at for n in clear} <= {n.at for n in found.lists[name]}


@pytest.mark.parametrize(
    "rules",
    [
        Rules(distinct="token"),
        Rules(),
        Rules(distinct="word"),
        Rules(words="same"),
        Rules(words="other", distinct="token"),
        Rules(other_sentences=True),
    ],
)
def test_the_index_finds_what_the_search_of_the_text_finds(
    elmo: ElmoModel,
    index: TokenIndex,
    sentences: list[list[str]],
    rules: Rules,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(index_search, "_BLOCK", 50)  # many blocks
    expected = neighbors(elmo, QUERIES, sentences, k=7, rules=rules)
    found = index.neighbors(QUERIES, elmo, k=7, rules=rules)
    for got, wanted in zip(found, expected, strict=True):
        assert_same(got, wanted, 1e-3, by_word=rules.distinct == "word")
        assert got.tokens == wanted.tokens == sum(map(len, sentences))


def cosines(elmo: ElmoModel, sentences: Sequence[Sequence[str]], weights: Any) -> np.ndarray:
    """Brute force: the cosine of the first query with every token, in float32."""
    layers, _ = elmo.compute([list(words) for words in sentences])
    every = unit(np.tensordot(np.array(weights, np.float32), np.concatenate(layers, 1), axes=1))
    (own,), _ = elmo.compute([QUERIES[0].tokens])
    return every @ unit(np.tensordot(np.array(weights, np.float32), own[:, 1], axes=1))


@pytest.mark.parametrize("numbers", ["float16", "int8"])
@pytest.mark.parametrize(
    "weights", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1 / 3, 1 / 3, 1 / 3), (0.2, -0.1, 0.7)]
)
def test_rounded_vectors_rank_as_exact_ones_do(
    elmo: ElmoModel,
    folder: Path,
    sentences: list[list[str]],
    numbers: str,
    weights: tuple[float, ...],
) -> None:
    index = build(elmo, folder, numbers, numbers=numbers)
    spaces = choose_spaces(["mix"], 3, weights)
    exact = cosines(elmo, sentences, spaces[0].weights)
    all_of_them = Rules(distinct="token")
    found = index.neighbors(QUERIES[:1], elmo, k=index.tokens, spaces=spaces, rules=all_of_them)
    got = np.empty(index.tokens)
    for hit in found[0].lists["mix"]:
        got[hit.token] = hit.score  # type: ignore[attr-defined]
    error = {"float16": 1e-3, "int8": 2e-2}[numbers]
    np.testing.assert_allclose(got, exact, atol=error)
    top = set(np.argsort(-exact)[:20].tolist())
    assert exact[np.argsort(-got)[:20]].min() > exact[sorted(top)].min() - 2 * error


def test_int8_vectors_have_length_1_and_point_where_they_did() -> None:
    vectors = unit(np.random.default_rng(0).normal(size=(50, 32)).astype(np.float32))
    for numbers, worst in (("float16", 1e-6), ("int8", 3e-4)):
        small, scales = rounded(vectors, numbers)  # type: ignore[arg-type]
        again = small.astype(np.float32) * scales[:, None]
        np.testing.assert_allclose(np.linalg.norm(again, axis=1), 1, atol=1e-6)
        assert (1 - (again * vectors).sum(axis=1)).max() < worst
    small, scales = rounded(np.zeros((1, 4), np.float32), "int8")
    assert not small.any()
    assert np.isfinite(scales).all()


def test_a_token_of_the_index_is_a_query_and_needs_no_model(
    elmo: ElmoModel, index: TokenIndex
) -> None:
    number = index.find("PLAYS")[0]
    token = index.token(number)
    assert token.word == "plays"
    (by_number,) = index.neighbors([number], k=6, rules=Rules(distinct="token"))
    (by_words,) = index.neighbors([token.at], elmo, k=7, rules=Rules(distinct="token"))
    for name, listed in by_number.lists.items():
        assert number not in [n.token for n in listed]  # type: ignore[attr-defined]
        others = [n for n in by_words.lists[name] if n.token != number][:6]  # type: ignore[attr-defined]
        np.testing.assert_allclose([n.score for n in listed], [n.score for n in others], atol=2e-3)
    assert by_number.to_dict()["query"]["token"] == number
    with pytest.raises(DataError, match="no token 999999"):
        index.neighbors([999999])
    with pytest.raises(ConfigError, match="needs the model"):
        index.neighbors(["a [cat] ."])


def test_only_frequent_words_are_listed_if_asked(elmo: ElmoModel, folder: Path) -> None:
    (folder / "rare.txt").write_text("a a a\na A b\nb c d\n")
    build_index(elmo, [folder / "rare.txt"], folder / "rare", TOKENIZED)
    index = TokenIndex.open(folder / "rare")
    for least, words in ((1, {"a", "A", "b", "c", "d"}), (2, {"a", "A", "b"}), (5, {"a", "A"})):
        (found,) = index.neighbors(["[a] x"], elmo, k=50, min_count=least)
        assert {n.word for n in found.lists["layer 1"]} == words
    with pytest.raises(ConfigError, match="min_count"):
        index.neighbors(["[a] x"], elmo, min_count=0)


def test_a_model_asks_an_index(elmo: ElmoModel, index: TokenIndex) -> None:
    (expected,) = index.neighbors(["the [play] was on ."], elmo, k=3, rules=Rules(words="other"))
    found = elmo.neighbors("the [play] was on .", index, 3, rules=Rules(words="other"))
    assert found.to_dict() == expected.to_dict()


def test_several_queries_share_a_pass_and_do_not_matter_to_each_other(
    elmo: ElmoModel, index: TokenIndex
) -> None:
    together = index.neighbors([QUERIES[0], 5, QUERIES[1]], elmo, k=4)
    for query, found in zip([QUERIES[0], 5, QUERIES[1]], together, strict=True):
        assert_same(found, index.neighbors([query], elmo, k=4)[0], 2e-6)


# ------------------------------------------------------------------------------------------ faiss


def test_a_faiss_index_says_its_recall_and_keeps_to_the_filters(
    elmo: ElmoModel, folder: Path
) -> None:
    pytest.importorskip("faiss")
    from elmokit.search.index_ann import add_ann

    index = build(elmo, folder, "with-ann")
    spaces = choose_spaces(["top", "average"], 3)
    with pytest.raises(ConfigError, match="no faiss index for layer 2"):
        index.neighbors([3], spaces=spaces, ann=True)
    told = add_ann(index, spaces, recall=0.9)
    index = TokenIndex.open(index.folder)
    assert index.meta.ann == told
    assert told["layer 2"]["recall_at_10"] >= 0.9
    numbers = list(range(0, index.tokens, 9))
    for rules in (Rules(distinct="token"), Rules(words="other", distinct="word")):
        exact = index.neighbors(numbers, spaces=spaces, rules=rules, k=5)
        found = index.neighbors(numbers, spaces=spaces, rules=rules, k=5, ann=True)
        right = total = 0
        for a, b in zip(exact, found, strict=True):
            for name, listed in a.lists.items():
                got = [n.score for n in b.lists[name]]
                assert got == sorted(got, reverse=True)
                total += len(listed)
                right += sum(score >= listed[-1].score - 1e-6 for score in got)
                if rules.words == "other":
                    words = [n.word.casefold() for n in b.lists[name]]
                    assert a.query.word.casefold() not in words
                    assert len(set(words)) == len(words)
        assert right / total > 0.85
    with pytest.raises(ConfigError, match="recall"):
        add_ann(index, spaces, recall=1.5)


def test_threads_may_search_at_once(elmo: ElmoModel, index: TokenIndex) -> None:
    from concurrent.futures import ThreadPoolExecutor

    expected = [index.neighbors([n])[0].to_dict() for n in range(12)]
    fresh = TokenIndex.open(index.folder)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: fresh.neighbors([n])[0].to_dict(), range(12)))
    assert found == expected


def test_an_index_shows_itself(index: TokenIndex, elmo: ElmoModel) -> None:
    assert f"{index.tokens:,} tokens: layer 0, layer 1" in repr(index)
    assert "float16" in index._repr_html_()
    found = index.neighbors([Marked(("a", "<b>", "&", "."), 1)], elmo)[0]
    assert "&lt;b&gt;" in found._repr_html_()
    assert "<b><b>" not in found._repr_html_()
    assert len(found._repr_html_()) < 30_000
