"""Generate reproducible synthetic text for benchmarks.

Word frequencies and lengths are similar to those of English. Frequencies follow Zipf's law, with
about 9,000 distinct words in 41,000 tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

_N_DISTINCT, _N_TOKENS = 9000, 2 * 1024 * 20


def draw_ids(n_words: int, n_tokens: int) -> NDArray[np.int64]:
    """Draw ids from 0 to `n_words` - 1. Smaller ids are more frequent."""
    ranks = np.arange(1, n_words + 1)
    low, high = 0.5, 2.0
    # Find the exponent by bisection. Larger exponents result in fewer distinct words.
    for _ in range(30):
        exponent = (low + high) / 2
        p = (ranks + 2.7) ** -exponent
        p /= p.sum()
        distinct = -np.expm1(_N_TOKENS * np.log1p(-p)).sum()
        low, high = (exponent, high) if distinct > _N_DISTINCT else (low, exponent)
    return np.random.default_rng(0).choice(n_words, n_tokens, p=p)


def make_words(n: int) -> list[str]:
    """Return `n` words of random letters."""
    rng = np.random.default_rng(1)
    lengths = np.clip(rng.normal(8.0, 3.0, n).round(), 1, 30).astype(int)
    letters = rng.integers(97, 123, (n, 30), dtype=np.uint8)
    return [letters[i, :size].tobytes().decode() for i, size in enumerate(lengths)]


def make_sentences() -> Iterator[list[str]]:
    """Yield half a million tokens, in sentences of about 20 tokens."""
    vocabulary = make_words(60_000)
    tokens = [vocabulary[i] for i in draw_ids(len(vocabulary), 500_000)]
    sizes = np.exp(np.random.default_rng(2).normal(np.log(20.0), 0.6, 40_000))
    ends = np.cumsum(np.clip(sizes, 2, 120).astype(int))
    yield from (tokens[a:b] for a, b in pairwise(ends) if a < len(tokens))
