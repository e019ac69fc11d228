r"""Tokenize sentences following the conventions of the Penn Treebank and UD English EWT.

Characters are not changed, and only whitespace is removed. Each token has character offsets, and
`sentence[token.start : token.end] == token.text`. The rules, in order of priority:

1. The sentence is split at whitespace into chunks. Chunks are tokenized independently, except for
   the final period of a sentence.
2. Addresses (URLs, e-mail addresses, host and file names, @user, #tag) and emoticons are not split.
3. Numbers can contain punctuation: 1,000.50, 7:30, 11/28/2000, 713-853-3989. Ranges and fractions
   are split (5 - 10, 1 / 2), and so are units, currencies and percentages (7:30 PM, $ 5, 100 %).
4. Abbreviations include their period (Mr., U.S., e.g., J.), except at the end of a sentence, where
   the period is a separate token, as in EWT ("at 5 p.m .").
5. English clitics are split off (do n't, it 's, I 'll), and contractions are split (can not, gon
   na). Other apostrophes within a word are kept (O'Neill, l'homme, 60's). At the beginning or end
   of a word, apostrophes are treated as quotes.
6. Words are split at hyphens (well - known), except after some prefixes (non-human, e-mail).
7. The characters . & _ within a word are kept (p.m, Node.js, AT&T).
8. Repeated punctuation marks are a single token (... !!! -- ***). Other marks are separate tokens.

Text in other scripts is split at whitespace and punctuation. Han, kana and bopomofo characters are
single tokens, because the words of these scripts are not separated by spaces. Thai, Lao and Khmer
text is not split. Control characters, zero-width spaces and byte order marks are single tokens.
Other invisible characters are part of the word. Very long chunks are split only at punctuation, so
tokenization takes linear time for any input.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from elmokit.text.abbreviations import ENDINGS, NUMBERED, TITLES
from elmokit.text.ascii_classes import ELLIPSIS, EXTEND, JOINER, SYMBOL, ascii_classes


class Token(NamedTuple):
    """A token with its character offsets: `text == sentence[start:end]`."""

    text: str
    start: int
    end: int


def words(sentence: str) -> list[str]:
    """Return the tokens of a sentence without offsets. This is faster than `tokenize`."""
    chunks = sentence.split()
    if not chunks:
        return []
    last = chunks.pop()
    # dict.__getitem__ calls __missing__ for new chunks, so no Python loop is needed.
    tokens = list(chain.from_iterable(map(_CACHE.__getitem__, chunks)))
    tokens += _FINAL_CACHE[last]
    return tokens


def tokenize(sentence: str) -> list[Token]:
    """Split a sentence into tokens with offsets.

    Args:
        sentence: A single sentence. Only a period at the end is treated as the end of a sentence.

    Returns:
        The tokens. Together, they contain every non-whitespace character of the sentence.
    """
    tokens = words(sentence)
    starts = token_starts(sentence, tokens)
    return [Token(text, i, i + len(text)) for i, text in zip(starts, tokens, strict=True)]


def token_starts(sentence: str, tokens: Sequence[str]) -> list[int]:
    """Return the start of each token in a sentence, given the result of `words`."""
    starts = []
    position = 0
    for token in tokens:
        # `index` cannot find a later occurrence, because there is only whitespace between tokens.
        start = sentence.index(token, position)
        starts.append(start)
        position = start + len(token)
    return starts


# --- word lists ----------------------------------------------------------------------------------

# The first part of contractions. Contractions that are also other words ("wont", "cant", "its",
# French "dont", German "im") are not split.
_CONTRACTED = (
    "(?i:can(?=not~)|(?:gon|wan)(?=na~)|(?:got|out)(?=ta~)|(?:lem|gim)(?=me~)|"
    "(?:did|does|could|would|should|is|are|was|were|has|have|had|ai)(?=nt~)|"
    "(?:that|what|there)(?=s~)|(?:you|they)(?=re~)|(?:you|we|they)(?=ve~))"
).replace("~", r"(?![A-Za-z0-9'`])")

# Prefixes and suffixes that are not split off, following the treebank guidelines of the LDC.
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

_A = f"[A-Za-z0-9{EXTEND}{JOINER}]"  # a letter or digit
_START = f"(?<!{_A})"
_END = f"(?!{_A})"
_CLITIC = f"(?:['`](?:s|m|d|re|ve|ll)|(?<={_A})['`](?:S|M|D|RE|VE|LL)){_END}"
_NOT = f"(?:n['`]t|N['`]T){_END}"
_UNIT = f"(?:{_UNITS}){_END}"
_PATH_END = r"""(?:[^\s<>"'.,;:!?()\[\]{}]|\([^\s<>()]*\))"""  # the end of a URL is not punctuation
_NAME = f"(?i:{_DOMAINS}|{_EXTENSIONS}){_END}"

# Matching takes linear time, because lookbehinds prevent matches that start within a word.
_ADDRESSES = [
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
    rf"(?:0?[1-9]|1[0-2])/\d\d{_END}|1[0-2]/\d{_END}",  # 9/11 is a date, but 3/4 is not
    rf"(?<=\$)[\d.,]*\d(?=[MBTbt]{_END}|{_UNIT})",  # $3M is split, but 3M is a company
    rf"{_START}(?:\d[\d.,:]*)?\d(?={_UNIT})",
    rf"{_START}(?:\+|(?<!\.)\.)\d+{_END}",
    rf"{_START}(?:US?|HK|NZ|[ACRS])\$",
]
_PERIODS = [
    rf"{_START}(?:[A-Za-z]\.){{2,}}(?!{_A}|\.\.)|Ph\.D\.?{_END}",
    rf"{_START}[A-Z]\.(?!{_A}|\.)",
    # "No.5" and "St.George" are split, although the space is missing. "Co.right" is not.
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
    # Words with periods are not split ("Node.js"), unless a space is missing ("over.Then").
    rf"{_A}+(?:(?:(?!(?<=[a-z][a-z])\.[A-Z][a-z])\.|&|_+|(?!{_CLITIC}|(?<=\d)'\d)['`]){_A}+)*",
]
_PUNCTUATION = [
    rf"[.?!{ELLIPSIS}]{{2,}}|[-=]+>|<[-=]+|<<+|>>+|-{{2,}}|''|``|,,+|\*+|_+|=+|~+|\++|#+|\$+",
    # Emoji connected by joiners are displayed as one character.
    f"{SYMBOL}[{EXTEND}{JOINER}]*(?:(?<={JOINER}){SYMBOL}[{EXTEND}{JOINER}]*)*",
    f"(?s:.)[{EXTEND}{JOINER}]*",  # an ideograph or a punctuation mark
]
_RULES = _ADDRESSES + _EMOTICONS + _NUMBERS + _PERIODS + _CLITICS + _WORDS + _PUNCTUATION
_TOKEN = re.compile("|".join(_RULES))
_PLAIN_TOKEN = re.compile("|".join([f"{_A}+", *_PUNCTUATION]))
_CONTRACTED_WORD = re.compile(_CONTRACTED)
_DRAWING = re.compile(r"[-=*~_+<>|{}#^]{3,}")  # lines and decorations: ----->  *~*~*  ^_^

# Longer chunks are split only at punctuation, because some rules take quadratic time.
_MAX_CHUNK_LENGTH = 1000
_MAX_CACHED_LENGTH = 40
_MAX_CACHED_CHUNKS = 1 << 18


def _split_chunk(chunk: str, is_final: bool) -> tuple[str, ...]:
    """Split a chunk into tokens.

    Args:
        chunk: A text without whitespace.
        is_final: Whether it is the last chunk of the sentence.
    """
    if chunk.isascii() and chunk.isalpha():
        first = _CONTRACTED_WORD.match(chunk)
        return (chunk[: first.end()], chunk[first.end() :]) if first else (chunk,)
    classes = ascii_classes(chunk)
    if _DRAWING.fullmatch(classes):
        return (chunk,)
    rules = _TOKEN if len(chunk) <= _MAX_CHUNK_LENGTH else _PLAIN_TOKEN
    spans = [match.span() for match in rules.finditer(classes)]
    if is_final:
        spans = _split_final_period(classes, spans)
    return tuple([chunk[start:end] for start, end in spans])


def _split_final_period(classes: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Split off the final period of a sentence that ends with an abbreviation."""
    last = len(spans) - 1
    while last > 0 and classes[slice(*spans[last])] in ("'", '"', "''"):
        last -= 1
    start, end = spans[last]
    if end - start < 2 or classes[end - 1] != "." or not classes[end - 2].isalnum():
        return spans
    return [*spans[:last], (start, end - 1), (end - 1, end), *spans[last + 1 :]]


class _ChunkCache(dict[str, tuple[str, ...]]):
    """A cache for the tokens of chunks. Most chunks of a text occur many times.

    The cache is cleared when it is full. An LRU cache would be slower.
    """

    def __init__(self, is_final: bool) -> None:
        super().__init__()
        self._is_final = is_final

    def __missing__(self, chunk: str) -> tuple[str, ...]:
        tokens = _split_chunk(chunk, self._is_final)
        if len(chunk) <= _MAX_CACHED_LENGTH:
            if len(self) >= _MAX_CACHED_CHUNKS:
                self.clear()
            self[chunk] = tokens
        return tokens


_CACHE = _ChunkCache(is_final=False)
_FINAL_CACHE = _ChunkCache(is_final=True)
