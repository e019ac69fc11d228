"""Raw text as input of several tasks."""

from __future__ import annotations

from collections.abc import Iterator

from elmokit.text.sentences import tokenize_sentences

#: Longer sentences, such as in text without punctuation, are split: the cost of some models is
#: quadratic in the length.
LONGEST = 512

Offsets = tuple[tuple[int, int], ...]


def split_text(text: str) -> Iterator[tuple[tuple[str, ...], Offsets]]:
    """Split a text into sentences; yield the tokens of each, and their (start, end) in the text."""
    for sentence in tokenize_sentences(text):
        for start in range(0, len(sentence), LONGEST):
            part = sentence[start : start + LONGEST]
            yield tuple(t.text for t in part), tuple((t.start, t.end) for t in part)
