"""Split text into sentences by rules.

A sentence ends at . ! ? or ... with the quotes and brackets that close after it, where whitespace
follows and the next word does not start in lower case. A period does not end one after a title
("Mr."), before the number in "No. 5", or in a list mark ("1. First"). After an abbreviation that
may end a sentence ("U.S.", "Inc.", "J.") it does if the next word is one that opens sentences
("The"). Full stops of scripts without spaces end a sentence by themselves. A line break is
whitespace like any other; an empty line ends a sentence always.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from elmokit.text.abbreviations import ENDINGS, NUMBERED, TITLES
from elmokit.text.tokenize import Token, tokenize

_CLOSERS = r"""["')\]}\u2019\u201d\u00bb\u203a\u300d\u300f\uff09\u3011\u300b]"""
_OPENERS = r"""["'(\[{`\u2018\u201c\u201e\u00ab\u2039\u00bf\u00a1*_-]"""
# Besides ours: Arabic, Urdu, Devanagari, Armenian, Ethiopic, Khmer and Burmese marks.
_STOPS = r"[.!?\u2026\u203c\u2047-\u2049\u061f\u06d4\u0964\u0965\u0589\u1362\u17d4\u104b]"
_WIDE_STOPS = r"[\u3002\uff01\uff0e\uff1f\uff61]"

# Possessive, and never starting inside a sequence of marks, so that the time is linear.
# It begins with one character class, which `re` finds quickly, and then determines the kind of
# mark; the other order takes twice as long.
_CANDIDATE = re.compile(
    rf"[{_STOPS[1:-1]}{_WIDE_STOPS[1:-1]}\n\u2029]"
    rf"(?:(?<={_STOPS})(?<!{_STOPS}{_STOPS}){_STOPS}*+{_CLOSERS}*+(?=\s)|"
    rf"(?P<certain>(?<={_WIDE_STOPS}){_WIDE_STOPS}*+{_CLOSERS}*+|(?<=\n)\s*\n|(?<=\u2029)))"
)
_SPACE = re.compile(r"\s*+")
_NEXT = re.compile(rf"\s*+{_OPENERS}*+(\w*)")

_BEFORE = re.compile(r"(?<![\w.])[\w.]+\Z")
_TITLE = re.compile(TITLES)
_NUMBERED = re.compile(f"{NUMBERED}|p")
_AMBIGUOUS = re.compile(rf"(?:[^\W\d_]\.)+[^\W\d_]|Ph\.D|{ENDINGS}")
_LIST_MARK = re.compile(r"[(\[]?(?:\d{1,3}|[A-Za-z]|[ivxlIVXL]+)")
_STARTERS = frozenset(
    {"The", "This", "That", "These", "Those", "There", "Then", "They", "Their", "Thus", "Though"}
    | {"He", "She", "It", "We", "You", "His", "Her", "Its", "Our", "My", "Your", "An", "And", "But"}
    | {"If", "In", "On", "At", "As", "After", "Although", "Because", "Before", "By", "During"}
    | {"For", "From", "However", "Since", "So", "Some", "Such", "To", "Under", "When", "Where"}
    | {"While", "With", "What", "Who", "Why", "How", "Not", "One", "Both", "Many", "Most", "All"}
)
_CONTINUES = (",", ";", ":", ".", "!", "?")
_LONGEST_WORD = 32  # characters in which the word before a period is searched


def tokenize_sentences(text: str) -> Iterator[list[Token]]:
    """Yield the tokens of each sentence of `text`, with their offsets in `text`."""
    for start, end in split_sentences(text):
        yield [Token(t.text, start + t.start, start + t.end) for t in tokenize(text[start:end])]


def split_sentences(text: str) -> list[tuple[int, int]]:
    """Split text into sentences.

    Args:
        text: A text of any length.

    Returns:
        The (start, end) of each sentence in order, without surrounding whitespace. Together they
        contain all characters of the text except whitespace.
    """
    spans: list[tuple[int, int]] = []
    start = _skip_space(text, 0)
    for match in _CANDIDATE.finditer(text):
        if match.start() < start or not _ends_sentence(text, start, match):
            continue
        end = match.start() if match[0].isspace() else match.end()
        if text[end - 1].isspace():  # spaces before an empty line
            end = start + len(text[start:end].rstrip())
        spans.append((start, end))
        start = _skip_space(text, match.end())
    if start < len(text):
        spans.append((start, start + len(text[start:].rstrip())))
    return spans


def _ends_sentence(text: str, start: int, match: re.Match[str]) -> bool:
    """Return whether the sentence that starts at `start` ends with the marks of `match`."""
    marks = match[0]
    if match.lastgroup:  # an empty line, or a full stop that needs no space after it
        return True
    following = _NEXT.match(text, match.end())
    assert following is not None  # it matches the empty string
    word = following[1]
    if word[:1].islower() or (not word and text.startswith(_CONTINUES, following.end())):
        return False
    if marks[0] != "." or marks[1:2] == ".":
        return True
    # Limited to the length of a word: a slice from `start` would take quadratic time.
    nearest = max(start, match.start() - _LONGEST_WORD)
    before = text[nearest : match.start()]
    if nearest == start and _LIST_MARK.fullmatch(before):
        return False
    return _period_is_full_stop(before, word)


def _period_is_full_stop(before: str, word: str) -> bool:
    """Return whether a single period between the text `before` and `word` ends a sentence."""
    match = _BEFORE.search(before)
    if match is None:
        return True
    last = match[0]
    if _TITLE.fullmatch(last):
        return False
    if _NUMBERED.fullmatch(last):
        return not word[:1].isdigit()
    if (len(last) == 1 and last.isupper()) or _AMBIGUOUS.fullmatch(last):
        return word in _STARTERS
    return True


def _skip_space(text: str, position: int) -> int:
    """Return the first position from `position` on that is not whitespace."""
    match = _SPACE.match(text, position)
    assert match is not None  # it matches the empty string
    return match.end()
