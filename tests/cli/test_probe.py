"""`elmo probe` as used from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Elmo
from tests.conftest import TINY_MODEL
from tests.probes.sense_data import write_index, write_semcor, write_set, write_treebank


@pytest.fixture
def elmo(shell: Elmo, tmp_path: Path) -> Elmo:
    def command(*arguments: str | Path) -> tuple[int, str, str]:
        code, output, errors = shell("probe", *arguments, "--model", TINY_MODEL)
        return code, output, " ".join(errors.replace("│", " ").split())

    write_treebank(tmp_path / "ud")
    write_index(tmp_path)
    write_semcor(tmp_path)
    write_set(tmp_path / "sets")
    (tmp_path / "glove.txt").write_text("cat 0 1\nsat 1 0\n")
    return command


def test_pos_prints_a_table(elmo: Elmo) -> None:
    code, output, errors = elmo("pos", "ud", "--static", "glove.txt", "--max-epochs", "2")
    assert code == 0
    lines = [line.split("  ")[0] for line in output.splitlines()]
    assert lines[1:7] == [
        "most frequent tag",
        "glove.txt, the word",
        "layer 0",
        "layer 1",
        "layer 2",
        "average",
    ]
    assert lines[7].startswith("layer 1 minus layer 2: ")
    assert "12 / 12 / 12 words" in errors
    assert "3 XPOS tags" in errors


def test_pos_prints_json_for_selected_layers(elmo: Elmo) -> None:
    options = ["--layer", "1", "--layer", "concat", "--tags", "upos", "--runs", "2", "--json"]
    code, output, _ = elmo("pos", "ud", *options, "--cache-dir", "kept")
    assert code == 0
    values = json.loads(output)
    assert [r["name"] for r in values["results"]] == ["most frequent tag", "layer 1", "concat"]
    assert len(values["results"][1]["by_seed"]) == 2
    assert values["tags"] == "upos"
    assert values["difference"] is None


def test_wsd_prints_a_table_or_json(elmo: Elmo) -> None:
    given = ["semcor.jsonl", "sets", "--wordnet", "."]
    code, output, errors = elmo("wsd", *given)
    assert code == 0
    assert [line.split("  ")[0] for line in output.splitlines()][:7] == [
        "F1",
        "first sense of WordNet",
        "most frequent sense of SemCor",
        "layer 0",
        "layer 1",
        "layer 2",
        "average",
    ]
    assert (
        "4 senses of 7 words (1 with alternatives; skipped because they are not in WordNet: 1)"
        in errors
    )
    code, output, _ = elmo("wsd", *given, "--static", "glove.txt", "--json", "--layer", "top")
    assert code == 0
    assert json.loads(output)["results"][-1]["name"] == "layer 2"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["pos"], 2, "DIR"),
        (["pos", "sets"], 1, "one file matching *train.conllu*; found none"),
        (
            ["pos", "ud", "--layer", "9"],
            1,
            "Invalid layer '9': expected 0 to 2, top, average, concat, mix or all.",
        ),
        (["pos", "ud", "--layer", "mix"], 2, "layer='mix' requires mix="),
        (["pos", "ud", "--state", "warm"], 1, "elmo warm"),
        (["wsd", "semcor.jsonl", "sets", "--wordnet", "sets"], 1, "apt-get install wordnet-base"),
        (["wsd", "no.jsonl", "sets", "--wordnet", "."], 1, "no.jsonl does not exist"),
        (["wsd", "semcor.jsonl", "ud", "--wordnet", "."], 1, "Evaluation_Datasets"),
    ],
)
def test_invalid_usage_is_reported(
    elmo: Elmo, arguments: list[str], code: int, message: str
) -> None:
    found, _, errors = elmo(*arguments)
    assert found == code
    assert message in errors
