"""SST-5 from trees to labels: supported formats, learning, rejected input."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from elmokit.embed.layer_cache import LayerCache
from elmokit.embed.model import ElmoModel
from elmokit.errors import ConfigError, DataError, ElmoWarning
from elmokit.settings import with_settings
from elmokit.tasks.batches import Dataset
from elmokit.tasks.classify import MAX_TOKENS, LabelPrediction
from elmokit.tasks.config import TaskConfig
from elmokit.tasks.data import load_data, select_scored_examples
from elmokit.tasks.sst5 import Review, Sst5, expand_phrases
from elmokit.text.lines import Line
from tests.tasks.task_checks import (
    check_batch_independence,
    check_gradients,
    learn,
    with_both,
    write_examples,
)
from tests.tasks.test_commands import elmo as command

TASK = Sst5()
WORDS = {"bad": 1, "plain": 2, "good": 3}
SMALL = [
    "static.source=none",
    "static.dim=16",
    "static.trainable=true",
    "model.hidden=24",
    "model.dropout=0.1",
    "model.encoder_dropout=0",
    "train.batch_size=16",
    "train.learning_rate=0.005",
]


def settings(*changes: str) -> TaskConfig:
    return with_settings(TASK.presets["paper"], [*SMALL, *changes])


def tree(draw: random.Random) -> str:
    """Write a sentence with the label of its adjective, intensified by "very"."""
    word, label = draw.choice(list(WORDS.items()))
    opinion = f"({label} {word})"
    if draw.random() < 0.5:
        label = 2 + 2 * (label - 2)
        opinion = f"({label} (2 very) {opinion})"
    subject = f"(2 (2 {draw.choice(['The', 'This'])}) (2 {draw.choice(['film', 'plot', 'cast'])}))"
    return f"({label} {subject} ({label} ({label} (2 is) {opinion}) (2 .)))"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return write_examples(tmp_path_factory.mktemp("sst5"), tree, train=70, dev=30)


def read(tmp_path: Path, text: str) -> list[Review]:
    path = tmp_path / "trees.txt"
    path.write_text(text)
    return TASK.read(str(path))


# ------------------------------------------------------------------------------------------- data


def test_trees_are_read_with_all_their_phrases(tmp_path: Path) -> None:
    [review] = read(tmp_path, "(3 (2 It) (4 (2 's) (4 lovely)))\n\n")
    assert review.tokens == ("It", "'s", "lovely")
    assert review.label == "3"
    found = [(" ".join(phrase.tokens), phrase.label) for phrase in expand_phrases([review])]
    assert found == [
        ("It 's lovely", "3"),
        ("It", "2"),
        ("'s", "2"),
        ("lovely", "4"),
        ("'s lovely", "4"),
    ]


def test_words_are_unescaped(tmp_path: Path) -> None:
    [review] = read(tmp_path, "(2 (2 -LRB-) (2 (2 and\\/or) (2 (2 ``) (2 2\u00a01\\/2))))\n")
    assert review.tokens == ("(", "and/or", '"', "2\u00a01/2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("It is lovely", "unexpected 'It'"),
        ("(2 a)\n(7 a)", r"line 2: unexpected '\(7'"),
        ("(3 (2 a) (2 b)", r"missing '\)'"),
        ("(3 a))", r"unexpected '\)'"),
        ("(3 a) (2 b)", r"unexpected '\(2'"),
        ("(3 a b)", "unexpected 'b'"),
        ("(3 (2 a) b)", "unexpected 'b'"),
        ("(3 a (2 b))", r"unexpected '\(2'"),
        ("(3 (2 ) (2 b))", r"unexpected '\)'"),
        ("(", r"unexpected '\('"),
    ],
)
def test_invalid_trees_are_identified(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=r"trees.txt, line \d: ") as error:
        read(tmp_path, text)
    assert error.match(message)


def test_very_long_text_is_truncated_with_a_warning() -> None:
    with pytest.warns(ElmoWarning, match=r"x, line 3: truncated a text of 600 tokens"):
        [review] = TASK.parse([Line("x", 3, "word " * 600)], "text")
    assert len(review.tokens) == MAX_TOKENS


def test_prediction_reads_text_json_and_trees() -> None:
    found = TASK.parse([Line("x", 1, "It's good. I like it."), Line("x", 2, " ")], "text")
    assert [r.tokens for r in found] == [("It", "'s", "good", ".", "I", "like", "it", ".")]
    given = ['{"tokens": ["So", "so"]}', '{"text": "So so."}']
    lines = [Line("x", i, text) for i, text in enumerate(given)]
    assert [r.tokens for r in TASK.parse(lines, "jsonl")] == [("So", "so"), ("So", "so", ".")]
    assert [r.tokens for r in TASK.parse([Line("x", 1, "(2 so)")], "trees")] == [("so",)]
    for bad in ("[]", "{", '{"tokens": [1]}', '{"tokens": ["a\\tb"]}'):
        with pytest.raises(DataError, match="x, line 9"):
            list(TASK.parse([Line("x", 9, bad)], "jsonl"))


def test_empty_text_is_rejected() -> None:
    for empty in ('{"tokens": []}', '{"text": " "}'):
        with pytest.raises(DataError, match="x, line 9: the text is empty"):
            list(TASK.parse([Line("x", 9, empty)], "jsonl"))


def test_phrases_are_used_for_training_but_not_for_evaluation(files: tuple[str, str]) -> None:
    whole = load_data(TASK, settings("elmo.place=none", "model.subtrees=false"), *files)
    assert (len(whole.train), len(whole.dev)) == (70, 30)
    messages: list[str] = []
    data = load_data(TASK, settings("elmo.place=none"), *files, log=messages.append)
    assert len(data.train) > 7 * 70
    assert len(data.dev) == 30
    assert any(
        f"{len(data.train):,} training examples created from 70" in line for line in messages
    )
    once = load_data(TASK, settings("elmo.place=none", "model.distinct=true"), *files)
    assert len(once.train) < len(data.train)
    assert set(once.train.examples) == set(data.train.examples)
    assert len(set(once.train.examples)) == len(once.train)


def test_two_classes_exclude_neutral_examples(files: tuple[str, str]) -> None:
    config = settings("elmo.place=none", "model.classes=two")
    with pytest.warns(ElmoWarning, match="neutral example"):
        data = load_data(TASK, config, *files)
    assert data.label_info["labels"] == ["negative", "positive"]
    assert {e.label for e in data.train.examples} == {"negative", "positive"}
    guess = LabelPrediction("positive", {"negative": 0.2, "positive": 0.8})
    reviews = [Review(("a",), label) for label in "01234"]
    with pytest.warns(ElmoWarning, match="Skipped 1 neutral example"):
        reviews = TASK.scored(reviews, config)
    scores = TASK.score(reviews, [guess] * 4)
    assert (scores["correct"], scores["examples"]) == (2, 4)
    with pytest.raises(ConfigError, match=r"model\.classes: 'three'"):
        settings("model.classes=three")


def test_unknown_labels_are_counted() -> None:
    label_info = TASK.collect_labels([Review(("a",), "1"), Review(("b",), "3")])
    with pytest.warns(ElmoWarning, match=r"2 gold labels absent from .*: 0, 4\."):
        select_scored_examples(
            TASK, [Review(("a",), label) for label in "014"], settings(), label_info
        )
    with pytest.raises(DataError, match="label '1'"):
        TASK.collect_labels([Review(("a",), "1")])


# ------------------------------------------------------------------------------------------ model


@pytest.mark.parametrize("place", [pytest.param("none", marks=pytest.mark.slow), "both"])
def test_model_learns_and_predicts_after_loading(
    files: tuple[str, str], elmo: ElmoModel, cache: LayerCache, tmp_path: Path, place: str
) -> None:
    config = settings(f"elmo.place={place}", "train.epochs=8", "train.patience=0")
    run = learn(TASK, config, files, elmo, cache, tmp_path / "run")
    saved, examples, predicted, messages = run.saved, run.examples, run.predicted, run.records
    assert run.dev["accuracy"] > 95
    assert [saved.predict([e])[0].label for e in examples] == [g.label for g in predicted]
    assert [line["label"] for line in messages] == [guess.label for guess in predicted]
    assert [line["gold"] for line in messages] == [e.label for e in examples]
    review = next(TASK.parse([Line("x", 1, "This film is very good.")], "text"))
    [guess] = saved.predict([review])
    assert TASK.format_prediction(review, guess, as_json=False) == "4\tThis film is very good ."
    assert sum(guess.probabilities.values()) == pytest.approx(1)
    done = command(
        *("task", "sst5", "predict", tmp_path / "run", "-", "--device", "cpu"),
        given="This film is very good.\n",
    )
    assert done.stdout == "4\tThis film is very good .\n"


def test_gradients_reach_the_mixes_but_not_the_biLM(
    files: tuple[str, str], elmo: ElmoModel, cache: LayerCache
) -> None:
    data, model = with_both(
        TASK, settings("elmo.place=both", "train.share=0.2"), files, elmo, cache
    )
    check_gradients(model.loss(data.train.batch(list(range(12)))), model, elmo)


def test_predictions_do_not_depend_on_the_batch_or_empty_texts(
    files: tuple[str, str], elmo: ElmoModel, cache: LayerCache
) -> None:
    data, model = with_both(
        TASK, settings("elmo.place=both", "train.share=0.2"), files, elmo, cache
    )
    texts = [*(e.tokens for e in data.dev.examples[:8]), ("film",), (), ("is", "good") * 20]
    layers = cache.layers(elmo, texts, torch.device("cpu"))
    check_batch_independence(
        model, Dataset([Review(text) for text in texts], layers, torch.device("cpu"))
    )
