"""SNLI from pairs to labels: supported formats, learning, rejected input."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from elmokit.embed.layer_cache import LayerCache
from elmokit.embed.model import ElmoModel
from elmokit.errors import DataError, ElmoWarning
from elmokit.settings import with_settings
from elmokit.tasks.batches import Dataset
from elmokit.tasks.config import TaskConfig
from elmokit.tasks.snli import Pair, Snli
from elmokit.text.lines import Line
from tests.tasks.task_checks import (
    check_batch_independence,
    check_gradients,
    learn,
    with_both,
    write_examples,
)
from tests.tasks.test_commands import elmo as command

TASK = Snli()
PEOPLE = ["boy", "girl", "man", "nurse"]
VERBS = ["sings", "runs", "sleeps"]
SMALL = [
    "static.source=none",
    "static.dim=32",
    "model.hidden=40",
    "model.dropout=0.1",
    "train.batch_size=16",
    "train.learning_rate=0.005",
    "train.halve_after=0",
]


def settings(*changes: str) -> TaskConfig:
    return with_settings(TASK.presets["paper"], [*SMALL, *changes])


def pair(draw: random.Random) -> str:
    """Repeat the sentence, describe someone else, or add a detail."""
    label, who, verb = draw.randrange(3), draw.choice(PEOPLE), draw.choice(VERBS)
    again, more = (who, verb), ""
    if label == 1:
        more = f" {draw.choice(['today', 'alone'])}"
    if label == 2:
        again = draw.choice([(p, v) for p in PEOPLE for v in VERBS if p != who and v != verb])
    return f"a {who} {verb} here\tthe {' '.join(again)}{more}\t{label}"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return write_examples(tmp_path_factory.mktemp("snli"), pair, train=250, dev=40)


def read(tmp_path: Path, text: str) -> list[Pair]:
    path = tmp_path / "pairs.txt"
    path.write_text(text)
    return TASK.read(str(path))


# ------------------------------------------------------------------------------------------- data

A, B = ("A", "man", "."), ("He", "sat", ".")


@pytest.mark.parametrize(
    "text",
    [
        "A man.\tHe sat.\t2\n",
        "contradiction\tA man.\tHe sat.\n",
        "sentence1\tsentence2\tgold_label\nA man.\tHe sat.\tcontradiction\n",
        "gold_label\tx\tsentence2\tsentence1\ncontradiction\t\tHe sat.\tA man.\n",
        '{"gold_label": "contradiction", "sentence1": "A man.", "sentence2": "He sat."}\n',
        '{"label": 2, "premise": "A man.", "hypothesis": "He sat."}\n\n',
    ],
)
def test_all_data_formats(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == [Pair(A, B, "contradiction")]


def test_files_of_different_formats_can_be_combined(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "A man.\tHe sat.\t0\n"
        "sentence1\tsentence2\tgold_label\n"
        "A man.\tHe sat.\tneutral\n"
        '{"gold_label": "contradiction", "sentence1": "A man.", "sentence2": "He sat."}\n',
    )
    assert [p.label for p in found] == ["entailment", "neutral", "contradiction"]


def test_pairs_without_agreement_are_skipped_and_counted(tmp_path: Path) -> None:
    with pytest.warns(ElmoWarning, match=r"pairs.txt: skipped 2 pairs .* out of 3"):
        found = read(
            tmp_path,
            "a\t\t-\na\tb\t1\n" + '{"gold_label": "-", "sentence1": "a", "sentence2": "b"}\n',
        )
    assert [p.label for p in found] == ["neutral"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\t1\na b\n", r"pairs.txt, line 2: found 1 column"),
        ("a b\n", "line 1: found 1 column, expected 3"),
        ("a\tb\n", "line 1: found 2 columns, expected 3"),
        ("a\tb\tperhaps\n", "invalid label 'perhaps'"),
        ("a\tb\t3\n", "invalid label '3'"),
        ("sentence1\tsentence2\na\tb\n", "line 2: invalid label"),
        ("sentence1\tsentence2\tlabel\na\tb\tc\t0\n", "line 2: found 4 columns, expected 3"),
        ("{\n", "line 1: Invalid JSON"),
        ('{"sentence1": "a", "sentence2": "b"}', "line 1: invalid label"),
        ('{"gold_label": "neutral", "sentence1": "a"}', "line 1: found"),
        ('{"gold_label": null, "sentence1": "a", "sentence2": "b"}', "invalid label 'None'"),
        ("a\tb\t1\na\t\t1\n", "pairs.txt, line 2: the text is empty"),
    ],
)
def test_invalid_pairs_are_identified(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path, text)


def test_prediction_reads_columns_and_json() -> None:
    lines = [Line("x", 1, "{A man.\tHe sat."), Line("x", 2, ""), Line("x", 3, "A man.\tHe sat.\t1")]
    found = list(TASK.parse(lines, "text"))
    assert [p.premise[-3:] for p in found] == [A, A]
    assert [p.hypothesis for p in found] == [B, B]
    assert [p.label for p in found] == [None, None]
    given = '{"sentence1": "A man.", "sentence2": "He sat."}'
    assert list(TASK.parse([Line("x", 1, given)], "jsonl")) == [Pair(A, B)]
    for form, bad in (("text", "A man."), ("jsonl", "[]"), ("jsonl", "A man.\tHe sat.")):
        with pytest.raises(DataError, match="x, line 4"):
            list(TASK.parse([Line("x", 4, bad)], form))


@pytest.mark.parametrize(
    ("form", "empty"),
    [
        ("text", "A man.\t"),
        ("text", " \t "),
        ("jsonl", '{"sentence1": "", "sentence2": "He sat."}'),
    ],
)
def test_empty_sentence_is_rejected(form: str, empty: str) -> None:
    with pytest.raises(DataError, match="x, line 4: the text is empty"):
        list(TASK.parse([Line("x", 3, ""), Line("x", 4, empty)], form))
    assert list(TASK.parse([Line("x", 1, " \t")], "jsonl")) == []  # a blank line


# ------------------------------------------------------------------------------------------ model


@pytest.mark.parametrize("place", [pytest.param("none", marks=pytest.mark.slow), "both"])
def test_model_learns_and_predicts_after_loading(
    files: tuple[str, str], elmo: ElmoModel, cache: LayerCache, tmp_path: Path, place: str
) -> None:
    config = settings(f"elmo.place={place}", "train.epochs=15", "train.patience=0")
    run = learn(TASK, config, files, elmo, cache, tmp_path / "run")
    saved, examples, predicted, records = run.saved, run.examples, run.predicted, run.records
    assert run.dev["accuracy"] > 95
    assert [saved.predict([e])[0].label for e in examples] == [g.label for g in predicted]
    assert [line["label"] for line in records] == [guess.label for guess in predicted]
    assert [line["gold_label"] for line in records] == [e.label for e in examples]
    asked = next(TASK.parse([Line("x", 1, "a boy runs here\tthe girl sings")], "text"))
    shown = TASK.format_prediction(asked, saved.predict([asked])[0], as_json=False)
    assert shown == "contradiction\ta boy runs here\tthe girl sings"
    done = command(
        *("task", "snli", "predict", tmp_path / "run", "-", "--device", "cpu"),
        given="a boy runs here\tthe girl sings\n",
    )
    assert done.stdout == "contradiction\ta boy runs here\tthe girl sings\n"


def test_gradients_reach_the_mixes_but_not_the_biLM(
    files: tuple[str, str], elmo: ElmoModel, cache: LayerCache
) -> None:
    data, model = with_both(TASK, settings("elmo.place=both"), files, elmo, cache)
    check_gradients(model.loss(data.train.batch(list(range(12)))), model, elmo)


def test_predictions_do_not_depend_on_the_batch_or_empty_sentences(
    files: tuple[str, str], elmo: ElmoModel, cache: LayerCache
) -> None:
    data, model = with_both(TASK, settings("elmo.place=both"), files, elmo, cache)
    pairs = [
        *data.dev.examples[:6],
        Pair(("a",), ("girl", "sings") * 15),
        Pair((), ("a",)),
        Pair(("a",), ()),
        Pair((), ()),
    ]
    layers = cache.layers(elmo, [text for p in pairs for text in p.texts], torch.device("cpu"))
    check_batch_independence(model, Dataset(pairs, layers, torch.device("cpu")))
