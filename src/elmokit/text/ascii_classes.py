"""Map each character of a text to an ASCII character of the same class.

The tokenizer's rules are written once, for ASCII, and match the mapped text. It has the same
length, so positions are the same in both. A curly quote is treated as a straight one, a full-width
period as a period, and a Cyrillic capital before a period as an initial, without rules per script.
"""

from __future__ import annotations

import unicodedata

# Classes without an ASCII character. Control characters can represent them, because control
# characters in the text are mapped to SYMBOL.
SYMBOL = "\x01"  # stands alone: dashes, emoji, foreign punctuation, control characters
ELLIPSIS = "\x02"
IDEOGRAPH = "\x03"  # a script written without spaces, where each character is a token
EXTEND = "\x04"  # belongs to the character before it: combining marks, variation selectors
JOINER = "\x05"  # joins its neighbors: the zero-width joiner in emoji and Indic scripts

_EXACT = {
    "\u2018": "'", "\u2019": "'", "\u201b": "'", "\u2032": "'", "\u00b4": "'",
    "\u00b7": "'", "\u2027": "'",  # the dot inside Catalan words is treated like an apostrophe
    "\u05f3": "'", "\u05f4": "'",  # and so are geresh and gershayim inside Hebrew acronyms
    "\u201c": '"', "\u201d": '"', "\u201e": '"', "\u201f": '"', "\u2033": '"',
    "\u00ab": '"', "\u00bb": '"', "\u2039": '"', "\u203a": '"',
    "\u2010": "-", "\u2011": "-", "\u05be": "-",
    "\u2026": ELLIPSIS,
    "\u200d": JOINER,
    "\uff9e": EXTEND, "\uff9f": EXTEND,  # voicing marks of halfwidth kana
    # A zero-width space separates words, and a byte order mark inside text is an error: neither
    # may be part of a word. Other invisible characters (soft hyphen, ZWNJ, direction marks) may.
    "\u200b": SYMBOL, "\ufeff": SYMBOL,
}  # fmt: skip

_BY_CATEGORY = {
    "Lu": "Q", "Lt": "Q", "Nd": "0",
    "Mn": EXTEND, "Mc": EXTEND, "Me": EXTEND, "Cf": EXTEND,
    "Ps": "(", "Pe": ")", "Pi": '"', "Pf": '"', "Pc": "_", "Sc": "$",
    "Pd": SYMBOL, "Po": SYMBOL, "Sm": SYMBOL, "So": SYMBOL, "Sk": SYMBOL,
    "Cc": SYMBOL, "Cs": SYMBOL,
}  # fmt: skip

# Han with its radicals and iteration marks, kana, bopomofo; not Hangul, which uses spaces.
_IDEOGRAPHS = (
    (0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3021, 0x3029), (0x3031, 0x3035), (0x303B, 0x303C),
    (0x3041, 0x3096), (0x309D, 0x309F), (0x30A1, 0x30FA), (0x30FC, 0x312F), (0x31A0, 0x31FF),
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0xFF66, 0xFF9D), (0x1B000, 0x1B16F),
    (0x20000, 0x3FFFF),
)  # fmt: skip


class _Table(dict[int, str]):
    """A table for `str.translate`, filled on demand."""

    def __missing__(self, code: int) -> str:
        mapped = self[code] = _ascii_class(chr(code))
        return mapped


def _ascii_class(character: str) -> str:
    """Return the ASCII character for the class of `character`."""
    code = ord(character)
    if character in _EXACT:
        return _EXACT[character]
    if character.isspace() or (character.isascii() and character.isprintable()):
        return character
    if any(first <= code <= last for first, last in _IDEOGRAPHS):
        return IDEOGRAPH
    if (
        0x1F1E6 <= code <= 0x1F1FF
    ):  # regional indicators: two make a flag, so they must not be split
        return "Q"
    if 0x1F3FB <= code <= 0x1F3FF:  # skin tones follow the emoji they color
        return EXTEND
    plain = unicodedata.normalize("NFKC", character)
    if len(plain) == 1 and plain.isascii() and plain.isprintable():
        return plain
    # Other letters, numbers, private and unassigned code points are parts of words.
    return _BY_CATEGORY.get(unicodedata.category(character), "q")


_TABLE = _Table()


def ascii_classes(text: str) -> str:
    """Return `text` with every character except whitespace mapped to ASCII, one to one."""
    if text.isascii() and text.isprintable():
        return text
    return text.translate(_TABLE)
