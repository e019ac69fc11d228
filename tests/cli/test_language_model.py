"""`elmo score`, `substitutes`, `perplexity` and `warm` with a model trained here."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import elmokit
from elmokit.data.corpus import Corpus
from elmokit.data.layout import PrepareSettings
from elmokit.data.prepare import prepare
from elmokit.sources import modeldir
from tests.bulk.runs import Stdin
from tests.cli.conftest import Elmo
from tests.data.texts import random_text
from tests.sources.models import make_parts, write_hdf5
from tests.train.test_loop import settings

TEXT = "The cat was in the dog.\n\nDon't of w1 unheard!\n"


class Trained(NamedTuple):
    model: Path
    data: Path
    held_out: Path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    from elmokit.train.loop import train

    folder = tmp_path_factory.mktemp("trained")
    (folder / "train.txt").write_text(random_text(40), "utf-8")
    (folder / "valid.txt").write_text(random_text(8, seed=1), "utf-8")
    prepare(
        [folder / "train.txt"],
        folder / "data",
        PrepareSettings(),
        valid_files=[folder / "valid.txt"],
        workers=1,
    )
    result = train(
        settings(max_steps=30), Corpus.open(folder / "data"), folder / "run", warm_state=True
    )
    return Trained(result.model, folder / "data", folder / "valid.txt")


@pytest.fixture
def elmo(shell: Elmo, tmp_path: Path) -> Elmo:
    (tmp_path / "text.txt").write_text(TEXT)
    return shell


# ------------------------------------------------------------------------------------------ score


def test_score_prints_one_line_per_sentence(elmo: Elmo, trained: Trained) -> None:
    code, output, errors = elmo("score", "text.txt", "--model", trained.model)
    assert (code, errors) == (0, "")
    expected = elmokit.load(trained.model).score(TEXT.split("\n")[:3])
    lines = [line.split("\t") for line in output.splitlines()]
    assert [line[0] for line in lines] == [f"{score.perplexity:.2f}" for score in expected]
    assert [line[3] for line in lines] == ["0", "0", "4"]
    assert [line[4] for line in lines] == [" ".join(score.tokens) for score in expected]


def test_score_as_json_equals_the_library(
    elmo: Elmo, trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin(TEXT.encode()))
    arguments = ("score", "-", "--model", trained.model, "--json", "--state", "warm")
    code, output, _ = elmo(*arguments, "--tokens")
    expected = elmokit.load(trained.model).score(TEXT.split("\n")[:3], "warm")
    for number, (line, score) in enumerate(zip(output.splitlines(), expected, strict=True), 1):
        values = json.loads(line)
        assert (values.pop("file"), values.pop("line")) == ("-", number)
        assert values == json.loads(json.dumps(score.to_dict()))
    monkeypatch.setattr(sys, "stdin", Stdin(b"the dog\n"))
    code, output, _ = elmo(*arguments)
    assert code == 0
    assert "forward" not in json.loads(output)
    assert json.loads(output)["targets"] == 3


def test_score_can_show_tokens_and_read_tokenized_text(elmo: Elmo, trained: Trained) -> None:
    _, output, _ = elmo("score", "text.txt", "--model", trained.model, "--tokens", "--tokenized")
    assert any(line.startswith("dog. ") and line.endswith("<UNK>") for line in output.splitlines())


def test_error_for_a_model_without_a_head_says_what_to_do(elmo: Elmo, tmp_path: Path) -> None:
    modeldir.save(make_parts(), tmp_path / "bare")
    for arguments in (
        ("score", "text.txt"),
        ("substitutes", "a [b] c"),
        ("perplexity", "text.txt"),
    ):
        code, output, errors = elmo(*arguments, "--model", "bare")
        assert (code, output) == (1, "")
        assert "elmo finetune" in errors


def test_invalid_line_is_an_error_or_skipped(elmo: Elmo, trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"the dog\n\xff\nthe cat\n")
    for command in ("score", "perplexity"):
        code, _, errors = elmo(command, "bad.txt", "--model", trained.model)
        assert code == 1
        assert "bad.txt, line 2" in errors
        code, _, errors = elmo(command, "bad.txt", "--model", trained.model, "--skip-bad")
        assert code == 0
        assert errors.startswith("1 line skipped, first: bad.txt, line 2")


# ------------------------------------------------------------------------------------ substitutes


def test_substitutes_as_table_and_as_json(elmo: Elmo, trained: Trained) -> None:
    arguments = ("substitutes", "The [cat] was in the dog.", "--model", trained.model, "-k", "4")
    expected = elmokit.load(trained.model).substitutes("The [cat] was in the dog.", 4)
    code, output, errors = elmo(*arguments)
    assert (code, output, errors) == (0, f"{expected}\n", "")
    code, output, _ = elmo(*arguments, "--json")
    assert json.loads(output) == json.loads(json.dumps(expected.to_dict()))
    assert len(json.loads(output)["combined"]) == 4


def test_substitutes_reads_sentences_from_standard_input(
    elmo: Elmo, trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = b"The [cat] was in the dog.\n\nA [dog] .\n"
    monkeypatch.setattr(sys, "stdin", Stdin(text))
    code, output, _ = elmo("substitutes", "-", "--model", trained.model, "--json")
    assert code == 0
    found = [json.loads(line) for line in output.splitlines()]
    expected = elmokit.load(trained.model).substitutes("A [dog] .")
    assert len(found) == 2
    assert found[1] == json.loads(json.dumps(expected.to_dict()))


def test_substitutes_requires_one_bracketed_word(elmo: Elmo, trained: Trained) -> None:
    code, output, errors = elmo("substitutes", "The cat", "--model", trained.model)
    assert (code, output) == (1, "")
    assert "I [read] the book ." in errors


# ------------------------------------------------------------------------------------- perplexity


@pytest.mark.parametrize("state", ["carry", "all"])
def test_perplexity_of_raw_text_equals_that_of_prepared_text(
    elmo: Elmo, trained: Trained, state: str
) -> None:
    options = ("--model", trained.model, "--json", "--state", state)
    code, prepared, _ = elmo("perplexity", trained.data, *options)
    assert code == 0
    code, plain, errors = elmo("perplexity", trained.held_out, *options)
    assert (code, errors) == (0, "")
    assert len(json.loads(plain)) == (3 if state == "all" else 1)
    for found, expected in zip(json.loads(plain), json.loads(prepared), strict=True):
        assert found.pop("state") == expected.pop("state")
        assert found == pytest.approx(expected, rel=1e-6)


def test_perplexity_prints_a_readable_summary(elmo: Elmo, trained: Trained) -> None:
    code, output, errors = elmo("perplexity", "text.txt", "--model", trained.model)
    assert (code, errors) == (0, "")
    assert output.startswith("carry  perplexity ")
    assert "over 15 targets" in output


def test_perplexity_options_select_how_text_is_read(
    elmo: Elmo, trained: Trained, tmp_path: Path
) -> None:
    (tmp_path / "lines.txt").write_text("The cat. The dog.\nThe cat.\n")
    options = ("perplexity", "lines.txt", "--model", trained.model, "--json")
    targets = [
        json.loads(elmo(*options, *more)[1])[0]["targets"]
        for more in ((), ("--one-sentence-per-line",), ("--tokenized",))
    ]
    assert targets == [12, 11, 8]


def test_perplexity_of_empty_text_is_an_error(elmo: Elmo, trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n\n")
    for name, message in (("empty.txt", "no words"), ("missing.txt", "does not exist")):
        code, output, errors = elmo("perplexity", name, "--model", trained.model)
        assert (code, output) == (1, "")
        assert message in errors


# ------------------------------------------------------------------------------------------- warm


def test_warm_updates_a_model_in_place(elmo: Elmo, trained: Trained, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(trained.model, model)
    (model / "warm.safetensors").unlink()
    parts = modeldir.load(model)
    parts.card = None  # the generated card says that there is no warm state
    modeldir.save(parts, model, overwrite=True, storage="int8", part_bytes=1)
    (model / "LICENSE").write_text("MIT")
    unchanged = {f: f.read_bytes() for f in model.iterdir() if f.name != "README.md"}
    assert elmo("score", "text.txt", "--model", model, "--state", "warm")[0] == 1
    code, output, errors = elmo("warm", model, trained.held_out, "--json")
    assert code == 0
    values = json.loads(output)
    assert f"only {values['sentences']} sentences." in errors
    assert (values["model"], values["sentences"] > 10) == (str(model), True)
    assert elmo("score", "text.txt", "--model", model, "--state", "warm")[0] == 0
    after = modeldir.load(model)
    assert all(file.read_bytes() == content for file, content in unchanged.items())
    assert "| warm state | yes" in (after.card or "")
    assert after.metadata == parts.metadata
    assert after.head is not None


def test_warm_of_hdf5_weights_requires_an_output_directory(
    elmo: Elmo, trained: Trained, tmp_path: Path
) -> None:
    old = write_hdf5(make_parts(), tmp_path / "old")
    code, output, errors = elmo("warm", old, trained.held_out)
    assert (code, output) == (2, "")
    assert "--output" in errors
    code, output, errors = elmo("warm", old, trained.held_out, "-o", "new")
    assert (code, output) == (0, "")
    assert "the mean over" in errors
    new = elmokit.load(tmp_path / "new")
    assert new.warm is not None
    assert torch.isfinite(new.warm.cell).all()
    assert new.embed("The cat.", "warm").layers.shape == (3, 3, 8)
    assert elmo("warm", old, trained.held_out, "-o", "new")[0] == 1  # already exists


def test_warm_reports_texts_that_are_too_short(
    elmo: Elmo, trained: Trained, tmp_path: Path
) -> None:
    (tmp_path / "short.txt").write_text("The cat.\n")
    before = {file.name: file.read_bytes() for file in trained.model.iterdir()}
    code, _, errors = elmo("warm", trained.model, "short.txt")
    assert code == 1
    assert "too short" in errors
    assert {file.name: file.read_bytes() for file in trained.model.iterdir()} == before
