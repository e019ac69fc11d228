"""Morphologically related words in layer 0: the list, ranks and random pairs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import elmokit
from elmokit.embed.static import StaticVectors
from elmokit.errors import ConfigError, DataError
from elmokit.probes.morphology import (
    WordPair,
    candidate_words,
    layer_0,
    measure_morphology,
    read_pairs,
    read_words,
)
from tests.conftest import TINY_MODEL

PAIRS = [
    WordPair("walk", "walked", "inflected"),
    WordPair("sing", "sang", "inflected"),
    WordPair("blorfing", "blorfed", "made-up"),
    WordPair("wug", "wugs", "made-up"),
]
WORDS = ["the", "walking", "Walk", "sung", "blorf", "wig", "table", "Sang"]


@pytest.fixture(scope="module")
def elmo() -> elmokit.ElmoModel:
    return elmokit.load(TINY_MODEL, device="cpu")


def test_bundled_list_is_large_and_valid() -> None:
    pairs = read_pairs()
    kinds = Counter(pair.kind for pair in pairs)
    assert len(pairs) >= 240
    assert set(kinds) == {
        "inflected", "derived", "compound", "misspelled", "made-up", "look-alike"
    }  # fmt: skip
    assert min(kinds.values()) >= 40
    assert len({frozenset(pair[:2]) for pair in pairs}) == len(pairs)
    assert not any(" " in word for pair in pairs for word in pair[:2])


def test_layer_0_equals_that_of_a_sentence(elmo: elmokit.ElmoModel) -> None:
    vectors = layer_0(elmo, ["walk", "wugs"])
    inside = elmo.embed([["the", "wugs", "walk"]])[0].layers[0]
    cosine = inside[1] @ inside[2] / np.linalg.norm(inside[1]) / np.linalg.norm(inside[2])
    assert float(vectors[0] @ vectors[1]) == pytest.approx(cosine, abs=1e-6)


def test_ranks_equal_a_full_sort(elmo: elmokit.ElmoModel) -> None:
    report = measure_morphology(elmo, PAIRS, WORDS)
    for pair, rank in zip(PAIRS, report.ranks, strict=True):
        rivals = [w for w in WORDS if w.lower() not in (pair.word, pair.related)]
        vectors = layer_0(elmo, [pair.word, pair.related, *rivals])
        cosines = vectors[1:] @ vectors[0]
        assert rank == 1 + int((cosines[1:] >= cosines[0]).sum())
    figure = report.layer_0["made-up"]
    assert figure.pairs == 2
    assert figure.reciprocal_rank == pytest.approx(np.mean([1 / r for r in report.ranks[2:]]))
    assert figure.in_ten == 1.0


def test_random_pairs_are_of_the_same_relation_and_seeded(elmo: elmokit.ElmoModel) -> None:
    report = measure_morphology(elmo, PAIRS, WORDS)
    v = dict(zip(names := ["walk", "sang", "sing", "walked"], layer_0(elmo, names), strict=True))
    # With two pairs per relation, the random pairs are the two cross pairs.
    crosswise = (float(v["walk"] @ v["sang"]) + float(v["sing"] @ v["walked"])) / 2
    assert report.layer_0["inflected"].random_cosine == pytest.approx(crosswise, abs=1e-6)
    assert measure_morphology(elmo, PAIRS, WORDS) == report


def test_relation_with_one_pair_has_no_random_pairs(elmo: elmokit.ElmoModel) -> None:
    figure = measure_morphology(elmo, PAIRS[:1], WORDS).layer_0["inflected"]
    assert np.isnan(figure.auc)
    assert figure.pairs == 1


def test_static_vectors_are_evaluated_on_the_pairs_they_contain(elmo: elmokit.ElmoModel) -> None:
    words = ["walk", "walked", "sing", "sang", "the", "table"]
    vectors = np.eye(6, dtype=np.float32)
    vectors[1] = vectors[0]
    report = measure_morphology(elmo, PAIRS, WORDS, static=StaticVectors("toy", words, vectors))
    assert report.static is not None
    assert report.layer_0_known is not None
    assert list(report.static) == list(report.layer_0_known) == ["inflected"]
    assert report.static["inflected"].cosine == pytest.approx(0.5)
    assert report.static["inflected"].auc == pytest.approx(0.75)
    assert report.layer_0["made-up"].pairs == 2
    assert "static" in str(report)


def test_vocabulary_contains_each_word_in_one_case(elmo: elmokit.ElmoModel, tmp_path: Path) -> None:
    (tmp_path / "w.txt").write_text("the 9\nThe 8\n\nwalk\ncat\n")
    assert read_words(tmp_path / "w.txt", 2) == ["the", "walk"]
    table = StaticVectors("toy", ["the", ",", "THE", "12", "cat"], np.eye(5, dtype=np.float32))
    assert candidate_words(elmo, table) == ["the", "cat"]
    with pytest.raises(ConfigError):
        candidate_words(elmo)
    (tmp_path / "w.txt").write_text("\n")
    with pytest.raises(DataError):
        read_words(tmp_path / "w.txt")


def test_custom_lists_are_read(tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_text("# mine\n\nwalk\twalks\nbig\tbigger\tdegree\n")
    pairs = read_pairs(tmp_path / "p.tsv")
    assert pairs == [WordPair("walk", "walks", "related"), WordPair("big", "bigger", "degree")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\tc\nwalk walks\n", "p.tsv, line 2: found 'walk walks'"),
        ("a\t\tkind\n", "line 1: found"),
        ("a\ta\tkind\n", "line 1: 'a' is paired with itself"),
        ("# nothing\n", "contains no pairs"),
    ],
)
def test_error_for_an_invalid_list_names_file_and_line(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "p.tsv").write_text(text)
    with pytest.raises(DataError) as raised:
        read_pairs(tmp_path / "p.tsv")
    assert message in str(raised.value)
