"""Directories that a killed process had moved away are restored by the next reader."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import elmokit
from elmokit.data.corpus import Corpus
from elmokit.data.prepare import prepare
from elmokit.sources import onnxdir, resolve
from elmokit.tasks import checkpoint as task_checkpoint
from elmokit.tasks.words import WordTable
from elmokit.train import checkpoint as train_checkpoint
from tests.conftest import TINY_MODEL
from tests.process_utils import Pause, elmo, kill_when, run

BETWEEN_RENAMES = Pause("pathlib.Path.rename", call=2)


def move_aside(path: Path) -> None:
    path.rename(path.with_name(f".{path.name}.elmokit-old"))


def test_interrupted_overwrite_of_a_model(tmp_path: Path) -> None:
    path = tmp_path / "model"
    assert run(elmo, "convert", TINY_MODEL, path).exit_code == 0
    (path / "README.md").write_text("the old one")
    assert kill_when(BETWEEN_RENAMES, elmo, "convert", TINY_MODEL, path, "--overwrite")
    assert not path.exists()
    model = elmokit.load(path, device="cpu")
    assert (path / "README.md").read_text() == "the old one"
    expected = elmokit.load(TINY_MODEL, device="cpu").embed("a b")
    np.testing.assert_array_equal(model.embed("a b").layers, expected.layers)


def test_model_that_is_opened_by_its_parts(tmp_path: Path) -> None:
    assert run(elmo, "convert", TINY_MODEL, tmp_path / "model").exit_code == 0
    move_aside(tmp_path / "model")
    assert resolve.load_parts(tmp_path / "model").vocabulary is None


def test_onnx_model(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    onnxdir.save(onnxdir.build(resolve.load_parts(TINY_MODEL)), tmp_path / "model")
    move_aside(tmp_path / "model")
    assert type(elmokit.load(tmp_path / "model")).__name__ == "OnnxModel"


def test_prepared_corpus(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a b c\n" * 10)
    prepare([tmp_path / "text.txt"], tmp_path / "data", workers=1)
    move_aside(tmp_path / "data")
    assert Corpus.open(tmp_path / "data").n_types > 3


@pytest.mark.parametrize("checkpoint", [train_checkpoint, task_checkpoint])
def test_checkpoint(tmp_path: Path, checkpoint: object) -> None:
    newest = tmp_path / "checkpoints" / "step-00000002"
    newest.mkdir(parents=True)
    newest.with_name("step-00000001").mkdir()
    move_aside(newest)
    assert checkpoint.newest(tmp_path) == newest  # type: ignore[attr-defined]


def test_words_of_a_task(tmp_path: Path) -> None:
    words = WordTable(["a", "b"], 2, np.ones((3, 4), np.float16))
    (tmp_path / "words").mkdir()
    words.save(tmp_path / "words")
    move_aside(tmp_path / "words")
    assert WordTable.load(tmp_path / "words").digest == words.digest
