"""SemCor as lines of JSON: the words of a sentence, some with a WordNet 3.0 sense.

    {"tokens": [["It", "PRP", "", null], ["rains", "VB", "rain", "rain%2:43:00::"]]}

A token is its form, part of speech, lemma and sense key, or null. Where the annotators could not
decide, the key names alternatives: "year%1:28:02::;1:28:01::" are two senses of "year". Such a word
counts as a use of each of them. Names carry the sense of what they name ("Fulton County" is a
location, location%1:03:00::) and count as uses of that sense like all others.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from elmokit.errors import DataError
from elmokit.probes.senses import SenseSentence, Stretch, is_key, split_form
from elmokit.text.lines import Line, read_lines

# Where an adjective may stand is marked on the head word of some keys; WordNet's index has no mark.
_MARK = re.compile(r"\((?:a|p|ip)\)")
_REMEDY = 'Expected {"tokens": [[form, pos, lemma, sense key or null], ...]}.'


def read_semcor(path: str | Path) -> list[SenseSentence]:
    """Read sentences with senses.

    Args:
        path: A file with one JSON object per line, also .gz, .xz, .bz2, .zst.

    Raises:
        DataError: A line is not such an object, or nothing in the file has a sense.
    """
    sentences = [_sentence(line) for line in read_lines([path]) if line.text.strip()]
    if not any(sentence.stretches for sentence in sentences):
        raise DataError(f"{path} contains no words with a sense. {_REMEDY}")
    return sentences


def _sentence(line: Line) -> SenseSentence:
    try:
        tokens = json.loads(line.text)["tokens"]
    except (json.JSONDecodeError, TypeError, KeyError):
        tokens = None
    if not isinstance(tokens, list):
        raise line.error(f"found '{line.text:.60}'. {_REMEDY}")
    words: list[str] = []
    stretches: list[Stretch] = []
    for number, token in enumerate(tokens, start=1):
        form, key = _checked(token, line, number)
        first = len(words)
        words += split_form(form)
        if key is not None:
            stretches.append(Stretch(first, len(words), _keys(key, line, number)))
    return SenseSentence(tuple(words), tuple(stretches))


def _checked(token: Any, line: Line, number: int) -> tuple[str, str | None]:
    """Return the form and the key of a token."""
    good = isinstance(token, list) and len(token) == 4 and isinstance(token[0], str)
    if not good or not token[0].strip() or not (token[3] is None or isinstance(token[3], str)):
        raise line.error(f"token {number}: invalid value {token!r}. {_REMEDY}")
    return token[0], token[3]


def _keys(given: str, line: Line, number: int) -> tuple[str, ...]:
    """Return the alternatives that a key names; all but the first go without their lemma."""
    lemma = given.partition("%")[0]
    given = _MARK.sub("", given)
    keys = tuple(
        alternative if "%" in alternative else f"{lemma}%{alternative}"
        for alternative in given.split(";")
    )
    for key in keys:
        if not is_key(key):
            raise line.error(
                f"token {number}: invalid sense '{given}'; expected a WordNet sense key such as "
                "play%1:04:00::, or several separated by ';'."
            )
    return tuple(dict.fromkeys(keys))
