"""CoNLL-U treebanks: which lines are words, and errors for invalid lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from elmokit.errors import DataError
from elmokit.probes.conllu import TaggedSentence, read_conllu, read_treebank


def row(number: str, form: str, upos: str = "X", xpos: str = "x") -> str:
    return "\t".join([number, form, "_", upos, xpos, "_", "0", "root", "_", "_"])


GOOD = "\n".join(
    [
        "# text = They didn't .",
        row("1", "They", "PRON", "PRP"),
        row("2-3", "didn't", "_", "_"),
        row("2", "did", "AUX", "VBD"),
        row("3", "n't", "PART", "RB"),
        row("3.1", "leave", "VERB", "VB"),
        row("4", ".", "PUNCT", "_"),
        "",
        "# a sentence of comments only",
        "",
        row("1", "New York", "PROPN", "NNP"),  # no empty line at the end
    ]
)


def test_syntactic_words_are_read(tmp_path: Path) -> None:
    path = tmp_path / "x.conllu"
    path.write_text(GOOD)
    assert read_conllu(path, "upos") == [
        TaggedSentence(("They", "did", "n't", "."), ("PRON", "AUX", "PART", "PUNCT")),
        TaggedSentence(("New York",), ("PROPN",)),
    ]
    assert read_conllu(path, "xpos")[0].tags == ("PRP", "VBD", "RB", None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\ta\tb", "x.conllu, line 1: found '1\ta\tb', expected the 10 columns"),
        (GOOD + "\n" + row("3", "b"), "x.conllu, line 12: invalid ID '3': expected 2"),
        (row("1", ""), "x.conllu, line 1: found '1\t"),
        (row("one", "a"), "x.conllu, line 1: invalid ID 'one'"),
        ("# nothing\n\n", "contains no sentences"),
        (row("1", "a", "X", "_"), "no XPOS tags: column 5 is empty ('_'). Use --tags upos"),
    ],
)
def test_invalid_lines_are_identified(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.conllu"
    path.write_text(text)
    with pytest.raises(DataError) as raised:
        read_conllu(path, "xpos")
    assert message in str(raised.value)


def test_files_of_a_treebank_are_found_by_name(tmp_path: Path) -> None:
    for split in ("train", "dev", "test"):
        (tmp_path / f"en_x-ud-{split}.conllu").write_text(row("1", split))
    treebank = read_treebank(tmp_path, "upos")
    assert [sentences[0].words for sentences in treebank] == [("train",), ("dev",), ("test",)]
    (tmp_path / "en_y-ud-dev.conllu").touch()
    with pytest.raises(DataError, match=r"one file matching \*dev.conllu\*; found en_x.*, en_y.*"):
        read_treebank(tmp_path, "upos")
