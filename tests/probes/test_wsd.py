"""Word sense disambiguation by the nearest mean: means, back-off, multiword forms."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import elmokit
from elmokit.embed.static import StaticVectors
from elmokit.embed.vectors import normalize
from elmokit.errors import DataError
from elmokit.probes.raganato import EvaluationSet, Instance, read_sets
from elmokit.probes.reports import json_values
from elmokit.probes.wordnet import (
    Entry,
    SenseSentence,
    SenseSpan,
    WordNet,
    read_semcor,
    read_wordnet,
)
from elmokit.probes.wsd import collect_senses, measure_wsd
from tests.conftest import TINY_MODEL
from tests.probes.sense_data import MONEY, SHORE, write_index, write_semcor, write_set


@pytest.fixture(scope="module")
def elmo() -> elmokit.ElmoModel:
    return elmokit.load(TINY_MODEL, device="cpu")


@pytest.fixture
def wordnet(tmp_path: Path) -> WordNet:
    return read_wordnet(write_index(tmp_path))


@pytest.fixture
def training(tmp_path: Path) -> list[SenseSentence]:
    return read_semcor(write_semcor(tmp_path))


def make_instance(lemma: str, pos: str = "1", gold: str = "x") -> Instance:
    return Instance(f"{lemma}.{gold}", 0, 0, 1, Entry(lemma, pos), "NOUN", frozenset([gold]))


def test_sense_vector_is_the_mean_of_its_uses(
    elmo: elmokit.ElmoModel, wordnet: WordNet, training: list[SenseSentence]
) -> None:
    vectors = elmo.embed([list(s.words) for s in training])
    senses = collect_senses((v.layers for v in vectors), training, wordnet)
    # The alternatives of the fourth sentence count for both; a key that does not exist is ignored.
    expected = {
        SHORE: [vectors[0].word("bank"), vectors[1].word("bank"), vectors[3].word("bank")],
        MONEY: [vectors[2].word("bank"), vectors[3].word("bank")],
        "take_place%2:30:00::": [vectors[3].layers[:, 2:4].mean(axis=1)],
        "old%5:00:00:past:00": [vectors[4].word("old")],
    }
    assert set(senses.keys) == set(expected)
    for key, uses in expected.items():
        row = senses.keys.index(key)
        assert senses.counts[row] == len(uses)
        np.testing.assert_allclose(senses.vectors[:, row], np.mean(uses, axis=0), atol=1e-6)


def test_only_senses_seen_in_training_are_predicted(wordnet: WordNet) -> None:
    keys = [MONEY, SHORE, "bank%2:40:00::"]
    vectors = np.array([[1, 0], [0, 1], [1, 1]], dtype=np.float32)
    spans = tuple(SenseSpan(i, i + 1, (key,)) for i, key in enumerate(keys))
    sentence = SenseSentence(("bank",) * 3, spans)
    senses = collect_senses([vectors[None]], [sentence], wordnet)
    means = normalize(senses.vectors[0])

    def choose(lemma: str, pos: str, *query: float) -> str | None:
        return senses.choose(Entry(lemma, pos), means, np.array(query, dtype=np.float32))

    assert choose("bank", "1", 5, 1) == MONEY
    assert choose("bank", "1", 2, 2) == SHORE  # equally near: the first in WordNet
    assert choose("bank", "2", 0, -1) == "bank%2:40:00::"  # the only candidate
    assert choose("zebra", "1", 1, 1) == "zebra%1:05:00::"  # unseen: the first sense of WordNet
    assert choose("quux", "1", 1, 1) is None


def test_complete_evaluation(
    tmp_path: Path, elmo: elmokit.ElmoModel, wordnet: WordNet, training: list[SenseSentence]
) -> None:
    sets = read_sets(write_set(tmp_path / "sets"))
    table = StaticVectors("toy", ["river", "money", "bank"], np.eye(3, dtype=np.float32))
    seen: list[tuple[object, ...]] = []
    report = measure_wsd(
        elmo,
        training,
        sets,
        wordnet,
        layer=["all", "average", "concat"],
        static=table,
        progress=lambda *report: seen.append(report),
    )
    assert seen[-1] == ("tokens", 30, 30)
    assert report.instances == {"tiny": 5}
    assert report.backed_off == {"tiny": 2}  # zebra, quux
    assert report.unanswered == {"tiny": 1}  # quux
    assert (report.senses, report.uses, report.alternatives, report.unknown) == (4, 7, 1, 1)
    by_name = {result.name: result for result in report.results}
    assert list(by_name)[:4] == [
        "first sense of WordNet",
        "most frequent sense of SemCor",
        "toy, the word",
        "toy, mean of the sentence",
    ]
    # First sense: bank is wrong; take_place, zebra and old are right: four of five answers.
    precision, recall = 3 / 4, 3 / 5
    expected = 2 * precision * recall / (precision + recall)
    assert by_name["first sense of WordNet"].f1["tiny"] == pytest.approx(expected)
    low, high = by_name["first sense of WordNet"].interval
    assert low <= expected <= high
    # In SemCor, bank is SHORE three times and another sense twice; old is the satellite.
    precision, recall = 2 / 4, 2 / 5
    expected = 2 * precision * recall / (precision + recall)
    assert by_name["most frequent sense of SemCor"].f1["tiny"] == pytest.approx(expected)
    assert by_name["first sense of WordNet"].by_pos["VERB"] == 1.0
    assert report.difference is not None
    assert "concat" in by_name
    assert "NaN" not in json.dumps(json_values(report))
    assert "95%" in str(report)


def test_predictions_of_each_layer_equal_numpy(
    tmp_path: Path, elmo: elmokit.ElmoModel, wordnet: WordNet, training: list[SenseSentence]
) -> None:
    sentence = ["The", "bank", "took", "place"]
    vector = elmo.embed([sentence])[0].word("bank")
    uses = [v.word("bank") for v in elmo.embed([list(s.words) for s in training[:4]])]
    means = {SHORE: np.mean([uses[0], uses[1], uses[3]], 0), MONEY: np.mean(uses[2:], 0)}
    for name, weights in (("layer 1", [0, 1, 0]), ("average", [1, 1, 1])):
        query = np.tensordot(weights, vector, axes=1)
        mixed = {key: np.tensordot(weights, mean, axes=1) for key, mean in means.items()}
        cosine = {key: mean @ query / np.linalg.norm(mean) for key, mean in mixed.items()}
        nearest = max(cosine, key=lambda key: cosine[key])
        for gold in (SHORE, MONEY):
            given = make_instance("bank", gold=gold)._replace(start=1, end=2)
            one = EvaluationSet("ALL", [tuple(sentence)], [given])
            report = measure_wsd(elmo, training, [one], wordnet)
            f1 = {result.name: result.f1["ALL"] for result in report.results}
            assert f1[name] == float(gold == nearest)


def test_keys_of_another_wordnet_are_an_error(
    elmo: elmokit.ElmoModel, training: list[SenseSentence]
) -> None:
    other = {Entry("a", "1"): ("a%1:04:00::",)}
    sets = [EvaluationSet("x", [("a",)], [make_instance("a")])]
    with pytest.raises(DataError, match=r"sense keys of WordNet 3\.0"):
        measure_wsd(elmo, training, sets, other)
