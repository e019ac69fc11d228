"""SemCor as JSON lines: the words of a sentence, some with a WordNet 3.0 sense.

    {"tokens": [["It", "PRP", "", null], ["rains", "VB", "rain", "rain%2:43:00::"]]}

A token is its form, part of speech, lemma and sense key, or null. If the annotators could not
decide, the key lists alternatives: "year%1:28:02::;1:28:01::" are two senses of "year". Such a word
counts as a use of each of them. Names have the sense of their category ("Fulton County" is a
location, location%1:03:00::) and count as uses of that sense. A multiword expression ("took place")
is a span of several words, because a model reads words; its vector is their mean.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from elmokit.errors import DataError
from elmokit.probes.wordnet import is_key
from elmokit.text.lines import Line, read_lines
from elmokit.text.treebank import unescape
from elmokit.text.typed_json import parse_json

# Some keys mark the syntactic position of an adjective on its head word; WordNet's index does not.
_MARK = re.compile(r"\((?:a|p|ip)\)")
_EXPECTED = 'Expected {"tokens": [[form, pos, lemma, sense key or null], ...]}.'


class SenseSpan(NamedTuple):
    """The words first, ..., last - 1 of a sentence, and their senses."""

    first: int
    last: int
    keys: tuple[str, ...]


class SenseSentence(NamedTuple):
    """A sentence and its words with senses."""

    words: tuple[str, ...]
    spans: tuple[SenseSpan, ...]


class _Item(BaseModel):
    tokens: list[tuple[str, Any, Any, str | None]]


def read_semcor(path: str | Path) -> list[SenseSentence]:
    """Read sentences with senses.

    Args:
        path: A file with one JSON object per line; may be compressed (.gz, .xz, .bz2, .zst).

    Raises:
        DataError: A line is invalid, or no word has a sense.
    """
    sentences = [_sentence(line) for line in read_lines([path]) if line.text.strip()]
    if not any(sentence.spans for sentence in sentences):
        raise DataError(f"{path} contains no words with a sense. {_EXPECTED}")
    return sentences


def split_form(form: str) -> list[str]:
    """Split a form into words: "took place" and "took_place" are two.

    Quotes and brackets of the Penn Treebank are replaced by those of raw text.
    """
    parts = form.split() if " " in form else form.split("_")
    return [unescape(part) for part in parts if part] or [form]


def _sentence(line: Line) -> SenseSentence:
    item = parse_json(_Item, line.text, f"{line.path}, line {line.number}", _EXPECTED)
    words: list[str] = []
    spans: list[SenseSpan] = []
    for number, (form, _, _, key) in enumerate(item.tokens):
        if not form.strip():
            raise line.error(f"tokens[{number}]: empty form. {_EXPECTED}")
        first = len(words)
        words += split_form(form)
        if key is not None:
            spans.append(SenseSpan(first, len(words), _keys(key, line, number)))
    return SenseSentence(tuple(words), tuple(spans))


def _keys(text: str, line: Line, number: int) -> tuple[str, ...]:
    """Return the alternatives in a key; all but the first are written without the lemma."""
    lemma = text.partition("%")[0]
    alternatives = _MARK.sub("", text).split(";")
    keys = tuple(key if "%" in key else f"{lemma}%{key}" for key in alternatives)
    if not all(map(is_key, keys)):
        raise line.error(
            f"tokens[{number}]: invalid sense '{text}'; expected a WordNet sense key such as "
            "play%1:04:00::, or several separated by ';'."
        )
    return tuple(dict.fromkeys(keys))
