"""Search a text for the nearest tokens in context, as in Table 4 of the paper.

A query is a word in its sentence. In each requested layer, every token of the text is compared with
the query by cosine similarity, and the k nearest tokens are returned with their sentences. The
search is exact, and its memory usage grows only with the vocabulary of the text. The text is
embedded only once for all queries, because embedding takes most of the time.

    from elmokit.search.neighbors import neighbors

    results = neighbors(elmo, ["The [play] was staged in London ."], sentences, k=5)
    print(results[0])

The search of an index (index.py) uses the same `ExactSearch`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.embed.blocks import windows
from elmokit.embed.layer_choice import ALL_AND_AVERAGE, LayerChoice, Layers
from elmokit.embed.model import ElmoModel
from elmokit.embed.tokenized import as_tokens, check_sentences
from elmokit.embed.topk import TopK
from elmokit.embed.vectors import FloatArray, normalize
from elmokit.errors import ConfigError
from elmokit.settings import Settings
from elmokit.text.marked import MarkedWord

Ids = NDArray[np.int64]
Words = Literal["any", "same", "other"]
Distinct = Literal["token", "sentence", "word"]

# Tokens to embed at once. Their vectors take about 100 MB for the largest released model.
_WINDOW_TOKENS = 8192
_CONTEXT_TOKENS = 9  # tokens shown on each side of a neighbor
_MAX_SHOWN = 20  # neighbors per list shown in a notebook


class Passage(NamedTuple):
    """A sentence of a text, and a description of its position, such as "file.txt:3"."""

    tokens: Sequence[str]
    where: str = ""


class NeighborFilter(Settings):
    """Which tokens may be neighbors.

    Attributes:
        words: "any", "same" (only the word of the query) or "other" (only other words). Matching is
            case-insensitive.
        distinct: Which duplicates to remove. "token": none. "sentence": tokens at the same position
            in identical sentences. "word": all but the nearest token of each word, ignoring case.
        other_sentences: Exclude sentences that are identical to the sentence of the query.
    """

    words: Words = "any"
    distinct: Distinct = "sentence"
    other_sentences: bool = False


@dataclass(frozen=True)
class Neighbor:
    """A token of a text or of an index, as the neighbor of a query.

    The attributes after `where` are set only for tokens of an index.

    Attributes:
        score: The cosine similarity to the query.
        marked: The token in its sentence.
        where: The position of the sentence in the text.
        token_id: The ID of the token in the index.
        sentence_id: The ID of the sentence in the index.
        text: The original text of the sentence.
        span: Start and end of the token in `text`; None if the text was already tokenized.
        file: The file of the sentence, as specified when the index was built.
        line: The line of the sentence in the file.
    """

    score: float
    marked: MarkedWord
    where: str = ""
    token_id: int | None = None
    sentence_id: int = -1
    text: str = ""
    span: tuple[int, int] | None = None
    file: str = ""
    line: int = 0

    @property
    def word(self) -> str:
        """The token."""
        return self.marked.word

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dictionary."""
        values = {
            "word": self.word,
            "score": round(self.score, 6),
            "tokens": list(self.marked.tokens),
            "position": self.marked.position,
            "where": self.where,
        }
        if self.token_id is not None:
            start, end = self.span or (None, None)
            values |= {"token": self.token_id, "sentence": self.sentence_id, "text": self.text}
            values |= {"start": start, "end": end, "file": self.file, "line": self.line}
        return values


@dataclass(frozen=True, repr=False)
class Neighbors:
    """The tokens nearest to a query.

    Attributes:
        query: The query.
        by_layer: The nearest tokens by layer name, nearest first.
        searched_tokens: Number of tokens that were searched.
        token_id: The ID of the query token, if the query is a token of the index.
    """

    query: MarkedWord
    by_layer: dict[str, tuple[Neighbor, ...]]
    searched_tokens: int
    token_id: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dictionary."""
        lists = {name: [n.to_dict() for n in nearest] for name, nearest in self.by_layer.items()}
        query = {"tokens": list(self.query.tokens), "position": self.query.position}
        if self.token_id is not None:
            query["token"] = self.token_id
        return {"query": query, "searched_tokens": self.searched_tokens, "neighbors": lists}

    def __repr__(self) -> str:
        return f"<Neighbors of '{self.query.word}': {', '.join(self.by_layer)}>"

    def _repr_html_(self) -> str:
        """Show the neighbors in their sentences in a notebook."""
        from elmokit import html

        left, right = self.query.context(_CONTEXT_TOKENS)
        parts = [html.marked_table([[left, self.query.word, right]])]
        for name, nearest in self.by_layer.items():
            parts.append(html.caption(name if nearest else f"{name}: no neighbors"))
            rows = []
            for n in nearest[:_MAX_SHOWN]:
                left, right = n.marked.context(_CONTEXT_TOKENS)
                rows.append([f"{n.score:.3f}", left, n.word, right])
            parts.append(html.marked_table(rows))
        return "".join(parts)

    def __str__(self) -> str:
        """Return a table for each layer: cosine similarity, word, sentence."""
        lines = [self.query.format()]
        width = max((len(n.word) for nearest in self.by_layer.values() for n in nearest), default=0)
        for name, nearest in self.by_layer.items():
            lines.append(f"{name}:" if nearest else f"{name}: no neighbors")
            lines += [
                f"  {n.score:.3f}  {n.word:<{width}}  {n.marked.format(_CONTEXT_TOKENS)}"
                for n in nearest
            ]
        return "\n".join(lines)


def neighbors(
    model: ElmoModel,
    queries: Sequence[str | MarkedWord],
    text: Iterable[Passage | str | Sequence[str]],
    *,
    k: int = 10,
    layer: Layers = ALL_AND_AVERAGE,
    mix: Sequence[float] | None = None,
    filter: NeighborFilter | None = None,
    state: Literal["reset", "warm"] = "reset",
    max_tokens: int | None = None,
    on_window: Callable[[int], None] | None = None,
) -> list[Neighbors]:
    """Find the tokens of a text that are nearest to each query.

    Args:
        model: The model.
        queries: Strings with a word in brackets, or `MarkedWord` objects.
        text: Sentences, as in `embed`: strings, which are tokenized, or lists of tokens. A
            `Passage` also contains the position of the sentence.
        k: Neighbors per query and layer.
        layer: The layers to compare, as in `LayerChoice.parse_all`.
        mix: With layer "mix", the weights s, one per layer.
        filter: Which tokens may be neighbors.
        state: Initial LSTM state of each sentence, including the queries.
        max_tokens: Stop after the sentence that reaches this number of tokens.
        on_window: Called repeatedly with the number of tokens that have been searched so far.

    Returns:
        One result per query, in the same order.
    """
    marked = [q if isinstance(q, MarkedWord) else MarkedWord.parse(q) for q in queries]
    choices = LayerChoice.parse_all(layer, model.config.n_layers, mix)
    layers = model.compute([q.tokens for q in marked], state)
    embedded = [Query(q, h[:, q.position]) for q, h in zip(marked, layers, strict=True)]
    ids_by_word: dict[str, int] = {}

    def word_ids(tokens: Iterable[str]) -> Ids:
        folded = (token.casefold() for token in tokens)
        return np.array(
            [ids_by_word.setdefault(w, len(ids_by_word)) for w in folded], dtype=np.int64
        )

    words = word_ids(q.word for q in marked)
    tokens = query_tokens(embedded, choices, words, Query.vector)
    search = ExactSearch(SearchRequest(tokens, choices, k, filter or NeighborFilter()))
    neighbors_by_id: dict[int, Neighbor] = {}
    n_searched = 0
    for window in windows(_tokenize(text, max_tokens), _WINDOW_TOKENS):
        layers = model.compute([tokens for tokens, _ in window], state)
        lengths = [len(tokens) for tokens, _ in window]
        starts = n_searched + np.cumsum([0, *lengths])
        ids = np.arange(n_searched, starts[-1])
        hashes = np.array([sentence_hash(tokens) for tokens, _ in window], dtype=np.int64)
        search.add(
            Tokens(
                ids=ids,
                words=word_ids(token for tokens, _ in window for token in tokens),
                sentences=np.repeat(hashes, lengths),
                positions=ids - np.repeat(starts[:-1], lengths),
                vectors=[np.concatenate([c.apply(h) for h in layers]) for c in choices],
            )
        )
        # Keep only the sentences of the tokens that are currently the nearest.
        nearest = collect_ids(search.best)
        neighbors_by_id = {n: neighbors_by_id[n] for n in nearest if n < n_searched}
        for token_id in nearest[len(neighbors_by_id) :]:
            i = int(np.searchsorted(starts, token_id, side="right")) - 1
            sentence, where = window[i]
            neighbors_by_id[token_id] = Neighbor(
                1.0, MarkedWord(tuple(sentence), token_id - int(starts[i])), where
            )
        n_searched = int(starts[-1])
        if on_window is not None:
            on_window(n_searched)
    return list_neighbors(embedded, choices, search.best, neighbors_by_id, n_searched)


def _tokenize(
    text: Iterable[Passage | str | Sequence[str]], max_tokens: int | None
) -> Iterator[tuple[list[str], str]]:
    """Yield the tokens and the position of each nonempty sentence, up to `max_tokens`."""
    n_tokens = 0
    check_sentences(text)
    for i, sentence in enumerate(text):
        words, where = sentence if isinstance(sentence, Passage) else (sentence, "")
        tokens, _ = as_tokens(words, i)
        if not tokens:
            continue
        yield tokens, where
        n_tokens += len(tokens)
        if max_tokens is not None and n_tokens >= max_tokens:
            return


# -------------------------------------------------------------------------------- the exact search


@dataclass(frozen=True)
class Query:
    """A word in its sentence, and its vectors.

    Attributes:
        marked: The word.
        layers: The vectors of the word in all layers, (L + 1, 2D); None for a token of an index.
        token_id: The ID of the query token, if the query is a token of an index.
    """

    marked: MarkedWord
    layers: FloatArray | None = None
    token_id: int | None = None

    def vector(self, choice: LayerChoice) -> FloatArray:
        """Return the vector of the word in a layer, computed from `layers`."""
        assert self.layers is not None
        vector: FloatArray = choice.apply(self.layers[:, None])[0]
        return vector


class Tokens(NamedTuple):
    """Tokens to compare, or the queries to compare them with.

    Attributes:
        ids: The ID of each token, (n,); -1 for a query that is not a token of an index.
        words: The word ID of each token, (n,). Words that differ only in case have the same ID.
        sentences: The `sentence_hash` of the sentence of each token, (n,).
        positions: The position of each token in its sentence, (n,).
        vectors: For each layer, the vectors of the tokens, (n, D), which need not be normalized.
    """

    ids: Ids
    words: Ids
    sentences: Ids
    positions: Ids
    vectors: Sequence[FloatArray]

    def select(self, row: int, layer: int) -> Tokens:
        """Return a single token with its vector in a single layer."""
        ids, words, sentences, positions = (values[[row]] for values in self[:4])
        return Tokens(ids, words, sentences, positions, [self.vectors[layer][[row]]])


class SearchRequest(NamedTuple):
    """The queries and options of a search.

    Attributes:
        queries: The queries.
        choices: The layers to compare.
        k: Neighbors per query and layer.
        filter: Which tokens may be neighbors.
        min_count: In an index, the minimum number of occurrences of a neighbor's word.
    """

    queries: Tokens
    choices: Sequence[LayerChoice]
    k: int
    filter: NeighborFilter
    min_count: int = 1


class ExactSearch:
    """Finds the k tokens nearest to each query, in a text that is added in blocks.

    Args:
        request: The queries and options.

    Attributes:
        best: For each layer, the tokens nearest to each query.
    """

    def __init__(self, request: SearchRequest) -> None:
        queries = request.queries
        self._filter = request.filter
        self._queries = queries._replace(vectors=[normalize(v) for v in queries.vectors])
        self.best = [TopK(request.k, len(queries.ids)) for _ in queries.vectors]

    def add(self, tokens: Tokens) -> None:
        """Compare a block of tokens with all queries."""
        queries, filter = self._queries, self._filter
        is_excluded = tokens.ids == queries.ids[:, None]
        if filter.words != "any":
            is_same_word = tokens.words == queries.words[:, None]
            is_excluded |= is_same_word if filter.words == "other" else ~is_same_word
        if filter.other_sentences:
            is_excluded |= tokens.sentences == queries.sentences[:, None]
        groups = {  # `TopK` keeps one token of each group
            "token": tokens.ids,
            "word": tokens.words,
            "sentence": tokens.sentences + tokens.positions,
        }[filter.distinct]
        for query, vectors, best in zip(queries.vectors, tokens.vectors, self.best, strict=True):
            lengths = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))
            lengths[lengths == 0] = 1
            scores = (query @ vectors.T) / lengths
            scores[is_excluded] = -np.inf
            best.add(scores, tokens.ids, groups)


def query_tokens(
    queries: Sequence[Query],
    choices: Sequence[LayerChoice],
    words: Ids,
    vector: Callable[[Query, LayerChoice], FloatArray],
) -> Tokens:
    """Return queries as `Tokens`.

    Args:
        queries: The queries.
        choices: The layers to compare.
        words: The word ID of each query.
        vector: Returns the vector of a query in a layer.
    """
    if not queries:
        raise ConfigError("No queries: expected at least one sentence with a [word] in brackets.")
    return Tokens(
        ids=np.array([-1 if q.token_id is None else q.token_id for q in queries]),
        words=words,
        sentences=np.array([sentence_hash(q.marked.tokens) for q in queries], dtype=np.int64),
        positions=np.array([q.marked.position for q in queries]),
        vectors=[np.stack([vector(q, choice) for q in queries]) for choice in choices],
    )


def collect_ids(best: Sequence[TopK]) -> list[int]:
    """Return the IDs of all tokens in the results, in ascending order."""
    return sorted({n for top in best for n in top.ids.ravel().tolist() if n >= 0})


def list_neighbors(
    queries: Sequence[Query],
    choices: Sequence[LayerChoice],
    best: Sequence[TopK],
    tokens: Mapping[int, Neighbor],
    n_searched: int,
) -> list[Neighbors]:
    """Return the results of a search.

    Args:
        queries: The queries.
        choices: The layers that were compared.
        best: The IDs and scores of the nearest tokens, for each layer.
        tokens: The nearest tokens by ID. Their scores are ignored.
        n_searched: Number of tokens that were searched.
    """

    def nearest(top: TopK, row: int) -> tuple[Neighbor, ...]:
        return tuple(replace(tokens[token_id], score=score) for token_id, score in top.row(row))

    return [
        Neighbors(
            query.marked,
            {c.label: nearest(top, row) for c, top in zip(choices, best, strict=True)},
            n_searched,
            query.token_id,
        )
        for row, query in enumerate(queries)
    ]


def sentence_hash(tokens: Sequence[str]) -> np.int64:
    """Return a 62-bit hash of a sentence.

    The sum of a hash and a position does not overflow.
    """
    text = "\0".join(tokens).encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(text, digest_size=8).digest()
    return np.int64(int.from_bytes(digest, "big") >> 2)
