"""What a benchmark reads: a text file, the example text of the repository, or made-up words.

Natural text matters: how often words come back decides what a cache of words is worth, and the
spread of sentence lengths what a batch costs. Made-up text only imitates both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice
from pathlib import Path

import numpy as np

from elmokit.errors import DataError
from elmokit.text.lines import read_lines
from elmokit.text.sentences import split_sentences
from elmokit.text.tokenize import words

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "corpus.txt"

# English-like: distinct words of 20,000 tokens, letters of a word, tokens of a sentence.
_WORDS, _EXPONENT, _SHIFT = 60_000, 1.05, 2.7
_SENTENCE_TOKENS, _SENTENCE_SPREAD = 20.0, 0.6


@dataclass(frozen=True)
class BenchText:
    """Sentences in their natural order.

    Attributes:
        name: Where they come from, for the report.
        sentences: Lists of tokens, none empty.
        digest: SHA-256 of the tokens, the same wherever the file lies.
    """

    name: str
    sentences: list[list[str]]
    digest: str

    @property
    def n_tokens(self) -> int:
        """Tokens in all sentences."""
        return sum(map(len, self.sentences))

    def describe(self) -> dict[str, object]:
        """Return what a report should say of the text."""
        return {
            "name": self.name,
            "sentences": len(self.sentences),
            "tokens": self.n_tokens,
            "distinct_tokens": len({token for row in self.sentences for token in row}),
            "tokens_per_sentence": round(self.n_tokens / len(self.sentences), 1),
            "sha256": self.digest,
        }


def read_text(path: Path | None, tokens: int) -> BenchText:
    """Read about `tokens` tokens; fewer if the file has no more.

    Args:
        path: A text file, a paragraph per line. None: the example text if it is there, else made-up
            text.
        tokens: How many are needed.
    """
    if path is None:
        name = "examples/corpus.txt" if EXAMPLE.is_file() else "made-up words"
    else:
        name = path.name
    found = _text(name, list(_first(_once(path), tokens)))
    if not found.sentences:
        raise DataError(f"{path} holds no sentence, so there is nothing to measure.")
    return found


def running(path: Path | None, tokens: int) -> Iterator[list[str]]:
    """Yield sentences until `tokens` tokens are read, as they are read; a short text repeats."""
    endless = chain.from_iterable(_once(path) for _ in count())
    return _first(endless, tokens)


class Supply:
    """Hands out a text piece by piece, each piece new, from the beginning again when it ends."""

    def __init__(self, sentences: Sequence[list[str]]) -> None:
        self._sentences = sentences
        self._next = 0
        self.rewound = 0

    def take(self, tokens: int, *, batch: int = 1) -> list[list[str]]:
        """Return the next whole batches that hold at least `tokens` tokens."""
        piece: list[list[str]] = []
        held = 0
        while held < tokens or len(piece) % batch:
            if self._next == len(self._sentences):
                self._next, self.rewound = 0, self.rewound + 1
            piece.append(self._sentences[self._next])
            held += len(piece[-1])
            self._next += 1
        return piece


def sentence_of(sentences: Iterable[Sequence[str]], length: int) -> list[str]:
    """Return one sentence of `length` tokens: running text, cut where it is long enough."""
    tokens = [token for row in sentences for token in row]
    return (tokens * (length // len(tokens) + 1))[:length]


def _text(name: str, sentences: list[list[str]]) -> BenchText:
    joined = "\n".join("\t".join(row) for row in sentences)
    return BenchText(name, sentences, hashlib.sha256(joined.encode("utf-8", "replace")).hexdigest())


def _once(path: Path | None) -> Iterator[list[str]]:
    if path is None and not EXAMPLE.is_file():
        return _made_up()
    return _sentences(path or EXAMPLE)


def _first(sentences: Iterable[list[str]], tokens: int) -> Iterator[list[str]]:
    held = 0
    for row in sentences:
        yield row
        held += len(row)
        if held >= tokens:
            return


def _sentences(path: Path) -> Iterator[list[str]]:
    for line in read_lines([path]):
        for start, end in split_sentences(line.text):
            if row := words(line.text[start:end]):
                yield row


def _made_up() -> Iterator[list[str]]:
    """Words by Zipf's law, without end and always the same."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.normal(8.0, 3.0, _WORDS).round(), 1, 30).astype(int)
    letters = rng.integers(97, 123, (_WORDS, 30), dtype=np.uint8)
    vocabulary = [letters[i, :n].tobytes().decode() for i, n in enumerate(lengths)]
    p = (np.arange(_WORDS) + _SHIFT) ** -_EXPONENT
    p /= p.sum()
    while True:
        drawn = iter(rng.choice(_WORDS, 50_000, p=p).tolist())
        sizes = np.exp(rng.normal(np.log(_SENTENCE_TOKENS), _SENTENCE_SPREAD, 3_000))
        for size in np.clip(sizes, 2, 120).astype(int).tolist():
            if row := [vocabulary[i] for i in islice(drawn, size)]:
                yield row
