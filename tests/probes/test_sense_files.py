"""SemCor, WordNet's index and the datasets of Raganato et al.: valid and invalid files."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from elmokit.errors import DataError
from elmokit.probes import wordnet as wordnet_module
from elmokit.probes.raganato import Instance, f1_score, read_sets
from elmokit.probes.wordnet import (
    Entry,
    SenseSpan,
    first_sense,
    parse_sense_key,
    read_semcor,
    read_wordnet,
    split_form,
)
from tests.probes.sense_data import GOLD, XML, token, write_index, write_semcor, write_set

# ----------------------------------------------------------------------------------------- senses


def test_adjective_satellite_is_an_adjective() -> None:
    assert (
        parse_sense_key("old%5:00:00:past:00")
        == parse_sense_key("Old%3:00:01::")
        == Entry("old", "3")
    )


def test_multiword_forms_are_split() -> None:
    assert split_form("took place") == split_form("took_place") == ["took", "place"]
    assert split_form("_") == ["_"]
    assert split_form("over-all") == ["over-all"]
    assert split_form("``") == split_form("''") == ['"']


# ----------------------------------------------------------------------------------------- SemCor


def test_semcor_gives_words_and_spans(tmp_path: Path) -> None:
    sentences = read_semcor(write_semcor(tmp_path))
    assert len(sentences) == 6
    assert sentences[3].words == ("A", "bank", "took", "place")
    assert sentences[3].spans == (
        SenseSpan(1, 2, ("bank%1:14:00::", "bank%1:17:01::")),  # the alternative has no lemma
        SenseSpan(2, 4, ("take_place%2:30:00::",)),
    )
    assert sentences[4].spans[0].keys == ("old%5:00:00:past:00",)  # its mark was removed
    assert sentences[5].spans == ()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("not json", "line 2: Invalid JSON"),
        ('{"words": []}', "line 2: tokens: Field required"),
        ('["tokens"]', "line 2: Input should be an object"),
        ('{"tokens": [["a", "b", "c"]]}', "line 2: tokens[0][3]: Field required"),
        ('{"tokens": [["a", "", "", null], [" ", "", "", null]]}', "line 2: tokens[1]: empty"),
        ('{"tokens": [["a", "NN", "a", 7]]}', "line 2: tokens[0][3]: "),
        ('{"tokens": [["a", "NN", "a", "a%1"]]}', "line 2: tokens[0]: invalid sense 'a%1'"),
        ('{"tokens": [["a", "", "", "a%1:04:00::;b"]]}', "invalid sense 'a%1:04:00::;b'"),
    ],
)
def test_invalid_lines_of_semcor_are_identified(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"tokens": [token("a", "a%1:04:00::")]}) + "\n" + line + "\n")
    with pytest.raises(DataError) as raised:
        read_semcor(path)
    assert message in str(raised.value)


def test_semcor_without_senses_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        read_semcor(write_semcor(tmp_path, [[token("a")]]))


# ---------------------------------------------------------------------------------------- WordNet


def test_index_lists_senses_in_order(tmp_path: Path) -> None:
    wordnet = read_wordnet(write_index(tmp_path))
    assert wordnet[Entry("bank", "1")] == (
        "bank%1:17:01::",
        "bank%1:14:00::",
        "bank%1:06:00::",
    )
    assert first_sense(wordnet, Entry("bank", "2")) == "bank%2:40:00::"
    assert first_sense(wordnet, Entry("old", "3")) == "old%3:00:01::"
    assert first_sense(wordnet, Entry("old", "1")) is None
    assert wordnet[Entry("old", "3")][1] == "old%5:00:00:past:00"
    assert read_wordnet(tmp_path / "index.sense") == wordnet


def test_missing_wordnet_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wordnet_module, "DIRECTORIES", (str(tmp_path),))
    monkeypatch.delenv("WNSEARCHDIR", raising=False)
    for given in (None, tmp_path, tmp_path / "no.sense"):
        with pytest.raises(DataError, match="apt-get install wordnet-base wordnet-sense-index"):
            read_wordnet(given)
    write_index(tmp_path)
    assert Entry("zebra", "1") in read_wordnet()
    other = tmp_path / "other"
    other.mkdir()
    (other / "index.sense").write_text("a%1:04:00:: 1 1 0\n")
    monkeypatch.setenv("WNSEARCHDIR", str(other))
    assert Entry("zebra", "1") not in read_wordnet()


def test_other_files_are_not_an_index(tmp_path: Path) -> None:
    (tmp_path / "index.sense").write_text("a%1:04:00:: 1 1 0\nbank n 10 6\n")
    with pytest.raises(DataError, match=r"index\.sense, line 2: found 'bank n 10 6'"):
        read_wordnet(tmp_path)
    for number in ("²", "9" * 5000):
        (tmp_path / "index.sense").write_text(f"a%1:04:00:: 1 {number} 0\n")
        with pytest.raises(DataError, match=r"index\.sense, line 1: found"):
            read_wordnet(tmp_path)
    (tmp_path / "index.sense").write_text("")
    with pytest.raises(DataError):
        read_wordnet(tmp_path)


# ------------------------------------------------------------------------------- evaluation sets


def test_sets_are_read_with_their_gold_senses(tmp_path: Path) -> None:
    [found] = read_sets(write_set(tmp_path))
    assert found.name == "tiny"
    assert found.sentences == [("The", "bank", "took", "place", "&"), ("zebras", "old", "quux")]
    assert found.instances[1] == Instance(
        "d0.s0.t1", 0, 2, 4, Entry("take_place", "2"), "VERB", frozenset(["take_place%2:30:00::"])
    )
    assert found.instances[2].entry == Entry("zebra", "1")
    assert len(found.instances[0].gold) == 2
    assert read_sets(tmp_path / "tiny") == read_sets(tmp_path / "tiny" / "tiny.data.xml") == [found]


def test_several_sets_are_sorted_and_merged_to_all(tmp_path: Path) -> None:
    for name in ("semeval2007", "mine", "senseval2"):
        write_set(tmp_path, name)
    sets = read_sets(tmp_path)
    assert [s.name for s in sets] == ["senseval2", "semeval2007", "mine", "ALL"]
    assert [i.id for i in sets[-1].instances[4:6]] == [
        "senseval2.d0.s1.t2",
        "semeval2007.d0.s0.t0",
    ]
    assert sets[-1].instances[5].sentence == 2
    assert len(sets[-1].sentences) == 6
    write_set(tmp_path, "ALL")  # an existing merged set is used
    assert len(read_sets(tmp_path)[-1].sentences) == 2


@pytest.mark.parametrize(
    ("xml", "gold", "message"),
    [
        (XML, GOLD + "\nx y\n", "'x' is in"),
        (XML, GOLD.replace("d0.s0.t0", "d0.s9.t9"), "'d0.s0.t0' is in"),
        (XML, GOLD + "d0.s1.t2 again\n", "gold.key.txt, line 6: found 'd0.s1.t2 again'"),
        (XML, GOLD + "alone\n", "gold.key.txt, line 6: found 'alone', expected a unique id"),
        (XML.replace("</text>", ""), GOLD, "data.xml: cannot read the XML (mismatched tag"),
        (XML.replace('pos="ADV"', 'pos="RB"'), GOLD, "with id 'd0.s1.t2', lemma 'quux'"),
        (XML.replace('lemma="old"', ""), GOLD, "with id 'd0.s1.t1', lemma ''"),
        (XML.replace(">zebras<", "> <"), GOLD, "sentence 2: <instance> has no text"),
        (XML.replace('<sentence id="d0.s0">', "<s>").replace("</sentence>", "</s>", 1), GOLD,
         "'d0.s0.t0' is in"),
        ("<corpus></corpus>", "", "contains no <instance>"),
    ],
)  # fmt: skip
def test_invalid_sets_are_identified(tmp_path: Path, xml: str, gold: str, message: str) -> None:
    write_set(tmp_path, xml=xml, gold=gold)
    with pytest.raises(DataError) as raised:
        read_sets(tmp_path)
    assert message in str(raised.value)


@pytest.mark.parametrize("encoding", ["foo", "utf-7", "hex", "idna"])
def test_sets_with_an_invalid_encoding_are_identified(tmp_path: Path, encoding: str) -> None:
    write_set(tmp_path, xml=f'<?xml version="1.0" encoding="{encoding}"?>{XML.lstrip()}')
    with pytest.raises(DataError, match=r"data\.xml: cannot read the XML \("):
        read_sets(tmp_path)


def test_pipes_and_directories_are_not_sets(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.data.xml")
    (tmp_path / "folder.data.xml").mkdir()
    with pytest.raises(DataError, match=r"contains no \*\.data\.xml"):
        read_sets(tmp_path)
    write_set(tmp_path)
    assert [s.name for s in read_sets(tmp_path)] == ["tiny"]


def test_missing_sets_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Evaluation_Datasets"):
        read_sets(tmp_path)
    write_set(tmp_path)
    (tmp_path / "tiny" / "tiny.gold.key.txt").unlink()
    with pytest.raises(DataError, match=r"tiny\.gold\.key\.txt does not exist"):
        read_sets(tmp_path)


# ----------------------------------------------------------------------------------------- scoring


def reference_scorer(system: dict[str, str], gold: dict[str, set[str]]) -> float:
    """Do what Scorer.java does, step by step, for one answer per instance."""
    ok = sum(answer in gold[key] for key, answer in system.items())
    precision, recall = ok / len(system), ok / len(gold)
    total = precision + recall
    return 2 * precision * recall / total if total else 0.0


def test_scores_equal_the_reference_scorer() -> None:
    draw = random.Random(0)
    keys = list("abcd")
    for _ in range(50):
        gold = {f"i{n}": set(draw.sample(keys, draw.randint(1, 3))) for n in range(12)}
        system = {f"i{n}": draw.choice(keys) for n in range(12) if n == 0 or draw.random() < 0.8}
        correct = [system.get(name) in gold[name] for name in gold]
        answered = [name in system for name in gold]
        assert f1_score(correct, answered) == pytest.approx(reference_scorer(system, gold))


def test_missing_answers_reduce_only_recall() -> None:
    assert f1_score([True, False, False], [True, True, False]) == pytest.approx(2 / 5)
    assert f1_score([False] * 3, [False] * 3) == 0
