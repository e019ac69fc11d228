"""Coreference data: supported formats, rejected input, warnings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from elmokit.errors import ConfigError, DataError, ElmoWarning
from elmokit.tasks.documents import DataIssues, Document, Mention, format_columns, read_columns
from elmokit.text.lines import Line
from tests.tasks.coref.conftest import TASK, read, settings

ONTONOTES = """#begin document (bc/x/00/x_0001); part 002
bc/x/00/x_0001  2  0  Ann   NNP (S* - - - Ann_B * (ARG0*) * (3)
bc/x/00/x_0001  2  1  met   VBD *   meet 01 1 Ann_B * (V*) * -
bc/x/00/x_0001  2  2  her   PRP *   - - - Ann_B * * * (5|(3)
bc/x/00/x_0001  2  3  son   NN  *)  - - - Ann_B * * * 5)

bc/x/00/x_0001  2  0  He    PRP (S* - - - - * * (5)
bc/x/00/x_0001  2  1  left  VBD *)  - - - - * * -

#end document
"""
THREE = "0\tAnn\t(3)\n1\tmet\t_\n2\ther\t(5(3)\n3\tson\t5)\n\n0\tHe\t(5)\n1\tleft\t_\n"
CLUSTERS = (((0, 1), (2, 3)), ((2, 4), (4, 5)))


def test_columns_of_conll_2012(tmp_path: Path) -> None:
    [found] = read(tmp_path, ONTONOTES)
    assert found.sentences == (("Ann", "met", "her", "son"), ("He", "left"))
    assert found.clusters == CLUSTERS
    assert (found.name, found.part, found.genre) == ("bc/x/00/x_0001", 2, "bc")
    assert found.speakers == ("Ann_B",) * 4 + ("", "")
    assert found.speaker_ids.tolist() == [1, 1, 1, 1, 0, 0]


@pytest.mark.parametrize(
    "text",
    [
        THREE,
        "# begin document \n" + THREE + "# end document\n",
        "".join(line.split("\t", 1)[-1] for line in THREE.splitlines(keepends=True)),  # two columns
        # LitBank has thirteen columns, of which the last is empty where no mention starts or ends
        re.sub(r"(?m)^(.)\t(\w+)\t(.*)$", r"x\t0\t\1\t\2" + 8 * r"\t_" + r"\t\3", THREE).replace(
            "_\n", "\n"
        ),
    ],
)
def test_other_columns(tmp_path: Path, text: str) -> None:
    [found] = read(tmp_path, text)
    assert found.sentences == (("Ann", "met", "her", "son"), ("He", "left"))
    assert found.clusters == CLUSTERS
    assert found.speakers is None
    assert (found.name, found.genre) == ("data", "")


def test_part_that_is_not_a_small_number_belongs_to_the_name(tmp_path: Path) -> None:
    part = "9" * 5000
    [found] = read(tmp_path, f"#begin document (x); part {part}\na\t(1)\n")
    assert (found.name, found.part) == (f"(x); part {part}", 0)


@pytest.mark.parametrize("token", ["#", "#tag", "#a=b", "#a=", "#end"])
@pytest.mark.parametrize("row", ["{}\t-", "{} -", "{}\t(1)", "{}", "{}\tO"])
def test_token_may_start_with_a_comment_character(token: str, row: str) -> None:
    written = row.format(token)
    for before, behind in (([], ["b" + row[2:]]), (["b" + row[2:]], [])):
        text = ["# name = #1", "# newdoc id = x\ty", *before, written, *behind]
        lines = [Line("x", i, line) for i, line in enumerate(text, 1)]
        for labeled in (False, True) if "-" in row or "(" in row else (False,):
            [found] = read_columns(lines, DataIssues(), labeled=labeled)
            assert sorted(found.tokens) == sorted([token, "b"])


def test_comments_are_not_tokens(tmp_path: Path) -> None:
    comments = "# sent_id=3\n# sent_id = 3\n# text = a b c d e f g h i j k l m\n"
    for text in (THREE, ONTONOTES, THREE.replace("\t", " ")):
        plain, *_ = read(tmp_path, text)
        for place in ("\n", "\n\n"):
            cut = text.index(place) + 1
            found, *_ = read(tmp_path, text[:cut] + comments + text[cut:])
            assert found.tokens == plain.tokens


@pytest.mark.parametrize(
    "remark", ["# foo bar", "# a remark of mine that has more than twelve words in it"]
)
def test_remark_lines_are_rejected(remark: str) -> None:
    text = ["0\ta\t-", remark, "1\tb\t-"]
    lines = [Line("x", i, line) for i, line in enumerate(text, 1)]
    for labeled in (False, True):
        with pytest.raises(DataError, match=r"line 2: found"):
            list(read_columns(lines, DataIssues(), labeled=labeled))


def test_document_name_may_start_with_a_comment_character(tmp_path: Path) -> None:
    [found] = read(tmp_path, ONTONOTES.replace("bc/x", "#x").replace("met ", "= "))
    assert found.tokens == ["Ann", "=", "her", "son", "He", "left"]


@pytest.mark.parametrize("name", ["#1", "a\tb", "a\nb c", "#begin document (x)", "#\u2028", ""])
def test_document_names_are_written_without_whitespace(name: str) -> None:
    document = Document((("#a", "=", "New York"),), ((Mention(0, 1), Mention(1, 2)),), name)
    text = format_columns(document, document.clusters or ())
    lines = [Line("f", i + 1, line) for i, line in enumerate(text.split("\n"))]
    [again] = read_columns(lines, DataIssues(), labeled=True)
    assert (again.sentences, again.clusters) == (document.sentences, document.clusters)
    assert not any(c.isspace() for c in again.name)


def test_directory_is_read_as_its_files_in_order_of_name(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name in ("b/GUM_news_one.conll", "a.conll", "notes.txt"):
        (tmp_path / name).write_text(THREE)
    found = TASK.read(str(tmp_path))
    assert [d.name for d in found] == ["a", "GUM_news_one"]
    assert [d.genre for d in found] == ["", "news"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError):
        TASK.read(str(tmp_path / "empty"))


def test_round_trip(files: tuple[str, str]) -> None:
    nested = Document(
        (("a", "b", "c", "d"), ("e",)),
        (
            (Mention(0, 4), Mention(0, 1), Mention(3, 4), Mention(4, 5)),
            (Mention(0, 2), Mention(1, 2), Mention(2, 4)),
        ),
        "n",
        speakers=("x", "x", "", "y", "y"),
    )
    for document in [nested, *TASK.read(files[1])]:
        assert document.clusters is not None
        text = format_columns(document, document.clusters)
        lines = [Line("f", i + 1, line) for i, line in enumerate(text.split("\n"))]
        [again] = read_columns(lines, DataIssues(), labeled=True)
        assert again.clusters is not None
        assert set(map(frozenset, again.clusters)) == set(map(frozenset, document.clusters))
        assert (again.sentences, again.speakers) == (document.sentences, document.speakers)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\t(1)\nb\t1)\n", r"data.conll, line 2: '1\)' closes a mention that was not opened. Fix"),
        ("a\t(1\nb\t-\n", r"data.conll, line 1: mention '\(1' is not closed"),
        ("#begin document (x); part 0\na\t(1\n#begin document (y); part 0\n", "line 2: .*closed"),
        ("a\t(1\nb\t1\n", "line 2: invalid mentions '1'"),
        ("a\t((1)\n", r"invalid mentions '\(\(1\)'"),
        ("a\t-\nb\n", "line 2: found 1 column"),
        ("a\tb\tc\td\n", "line 1: found 4 columns"),
        ("0\ta\t-\nb\t-\n", "line 2: found 2 columns .*, but the lines above"),
        ("# a remark of mine\na\t-\n", "line 1: found 5 columns"),
        ("0\ta\t-\n#tag\t-\n", "line 2: found 2 columns .*, but the lines above"),
        ("#tag\na\t-\n", "line 1: found 1 column"),
    ],
)
def test_invalid_columns_are_identified(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\t(1)|(1)\nb\t(1)\n", "duplicate mentions, read once: 1"),
        ("a\t(1)|(2)\nb\t(1)\n", "mentions in two clusters, assigned to the first: 1"),
        (
            "#begin document (x); part 0\n#end document\na\t(1)\nb\t(1)\n",
            "empty documents, skipped: 1",
        ),
        (
            "#begin document (x); part 0\n__\t(1)\n_\t-\n#end document\na\t(1)\nb\t(1)\n",
            "documents with redacted text .*: 1",
        ),
        ("a\t(1)\nb\t(1)\nc\t(2\n\nd\t2)\n", "mentions that cross a sentence boundary.*: 1"),
        ("\t(1)\nb\t(1)\n", "empty tokens, read as '_': 1"),
    ],
)
def test_unusual_columns_are_counted(tmp_path: Path, text: str, message: str) -> None:
    with pytest.warns(ElmoWarning, match=rf"data.conll: {message}"):
        [found] = read(tmp_path, text)
    assert found.clusters is not None
    assert {Mention(0, 1), Mention(1, 2)} <= {m for cluster in found.clusters for m in cluster}
    assert all(m.end - m.start == 1 for m in map(Mention._make, found.gold[:, :2].tolist()))


def test_sentences_are_split_without_empty_lines(tmp_path: Path) -> None:
    tokens = ["Ann", "left", ".", "She", "met", "Mr.", "Hill", "!", "Why", "?"]
    rows = [f"{k}\t{token}\t{'(1)' if k in (0, 3) else '_'}" for k, token in enumerate(tokens)]
    with pytest.warns(ElmoWarning, match="documents without empty lines.*: 1"):
        [found] = read(tmp_path, "\n".join(["# begin document", *rows, "# end document"]))
    assert [len(sentence) for sentence in found.sentences] == [3, 5, 2]
    assert found.clusters == (((0, 1), (3, 4)),)


def test_prediction_reads_text_json_and_columns() -> None:
    raw = [Line("x", i, t) for i, t in enumerate(["Ann saw Bob. He", "left.", "", " ", "No."], 1)]
    first, second = TASK.parse(raw, "text")
    assert first.sentences == (("Ann", "saw", "Bob", "."), ("He", "left", "."))
    assert first.offsets is not None
    assert first.offsets[4:] == ((13, 15), (16, 20), (20, 21))
    assert second.sentences == (("No", "."),)
    given = ['{"sentences": [["Ann", "left"], []], "name": "n"}', "", '{"text": "No. Why?"}']
    found = list(TASK.parse([Line("x", 1, text) for text in given], "jsonl"))
    assert [d.sentences for d in found] == [(("Ann", "left"), ()), (("No", "."), ("Why", "?"))]
    for bad in ("[]", "{", '{"sentences": ["Ann"]}', '{"text": "a", "name": 3}'):
        with pytest.raises(DataError, match="x, line 7"):
            list(TASK.parse([Line("x", 7, bad)], "jsonl"))
    for odd in (r'["a\tb"]', r'["a\n"]', '[""]', '[" "]', r'["\ud800"]'):
        with pytest.raises(DataError, match=r"x, line 7: .*(token|JSON)"):
            list(TASK.parse([Line("x", 7, f'{{"sentences": [["b"], {odd}]}}')], "jsonl"))
    for odd in (r'"text": "\ud800"', r'"sentences": [["a"]], "name": "\udc00"'):
        with pytest.raises(DataError, match=r"x, line 7: .*JSON"):
            list(TASK.parse([Line("x", 7, f"{{{odd}}}")], "jsonl"))
    lines = [Line("x", i, text) for i, text in enumerate(ONTONOTES.splitlines(), 1)]
    [columns] = TASK.parse(lines, "conll")
    assert columns.clusters is None
    assert columns.speakers is not None


def test_unusable_data_and_settings_are_rejected() -> None:
    with pytest.raises(DataError):
        TASK.collect_labels([Document((("a",),), ())])
    for bad in ("model.width=0", "model.kept=0", "model.char_widths=3;4", "model.antecedents=0"):
        with pytest.raises(ConfigError, match=bad.split("=")[0]):
            settings(bad)
