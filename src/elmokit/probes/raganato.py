"""The evaluation framework of Raganato et al. (2017): sets of words to disambiguate, and the score.

A set is a folder NAME with `NAME.data.xml` (sentences of `wf` and `instance` elements) and
`NAME.gold.key.txt` (an id and its sense keys per line). `score` counts as their `Scorer.java` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from elmokit.errors import DataError
from elmokit.probes.senses import POS_TYPES, Entry, split_form
from elmokit.text.lines import read_lines

_DATA = ".data.xml"
_GOLD = ".gold.key.txt"
ALL = "ALL"
# The order of the tables in the literature; others come after these, ALL comes last.
_ORDER = ("senseval2", "senseval3", "semeval2007", "semeval2013", "semeval2015")


class Instance(NamedTuple):
    """A word to disambiguate: `words[first:last]` of a sentence of its set.

    Attributes:
        name: Its id.
        sentence: The number of its sentence.
        first: Its first word.
        last: The word after its last one.
        entry: Its lemma and part of speech.
        pos: The part of speech as the file has it.
        gold: The senses that are right.
    """

    name: str
    sentence: int
    first: int
    last: int
    entry: Entry
    pos: str
    gold: frozenset[str]


@dataclass(frozen=True)
class EvaluationSet:
    """Sentences, and the words in them to disambiguate."""

    name: str
    sentences: list[tuple[str, ...]]
    instances: list[Instance]


class Score(NamedTuple):
    """Precision, recall and their harmonic mean."""

    precision: float
    recall: float
    f1: float


# ------------------------------------------------------------------------------------------ scoring


def right_share(answers: Iterable[str], gold: Iterable[str]) -> float:
    """Return the share of the answers to one instance that are right: a guess among two is half."""
    given, right = set(answers), set(gold)
    return len(given & right) / len(given) if given else 0.0


def score(answers: Mapping[str, Iterable[str]], gold: Mapping[str, Iterable[str]]) -> Score:
    """Score answers as `Scorer.java` of Raganato et al. does.

    Any of the gold keys is right. An instance without an answer counts against recall, not against
    precision; an answer to what is no instance is passed over.

    Args:
        answers: The keys answered, by instance.
        gold: The keys that are right, by instance.
    """
    given = {name: set(keys) for name, keys in answers.items() if name in gold}
    given = {name: keys for name, keys in given.items() if keys}
    right = sum(right_share(keys, gold[name]) for name, keys in given.items())
    precision = right / len(given) if given else 0.0
    recall = right / len(gold) if gold else 0.0
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    return Score(precision, recall, f1)


# ------------------------------------------------------------------------------------------ reading


def read_sets(path: str | Path) -> list[EvaluationSet]:
    """Read a folder of sets, the folder of one set, or one `NAME.data.xml`.

    The order is that of the literature. Several sets without ALL are put together to make it.

    Raises:
        DataError: Nothing is there, or a file is not what it should be; the message names the line.
    """
    path = Path(path)
    found = {*path.glob(f"*{_DATA}"), *path.glob(f"*/*{_DATA}")}
    files = [path] if path.is_file() else sorted(found)
    if not files:
        raise DataError(
            f"{path} contains no NAME{_DATA}. Expected a dataset of the evaluation framework of "
            "Raganato et al., or the directory of all datasets (Evaluation_Datasets)."
        )
    sets = [_read_set(file) for file in files]
    sets.sort(key=lambda s: (s.name == ALL, s.name not in _ORDER, _place(s.name)))
    return sets if len(sets) == 1 or sets[-1].name == ALL else [*sets, _together(sets)]


def _place(name: str) -> tuple[int, str]:
    return (_ORDER.index(name) if name in _ORDER else 0, name)


def _together(sets: Iterable[EvaluationSet]) -> EvaluationSet:
    """Return sets one after the other, as ALL is; ids begin with the name of their set."""
    whole = EvaluationSet(ALL, [], [])
    for one in sets:
        before = len(whole.sentences)
        whole.sentences.extend(one.sentences)
        whole.instances.extend(
            i._replace(name=f"{one.name}.{i.name}", sentence=before + i.sentence)
            for i in one.instances
        )
    return whole


def _read_set(data: Path) -> EvaluationSet:
    name = data.name.removesuffix(_DATA)
    gold_path = data.with_name(f"{name}{_GOLD}")
    gold = _read_gold(gold_path)
    found = EvaluationSet(name, [], [])
    for sentence in _parse(data).iter("sentence"):
        words: list[str] = []
        for element in sentence.iter():
            if element.tag not in ("wf", "instance"):
                continue
            form, first = "".join(element.itertext()).strip(), len(words)
            if not form:
                where = f"{data}, sentence {len(found.sentences) + 1}"
                raise DataError(f"{where}: <{element.tag}> has no text.")
            words += split_form(form)
            if element.tag == "instance":
                place = (len(found.sentences), first, len(words))
                found.instances.append(_instance(element.attrib, place, gold, data))
        found.sentences.append(tuple(words))
    if odd := gold.keys() ^ {instance.name for instance in found.instances}:
        raise DataError(
            f"'{min(odd)}' is in only one of {gold_path} and {data}. Check that the two files "
            "belong together."
        )
    if not found.instances:
        raise DataError(f"{data} contains no <instance>.")
    return found


def _parse(path: Path) -> ElementTree.Element:
    try:
        return ElementTree.parse(path).getroot()
    except ElementTree.ParseError as error:
        raise DataError(
            f"{path}: invalid XML ({error}). Expected a {_DATA} file of Raganato et al."
        ) from None
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror}.") from None


def _instance(
    attributes: Mapping[str, str],
    place: tuple[int, int, int],
    gold: Mapping[str, frozenset[str]],
    path: Path,
) -> Instance:
    name, lemma, pos = (attributes.get(key, "") for key in ("id", "lemma", "pos"))
    if not (name and lemma) or pos not in POS_TYPES:
        raise DataError(
            f"{path}: found id '{name}', lemma '{lemma}', pos '{pos}' in an <instance>; expected "
            f"all three, and pos to be one of {', '.join(POS_TYPES)}."
        )
    entry = Entry(lemma.lower().replace(" ", "_"), POS_TYPES[pos])
    return Instance(name, *place, entry, pos, gold.get(name, frozenset()))


def _read_gold(path: Path) -> dict[str, frozenset[str]]:
    gold: dict[str, frozenset[str]] = {}
    for line in read_lines([path]):
        fields = line.text.split()
        if not fields:
            continue
        if len(fields) < 2 or fields[0] in gold:
            found = f"'{fields[0]}' twice" if len(fields) > 1 else f"'{line.text:.60}'"
            raise line.error(
                f"found {found}, expected an id and its sense keys, separated by spaces, each id "
                "once."
            )
        gold[fields[0]] = frozenset(fields[1:])
    return gold
