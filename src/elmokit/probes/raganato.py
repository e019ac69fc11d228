"""The evaluation framework of Raganato et al. (2017): datasets of word senses, and the score.

A dataset is a directory NAME with `NAME.data.xml` (sentences of `wf` and `instance` elements) and
`NAME.gold.key.txt` (an id and its sense keys per line).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from elmokit.errors import DataError
from elmokit.probes.semcor import split_form
from elmokit.probes.wordnet import Entry
from elmokit.text.lines import read_lines

# The type digits of WordNet's sense keys.
_POS_TYPES = {"NOUN": "1", "VERB": "2", "ADJ": "3", "ADV": "4"}
_DATA = ".data.xml"
_GOLD = ".gold.key.txt"
ALL = "ALL"
# The usual order in the literature. Other datasets follow, and ALL comes last.
_ORDER = ("senseval2", "senseval3", "semeval2007", "semeval2013", "semeval2015")


class Instance(NamedTuple):
    """A word to disambiguate: `words[first:last]` of a sentence.

    Attributes:
        name: Its id.
        sentence: The number of its sentence.
        first: Its first word.
        last: The word after its last one.
        entry: Its lemma and part of speech.
        pos: The part of speech as in the file.
        gold: The correct senses.
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


def f1_score(answers: Sequence[tuple[Instance, str | None]]) -> float:
    """Return F1 of instances with answers, as `Scorer.java` of Raganato et al. does.

    Any of the gold keys is correct. An instance without an answer (None) counts against recall,
    but not against precision.
    """
    correct = sum(answer in instance.gold for instance, answer in answers)
    answered = sum(answer is not None for _, answer in answers)
    return 2 * correct / (len(answers) + answered) if answers else 0.0


# ------------------------------------------------------------------------------------------ reading


def read_sets(path: str | Path) -> list[EvaluationSet]:
    """Read a directory of datasets, the directory of one dataset, or one `NAME.data.xml`.

    The datasets are in the order used in the literature. If there are several datasets but no ALL,
    they are concatenated to ALL.

    Raises:
        DataError: No dataset was found, or a file is invalid.
    """
    path = Path(path)
    files = [path] if path.is_file() else [*path.glob(f"*{_DATA}"), *path.glob(f"*/*{_DATA}")]
    if not files:
        raise DataError(
            f"{path} contains no NAME{_DATA}. Expected a dataset of the evaluation framework of "
            "Raganato et al., or the directory of all datasets (Evaluation_Datasets)."
        )
    sets = [_read_set(file) for file in files]
    sets.sort(key=lambda s: (_ORDER.index(s.name) if s.name in _ORDER else len(_ORDER), s.name))
    sets.sort(key=lambda s: s.name == ALL)
    return sets if len(sets) == 1 or sets[-1].name == ALL else [*sets, _concatenated(sets)]


def _concatenated(sets: Iterable[EvaluationSet]) -> EvaluationSet:
    """Concatenate datasets to ALL; ids are prefixed with the name of their dataset."""
    combined = EvaluationSet(ALL, [], [])
    for dataset in sets:
        offset = len(combined.sentences)
        combined.sentences.extend(dataset.sentences)
        combined.instances.extend(
            i._replace(name=f"{dataset.name}.{i.name}", sentence=offset + i.sentence)
            for i in dataset.instances
        )
    return combined


def _read_set(data: Path) -> EvaluationSet:
    name = data.name.removesuffix(_DATA)
    gold_path = data.with_name(f"{name}{_GOLD}")
    gold = _read_gold(gold_path)
    dataset = EvaluationSet(name, [], [])
    for sentence in _parse(data).iter("sentence"):
        words: list[str] = []
        for element in sentence.iter():
            if element.tag not in ("wf", "instance"):
                continue
            form, first = "".join(element.itertext()).strip(), len(words)
            if not form:
                where = f"{data}, sentence {len(dataset.sentences) + 1}"
                raise DataError(f"{where}: <{element.tag}> has no text.")
            words += split_form(form)
            if element.tag == "instance":
                name, entry, pos = _word(element.attrib, data)
                place = (len(dataset.sentences), first, len(words))
                dataset.instances.append(
                    Instance(name, *place, entry, pos, gold.get(name, frozenset()))
                )
        dataset.sentences.append(tuple(words))
    if different := gold.keys() ^ {instance.name for instance in dataset.instances}:
        raise DataError(
            f"'{min(different)}' is in only one of {gold_path} and {data}. Check that both files "
            "are of the same dataset."
        )
    if not dataset.instances:
        raise DataError(f"{data} contains no <instance>.")
    return dataset


def _parse(path: Path) -> ElementTree.Element:
    try:
        return ElementTree.parse(path).getroot()
    except ElementTree.ParseError as error:
        raise DataError(
            f"{path}: invalid XML ({error}). Expected a {_DATA} file of Raganato et al."
        ) from None
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror}.") from None


def _word(attributes: Mapping[str, str], path: Path) -> tuple[str, Entry, str]:
    """Return the id, the entry and the part of speech of an instance."""
    name, lemma, pos = (attributes.get(key, "") for key in ("id", "lemma", "pos"))
    if not (name and lemma) or pos not in _POS_TYPES:
        raise DataError(
            f"{path}: found id '{name}', lemma '{lemma}', pos '{pos}' in an <instance>; expected "
            f"all three, and pos to be one of {', '.join(_POS_TYPES)}."
        )
    return name, Entry(lemma.lower().replace(" ", "_"), _POS_TYPES[pos]), pos


def _read_gold(path: Path) -> dict[str, frozenset[str]]:
    gold: dict[str, frozenset[str]] = {}
    for line in read_lines([path]):
        fields = line.text.split()
        if not fields:
            continue
        if len(fields) < 2 or fields[0] in gold:
            problem = f"'{fields[0]}' twice" if len(fields) > 1 else f"'{line.text:.60}'"
            raise line.error(
                f"found {problem}, expected an id and its sense keys, separated by spaces, each id "
                "once."
            )
        gold[fields[0]] = frozenset(fields[1:])
    return gold
