"""A token index: the vectors of a text, kept on disk to be searched again and again.

    from elmokit.search.index import TokenIndex

    index = TokenIndex.open("index/")                              # made by `elmo index`
    found = index.neighbors(["He will [play] in the final ."], elmo, k=5)
    print(found[0])
    index.neighbors([found[0].lists["layer 2"][0].token])          # a token of the index itself

The search is exact: every token is compared, block by block, in memory that does not grow with the
index. `ann=True` asks faiss instead, where the index has been given one (`elmo index --ann`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from elmokit.embed.fingerprint import fingerprint
from elmokit.embed.model import ElmoModel
from elmokit.embed.spaces import Space, every_space
from elmokit.embed.vectors import FloatArray
from elmokit.errors import ConfigError, DataError
from elmokit.search.index_answers import Hit, IndexNeighbors
from elmokit.search.index_answers import Query as Query
from elmokit.search.index_answers import mark as mark
from elmokit.search.index_files import (
    Array,
    IndexMeta,
    columns,
    damaged,
    map_arrays,
    pairs_of,
    slug,
    used_layers,
)
from elmokit.search.neighbors import Rules
from elmokit.text.marked import Marked


class TokenIndex:
    """An index that is open: nothing of it is in memory before it is asked for.

    Any number of threads may search it at once.

    Args:
        folder: Where it lies.
        meta: What it holds.
        arrays: Its arrays, see `index_files`.
    """

    def __init__(self, folder: Path, meta: IndexMeta, arrays: dict[str, Array]) -> None:
        self.folder = folder
        self.meta = meta
        self.arrays = arrays
        self._checked: WeakSet[ElmoModel] = WeakSet()

    @classmethod
    def open(cls, folder: str | Path) -> TokenIndex:
        """Open an index; raise if it is none, or not whole."""
        folder = Path(folder)
        meta = IndexMeta.read(folder)
        rows = dict.fromkeys(("words", "spans", "products"), meta.tokens)
        rows |= dict.fromkeys(("ends", "places", "prints", "text_ends"), meta.sentences)
        rows["spelling_ends"] = meta.words
        for space in meta.spaces:
            n = meta.words if space.layer == 0 else meta.tokens
            rows |= {f"{part}-{slug(space.name)}": n for part in ("vectors", "scales")}
        names = columns(meta.spaces, meta.dim, meta.numbers)
        arrays = map_arrays(folder, names, rows)
        ends = ("ends", meta.tokens), ("spelling_ends", len(arrays["spellings"]))
        for name, end in (*ends, ("text_ends", len(arrays["text"]))):
            if arrays[name][-1] != end or (np.diff(arrays[name]) < 0).any():
                raise damaged(folder, f"{name}.npy does not rise to {end}")
        if arrays["places"][:, 0].max() >= len(meta.inputs):
            raise damaged(folder, f"places.npy names more files than the {len(meta.inputs)}")
        return cls(folder, meta, arrays)

    @property
    def tokens(self) -> int:
        """Tokens in the index."""
        return self.meta.tokens

    @property
    def sentences(self) -> int:
        """Sentences in the index."""
        return self.meta.sentences

    @property
    def n_bytes(self) -> int:
        """Its size on the disk."""
        return sum(file.stat().st_size for file in self.folder.iterdir())

    @property
    def spaces(self) -> list[Space]:
        """What is searched if nothing else is asked for: what is stored, and the average."""
        every = [space for space in every_space(self.meta.n_layers) if self._has(space)]
        names = {space.name for space in every}
        return every + [space for space in self.meta.spaces if space.name not in names]

    def info(self) -> dict[str, Any]:
        """Return what there is to say of it, in plain JSON values."""
        meta = self.meta
        return {
            "tokens": meta.tokens,
            "sentences": meta.sentences,
            "words": meta.words,
            "spaces": [space.name for space in self.spaces],
            "layers": list(meta.layers),
            "numbers": meta.numbers,
            "state": meta.state,
            "model": meta.model,
            "source": meta.source,
            "inputs": meta.inputs,
            "bytes": self.n_bytes,
            "ann": meta.ann,
        }

    def check(self, model: ElmoModel) -> None:
        """Raise if the vectors of the index are not those of this model; it is looked at once."""
        if model in self._checked:
            return
        found = fingerprint(model, self.meta.state)
        if found != self.meta.model:
            raise ConfigError(
                f"The index {self.folder} was made with another model: {self.meta.source}, "
                f"fingerprint {self.meta.model[:12]}; this one is {model.source or 'memory'}, "
                f"{found[:12]}. Name that model with --model, or make the index again."
            )
        self._checked.add(model)

    # ------------------------------------------------------------------------------- searching

    def neighbors(
        self,
        queries: Sequence[str | Marked | int],
        model: ElmoModel | None = None,
        *,
        k: int = 10,
        spaces: Sequence[Space] | None = None,
        rules: Rules | None = None,
        min_count: int = 1,
        ann: bool = False,
    ) -> list[IndexNeighbors]:
        """Find the nearest tokens of some queries; all share one pass over the vectors.

        Args:
            queries: Strings with a word in brackets, `Marked`, or numbers of tokens of the index,
                which are not listed themselves.
            model: The model the index was made with. Numbers do without.
            k: Neighbours per query and space.
            spaces: Where to look; None is `self.spaces`.
            rules: Which tokens may be neighbours.
            min_count: Only words that the index has at least so many times.
            ann: Ask the faiss index of each space.

        Returns:
            One result per query, in their order.
        """
        asked = [
            Query(self.token(q).at, token=int(q))
            if isinstance(q, int | np.integer)
            else Query(q if isinstance(q, Marked) else Marked.read(q))
            for q in queries
        ]
        marked = [q.at for q in asked if q.token is None]
        if marked and model is None:
            raise ConfigError("A word in a sentence needs the model that the index was made with.")
        if marked and model is not None:
            self.check(model)
            layers, _ = model.compute([m.tokens for m in marked], self.meta.state)
            found = iter([h[:, m.position] for m, h in zip(marked, layers, strict=True)])
            asked = [Query(q.at, next(found)) if q.token is None else q for q in asked]
        return self.search(asked, k=k, spaces=spaces, rules=rules, min_count=min_count, ann=ann)

    def search(
        self,
        queries: Sequence[Query],
        *,
        k: int = 10,
        spaces: Sequence[Space] | None = None,
        rules: Rules | None = None,
        min_count: int = 1,
        ann: bool = False,
    ) -> list[IndexNeighbors]:
        """Do as `neighbors`, with vectors that are there already."""
        from elmokit.search.index_search import search

        spaces = self.spaces if spaces is None else spaces
        found = search(self, queries, k, spaces, rules or Rules(), min_count, ann=ann)
        return [
            IndexNeighbors(
                query.at,
                {
                    space.name: tuple(
                        self.token(number, score)
                        for number, score in zip(
                            best.ids[row].tolist(), best.scores[row].tolist(), strict=True
                        )
                        if number >= 0
                    )
                    for space, best in zip(spaces, found, strict=True)
                },
                self.tokens,
                query.token,
            )
            for row, query in enumerate(queries)
        ]

    # ------------------------------------------------------------------------ tokens and words

    def token(self, number: int, score: float = 1.0) -> Hit:
        """Return a token of the index with all that is known of it."""
        if not 0 <= number < self.tokens:
            raise DataError(
                f"There is no token {number} in the index {self.folder}; they go from 0 to "
                f"{self.tokens - 1}."
            )
        arrays = self.arrays
        sentence = int(np.searchsorted(arrays["ends"], number, side="right"))
        first, last = _bounds(arrays["ends"], sentence)
        words = tuple(self.word(v) for v in arrays["words"][first:last].tolist())
        file, line, _, begins = arrays["places"][sentence].tolist()
        start, end = arrays["spans"][number].tolist()
        a, z = _bounds(arrays["text_ends"], sentence)
        name = self.meta.inputs[file]
        return Hit(
            score,
            Marked(words, number - first),
            f"{name}:{line}",
            token=number,
            sentence=sentence,
            text=arrays["text"][a:z].tobytes().decode("utf-8", "surrogatepass"),
            span=None if start < 0 else (start - begins, end - begins),
            file=name,
            line=line,
        )

    def word(self, number: int) -> str:
        """Return a word of the index."""
        a, z = _bounds(self.arrays["spelling_ends"], number)
        return bytes(self.arrays["spellings"][a:z]).decode("utf-8", "surrogatepass")

    def find(self, word: str, limit: int | None = None) -> list[int]:
        """Return the numbers of the tokens that are a word; case makes no other word."""
        folded = self.folded_number(word)
        if folded is None:
            return []
        found: list[int] = []
        for first in range(0, self.tokens, _BLOCK):
            block = self.folded[self.arrays["words"][first : first + _BLOCK]]
            found += (first + np.flatnonzero(block == folded)).tolist()
            if limit is not None and len(found) >= limit:
                break
        return found[:limit]

    def folded_number(self, word: str) -> int | None:
        """Return the number that a word shares with those that differ from it in case only."""
        return self._folded[1].get(word.casefold())

    @property
    def folded(self) -> NDArray[np.int64]:
        """For each word the number that it shares with those that differ in case only, (V,)."""
        return self._folded[0]

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """How many tokens each word is, counted over words that differ in case only, shape (V,)."""
        own = np.zeros(self.meta.words, dtype=np.int64)
        for first in range(0, self.tokens, _BLOCK):
            block = self.arrays["words"][first : first + _BLOCK]
            own += np.bincount(block, minlength=self.meta.words)
        together: NDArray[np.int64] = np.bincount(self.folded, weights=own).astype(np.int64)
        return together[self.folded]

    @cached_property
    def _folded(self) -> tuple[NDArray[np.int64], dict[str, int]]:
        numbers: dict[str, int] = {}
        text = self.arrays["spellings"].tobytes()
        ends = self.arrays["spelling_ends"].tolist()
        folded = np.empty(len(ends), dtype=np.int64)
        first = 0
        for v, end in enumerate(ends):
            word = text[first:end].decode("utf-8", "surrogatepass").casefold()
            folded[v] = numbers.setdefault(word, len(numbers))
            first = end
        return folded, numbers

    # ---------------------------------------------------------------------------------- vectors

    def parts_of(self, space: Space) -> list[tuple[Space, float]]:
        """Return the stored spaces that a space is made of, each with its weight.

        Raises:
            ConfigError: The index lacks one of them.
        """
        stored = {s.weights: s for s in self.meta.spaces}
        if space.weights in stored:
            return [(stored[space.weights], 1.0)]
        if not self._has(space):
            known = ", ".join(s.name for s in self.meta.spaces)
            raise ConfigError(
                f"The index {self.folder} cannot be searched in {space.name}: it holds {known}. "
                "Choose one of these, or make an index with the layers that are missing."
            )
        single = {s.layer: s for s in self.meta.spaces}
        return [(single[j], space.weights[j]) for j in used_layers(space)]

    def _has(self, space: Space) -> bool:
        stored = {s.weights for s in self.meta.spaces}
        used = used_layers(space)
        return space.weights in stored or (bool(used) and set(used) <= set(self.meta.layers))

    def lengths(
        self, space: Space, rows: slice | NDArray[np.int64]
    ) -> tuple[FloatArray, FloatArray]:
        """Return |h_j| of the layers of a mix, shape (n, J), and the length of the mix, (n,)."""
        pairs = pairs_of(self.meta.layers)
        products: FloatArray = np.asarray(self.arrays["products"][rows])
        own = [pairs.index((j, j)) for j in used_layers(space)]
        weights = [space.weights[i] * space.weights[j] * (1.0 if i == j else 2.0) for i, j in pairs]
        squares = products @ np.array(weights, dtype=np.float32)
        mixed: FloatArray = np.sqrt(np.maximum(squares, 0))
        mixed[mixed == 0] = 1
        layers: FloatArray = np.sqrt(products[:, own])
        return layers, mixed

    def __repr__(self) -> str:
        names = ", ".join(space.name for space in self.spaces)
        return f"<TokenIndex {self.tokens:,} tokens: {names} ({self.meta.numbers})>"

    def _repr_html_(self) -> str:
        """Show a card in a notebook."""
        from elmokit import html

        meta = self.meta
        files = ", ".join(meta.inputs[:3]) + (" …" if len(meta.inputs) > 3 else "")
        rows = [
            ("tokens", f"{meta.tokens:,} of {meta.words:,} words in {meta.sentences:,} sentences"),
            ("text", files),
            ("search in", ", ".join(space.name for space in self.spaces)),
            ("on disk", f"{self.n_bytes / 1e6:,.1f} MB, {meta.numbers}"),
            ("model", f"{meta.source} ({meta.model[:12]}), state {meta.state}"),
        ]
        for name, about in meta.ann.items():
            rows.append((f"faiss, {name}", f"{about['kind']}, recall {about['recall_at_10']:.3f}"))
        return html.card(f"TokenIndex {self.folder.name}", rows)


_BLOCK = 1 << 20


def _bounds(ends: Array, number: int) -> tuple[int, int]:
    return (int(ends[number - 1]) if number else 0), int(ends[number])
