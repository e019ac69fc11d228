"""Split text into sentences using rules.

A sentence ends with `.`, `!`, `?` or `...` and any closing quotes and brackets, if this punctuation
is followed by whitespace and a word that does not begin with a lowercase letter. A period does not
end a sentence after a title ("Mr."), in a reference to a number ("No. 5"), or in a list label ("1.
First"). After other abbreviations ("U.S.", "Inc.", "J."), it ends a sentence only if the next word
is a common first word of a sentence ("The"). In scripts without spaces, full stops always end a
sentence. Line breaks are treated like spaces, but an empty line always ends a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from elmokit.text.abbreviations import ENDINGS, NUMBERED, TITLES
from elmokit.text.tokenize import Token, tokenize, words

_CLOSERS = r"""["')\]}\u2019\u201d\u00bb\u203a\u300d\u300f\uff09\u3011\u300b]"""
_OPENERS = r"""["'(\[{`\u2018\u201c\u201e\u00ab\u2039\u00bf\u00a1*_-]"""
# Includes Arabic, Urdu, Devanagari, Armenian, Ethiopic, Khmer and Burmese punctuation.
_STOPS = r"[.!?\u2026\u203c\u2047-\u2049\u061f\u06d4\u0964\u0965\u0589\u1362\u17d4\u104b]"
_WIDE_STOPS = r"[\u3002\uff01\uff0e\uff1f\uff61]"

# Matching takes linear time, because quantifiers are possessive and a match cannot start within a
# sequence of marks. The pattern begins with a single character class, because this is twice as fast
# as beginning with the alternatives.
_CANDIDATE = re.compile(
    rf"[{_STOPS[1:-1]}{_WIDE_STOPS[1:-1]}\n\u2029]"
    rf"(?:(?<={_STOPS})(?<!{_STOPS}{_STOPS}){_STOPS}*+{_CLOSERS}*+(?=\s)|"
    rf"(?P<certain>(?<={_WIDE_STOPS}){_WIDE_STOPS}*+{_CLOSERS}*+|(?<=\n)\s*\n|(?<=\u2029)))"
)
_SPACE = re.compile(r"\s*+")
_NEXT = re.compile(rf"\s*+{_OPENERS}*+(\w*)")

_LAST_WORD = re.compile(r"(?<![\w.])[\w.]+\Z")
_TITLE = re.compile(TITLES)
_NUMBERED = re.compile(f"{NUMBERED}|p")
_AMBIGUOUS = re.compile(rf"(?:[^\W\d_]\.)+[^\W\d_]|Ph\.D|{ENDINGS}")
_LIST_LABEL = re.compile(r"[(\[]?(?:\d{1,3}|[A-Za-z]|[ivxlIVXL]+)")
_FIRST_WORDS = frozenset(
    {"The", "This", "That", "These", "Those", "There", "Then", "They", "Their", "Thus", "Though"}
    | {"He", "She", "It", "We", "You", "His", "Her", "Its", "Our", "My", "Your", "An", "And", "But"}
    | {"If", "In", "On", "At", "As", "After", "Although", "Because", "Before", "By", "During"}
    | {"For", "From", "However", "Since", "So", "Some", "Such", "To", "Under", "When", "Where"}
    | {"While", "With", "What", "Who", "Why", "How", "Not", "One", "Both", "Many", "Most", "All"}
)
_CONTINUATIONS = (",", ";", ":", ".", "!", "?")
_MAX_WORD_LENGTH = 32  # number of characters to search for the word before a period


def tokenize_sentences(text: str) -> Iterator[list[Token]]:
    """Yield the tokens of each sentence, with their offsets in `text`."""
    for start, end in sentence_spans(text):
        yield [Token(t.text, start + t.start, start + t.end) for t in tokenize(text[start:end])]


def tokenize_line(
    text: str, *, tokenized: bool, split: bool
) -> Iterator[tuple[int, str, list[str]]]:
    """Yield the offset, text and tokens of each sentence of a line.

    Args:
        text: The line.
        tokenized: Whether the text is already tokenized, with tokens separated by whitespace.
        split: Whether to split the line into sentences.
    """
    for start, end in sentence_spans(text) if split else [(0, len(text))]:
        sentence = text[start:end]
        yield start, sentence, sentence.split() if tokenized else words(sentence)


def split_sentences(text: str) -> list[str]:
    """Split a text into sentences, without surrounding whitespace."""
    return [text[start:end] for start, end in sentence_spans(text)]


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Find the sentences of a text.

    Returns:
        The start and end of each sentence, without surrounding whitespace. Together, the sentences
        contain every non-whitespace character of the text.
    """
    spans: list[tuple[int, int]] = []
    start = _skip_space(text, 0)
    for match in _CANDIDATE.finditer(text):
        if match.start() < start or not _ends_sentence(text, start, match):
            continue
        end = match.start() if match[0].isspace() else match.end()
        if text[end - 1].isspace():  # whitespace before an empty line
            end = start + len(text[start:end].rstrip())
        spans.append((start, end))
        start = _skip_space(text, match.end())
    if start < len(text):
        spans.append((start, start + len(text[start:].rstrip())))
    return spans


def _ends_sentence(text: str, start: int, match: re.Match[str]) -> bool:
    """Return whether the sentence that starts at `start` ends with the punctuation in `match`."""
    marks = match[0]
    if match.lastgroup:  # a paragraph break, or a full stop that need not be followed by whitespace
        return True
    following = _NEXT.match(text, match.end())
    assert following is not None  # it matches the empty string
    word = following[1]
    if word[:1].islower() or (not word and text.startswith(_CONTINUATIONS, following.end())):
        return False
    if marks[0] != "." or marks[1:2] == ".":
        return True
    # The length is limited, because slices from `start` would take quadratic time in total.
    before_start = max(start, match.start() - _MAX_WORD_LENGTH)
    before = text[before_start : match.start()]
    if before_start == start and _LIST_LABEL.fullmatch(before):
        return False
    return _is_full_stop(before, word)


def _is_full_stop(before: str, word: str) -> bool:
    """Return whether a single period after the text `before` ends a sentence.

    Args:
        before: The text before the period.
        word: The word after the period; empty if there is none.
    """
    match = _LAST_WORD.search(before)
    if match is None:
        return True
    last = match[0]
    if _TITLE.fullmatch(last):
        return False
    if _NUMBERED.fullmatch(last):
        return not word[:1].isdigit()
    if (len(last) == 1 and last.isupper()) or _AMBIGUOUS.fullmatch(last):
        return word in _FIRST_WORDS
    return True


def _skip_space(text: str, position: int) -> int:
    """Return the position of the next character that is not whitespace."""
    match = _SPACE.match(text, position)
    assert match is not None  # it matches the empty string
    return match.end()
