"""Linear probes: they learn separable data but not noise; baselines without context."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import elmokit
from elmokit.embed.layer_cache import LayerCache
from elmokit.embed.layer_choice import LayerChoice
from elmokit.embed.static import StaticVectors
from elmokit.errors import DataError
from elmokit.probes.conllu import TaggedSentence, Treebank
from elmokit.probes.linear import Examples, LayerTable, ProbeSettings, train_probe
from elmokit.probes.pos import (
    Correct,
    PosResult,
    collect_words,
    measure_pos,
    most_frequent_tag,
)
from elmokit.probes.reports import json_values
from tests.conftest import TINY_MODEL

SENTENCES = [["The", "cat", "sat"], ["A", "play", "on", "words", "."], [], ["cat"]]


@pytest.fixture(scope="module")
def elmo() -> elmokit.ElmoModel:
    return elmokit.load(TINY_MODEL, device="cpu")


# ------------------------------------------------------------------------------------- the probe


def examples(n: int, seed: int, *, random: bool = False) -> Examples:
    """Generate three classes by a linear rule on ten features of very different scales."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(n, 10))
    rule = np.random.default_rng(99).normal(size=(10, 3))
    y = draw.integers(3, size=n) if random else (x @ rule).argmax(axis=1)
    x = x * 10.0 ** np.arange(-1, 4).repeat(2) + 1
    return Examples(x.astype(np.float16), np.arange(n), y.astype(np.int64))


SETTINGS = ProbeSettings(learning_rate=0.02, batch_size=64, max_epochs=20)


def test_probe_learns_linearly_separable_classes() -> None:
    train, dev, test = examples(3000, 0), examples(500, 1), examples(500, 2)
    probe = train_probe(train, dev, 3, settings=SETTINGS)
    right = (probe.predict(test) == test.labels).mean()
    assert right > 0.95
    assert probe.dev_accuracy > 0.95


def test_probe_does_not_learn_noise() -> None:
    train, dev, test = (examples(1500, seed, random=True) for seed in range(3))
    probe = train_probe(train, dev, 3, settings=SETTINGS)
    assert 0.26 < (probe.predict(test) == test.labels).mean() < 0.41


def test_probe_depends_only_on_its_seed() -> None:
    train, dev = examples(400, 0), examples(100, 1)
    settings = ProbeSettings(batch_size=32, max_epochs=3)
    one, two, three = (
        train_probe(train, dev, 3, settings=settings, seed=seed) for seed in (5, 5, 6)
    )
    assert one.weight.equal(two.weight)
    assert not one.weight.equal(three.weight)


def test_probe_stops_when_it_no_longer_improves() -> None:
    train, dev = examples(300, 0, random=True), examples(100, 1, random=True)
    settings = ProbeSettings(batch_size=32, max_epochs=1000, halvings=2)
    assert train_probe(train, dev, 3, settings=settings).epochs < 100


def test_penalty_reduces_the_weights() -> None:
    train, dev = examples(400, 0), examples(100, 1)
    small, large = (
        train_probe(train, dev, 3, settings=ProbeSettings(l2=l2, batch_size=16)).weight.norm()
        for l2 in (0.0, 1.0)
    )
    assert large < small / 2


# ------------------------------------------------------------------------------------------- layers


def test_layer_table_equals_the_vectors_of_a_choice(
    tmp_path: Path, elmo: elmokit.ElmoModel
) -> None:
    layers = LayerCache(tmp_path).get_array(elmo, SENTENCES)
    assert layers is not None
    expected = np.concatenate([v.layers for v in elmo.embed(SENTENCES)], axis=1)
    rows = np.array([8, 0, 3])
    for choice in LayerChoice.parse_all(["all", "average", "concat"], 3):
        table = LayerTable(layers, choice)
        wanted = choice.apply(expected)
        assert table.shape == wanted.shape
        assert table[rows].dtype == np.float16
        np.testing.assert_allclose(table[rows], wanted[rows], rtol=2e-3, atol=2e-3)


def test_second_run_reads_the_layers_from_the_cache(
    tmp_path: Path, elmo: elmokit.ElmoModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = LayerCache(tmp_path).get_array(elmo, SENTENCES)
    monkeypatch.setattr(elmo, "stream", None)
    again = LayerCache(tmp_path).get_array(elmo, SENTENCES)
    assert np.array_equal(first, again)


# -------------------------------------------------------------------------------------------- words


def tagged(text: str) -> TaggedSentence:
    pairs = [word.rsplit("/", 1) for word in text.split()]
    return TaggedSentence(tuple(p[0] for p in pairs), tuple(p[1] if p[1] else None for p in pairs))


BANK = Treebank(
    train=[
        tagged("the/D cat/N plays/V"),
        tagged("the/D plays/N plays/V odd/"),
        tagged("Cat/N x/V"),
    ],
    dev=[tagged("the/D cat/N")],
    test=[tagged("The/D plays/V zebra/N zebra/"), tagged("cat/Q cat/N the/D")],
)


def test_words_have_their_class_and_sentence() -> None:
    words = collect_words(BANK)
    assert words.tags == ["D", "N", "V"]
    assert words.rows[2].tolist() == [11, 12, 13, 15, 16, 17]
    test = words.rows[2]
    # Q does not occur in the training data.
    assert words.labels[test].tolist() == [0, 2, 1, 3, 1, 0]
    assert words.clusters[test].tolist() == [4, 4, 4, 5, 5, 5]
    assert words.unseen.tolist() == [True, False, True, False, False, False]
    assert (words.labels < 0).sum() == 2


def test_most_frequent_tag_baseline_depends_on_the_word() -> None:
    # "The" by its lowercase form; "zebra" has the most frequent tag: N and V tie, N comes first.
    assert most_frequent_tag(collect_words(BANK)).tolist() == [0, 2, 1, 1, 1, 0]


def test_words_without_a_static_vector_are_zero_and_counted() -> None:
    table = StaticVectors("toy", ["the", "cat"], np.eye(2, dtype=np.float32))
    vectors, known = table.look_up(["The", "dog", "cat"])
    assert vectors.tolist() == [[1, 0], [0, 0], [0, 1]]
    assert known.tolist() == [True, False, True]


def test_data_without_tags_is_rejected() -> None:
    with pytest.raises(DataError, match="1 distinct tag"):
        collect_words(BANK._replace(train=[tagged("a/X")]))
    with pytest.raises(DataError):
        collect_words(BANK._replace(test=[tagged("a/")]))


# ------------------------------------------------------------------------------------ complete runs


def test_layers_predict_tags_that_depend_on_the_word(
    tmp_path: Path, elmo: elmokit.ElmoModel
) -> None:
    draw = np.random.default_rng(0)
    pairs = ["the/D", "a/D", "cat/N", "dogs/N", "runs/V", "sat/V"]

    def part(n: int) -> list[TaggedSentence]:
        return [tagged(" ".join(draw.choice(pairs, size=6))) for _ in range(n)]

    bank = Treebank(part(80), part(15), part(15))
    seen: dict[str, Correct] = {}

    def take(result: PosResult, right: Correct) -> None:
        seen[result.name] = right

    report = measure_pos(
        elmo,
        bank,
        tags="upos",
        layer=["all", "average", "concat"],
        static=StaticVectors("toy", ["cat", "sat"], np.eye(2, dtype=np.float32)),
        seeds=[0, 1],
        settings=ProbeSettings(learning_rate=0.02, batch_size=16, max_epochs=15),
        cache=tmp_path,
        on_result=take,
    )
    by_name = {result.name: result for result in report.results}
    assert list(by_name) == [
        "most frequent tag", "toy, the word", "layer 0", "layer 1", "layer 2", "average", "concat"
    ]  # fmt: skip
    assert by_name["most frequent tag"].accuracy == 1.0
    assert by_name["layer 0"].accuracy == by_name["concat"].accuracy == 1.0
    assert by_name["toy, the word"].accuracy < 0.9
    assert len(by_name["layer 1"].by_seed) == len(by_name["layer 1"].epochs) == 2
    assert (report.words, report.sentences) == ((480, 90, 90), (80, 15, 15))
    assert report.difference is not None
    assert report.difference.value == pytest.approx(
        by_name["layer 1"].accuracy - by_name["layer 2"].accuracy
    )
    assert seen["layer 1"].shape == (90,)
    assert f"{by_name['layer 1'].unseen:.4f}" in str(report)
    assert "NaN" not in json.dumps(json_values(report))
    assert list(tmp_path.glob("*.npy"))
