"""Map each character of a text to an ASCII character that represents its class.

The rules of the tokenizer are written for ASCII characters and applied to the mapped text. For
example, curly quotes are mapped to straight quotes, full-width periods to periods, and capital
letters of other scripts to "Q", so no additional rules are needed. The mapped text has the same
length as the original text, so offsets do not change.
"""

from __future__ import annotations

import unicodedata

# Classes without a printable ASCII character are represented by control characters. These cannot be
# confused with control characters in the text, which are mapped to SYMBOL.
SYMBOL = "\x01"  # always a token: dashes, emoji, other punctuation, control characters
ELLIPSIS = "\x02"
IDEOGRAPH = "\x03"  # always a token: characters of scripts that are written without spaces
EXTEND = "\x04"  # part of the previous character: combining marks, variation selectors
JOINER = "\x05"  # joins two characters: the zero-width joiner in emoji and Indic scripts

_EXACT = {
    "\u2018": "'", "\u2019": "'", "\u201b": "'", "\u2032": "'", "\u00b4": "'",
    "\u00b7": "'", "\u2027": "'",  # the interpunct in Catalan words
    "\u05f3": "'", "\u05f4": "'",  # geresh and gershayim in Hebrew acronyms
    "\u201c": '"', "\u201d": '"', "\u201e": '"', "\u201f": '"', "\u2033": '"',
    "\u00ab": '"', "\u00bb": '"', "\u2039": '"', "\u203a": '"',
    "\u2010": "-", "\u2011": "-", "\u05be": "-",
    "\u2026": ELLIPSIS,
    "\u200d": JOINER,
    "\uff9e": EXTEND, "\uff9f": EXTEND,  # voicing marks of halfwidth kana
    # A zero-width space separates words, and a byte order mark within text is an error. Other
    # invisible characters, such as soft hyphens, are part of the word (category Cf).
    "\u200b": SYMBOL, "\ufeff": SYMBOL,
}  # fmt: skip

_BY_CATEGORY = {
    "Lu": "Q", "Lt": "Q", "Nd": "0",
    "Mn": EXTEND, "Mc": EXTEND, "Me": EXTEND, "Cf": EXTEND,
    "Ps": "(", "Pe": ")", "Pi": '"', "Pf": '"', "Pc": "_", "Sc": "$",
    "Pd": SYMBOL, "Po": SYMBOL, "Sm": SYMBOL, "So": SYMBOL, "Sk": SYMBOL,
    "Cc": SYMBOL, "Cs": SYMBOL,
}  # fmt: skip

# Han (with radicals and iteration marks), kana and bopomofo, but not Hangul, which uses spaces.
_IDEOGRAPHS = (
    (0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3021, 0x3029), (0x3031, 0x3035), (0x303B, 0x303C),
    (0x3041, 0x3096), (0x309D, 0x309F), (0x30A1, 0x30FA), (0x30FC, 0x312F), (0x31A0, 0x31FF),
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0xFF66, 0xFF9D), (0x1B000, 0x1B16F),
    (0x20000, 0x3FFFF),
)  # fmt: skip


class _Table(dict[int, str]):
    """A table for `str.translate`. Entries are added when a character is first used."""

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
    if 0x1F1E6 <= code <= 0x1F1FF:  # regional indicators, two of which form a flag
        return "Q"
    if 0x1F3FB <= code <= 0x1F3FF:  # skin tones, which follow an emoji
        return EXTEND
    normalized = unicodedata.normalize("NFKC", character)
    if len(normalized) == 1 and normalized.isascii() and normalized.isprintable():
        return normalized
    # Code points of all other categories, including private and unassigned ones, are treated as
    # lowercase letters.
    return _BY_CATEGORY.get(unicodedata.category(character), "q")


_TABLE = _Table()


def ascii_classes(text: str) -> str:
    """Return a text of the same length in which all characters except whitespace are ASCII."""
    if text.isascii() and text.isprintable():
        return text
    return text.translate(_TABLE)
