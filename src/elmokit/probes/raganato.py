"""The evaluation framework of Raganato et al. (2017): datasets of word senses, and their metric.

A dataset is a directory NAME with `NAME.data.xml` (sentences of `wf` and `instance` elements) and
`NAME.gold.key.txt` (an instance id and its sense keys per line).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
from numpy.typing import ArrayLike

from elmokit.errors import DataError
from elmokit.probes.wordnet import Entry, split_form
from elmokit.text.lines import read_lines

# The type digits of WordNet's sense keys.
_POS_TYPES = {"NOUN": "1", "VERB": "2", "ADJ": "3", "ADV": "4"}
_DATA = ".data.xml"
_GOLD = ".gold.key.txt"
_EXPECTED = (
    "Expected a dataset of the evaluation framework of Raganato et al., or the directory of all "
    "datasets (Evaluation_Datasets)."
)
ALL = "ALL"
# The usual order in the literature. Other datasets follow these, and ALL comes last.
_ORDER = ("senseval2", "senseval3", "semeval2007", "semeval2013", "semeval2015")


class Instance(NamedTuple):
    """A word or multiword expression to disambiguate: `words[start:end]` of a sentence.

    Attributes:
        id: The id of the instance.
        sentence: The index of the sentence.
        start: The index of the instance's first word in the sentence.
        end: The index of the instance's last word in the sentence, plus 1.
        entry: The lemma and part of speech of the instance.
        pos: The part of speech as written in the file.
        gold: The sense keys that count as correct.
    """

    id: str
    sentence: int
    start: int
    end: int
    entry: Entry
    pos: str
    gold: frozenset[str]


class EvaluationSet(NamedTuple):
    """The sentences of a dataset, and the words to disambiguate."""

    name: str
    sentences: list[tuple[str, ...]]
    instances: list[Instance]


def f1_score(correct: ArrayLike, answered: ArrayLike) -> float:
    """Return F1 as computed by `Scorer.java` of Raganato et al.

    Args:
        correct: Whether the answer to each instance is one of its gold keys.
        answered: Whether each instance has an answer. Instances without an answer decrease recall,
            but not precision.
    """
    return float(2 * np.sum(correct) / (np.size(answered) + np.sum(answered)))


# ------------------------------------------------------------------------------------------ reading


def read_sets(path: str | Path) -> list[EvaluationSet]:
    """Read a directory of datasets, the directory of one dataset, or a `NAME.data.xml` file.

    The datasets are returned in the order used in the literature. If there are several datasets but
    no ALL, their concatenation is added as ALL.

    Raises:
        DataError: There is no dataset, or a file is invalid.
    """
    path = Path(path)
    if not path.exists():
        raise DataError(f"{path} does not exist. {_EXPECTED}")
    paths = [path] if path.is_file() else [*path.glob(f"*{_DATA}"), *path.glob(f"*/*{_DATA}")]
    files = [file for file in paths if file.is_file()]  # not a pipe or a directory
    if not files:
        raise DataError(f"{path} contains no *{_DATA} file. {_EXPECTED}")
    sets = [_read_set(file) for file in files]
    ranks = {name: rank for rank, name in enumerate(_ORDER)}
    sets.sort(key=lambda s: (s.name == ALL, ranks.get(s.name, len(ranks)), s.name))
    return sets if len(sets) == 1 or sets[-1].name == ALL else [*sets, concatenate(sets)]


def concatenate(sets: Iterable[EvaluationSet]) -> EvaluationSet:
    """Concatenate datasets into a dataset named ALL, and prefix ids with their dataset's name."""
    combined = EvaluationSet(ALL, [], [])
    for dataset in sets:
        offset = len(combined.sentences)
        combined.sentences.extend(dataset.sentences)
        combined.instances.extend(
            i._replace(id=f"{dataset.name}.{i.id}", sentence=offset + i.sentence)
            for i in dataset.instances
        )
    return combined


def _read_set(data: Path) -> EvaluationSet:
    dataset = EvaluationSet(data.name.removesuffix(_DATA), [], [])
    gold_path = data.with_name(f"{dataset.name}{_GOLD}")
    gold = _read_gold(gold_path)
    try:
        root = ElementTree.parse(data).getroot()
    # For invalid encodings, the parser raises a LookupError or a ValueError.
    except (ElementTree.ParseError, LookupError, ValueError, OSError) as error:
        raise DataError(
            f"{data}: cannot read the XML ({error}). Expected a {_DATA} file of Raganato et al."
        ) from None
    for number, sentence in enumerate(root.iter("sentence")):
        words: list[str] = []
        for element in sentence.iter():
            if element.tag not in ("wf", "instance"):
                continue
            form = "".join(element.itertext()).strip()
            if not form:
                raise DataError(
                    f"{data}, sentence {number + 1}: <{element.tag}> has no text; expected a word."
                )
            start = len(words)
            words += split_form(form)
            if element.tag == "instance":
                instance_id, entry, pos = _read_attributes(element, data)
                keys = gold.get(instance_id, frozenset())
                instance = Instance(instance_id, number, start, len(words), entry, pos, keys)
                dataset.instances.append(instance)
        dataset.sentences.append(tuple(words))
    if different := gold.keys() ^ {instance.id for instance in dataset.instances}:
        raise DataError(
            f"The instance '{min(different)}' is in only one of {gold_path} and {data}. Check that "
            "both files belong to the same dataset."
        )
    if not dataset.instances:
        raise DataError(f"{data} contains no <instance> elements; expected words to disambiguate.")
    return dataset


def _read_attributes(element: ElementTree.Element, path: Path) -> tuple[str, Entry, str]:
    """Return the id, the entry and the part of speech of an instance."""
    name, lemma, pos = (element.get(key, "") for key in ("id", "lemma", "pos"))
    if not (name and lemma) or pos not in _POS_TYPES:
        raise DataError(
            f"{path}: invalid <instance> with id '{name}', lemma '{lemma}' and pos '{pos}'. "
            f"Expected an id, a lemma, and one of {', '.join(_POS_TYPES)} as pos."
        )
    return name, Entry(lemma.lower().replace(" ", "_"), _POS_TYPES[pos]), pos


def _read_gold(path: Path) -> dict[str, frozenset[str]]:
    gold: dict[str, frozenset[str]] = {}
    for line in read_lines([path]):
        fields = line.text.split()
        if len(fields) == 1 or (fields and fields[0] in gold):
            raise line.error(
                f"found '{line.text:.60}', expected a unique id and its sense keys, separated by "
                "spaces."
            )
        if fields:
            gold[fields[0]] = frozenset(fields[1:])
    return gold
