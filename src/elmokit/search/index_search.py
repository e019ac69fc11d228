"""The search of a token index: which tokens may be neighbours, and how near they are.

A mix of layers needs no vectors of its own. With u_j the stored vectors of length 1, its cosine to
a query q is sum_j s_j |h_j| (q . u_j) / |mix|, and |mix|^2 = sum_ij s_i s_j h_i . h_j, whose
products the index keeps. Layer 0 is the same for all tokens of a word: it is compared once for
each word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit.embed.spaces import Space, unit
from elmokit.embed.topk import TopK
from elmokit.embed.vectors import FloatArray
from elmokit.errors import ConfigError
from elmokit.search.index_files import Array, slug
from elmokit.search.neighbors import Rules, sentence_print

if TYPE_CHECKING:
    from elmokit.search.index import Query, TokenIndex

# Tokens that are compared at once: a block of float32 vectors that stays near the processor.
_BLOCK = 8192
_FEW = 0.25
Ids = NDArray[np.int64]


def search(
    index: TokenIndex,
    queries: Sequence[Query],
    k: int,
    spaces: Sequence[Space],
    rules: Rules,
    min_count: int = 1,
    *,
    ann: bool = False,
) -> list[TopK]:
    """Return the k best tokens of each query, for each space."""
    if not queries:
        raise ConfigError("There is no query. Give at least one sentence with a [word] in it.")
    if min_count < 1:
        raise ConfigError(f"min_count should be 1 or more, found {min_count}.")
    allowed = Allowed(index, queries, rules, min_count)
    vectors = [query_vectors(index, queries, space) for space in spaces]
    if ann:
        from elmokit.search.index_ann import search_ann

        pairs = zip(spaces, vectors, strict=True)
        return [search_ann(index, space, own, allowed, k) for space, own in pairs]
    scorer = Scorer(index, spaces, vectors)
    found = [TopK(k, len(queries)) for _ in spaces]
    for first in range(0, index.tokens, _BLOCK):
        ids = np.arange(first, min(first + _BLOCK, index.tokens))
        rows: slice | Ids = slice(first, first + len(ids))
        refused = allowed.refused(ids)
        asked = ~refused.all(axis=0)
        if not asked.any():
            continue
        if asked.mean() < _FEW:  # the others need not be read
            rows = ids = ids[asked]
            refused = refused[:, asked]
        groups = allowed.groups(ids)
        for scores, best in zip(scorer.scores(rows), found, strict=True):
            scores[refused] = -np.inf
            best.add(scores, ids, groups)
    return found


def query_vectors(index: TokenIndex, queries: Sequence[Query], space: Space) -> FloatArray:
    """Return one vector of length 1 per query, shape (Q, D)."""
    found = []
    for query in queries:
        if query.token is not None:
            found.append(vectors_of(index, space, np.array([query.token]))[0])
            continue
        if query.layers is None or query.layers.shape != (index.meta.n_layers, index.meta.dim):
            shape = None if query.layers is None else query.layers.shape
            raise ConfigError(
                f"A query of this index needs vectors of shape "
                f"{(index.meta.n_layers, index.meta.dim)}, found {shape}. Is it of another model?"
            )
        found.append(space.of(query.layers[:, None])[0])
    return unit(np.stack(found).astype(np.float32))


def vectors_of(index: TokenIndex, space: Space, ids: Ids) -> FloatArray:
    """Return the vectors of tokens in a space, of length 1, shape (n, D)."""
    parts = index.parts_of(space)
    own = [_stored(index, part, ids) for part, _ in parts]
    if len(parts) == 1:
        return unit(own[0])
    lengths, _ = index.lengths(space, ids)
    weighted = [s * lengths[:, [j]] * own[j] for j, (_, s) in enumerate(parts)]
    return unit(np.sum(weighted, axis=0, dtype=np.float32))


def _stored(index: TokenIndex, part: Space, ids: Ids) -> FloatArray:
    name = slug(part.name)
    rows = index.arrays["words"][ids] if part.layer == 0 else ids
    vectors: FloatArray = index.arrays[f"vectors-{name}"][rows].astype(np.float32)
    return vectors * index.arrays[f"scales-{name}"][rows][:, None]


class Scorer:
    """The cosines of tokens with some queries, in some spaces; each vector is read once for all.

    Args:
        index: The index.
        spaces: The spaces.
        queries: For each of them vectors of length 1, shape (Q, D).
    """

    def __init__(
        self, index: TokenIndex, spaces: Sequence[Space], queries: Sequence[FloatArray]
    ) -> None:
        self.index = index
        self.spaces = spaces
        self.queries = queries
        self.parts = [index.parts_of(space) for space in spaces]
        self._stored: dict[str, Space] = {}
        stacked: dict[str, list[FloatArray]] = {}
        for parts, own in zip(self.parts, queries, strict=True):
            for part, _ in parts:
                self._stored[part.name] = part
                stacked.setdefault(part.name, []).append(own)
        self._stacked = {n: torch.from_numpy(np.concatenate(q)) for n, q in stacked.items()}
        self._by_word = {
            name: self._all_words(name) for name, p in self._stored.items() if p.layer == 0
        }

    def scores(self, rows: slice | Ids) -> list[FloatArray]:
        """Return the cosines of some tokens, shape (Q, n), for each space."""
        products = {name: iter(self._of_queries(name, rows)) for name in self._stored}
        found: list[FloatArray] = []
        for space, parts in zip(self.spaces, self.parts, strict=True):
            own = [next(products[part.name]) for part, _ in parts]
            if len(parts) > 1:
                lengths, mixed = self.index.lengths(space, rows)
                for j, (_, s) in enumerate(parts):
                    own[j] = own[j] * (np.float32(s) * lengths[:, j] / mixed)
            found.append(sum(own[1:], own[0]))
        return found

    def _of_queries(self, name: str, rows: slice | Ids) -> list[FloatArray]:
        """Return the products with one stored part, for each space that has it."""
        if name in self._by_word:
            products: FloatArray = self._by_word[name][:, self.index.arrays["words"][rows]]
        else:
            products = self._products(name, rows)
        return np.split(products, len(products) // len(self.queries[0]))

    def _products(self, name: str, rows: slice | Ids) -> FloatArray:
        arrays = self.index.arrays
        block: Array = arrays[f"vectors-{slug(name)}"][rows]
        products = self._stacked[name] @ torch.from_numpy(block).float().T
        found: FloatArray = products.numpy() * arrays[f"scales-{slug(name)}"][rows]
        return found

    def _all_words(self, name: str) -> FloatArray:
        firsts = range(0, self.index.meta.words, _BLOCK)
        blocks = [self._products(name, slice(first, first + _BLOCK)) for first in firsts]
        found: FloatArray = np.concatenate(blocks, axis=1)
        return found


class Allowed:
    """Which tokens may be neighbours of which query, and which of them count as one."""

    def __init__(
        self, index: TokenIndex, queries: Sequence[Query], rules: Rules, min_count: int
    ) -> None:
        self.index = index
        self.rules = rules
        self.own = np.array([-1 if q.token is None else q.token for q in queries])
        known = [index.folded_number(q.at.word) for q in queries]
        self.words = np.array([-1 if number is None else number for number in known])
        self.prints = np.array([sentence_print(q.at.tokens) for q in queries])
        self.frequent = index.counts >= min_count if min_count > 1 else None

    @property
    def everything(self) -> bool:
        """Whether all tokens may be neighbours, but for queries that are tokens themselves."""
        rules = self.rules
        return rules.words == "any" and not rules.other_sentences and self.frequent is None

    def refused(self, ids: Ids, queries: slice = slice(None)) -> NDArray[np.bool_]:
        """Tell which tokens may not be neighbours of some of the queries, shape (Q, n)."""
        arrays, rules = self.index.arrays, self.rules
        refused: NDArray[np.bool_] = ids == self.own[queries, None]
        if self.everything:
            return refused
        words = arrays["words"][ids]
        if rules.words != "any":
            same = self.index.folded[words] == self.words[queries, None]
            refused |= same if rules.words == "other" else ~same
        if rules.other_sentences:
            refused |= arrays["prints"][self._sentences(ids)[0]] == self.prints[queries, None]
        if self.frequent is not None:
            refused |= ~self.frequent[words]
        return refused

    def groups(self, ids: Ids) -> Ids:
        """Return a number that tokens share if only one of them is to be listed, shape (n,)."""
        if self.rules.distinct == "token":
            return ids
        if self.rules.distinct == "word":
            return self.index.folded[self.index.arrays["words"][ids]]
        sentences, positions = self._sentences(ids)
        groups: Ids = self.index.arrays["prints"][sentences] + positions
        return groups

    def _sentences(self, ids: Ids) -> tuple[Ids, Ids]:
        """Return the sentence of each token, and its place in it."""
        ends = self.index.arrays["ends"]
        sentences = np.searchsorted(ends, ids, side="right")
        starts = np.where(sentences > 0, ends[np.maximum(sentences - 1, 0)], 0)
        return sentences, ids - starts
