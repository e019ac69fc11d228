"""A token index: the vectors of a text, stored on disk for repeated searches.

    from elmokit.search.index import TokenIndex

    index = TokenIndex.open("index/")                              # built by `elmo index`
    results = index.neighbors(["He will [play] in the final ."], elmo, k=5)
    print(results[0])
    index.neighbors([results[0].by_layer["layer 2"][0].token_id])  # query by token ID

The search is exact by default: every token is compared, and memory usage does not grow with the
number of tokens. `ann=True` uses an approximate index instead, which `elmo index --ann` adds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.dlpack import from_dlpack

from elmokit.embed.fingerprint import fingerprint
from elmokit.embed.layer_choice import ALL_AND_AVERAGE, LayerChoice, Layers
from elmokit.embed.model import ElmoModel
from elmokit.embed.topk import TopK
from elmokit.embed.vectors import FloatArray, normalize
from elmokit.errors import ConfigError, DataError
from elmokit.progress import plural
from elmokit.search.files import IndexMeta, column_name, database_errors, open_tables
from elmokit.search.neighbors import (
    ExactSearch,
    Ids,
    Neighbor,
    NeighborFilter,
    Neighbors,
    Query,
    SearchRequest,
    Tokens,
    collect_ids,
    list_neighbors,
    query_tokens,
)
from elmokit.text.marked import MarkedWord

# Number of rows per batch. The vectors of a batch fit into the CPU cache.
_BATCH_ROWS = 4096


class TokenIndex:
    """An open index. Several threads can search it simultaneously.

    Args:
        folder: The directory of the index.
        meta: The manifest.
        tables: The open tables, by name.
    """

    def __init__(self, folder: Path, meta: IndexMeta, tables: dict[str, Any]) -> None:
        self.folder = folder
        self.meta = meta
        self.tables = tables
        self._checked: WeakSet[ElmoModel] = WeakSet()

    @classmethod
    def open(cls, folder: str | Path) -> TokenIndex:
        """Open an index.

        Raises:
            DataError: The directory is not an index, or the index is damaged.
        """
        folder = Path(folder)
        meta = IndexMeta.read(folder)
        return cls(folder, meta, open_tables(folder, meta))

    @property
    def n_tokens(self) -> int:
        """Number of tokens."""
        return self.meta.tokens

    @property
    def n_sentences(self) -> int:
        """Number of sentences."""
        return self.meta.sentences

    @property
    def default_choices(self) -> list[LayerChoice]:
        """The layers to search by default: the stored layers, and the average if possible."""
        has_all = len(self.meta.layers) == self.meta.n_layers
        choices = [*(ALL_AND_AVERAGE if has_all else ()), *self.meta.choices]
        return LayerChoice.parse_all(choices, self.meta.n_layers)

    def parse_layers(self, layer: Layers, mix: Sequence[float] | None = None) -> list[LayerChoice]:
        """Parse layer choices for the model of the index."""
        return LayerChoice.parse_all(layer, self.meta.n_layers, mix)

    def check_model(self, model: ElmoModel) -> None:
        """Raise an error if the index was built with another model."""
        if model in self._checked:
            return
        digest = fingerprint(model, self.meta.state)
        if digest != self.meta.model:
            raise ConfigError(
                f"The index {self.folder} was built with a different model: {self.meta.source}, "
                f"fingerprint {self.meta.model[:12]}; got "
                f"{model.source or 'an in-memory model'}, fingerprint {digest[:12]}. Specify the "
                "model of the index with --model, or rebuild the index."
            )
        self._checked.add(model)

    # ---------------------------------------------------------------------------------- search

    def neighbors(
        self,
        queries: Sequence[str | MarkedWord | int],
        model: ElmoModel | None = None,
        *,
        k: int = 10,
        layer: Layers | None = None,
        mix: Sequence[float] | None = None,
        filter: NeighborFilter | None = None,
        min_count: int = 1,
        ann: bool = False,
    ) -> list[Neighbors]:
        """Find the tokens nearest to each query, for all queries in one pass over the vectors.

        Args:
            queries: Strings with a word in brackets, `MarkedWord` objects, or IDs of tokens in the
                index. A token is never its own neighbor.
            model: The model that the index was built with. Not needed for token IDs.
            k: Neighbors per query and layer.
            layer: The layers to search, as in `LayerChoice.parse_all`. Default:
                `default_choices`.
            mix: With layer "mix", the weights s, one per layer.
            filter: Which tokens may be neighbors.
            min_count: Return only tokens whose word occurs at least this often in the index.
            ann: Use the approximate index of each layer.

        Returns:
            One result per query, in the same order.
        """
        parsed = [
            Query(self.token(q).marked, token_id=int(q))
            if isinstance(q, int | np.integer)
            else Query(q if isinstance(q, MarkedWord) else MarkedWord.parse(q))
            for q in queries
        ]
        marked = [q.marked for q in parsed if q.token_id is None]
        if marked:
            if model is None:
                raise ConfigError(
                    "Queries other than token IDs require the model that the index was built with. "
                    "Pass it as the `model` argument."
                )
            self.check_model(model)
            layers = model.compute([m.tokens for m in marked], self.meta.state)
            vectors = iter([h[:, m.position] for m, h in zip(marked, layers, strict=True)])
            parsed = [Query(q.marked, next(vectors)) if q.token_id is None else q for q in parsed]
        choices = None if layer is None else self.parse_layers(layer, mix)
        return self.search(parsed, choices, k=k, filter=filter, min_count=min_count, ann=ann)

    def search(
        self,
        queries: Sequence[Query],
        choices: Sequence[LayerChoice] | None = None,
        *,
        k: int = 10,
        filter: NeighborFilter | None = None,
        min_count: int = 1,
        ann: bool = False,
    ) -> list[Neighbors]:
        """Find the tokens nearest to each query. The vectors of the queries are already known."""
        if min_count < 1:
            raise ConfigError(f"Invalid min_count {min_count}: expected an integer of at least 1.")
        choices = self.default_choices if choices is None else choices
        with database_errors(self.folder):  # values in the tables may be invalid
            query_tokens = self.query_tokens(queries, choices)
            request = SearchRequest(query_tokens, choices, k, filter or NeighborFilter(), min_count)
            if ann:
                from elmokit.search.approximate import search_approximately

                best = search_approximately(self, request)
            else:
                best = self.search_exactly(request)
            ids = collect_ids(best)
            tokens_by_id = dict(zip(ids, self.read_tokens(ids), strict=True))
            return list_neighbors(queries, choices, best, tokens_by_id, self.n_tokens)

    def search_exactly(self, request: SearchRequest) -> list[TopK]:
        """For each layer, return the k tokens nearest to each query."""
        same_word = request.filter.words == "same"
        condition = self.same_word_filter(request.queries.words) if same_word else None
        return self.compare(self._scan("tokens", self.columns(request.choices), condition), request)

    def compare(self, batches: Iterable[Any], request: SearchRequest) -> list[TopK]:
        """Like `search_exactly`, but search only the given batches of the token table."""
        search = ExactSearch(request)
        for batch in batches:
            if request.min_count > 1:
                batch = batch.filter(self.counts[_integers(batch, "word")] >= request.min_count)
            search.add(
                Tokens(
                    ids=_integers(batch, "token"),
                    words=self._word_ids[_integers(batch, "word")],
                    sentences=_integers(batch, "sentence_hash"),
                    positions=_integers(batch, "position"),
                    vectors=self.chosen_vectors(batch, request.choices),
                )
            )
        return search.best

    def query_tokens(self, queries: Sequence[Query], choices: Sequence[LayerChoice]) -> Tokens:
        """Return queries as `Tokens`."""

        def vector(query: Query, choice: LayerChoice) -> FloatArray:
            if query.token_id is None:
                return query.vector(choice)
            row: FloatArray = self.vectors(choice, [query.token_id])[0]
            return row

        words = np.array([self._word_id(query.marked.word) for query in queries])
        return query_tokens(queries, choices, words, vector)

    def same_word_filter(self, word_ids: Ids) -> str:
        """Return an SQL filter that matches all spellings of the given words."""
        spellings = np.flatnonzero(np.isin(self._word_ids, word_ids))
        return f"word IN ({', '.join(map(str, spellings))})" if len(spellings) else "false"

    def columns(self, choices: Sequence[LayerChoice]) -> list[str]:
        """Return the columns of the token table that a search reads."""
        parts = {part.label: part for choice in choices for part in self._parts(choice)}
        vectors = [column_name(part) for part in parts.values() if part.number != 0]
        return ["token", "word", "sentence_hash", "position", *vectors]

    def _scan(self, table: str, columns: list[str], condition: str | None = None) -> Iterator[Any]:
        """Yield the rows of a table in batches, optionally only rows that match an SQL filter."""
        with database_errors(self.folder):
            scanner = self.tables[table].scanner(
                columns=columns, filter=condition, batch_size=_BATCH_ROWS
            )
            yield from scanner.to_batches()

    # ------------------------------------------------------------------------ tokens and words

    def token(self, token_id: int) -> Neighbor:
        """Return one token of the index, with its sentence."""
        return self.read_tokens([token_id])[0]

    def read_tokens(self, token_ids: Sequence[int]) -> list[Neighbor]:
        """Return tokens of the index, with their sentences."""
        for token_id in token_ids:
            if not 0 <= token_id < self.n_tokens:
                raise DataError(
                    f"Invalid token ID {token_id}: expected 0 to {self.n_tokens - 1}, because the "
                    f"index has {plural(self.n_tokens, 'token')}."
                )
        columns = ["token", "sentence", "position", "start", "end"]
        with database_errors(self.folder):  # values in the tables may be invalid
            tokens = self.tables["tokens"].take(list(token_ids), columns=columns).to_pylist()
            rows = sorted({token["sentence"] for token in tokens})
            sentences = self.tables["sentences"].take(rows).to_pylist()
            sentences_by_row = dict(zip(rows, sentences, strict=True))
            return [self._make_token(t, sentences_by_row[t["sentence"]]) for t in tokens]

    def _make_token(self, token: dict[str, Any], sentence: dict[str, Any]) -> Neighbor:
        file, offset = self.meta.inputs[sentence["file"]], sentence["offset"]
        start, end = token["start"], token["end"]
        return Neighbor(
            1.0,
            MarkedWord(tuple(self.spellings[i] for i in sentence["words"]), token["position"]),
            f"{file}:{sentence['line']}",
            token_id=token["token"],
            sentence_id=token["sentence"],
            text=sentence["text"],
            span=None if start is None else (start - offset, end - offset),
            file=file,
            line=sentence["line"],
        )

    def find(self, word: str) -> list[int]:
        """Return the IDs of all tokens of a word, ignoring case."""
        condition = self.same_word_filter(np.array([self._word_id(word)]))
        batches = self._scan("tokens", ["token"], condition)
        return sorted(n for batch in batches for n in _integers(batch, "token").tolist())

    @cached_property
    def spellings(self) -> list[str]:
        """The spellings of all words, (V,)."""
        batches = self._scan("words", ["word"])
        return [word for batch in batches for word in batch.column("word").to_pylist()]

    @cached_property
    def counts(self) -> Ids:
        """The number of occurrences of each word, ignoring case, (V,)."""
        counts = np.zeros(self.meta.words, dtype=np.int64)
        for batch in self._scan("tokens", ["word"]):
            word_ids = self._word_ids[_integers(batch, "word")]
            counts += np.bincount(word_ids, minlength=len(counts))
        return counts[self._word_ids]

    @cached_property
    def _ids_by_word(self) -> dict[str, int]:
        """The word ID of each case-folded word."""
        return {w: i for i, w in enumerate(dict.fromkeys(s.casefold() for s in self.spellings))}

    @cached_property
    def _word_ids(self) -> Ids:
        """The word ID of each spelling, (V,). Case does not affect word IDs."""
        return np.array([self._word_id(s) for s in self.spellings], dtype=np.int64)

    def _word_id(self, word: str) -> int:
        return self._ids_by_word.get(word.casefold(), -1)

    # ---------------------------------------------------------------------------------- vectors

    def vectors(self, choice: LayerChoice, token_ids: Sequence[int]) -> FloatArray:
        """Return the unit-length vectors of the given tokens in a layer, shape (n, D)."""
        columns = self.columns([choice])
        with database_errors(self.folder):
            table = self.tables["tokens"].take(list(token_ids), columns=columns).combine_chunks()
            return normalize(self.chosen_vectors(table.to_batches()[0], [choice])[0])

    def chosen_vectors(self, batch: Any, choices: Sequence[LayerChoice]) -> list[FloatArray]:
        """Return the vectors of a batch of tokens for each choice. Reads each column once."""
        parts_by_choice = {choice: self._parts(choice) for choice in choices}
        stored = {part.label: part for parts in parts_by_choice.values() for part in parts}
        vectors_by_label = {name: self._read_vectors(batch, p) for name, p in stored.items()}

        def combine(choice: LayerChoice) -> FloatArray:
            parts = [vectors_by_label[part.label] for part in parts_by_choice[choice]]
            if len(parts) > 1 and choice.name == "concat":
                return np.concatenate(parts, axis=1)
            if choice.label in vectors_by_label:
                return parts[0]
            weights = [choice.weights[j] for j in used_layers(choice)]
            vectors: FloatArray = np.float32(weights[0]) * parts[0]
            for weight, part in zip(weights[1:], parts[1:], strict=True):
                vectors += np.float32(weight) * part
            return vectors

        return [combine(choice) for choice in choices]

    def _read_vectors(self, batch: Any, part: LayerChoice) -> FloatArray:
        if part.number == 0:
            tensor = self._layer_0[torch.from_numpy(_integers(batch, "word"))]
        else:
            tensor = _as_tensor(batch, column_name(part), part.dim(self.meta.dim))
        vectors: FloatArray = tensor.float().numpy()  # 15 times as fast as with NumPy
        return vectors

    @cached_property
    def _layer_0(self) -> Any:
        batches = self._scan("words", ["layer_0"])
        return torch.cat([_as_tensor(batch, "layer_0", self.meta.dim) for batch in batches])

    def _parts(self, choice: LayerChoice) -> list[LayerChoice]:
        """Return the stored layer choices that are needed to compute the vectors of a choice.

        These are the choice itself, if it is stored, or single layers.

        Raises:
            ConfigError: The index contains neither the choice nor all of its layers.
        """
        if self.meta.stored.get(choice.label) == list(choice.weights):
            return [choice]
        layers = [LayerChoice(str(j), self.meta.n_layers) for j in used_layers(choice)]
        if any(layer.label not in self.meta.stored for layer in layers):
            stored = ", ".join(self.meta.stored)
            raise ConfigError(
                f"The index {self.folder} does not contain {choice.label}; it contains {stored}. "
                "Choose one of these, or build an index with the missing layers."
            )
        return layers

    def __repr__(self) -> str:
        names = ", ".join(choice.label for choice in self.default_choices)
        return f"<TokenIndex {plural(self.n_tokens, 'token')}: {names}>"

    def _repr_html_(self) -> str:
        """Show a card in a notebook."""
        from elmokit import html

        meta = self.meta
        files = ", ".join(meta.inputs[:3]) + (" …" if len(meta.inputs) > 3 else "")
        rows = [
            ("tokens", f"{meta.tokens:,}"),
            ("distinct words", f"{meta.words:,}"),
            ("sentences", f"{meta.sentences:,}"),
            ("text", files),
            ("layers", ", ".join(choice.label for choice in self.default_choices)),
            ("size on disk", f"{folder_bytes(self.folder) / 1e6:,.1f} MB"),
            ("model", f"{meta.source} ({meta.model[:12]}), state {meta.state}"),
        ]
        for name, parameters in meta.ann.items():
            rows.append((f"approximate index, {name}", f"recall {parameters['recall_at_10']:.3f}"))
        return html.card(f"TokenIndex {self.folder.name}", rows)


def used_layers(choice: LayerChoice) -> list[int]:
    """Return the layers with nonzero weights."""
    return [j for j, weight in enumerate(choice.weights) if weight]


def folder_bytes(folder: Path) -> int:
    """Return the total size of all files in a directory, in bytes."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _integers(batch: Any, name: str) -> NDArray[np.int64]:
    values: NDArray[np.int64] = batch.column(name).to_numpy().astype(np.int64)
    return values


def _as_tensor(batch: Any, name: str, dim: int) -> Any:
    """Return a column of vectors as a float16 tensor, without a copy."""
    return from_dlpack(batch.column(name).flatten()).view(-1, dim)
