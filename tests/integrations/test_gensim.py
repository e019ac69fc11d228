"""One vector per word, in gensim's format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import elmokit
from elmokit.embed.static import StaticVectors, read_static
from elmokit.errors import ConfigError, DataError
from tests.conftest import TINY_MODEL

gensim = pytest.importorskip("gensim", reason="the extra `gensim` is not installed")

from gensim.models import KeyedVectors  # noqa: E402

from elmokit.integrations.gensim import averaged, from_keyed, layer_zero, to_keyed  # noqa: E402

VERSES = [
    "And God said, Let there be light: and there was light.",
    "And God saw the light, that it was good.",
    "And God called the light Day, and the darkness he called Night.",
]


@pytest.fixture(scope="module")
def elmo() -> elmokit.ElmoModel:
    return elmokit.load(TINY_MODEL)


def uses(elmo: elmokit.ElmoModel, word: str) -> np.ndarray:
    """Return all top-layer vectors of a word in the verses."""
    found = [v.top[k] for v in elmo.embed(VERSES) for k, t in enumerate(v.tokens) if t == word]
    return np.array(found)


def test_layer_0_equals_embed(elmo: elmokit.ElmoModel) -> None:
    keyed = layer_zero(elmo, ["light", "night", "light", "Lichtlein"])
    assert keyed.index_to_key == ["light", "night", "Lichtlein"]
    for word in keyed.index_to_key:
        np.testing.assert_allclose(
            keyed[word], elmo.embed([["And", word, "was"]])[0].layers[0, 1], atol=1e-6
        )
    assert keyed.most_similar("light", topn=2)[0][0] in {"night", "Lichtlein"}


def test_layer_0_of_many_words(elmo: elmokit.ElmoModel) -> None:
    words = [f"w{i}" for i in range(5000)]
    keyed = layer_zero(elmo, words)
    assert len(keyed) == 5000
    np.testing.assert_allclose(keyed["w4999"], elmo.embed([["w4999"]])[0].layers[0, 0], atol=1e-6)


def test_vectors_are_averaged_over_all_occurrences(elmo: elmokit.ElmoModel) -> None:
    keyed = averaged(elmo, VERSES, min_count=2)
    assert keyed.index_to_key[0] == "light"
    assert "Night" not in keyed
    for word in ("light", "God", ","):
        vectors = uses(elmo, word)
        np.testing.assert_allclose(keyed[word], vectors.mean(axis=0), atol=2e-6)
        assert keyed.get_vecattr(word, "count") == len(vectors)
    counts = [keyed.get_vecattr(word, "count") for word in keyed.index_to_key]
    assert counts == sorted(counts, reverse=True)


def test_most_frequent_words_are_kept(elmo: elmokit.ElmoModel) -> None:
    keyed = averaged(elmo, VERSES, min_count=1, max_words=1)
    assert keyed.index_to_key == ["light"]


def test_given_words_need_only_one_pass(elmo: elmokit.ElmoModel) -> None:
    keyed = averaged(elmo, iter(VERSES), words=["good", "light", "sea"], min_count=1)
    assert keyed.index_to_key == ["light", "good"]
    np.testing.assert_allclose(keyed["light"], uses(elmo, "light").mean(axis=0), atol=2e-6)
    with pytest.raises(ConfigError):
        averaged(elmo, iter(VERSES))


def test_files_and_lists_of_tokens_are_read(elmo: elmokit.ElmoModel, tmp_path: Path) -> None:
    path = tmp_path / "verses.txt"
    path.write_text("\n".join(VERSES) + "\n", "utf-8")
    expected = averaged(elmo, VERSES, min_count=1)
    tokens = [v.tokens for v in elmo.embed(VERSES)]
    for corpus in (path, str(path), tokens):
        found = averaged(elmo, corpus, min_count=1)
        assert found.index_to_key == expected.index_to_key
        np.testing.assert_allclose(found.vectors, expected.vectors, atol=2e-6)


def test_layers_can_be_selected(elmo: elmokit.ElmoModel) -> None:
    keyed = averaged(elmo, VERSES, min_count=1, layer=0)
    np.testing.assert_allclose(keyed["light"], layer_zero(elmo, ["light"])["light"], atol=1e-6)
    assert averaged(elmo, VERSES, min_count=1, layer="concat").vector_size == 96
    assert averaged(elmo, VERSES, min_count=1, layer="mix", mix=[1, 1, 1]).vector_size == 32


def test_empty_text_is_an_error(elmo: elmokit.ElmoModel) -> None:
    with pytest.raises(DataError, match="occurs at least 50 times"):
        averaged(elmo, VERSES, min_count=50)
    with pytest.raises(DataError, match="occurs at least 5 times"):
        averaged(elmo, [], words=["light"])
    with pytest.raises(ConfigError, match="min_count"):
        averaged(elmo, VERSES, min_count=0)
    with pytest.raises(DataError):
        layer_zero(elmo, [])
    with pytest.raises(DataError):
        layer_zero(elmo, ["light", 3])  # type: ignore[list-item]


def test_static_tables_convert_in_both_directions(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_text("light 1 0 0.5\nday 0.9 0.1 0.5\nnight -1 0 0.5\nlight 7 7 7\n", "utf-8")
    keyed = to_keyed(read_static(path))
    assert keyed.index_to_key == ["light", "day", "night"]
    assert keyed["light"].tolist() == [1, 0, 0.5]
    assert keyed.most_similar("light")[0][0] == "day"
    table = from_keyed(keyed, "mine")
    assert isinstance(table, StaticVectors)
    assert table.name == "mine"
    assert table.neighbors("Light", k=1)[0][0] == "day"
    assert np.shares_memory(table.vectors, keyed.vectors)


def test_files_written_by_gensim_can_be_read(elmo: elmokit.ElmoModel, tmp_path: Path) -> None:
    keyed = layer_zero(elmo, ["light", "day"])
    keyed.save_word2vec_format(str(tmp_path / "text.txt"), binary=False)
    np.testing.assert_allclose(
        read_static(tmp_path / "text.txt").vector("day"), keyed["day"], atol=1e-6
    )
    keyed.save_word2vec_format(str(tmp_path / "binary.bin"), binary=True)
    again = KeyedVectors.load_word2vec_format(str(tmp_path / "binary.bin"), binary=True)
    np.testing.assert_array_equal(from_keyed(again).vector("day"), keyed["day"])
