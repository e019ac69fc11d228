"""Sentences in which some words have senses, and sense keys.

A WordNet sense key has the form `lemma%type:file:id:head:id`; the type is 1 noun, 2 verb, 3
adjective, 4 adverb, 5 adjective satellite, which is treated as an adjective. A multiword expression
("took place") is a span of several words, because that is what a model reads; its vector is
their mean.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from elmokit.text.treebank import unescape

_KEY = re.compile(r"[^%\s;]+%[1-5]:[0-9]+:[0-9]+:[^:\s;]*:[0-9]*")
_SATELLITE = "5"
POS_TYPES = {"NOUN": "1", "VERB": "2", "ADJ": "3", "ADV": "4"}


class Entry(NamedTuple):
    """A lemma, in lower case with "_" for spaces, with a part of speech.

    pos: The digit of the sense keys, "1" to "4".
    """

    lemma: str
    pos: str


class SenseSpan(NamedTuple):
    """The words first, ..., last - 1 of a sentence, and their senses."""

    first: int
    last: int
    keys: tuple[str, ...]


class SenseSentence(NamedTuple):
    """A sentence and its words with senses."""

    words: tuple[str, ...]
    spans: tuple[SenseSpan, ...]


def is_key(key: str) -> bool:
    """Return whether a text has the form of a sense key."""
    return _KEY.fullmatch(key) is not None


def entry_of(key: str) -> Entry:
    """Return the lemma and part of speech of a sense key."""
    lemma, _, rest = key.partition("%")
    return Entry(lemma.lower(), "3" if rest[0] == _SATELLITE else rest[0])


def split_form(form: str) -> list[str]:
    """Split a form into words: "took place" and "took_place" are two.

    Quotes and brackets of the Penn Treebank are replaced by those of raw text.
    """
    parts = form.split() if " " in form else form.split("_")
    return [unescape(part) for part in parts if part] or [form]
