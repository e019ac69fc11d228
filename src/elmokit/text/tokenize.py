r"""Tokenize sentences by the conventions of the Penn Treebank and UD English EWT.

No character is changed, only whitespace is dropped, and every token has its offsets:
`sentence[token.start : token.end] == token.text`. The rules, in the order they are tried:

1. Split at whitespace. Each chunk between whitespace is split independently, except that the last
   chunk of the sentence has a rule for its final period.
2. Addresses (URL, e-mail, host, file name, @user, #tag) and emoticons are one token.
3. Numbers keep inner marks: 1,000.50, 7:30, 11/28/2000, 713-853-3989; ranges and fractions are
   split (5 - 10, 1 / 2), and so are units, currency and percent (7:30 PM, $ 5, 100 %).
4. Abbreviations keep their period (Mr., U.S., e.g., J.), unless it ends the sentence: as in EWT,
   the period is then a separate token ("at 5 p.m .").
5. English clitics are split: do n't, it 's, I 'll; so are can not, gon na. Other apostrophes inside
   a word are kept (O'Neill, l'homme, 60's), and those at its edges are quotes.
6. Hyphens are split (well - known), but prefixes from a closed list are not (non-human, e-mail).
7. Inside a word . & _ are kept (p.m, Node.js, AT&T).
8. The rest is punctuation: repeated marks are one token (... !!! -- ***), others are single tokens.

Other scripts are split at whitespace and punctuation. Han, kana and bopomofo characters are single
tokens, because no spaces separate their words; sequences of Thai, Lao and Khmer are not split.
Control characters, a zero-width space and a stray byte order mark are single tokens; other
invisible characters are part of their word. A chunk that is too long for a word, a number or an
address is split only at punctuation, which keeps the time linear for any input.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from elmokit.text.abbreviations import ENDINGS, NUMBERED, TITLES
from elmokit.text.ascii_classes import ELLIPSIS, EXTEND, JOINER, SYMBOL, ascii_classes


class Token(NamedTuple):
    """A token and its offsets, Python string indices: `text == sentence[start:end]`."""

    text: str
    start: int
    end: int


def words(sentence: str) -> list[str]:
    """Return the tokens of `sentence` without their offsets; faster than `tokenize`."""
    chunks = sentence.split()
    if not chunks:
        return []
    last = chunks.pop()
    # dict.__getitem__ calls __missing__ for new chunks, so this loop runs in C.
    pieces = list(chain.from_iterable(map(_INNER.__getitem__, chunks)))
    pieces += _FINAL[last]
    return pieces


def tokenize(sentence: str) -> list[Token]:
    """Split a sentence into tokens with offsets.

    Args:
        sentence: One sentence. In a longer text, only the last period is treated as the end of a
            sentence.

    Returns:
        The tokens in order. They do not overlap, contain no whitespace, and contain all other
        characters of the sentence.
    """
    tokens = words(sentence)
    starts = token_starts(sentence, tokens)
    return [Token(token, k, k + len(token)) for k, token in zip(starts, tokens, strict=True)]


def token_starts(sentence: str, tokens: Sequence[str]) -> list[int]:
    """Return the offset of each token that `words` returned."""
    starts = []
    position = 0
    for token in tokens:
        # Only whitespace is between tokens, and tokens contain none.
        start = sentence.index(token, position)
        starts.append(start)
        position = start + len(token)
    return starts


# --- closed lists --------------------------------------------------------------------------------

# The first of two words that are written as one. Forms that are also other words ("wont", "cant",
# "its", French "dont", German "im") are not split.
_CONTRACTED = (
    "(?i:can(?=not~)|(?:gon|wan)(?=na~)|(?:got|out)(?=ta~)|(?:lem|gim)(?=me~)|"
    "(?:did|does|could|would|should|is|are|was|were|has|have|had|ai)(?=nt~)|"
    "(?:that|what|there)(?=s~)|(?:you|they)(?=re~)|(?:you|we|they)(?=ve~))"
).replace("~", r"(?![A-Za-z0-9'`])")

# The prefixes and suffixes that the LDC treebank guidelines do not split off.
_PREFIXES = (
    "anti|arch|bi|bio|co|counter|cross|cyber|de|e|eco|ex|extra|hyper|inter|intra|macro|mega|micro|"
    "mid|mini|mis|multi|neo|non|over|pan|para|post|pre|pro|proto|pseudo|psycho|quasi|re|semi|socio|"
    "sub|super|supra|trans|tri|ultra|un|uni"
)
_SUFFIXES = "able|ahol|esque|ette|fest|fold|gate|ish|itis|less|most|rama|wise"

_UNITS = (
    r"[ap]m|[AP]M|[ap]\.m|[AP]\.M|hrs?|mins?|secs?|yrs?|mph|[kK]|m|bn|mm|cm|km|ft|kg|mg|ml|lbs?|oz|"
    r"hh|[kmg]b|[KMG]B|[kMG]?[hH]z"
)
_DOMAINS = "com|org|net|edu|gov|mil|info|biz|uk|de|ca|au"
_EXTENSIONS = "html?|php|asp|jsp|pdf|docx?|xlsx?|pptx?|txt|csv|zip|exe|jpe?g|gif|png|url"

# --- the rules -----------------------------------------------------------------------------------

_A = f"[A-Za-z0-9{EXTEND}{JOINER}]"  # a character of a word
_START = f"(?<!{_A})"
_END = f"(?!{_A})"
_CLITIC = f"(?:['`](?:s|m|d|re|ve|ll)|(?<={_A})['`](?:S|M|D|RE|VE|LL)){_END}"
_NOT = f"(?:n['`]t|N['`]T){_END}"
_UNIT = f"(?:{_UNITS}){_END}"
_PATH_END = r"""(?:[^\s<>"'.,;:!?()\[\]{}]|\([^\s<>()]*\))"""  # a URL ends before punctuation
_NAME = f"(?i:{_DOMAINS}|{_EXTENSIONS}){_END}"

_ADDRESSES = [  # tried only where a run of their characters begins, which keeps time linear
    rf"""(?i:(?:https?|ftp)://|mailto:|www\.)[^\s<>"]*{_PATH_END}""",
    rf"(?<![\w.+%-]){_A}[\w.+%-]*@{_A}[\w.-]*{_A}",
    rf"""(?<![\w#~%.-])(?:[\w#~%-]++\.)+{_NAME}(?:/[^\s<>"]*{_PATH_END})?|{_START}\.{_NAME}""",
    r"(?<![\w.-])[A-Za-z]{2}[\w-]*+(?:\.[A-Za-z]{2}[\w-]*+){2,}",  # news.groups.and-modules
    rf"[@#][A-Za-z]\w*{_END}",
]
_EMOTICONS = [
    rf"[<>]?[:;=]['-]?(?:[()\[\]|*\\]+|/(?!/)){_END}",
    rf"{_START}[:;=]-?[DPpOo3]{_END}",
    rf"\([:;=]{_END}|<3{_END}",
]
_NUMBERS = [
    rf"[xX]?(?:\+?\d-)?(?:\d{{3}}[-/.])?\d{{3}}-\d{{4}}{_END}",  # telephone
    rf"[xX]?\d-\d{{4}}{_END}|\d{{5}}-\d{{4}}{_END}",  # extension; postal code
    rf"\+?\d++(?:-\d++){{2,}}{_END}|\d++(?:/\d++){{2,}}{_END}|\d++(?:\.\d++){{2,}}{_END}",
    rf"(?:0?[1-9]|1[0-2])/\d\d{_END}|1[0-2]/\d{_END}",  # 9/11 is a date, 3/4 is not
    rf"(?<=\$)[\d.,]*\d(?=[MBTbt]{_END}|{_UNIT})",  # $3M; but 3M is a name
    rf"{_START}(?:\d[\d.,:]*)?\d(?={_UNIT})",
    rf"{_START}(?:\+|(?<!\.)\.)\d+{_END}",
    rf"{_START}(?:US?|HK|NZ|[ACRS])\$",
]
_PERIODS = [
    rf"{_START}(?:[A-Za-z]\.){{2,}}(?!{_A}|\.\.)|Ph\.D\.?{_END}",
    rf"{_START}[A-Z]\.(?!{_A}|\.)",
    # "No.5" and "St.George" lack a space; "Co.right" is something else.
    rf"{_START}(?:{TITLES}|{NUMBERED}|{ENDINGS})\.(?![a-z]|\.\.)",
]
_CLITICS = [
    f"{_START}{_CONTRACTED}",
    f"{_A}+?(?={_NOT})",
    _NOT,
    _CLITIC,
    rf"{_START}['`](?:\d\ds?|(?i:em|n|til|cause|bout|round|cuz)){_END}",
    f"{_START}['`][tT](?=(?i:is|was|were|will){_END})",
]
_WORDS = [
    rf"(?<![A-Za-z0-9-])(?i:{_PREFIXES})-{_A}+",
    rf"{_A}+-(?i:{_SUFFIXES}){_END}",
    rf"{_START}[A-Za-z]/(?:[A-Za-z]|out){_END}|{_START}[wW]/(?=[a-z])",
    rf"\d+(?:[.,:]\d+)+{_A}*",
    rf"{_A}*\d['`]s{_END}",
    # A period between words joins them, but not where a space is missing ("over.Then").
    rf"{_A}+(?:(?:(?!(?<=[a-z][a-z])\.[A-Z][a-z])\.|&|_+|(?!{_CLITIC}|(?<=\d)'\d)['`]){_A}+)*",
]
_PUNCTUATION = [
    rf"[.?!{ELLIPSIS}]{{2,}}|[-=]+>|<[-=]+|<<+|>>+|-{{2,}}|''|``|,,+|\*+|_+|=+|~+|\++|#+|\$+",
    # Emoji connected by joiners are displayed as one character.
    f"{SYMBOL}[{EXTEND}{JOINER}]*(?:(?<={JOINER}){SYMBOL}[{EXTEND}{JOINER}]*)*",
    f"(?s:.)[{EXTEND}{JOINER}]*",  # an ideograph, or a mark of punctuation
]
_RULES = _ADDRESSES + _EMOTICONS + _NUMBERS + _PERIODS + _CLITICS + _WORDS + _PUNCTUATION
_TOKEN = re.compile("|".join(_RULES))
_PLAIN_TOKEN = re.compile("|".join([f"{_A}+", *_PUNCTUATION]))
_CONTRACTED_WORD = re.compile(_CONTRACTED)
_DRAWING = re.compile(r"[-=*~_+<>|{}#^]{3,}")  # rules and ornaments: ----->  *~*~*  ^_^

_LONGEST_CHUNK = 1000  # for longer chunks, rules with lookahead would take quadratic time
_MAX_CACHED_LENGTH = 40
_MAX_CACHED_CHUNKS = 1 << 18


def _split_chunk(chunk: str, final: bool) -> tuple[str, ...]:
    """Split a chunk without whitespace; `final`: it is the last one of the sentence."""
    if chunk.isascii() and chunk.isalpha():
        first = _CONTRACTED_WORD.match(chunk)
        return (chunk[: first.end()], chunk[first.end() :]) if first else (chunk,)
    classes = ascii_classes(chunk)
    if _DRAWING.fullmatch(classes):
        return (chunk,)
    rules = _TOKEN if len(chunk) <= _LONGEST_CHUNK else _PLAIN_TOKEN
    spans = [match.span() for match in rules.finditer(classes)]
    if final:
        spans = _split_final_period(classes, spans)
    return tuple([chunk[start:end] for start, end in spans])


def _split_final_period(classes: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Split the final period of a sentence from an abbreviation."""
    last = len(spans) - 1
    while last > 0 and classes[slice(*spans[last])] in ("'", '"', "''"):
        last -= 1
    start, end = spans[last]
    if end - start < 2 or classes[end - 1] != "." or not classes[end - 2].isalnum():
        return spans
    return [*spans[:last], (start, end - 1), (end - 1, end), *spans[last + 1 :]]


class _ChunkCache(dict[str, tuple[str, ...]]):
    """A cache of the tokens of chunks, because most chunks of a text are repeated.

    A full cache is cleared, which is cheaper than tracking the order of use.
    """

    def __init__(self, final: bool) -> None:
        super().__init__()
        self._final = final

    def __missing__(self, chunk: str) -> tuple[str, ...]:
        pieces = _split_chunk(chunk, self._final)
        if len(chunk) <= _MAX_CACHED_LENGTH:
            if len(self) >= _MAX_CACHED_CHUNKS:
                self.clear()
            self[chunk] = pieces
        return pieces


_INNER = _ChunkCache(final=False)
_FINAL = _ChunkCache(final=True)
