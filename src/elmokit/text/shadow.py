"""The shadow of a text: same length, every character replaced by an ASCII one of its kind.

Rules for words are written once, for ASCII, and read the shadow; the positions they find hold for
the text itself. So a curly quote cuts where a straight one does, a fullwidth stop is a stop, and a
Cyrillic capital before a period is an initial, without a rule for each script.
"""

from __future__ import annotations

import unicodedata

# Kinds that ASCII has no character for. Control characters are free to stand for them because the
# shadow of a control character is SYMBOL.
SYMBOL = "\x01"  # stands alone: dashes, emoji, foreign punctuation, control characters
ELLIPSIS = "\x02"
IDEOGRAPH = "\x03"  # a script written without spaces, where each character is taken as a token
EXTEND = "\x04"  # belongs to the character before it: combining marks, variation selectors
JOINER = "\x05"  # glues its neighbors: the zero-width joiner in emoji and Indic scripts

_EXACT = {
    "\u2018": "'", "\u2019": "'", "\u201b": "'", "\u2032": "'", "\u00b4": "'",
    "\u00b7": "'", "\u2027": "'",  # the dot inside Catalan words cuts no more than an apostrophe
    "\u05f3": "'", "\u05f4": "'",  # nor do geresh and gershayim inside Hebrew acronyms
    "\u201c": '"', "\u201d": '"', "\u201e": '"', "\u201f": '"', "\u2033": '"',
    "\u00ab": '"', "\u00bb": '"', "\u2039": '"', "\u203a": '"',
    "\u2010": "-", "\u2011": "-", "\u05be": "-",
    "\u2026": ELLIPSIS,
    "\u200d": JOINER,
    "\uff9e": EXTEND, "\uff9f": EXTEND,  # voicing marks of halfwidth kana
    # A zero-width space separates, and a byte order mark inside text is debris: neither may hide
    # in a word. The other invisible characters (soft hyphen, ZWNJ, direction marks) stay in it.
    "\u200b": SYMBOL, "\ufeff": SYMBOL,
}  # fmt: skip

_BY_CATEGORY = {
    "Lu": "Q", "Lt": "Q", "Nd": "0",
    "Mn": EXTEND, "Mc": EXTEND, "Me": EXTEND, "Cf": EXTEND,
    "Ps": "(", "Pe": ")", "Pi": '"', "Pf": '"', "Pc": "_", "Sc": "$",
    "Pd": SYMBOL, "Po": SYMBOL, "Sm": SYMBOL, "So": SYMBOL, "Sk": SYMBOL,
    "Cc": SYMBOL, "Cs": SYMBOL,
}  # fmt: skip

# Han with its radicals and iteration marks, kana, bopomofo; not Hangul, which writes spaces.
_IDEOGRAPHS = (
    (0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3021, 0x3029), (0x3031, 0x3035), (0x303B, 0x303C),
    (0x3041, 0x3096), (0x309D, 0x309F), (0x30A1, 0x30FA), (0x30FC, 0x312F), (0x31A0, 0x31FF),
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0xFF66, 0xFF9D), (0x1B000, 0x1B16F),
    (0x20000, 0x3FFFF),
)  # fmt: skip


class _Shadows(dict[int, str]):
    """A table for `str.translate`, filled as characters are met."""

    def __missing__(self, code: int) -> str:
        shadow = self[code] = _shadow(chr(code))
        return shadow


def _shadow(character: str) -> str:
    """Return the ASCII character that stands for `character` in a shadow."""
    code = ord(character)
    if character in _EXACT:
        return _EXACT[character]
    if character.isspace() or (character.isascii() and character.isprintable()):
        return character
    if any(first <= code <= last for first, last in _IDEOGRAPHS):
        return IDEOGRAPH
    if 0x1F1E6 <= code <= 0x1F1FF:  # regional indicators: two make a flag, so they must not part
        return "Q"
    if 0x1F3FB <= code <= 0x1F3FF:  # skin tones follow the emoji they color
        return EXTEND
    plain = unicodedata.normalize("NFKC", character)
    if len(plain) == 1 and plain.isascii() and plain.isprintable():
        return plain
    # Other letters, numbers, private and unassigned code points make words.
    return _BY_CATEGORY.get(unicodedata.category(character), "q")


_SHADOWS = _Shadows()


def shadow(text: str) -> str:
    """Return the shadow of `text`: as long as the text, ASCII but for whitespace."""
    if text.isascii() and text.isprintable():
        return text
    return text.translate(_SHADOWS)
