"""Searching a token index, compared with NumPy on all vectors."""

from __future__ import annotations

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("lance", reason="the extra 'search' is not installed")

from elmokit.embed.layer_choice import LayerChoice
from elmokit.embed.model import ElmoModel
from elmokit.embed.vectors import normalize
from elmokit.errors import ConfigError, DataError
from elmokit.search import index as index_module
from elmokit.search.approximate import add_ann
from elmokit.search.build import IndexSettings, build_index
from elmokit.search.index import TokenIndex
from elmokit.search.neighbors import NeighborFilter, Neighbors, neighbors
from elmokit.sources.modeldir import ModelParts
from elmokit.text.marked import MarkedWord
from tests.conftest import TINY, random_bilm
from tests.search.conftest import QUERIES, TOKENIZED


def assert_same(
    found: Neighbors, expected: Neighbors, tolerance: float, *, by_word: bool = False
) -> None:
    """Check for equal scores, and for equal tokens where there are no ties."""
    assert list(found.by_layer) == list(expected.by_layer)
    for name, listed in expected.by_layer.items():
        scores = [n.score for n in found.by_layer[name]]
        np.testing.assert_allclose(scores, [n.score for n in listed], atol=tolerance)
        last = listed[-1].score if listed else 0
        clear = [n for n in listed if n.score > last + 3 * tolerance]
        if by_word or name == "layer 0":  # where all tokens of a word have the same similarity
            assert {n.word for n in clear} <= {n.word for n in found.by_layer[name]}
        else:
            assert {n.marked for n in clear} <= {n.marked for n in found.by_layer[name]}


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
def test_index_gives_the_same_results_as_searching_the_text(
    elmo: ElmoModel, index: TokenIndex, sentences: list[list[str]], filter: NeighborFilter
) -> None:
    expected = neighbors(elmo, QUERIES, sentences, k=7, filter=filter)
    found = index.neighbors(QUERIES, elmo, k=7, filter=filter)
    for got, wanted in zip(found, expected, strict=True):
        assert_same(got, wanted, 1e-3, by_word=filter.distinct == "word")
        assert got.searched_tokens == wanted.searched_tokens == sum(map(len, sentences))


@pytest.mark.parametrize(
    "weights", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1 / 3, 1 / 3, 1 / 3), (0.2, -0.1, 0.7)]
)
def test_exact_search_equals_brute_force_on_the_stored_vectors(
    index: TokenIndex, weights: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "_BATCH_ROWS", 50)  # many batches
    tokens, words = (index.tables[name].to_table().to_pydict() for name in ("tokens", "words"))
    layers = [
        np.array(words["layer_0"], np.float32)[tokens["word"]],
        np.array(tokens["layer_1"], np.float32),
        np.array(tokens["layer_2"], np.float32),
    ]
    vectors = normalize(np.tensordot(np.array(weights, np.float32), np.stack(layers), axes=1))
    everything = {
        "k": index.n_tokens,
        "layer": "mix",
        "mix": weights,
        "filter": NeighborFilter(distinct="token"),
    }
    for query in (5, 200):
        (found,) = index.neighbors([query], **everything)
        scores = np.full(index.n_tokens, -np.inf)
        for hit in found.by_layer["mix"]:
            scores[hit.token_id] = hit.score  # type: ignore[attr-defined]
        expected = vectors @ vectors[query]
        expected[query] = -np.inf  # the query itself is excluded
        np.testing.assert_allclose(scores, expected, atol=2e-6)
        listed = [hit.score for hit in found.by_layer["mix"]]
        assert listed == sorted(listed, reverse=True)


def test_token_of_the_index_is_a_query_and_needs_no_model(
    elmo: ElmoModel, index: TokenIndex
) -> None:
    number = index.find("PLAYS")[0]
    token = index.token(number)
    assert token.word == "plays"
    (by_number,) = index.neighbors([number], k=6, filter=NeighborFilter(distinct="token"))
    (by_words,) = index.neighbors(
        [token.marked], elmo, k=7, filter=NeighborFilter(distinct="token")
    )
    for name, listed in by_number.by_layer.items():
        assert number not in [n.token_id for n in listed]  # type: ignore[attr-defined]
        others = [n for n in by_words.by_layer[name] if n.token_id != number][:6]  # type: ignore[attr-defined]
        np.testing.assert_allclose([n.score for n in listed], [n.score for n in others], atol=2e-3)
    assert by_number.to_dict()["query"]["token"] == number
    with pytest.raises(DataError, match="999999"):
        index.neighbors([999999])
    with pytest.raises(ConfigError, match="model"):
        index.neighbors(["a [cat] ."])


def test_word_search_is_case_insensitive(index: TokenIndex, sentences: list[list[str]]) -> None:
    words = [word for sentence in sentences for word in sentence]
    assert index.find("pLaY") == [i for i, word in enumerate(words) if word.lower() == "play"]
    assert index.find("unheard") == []


def test_rare_words_can_be_excluded(elmo: ElmoModel, tmp_path: Path) -> None:
    (tmp_path / "rare.txt").write_text("a a a\na A b\nb c d\n")
    build_index(elmo, [tmp_path / "rare.txt"], tmp_path / "rare", TOKENIZED)
    index = TokenIndex.open(tmp_path / "rare")
    for least, words in ((1, {"a", "A", "b", "c", "d"}), (2, {"a", "A", "b"}), (5, {"a", "A"})):
        (found,) = index.neighbors(["[a] x"], elmo, k=50, min_count=least)
        assert {n.word for n in found.by_layer["layer 1"]} == words
    with pytest.raises(ConfigError, match="min_count"):
        index.neighbors(["[a] x"], elmo, min_count=0)


def test_model_can_search_an_index(elmo: ElmoModel, index: TokenIndex) -> None:
    (expected,) = index.neighbors(
        ["the [play] was on ."], elmo, k=3, filter=NeighborFilter(words="other")
    )
    found = elmo.neighbors("the [play] was on .", index, 3, filter=NeighborFilter(words="other"))
    assert found.to_dict() == expected.to_dict()


def test_several_queries_do_not_affect_each_other(elmo: ElmoModel, index: TokenIndex) -> None:
    together = index.neighbors([QUERIES[0], 5, QUERIES[1]], elmo, k=4)
    for query, found in zip([QUERIES[0], 5, QUERIES[1]], together, strict=True):
        assert_same(found, index.neighbors([query], elmo, k=4)[0], 2e-6)


def test_concurrent_searches(index: TokenIndex) -> None:
    expected = [index.neighbors([n])[0].to_dict() for n in range(8)]
    fresh = TokenIndex.open(index.folder)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda n: fresh.neighbors([n])[0].to_dict(), range(8))) == expected


def test_other_models_are_rejected(elmo: ElmoModel, index: TokenIndex) -> None:
    index.check_model(elmo)
    other = ElmoModel(ModelParts(random_bilm(TINY)), device="cpu")
    with pytest.raises(ConfigError, match="different model"):
        index.neighbors(QUERIES, other)


def test_extended_table_is_rejected(index: TokenIndex, tmp_path: Path) -> None:
    folder = shutil.copytree(index.folder, tmp_path / "index")
    (file,) = folder.glob("words.lance/data/*")
    os.truncate(file, file.stat().st_size + 2**40)  # Lance would allocate a terabyte
    with pytest.raises(DataError, match="expected"):
        TokenIndex.open(folder)


def test_numbers_of_missing_files_are_reported(index: TokenIndex, tmp_path: Path) -> None:
    folder = shutil.copytree(index.folder, tmp_path / "index")
    manifest = json.loads((folder / "index.json").read_text())
    (folder / "index.json").write_text(json.dumps({**manifest, "inputs": []}))
    with pytest.raises(DataError, match="damaged"):
        TokenIndex.open(folder).neighbors([0], k=1)


def test_index_has_a_notebook_representation(index: TokenIndex, elmo: ElmoModel) -> None:
    assert f"{index.n_tokens:,} tokens: layer 0, layer 1" in repr(index)
    assert f"{index.n_tokens:,}" in index._repr_html_()
    found = index.neighbors([MarkedWord(("a", "<b>", "&", "."), 1)], elmo)[0]
    assert "&lt;b&gt;" in found._repr_html_()
    assert "<b><b>" not in found._repr_html_()


# ------------------------------------------------------------------------------------ approximate


def test_approximate_index_reaches_its_recall_and_applies_filters(
    elmo: ElmoModel, folder: Path, tmp_path: Path
) -> None:
    text, more = folder / "text.txt", tmp_path / "more.txt"
    settings = IndexSettings(layer=("0", "2", "average"), tokenized=True)
    build_index(elmo, [text], tmp_path / "i", settings)
    index = TokenIndex.open(tmp_path / "i")
    choices = LayerChoice.parse_all(["top", "average"], 3)
    with pytest.raises(ConfigError, match="layer 2"):
        index.neighbors([3], layer=choices, ann=True)
    with pytest.raises(ConfigError, match=r"1\.5"):
        add_ann(index, choices, recall=1.5)
    for layer in (0, 1):  # its vectors are not in the table of tokens
        with pytest.raises(ConfigError, match=r"stores: layer 0, layer 2, average"):
            add_ann(index, LayerChoice.parse_all(layer, 3))
    ann = add_ann(index, choices, recall=0.9).meta.ann
    index = TokenIndex.open(index.folder)
    assert index.meta.ann == ann
    assert ann["layer 2"]["recall_at_10"] >= 0.9
    check_approximate(index, choices)
    more.write_text("a river , a bank\n")
    build_index(elmo, [more], tmp_path / "i", settings, append=True)
    index = TokenIndex.open(index.folder)
    check_approximate(index, choices)
    (found,) = index.neighbors(["a [river] , a bank"], elmo, layer=choices, ann=True)
    assert found.by_layer["layer 2"][0].where == f"{more}:1"


def check_approximate(index: TokenIndex, choices: Any) -> None:
    numbers = list(range(0, index.n_tokens, 40))
    for filter in (
        NeighborFilter(distinct="token"),
        NeighborFilter("other", "word", other_sentences=True),
    ):
        exact = index.neighbors(numbers, layer=choices, filter=filter, k=5)
        found = index.neighbors(numbers, layer=choices, filter=filter, k=5, ann=True)
        right = total = 0
        for a, b in zip(exact, found, strict=True):
            for name, listed in a.by_layer.items():
                scores = [n.score for n in b.by_layer[name]]
                assert scores == sorted(scores, reverse=True)
                total += len(listed)
                right += sum(score >= listed[-1].score - 1e-6 for score in scores)
                words = [n.word.casefold() for n in b.by_layer[name]]
                if filter.words == "other":
                    assert a.query.word.casefold() not in words
                    assert len(set(words)) == len(words)
                    assert a.query.tokens not in [n.marked.tokens for n in b.by_layer[name]]
        assert right / total > 0.85
