"""`elmo neighbors`, `elmo probe wic` and `elmo probe morphology` as used from the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import elmokit
from elmokit.search.neighbors import NeighborFilter, neighbors
from tests.bulk.runs import Stdin
from tests.cli.conftest import Elmo
from tests.conftest import TINY_MODEL
from tests.probes.test_wic import item, write

TEXT = "The cat sat on the mat.\n\nA play on words.\nThey can't play the play. It is well.\n"
STATIC = "play 1 0\ncat 0 1\nplays 1 0.1\n"


@pytest.fixture
def elmo(shell: Elmo, tmp_path: Path) -> Elmo:
    (tmp_path / "text.txt").write_text(TEXT)
    (tmp_path / "glove.txt").write_text(STATIC)
    return lambda *arguments: shell(*arguments, "--model", TINY_MODEL)


# -------------------------------------------------------------------------------------- neighbors


def test_neighbors_equal_those_of_the_library(elmo: Elmo) -> None:
    query = "The [play] was long."
    code, output, errors = elmo("neighbors", "text.txt", "--query", query, "-k", "3", "--json")
    assert code == 0
    assert errors == "23 tokens searched\n"
    found = json.loads(output)
    model = elmokit.load(TINY_MODEL, device="cpu")
    sentences = [vectors.tokens for vectors in model.embed(TEXT.split("\n")[:4])]
    expected = neighbors(model, [query], sentences, k=3, filter=NeighborFilter())[0].to_dict()
    assert list(found["neighbors"]) == ["layer 0", "layer 1", "layer 2", "average"]
    for name, listed in expected["neighbors"].items():
        got = found["neighbors"][name]
        assert [(n["word"], n["position"]) for n in got] == [
            (n["word"], n["position"]) for n in listed
        ]
    assert found["neighbors"]["layer 0"][0]["where"] == "text.txt:3"


def test_neighbors_shows_words_scores_and_marked_sentences(elmo: Elmo) -> None:
    arguments = "--query|The [play] .|--query|a [cat] .|--layer|0|--layer|top".split("|")
    code, output, _ = elmo("neighbors", "text.txt", *arguments, "--static", "glove.txt")
    assert code == 0
    first, second = output.strip().split("\n\n")
    assert first.startswith("The [play] .\nlayer 0:\n  1.000  play   A [play] on words .\n")
    assert "layer 2:" in second
    assert "glove.txt: plays 0.995, cat 0.000" in first


def test_neighbors_without_a_query_names_the_option(elmo: Elmo) -> None:
    code, _, errors = elmo("neighbors", "text.txt", "The [play] was staged .")
    assert code == 2
    assert "--query" in errors


def test_neighbors_applies_its_filters(elmo: Elmo) -> None:
    def words(*options: str) -> list[str]:
        arguments = ["--query", "a PLAY [play] .", "--layer", "1", "--k", "50", "--json", *options]
        code, output, _ = elmo("neighbors", "text.txt", *arguments)
        assert code == 0
        return [n["word"] for n in json.loads(output)["neighbors"]["layer 1"]]

    assert words("--same-word") == ["play"] * 3
    assert "play" not in words("--other-words")
    once = [word.lower() for word in words("--distinct", "word")]
    assert len(set(once)) == len(once)
    assert len(words()) == 23
    assert len(words("--max-tokens", "3")) == 7  # up to the end of the sentence


def test_neighbors_excludes_the_sentence_of_the_query(elmo: Elmo) -> None:
    arguments = ["text.txt", "--query", "A [play] on words.", "--layer", "2", "--json"]
    _, output, _ = elmo("neighbors", *arguments)
    assert json.loads(output)["neighbors"]["layer 2"][0]["score"] == pytest.approx(1, abs=1e-5)
    _, output, _ = elmo("neighbors", *arguments, "--other-sentences")
    found = json.loads(output)["neighbors"]["layer 2"]
    assert all(n["tokens"] != ["A", "play", "on", "words", "."] for n in found)


def test_neighbors_tokenizes_like_embed(elmo: Elmo, monkeypatch: pytest.MonkeyPatch) -> None:
    query = ["--query", "can't [play] .", "--layer", "0", "-k", "50", "--json"]
    _, output, _ = elmo("neighbors", "text.txt", *query, "--tokenized")
    words = {n["word"] for n in json.loads(output)["neighbors"]["layer 0"]}
    assert "can't" in words
    _, output, errors = elmo("neighbors", "text.txt", *query, "--split")
    assert "23 tokens" in errors
    found = json.loads(output)["neighbors"]["layer 0"]
    assert ["It", "is", "well", "."] in [n["tokens"] for n in found]
    monkeypatch.setattr(sys, "stdin", Stdin(TEXT.encode()))
    code, _, errors = elmo("neighbors", "-", *query)
    assert (code, errors) == (0, "23 tokens searched\n")


def test_neighbors_supports_several_queries_and_a_mix(elmo: Elmo) -> None:
    queries = ("--query", "a [play] .", "--query", "the [cat] .")
    code, output, _ = elmo(
        "neighbors", "text.txt", *queries, "--layer", "mix", "--mix", "0,1,1", "--json"
    )
    assert code == 0
    assert [list(json.loads(line)["neighbors"]) for line in output.splitlines()] == [["mix"]] * 2


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "--query"),
        (["--query", "no mark"], 1, "Expected exactly one bracketed word"),
        (["--query", "a [b]", "--layer", "7"], 1, "Invalid layer '7'"),
        (["--query", "a [b]", "--layer", "mix"], 2, "layer='mix' requires mix="),
        (["--query", "a [b]", "--mix", "1,1,1"], 2, "requires layer='mix'"),
        (["--query", "a [b]", "--mix", "x", "--layer", "mix"], 2, "not a list of numbers"),
        (["--query", "a [b]", "--mix", "1", "--layer", "mix"], 1, "expected 3 finite weights"),
        (["--query", "a [b]", "--same-word", "--other-words"], 2, "--same-word"),
        (["--query", "a [b]", "--static", "nope"], 1, "Static vectors 'nope' not found"),
        (["--query", "a [b]", "--state", "warm"], 1, "elmo warm"),
        (["no.txt", "--query", "a [b]"], 1, "no.txt does not exist"),
        (["bad.txt", "--query", "a [b]"], 1, "bad.txt, line 2"),
    ],
)
def test_neighbors_reports_invalid_usage(
    elmo: Elmo, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    (tmp_path / "bad.txt").write_bytes(b"fine\n\xff\n")
    found, _, errors = elmo("neighbors", "text.txt", *arguments)
    assert found == code
    assert message in " ".join(errors.replace("│", " ").split())


def test_neighbors_skips_and_counts_invalid_lines(elmo: Elmo, tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"fine\n\xff\n")
    code, _, errors = elmo("neighbors", "bad.txt", "--query", "a [b]", "--skip-bad")
    assert code == 0
    assert "1 line skipped" in errors


# -------------------------------------------------------------------------------------------- wic


def test_wic_prints_a_table_or_json(elmo: Elmo, tmp_path: Path) -> None:
    data = write(tmp_path, [item(n) for n in range(12)])
    code, output, errors = elmo("probe", "wic", data, "--static", "glove.txt")
    assert code == 0
    assert [line.split("  ")[0] for line in output.splitlines()[1:]] == [
        "same form",
        "glove.txt, the word",
        "glove.txt, mean of the sentence",
        "layer 0",
        "layer 1",
        "layer 2",
        "average",
    ]
    assert "12 pairs of 4 lemmas, 0 skipped" in errors
    code, output, _ = elmo("probe", "wic", data, "--json")
    values = json.loads(output)
    assert values["pairs"] == 12
    assert values["results"][1]["name"] == "layer 0"
    assert values["results"][1]["overall"]["auc"] == 0.5


def test_wic_reports_missing_files(elmo: Elmo) -> None:
    code, _, errors = elmo("probe", "wic", "no.data")
    assert code == 1
    assert "no.data does not exist" in errors


# ------------------------------------------------------------------------------------- morphology


def test_morphology_measures_the_bundled_list(elmo: Elmo, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("the\nwalked\nsinging\nbeauty\n")
    code, output, errors = elmo("probe", "morphology", "--words", "words.txt")
    assert code == 0
    assert "made-up" in output
    assert "ranked among 4 words" in errors


def test_morphology_measures_custom_pairs_and_static_vectors(elmo: Elmo, tmp_path: Path) -> None:
    (tmp_path / "mine.tsv").write_text("play\tplays\nplay\tcat\todd\n")
    code, output, _ = elmo("probe", "morphology", "mine.tsv", "--static", "glove.txt", "--json")
    assert code == 0
    values = json.loads(output)
    assert values["static"]["related"]["cosine"] == pytest.approx(0.995, abs=1e-3)
    assert values["layer_0"]["odd"]["auc"] is None
    assert values["vocabulary"] == 3


def test_morphology_reports_invalid_usage(elmo: Elmo, tmp_path: Path) -> None:
    code, _, errors = elmo("probe", "morphology")  # the tiny model has no vocabulary
    assert code == 1
    assert "--words" in errors
    (tmp_path / "bad.tsv").write_text("a\tb\tkind\nno tab\n")
    code, _, errors = elmo("probe", "morphology", "bad.tsv")
    assert code == 1
    assert "bad.tsv, line 2" in errors
