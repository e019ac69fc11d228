"""The nearest tokens in context: Table 4 of the paper, over any text.

A query is a word in its sentence. Every token of the text is compared with it by cosine, in each
requested layer, and the k nearest are kept with their sentences: an exact search whose memory does
not grow with the text. All queries share one pass, since computing the vectors costs the most.

    from elmokit.search.neighbors import neighbors

    found = neighbors(elmo, ["The [play] was staged in London ."], sentences, k=5)
    print(found[0])

`NeighborSearch` is the part that needs vectors but no model. `ExactSearch` is what it shares with
the search of an index.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.embed.blocks import windows
from elmokit.embed.layer_choice import ALL_AND_AVERAGE, LayerChoice, Layers
from elmokit.embed.model import ElmoModel
from elmokit.embed.tokenized import check_sentences, tokens_of
from elmokit.embed.topk import TopK
from elmokit.embed.vectors import FloatArray, unit
from elmokit.errors import ConfigError
from elmokit.text.marked import Marked

Ids = NDArray[np.int64]
Words = Literal["any", "same", "other"]
Distinct = Literal["token", "sentence", "word"]

# Tokens that are embedded and held together: about 100 MB of vectors in the largest released model.
_WINDOW_TOKENS = 8192
_AROUND = 9  # tokens shown on each side of a neighbor
_SHOWN = 20  # neighbors of a list that a notebook shows


class Passage(NamedTuple):
    """A sentence of the text that is searched; `where` describes its position."""

    tokens: Sequence[str]
    where: str = ""


@dataclass(frozen=True)
class Rules:
    """Which tokens may be neighbors.

    Attributes:
        words: "any", "same" (only the word of the query) or "other" (only other words). Matching is
            case-insensitive.
        distinct: What is listed once: every "token"; a "sentence" (the same position in identical
            sentences is listed once); or a "word" (only its nearest token; matching is
            case-insensitive).
        other_sentences: Exclude sentences with the same words as the sentence of the query.
    """

    words: Words = "any"
    distinct: Distinct = "sentence"
    other_sentences: bool = False


@dataclass(frozen=True)
class Neighbor:
    """A token of a text or of an index that is near a query.

    Attributes:
        score: The cosine.
        at: The token in its sentence.
        where: The position of the sentence.
        token: In an index: its number.
        sentence: In an index: the number of its sentence.
        text: In an index: the sentence as written.
        span: In an index: start and end of the token in `text`; None if the text was tokenized.
        file: In an index: the file of the sentence, as named when the index was built.
        line: In an index: the line of the sentence in the file.
    """

    score: float
    at: Marked
    where: str = ""
    token: int | None = None
    sentence: int = -1
    text: str = ""
    span: tuple[int, int] | None = None
    file: str = ""
    line: int = 0

    @property
    def word(self) -> str:
        """The token."""
        return self.at.word

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        values = {
            "word": self.word,
            "score": round(self.score, 6),
            "tokens": list(self.at.tokens),
            "position": self.at.position,
            "where": self.where,
        }
        if self.token is not None:
            start, end = self.span or (None, None)
            values |= {"token": self.token, "sentence": self.sentence, "text": self.text}
            values |= {"start": start, "end": end, "file": self.file, "line": self.line}
        return values


@dataclass(frozen=True, repr=False)
class Neighbors:
    """The nearest tokens of one query.

    Attributes:
        query: The query.
        lists: The nearest tokens by layer name, the nearest first.
        tokens: Tokens that were searched.
        token: The number of the query, if it is a token of the index.
    """

    query: Marked
    lists: dict[str, tuple[Neighbor, ...]]
    tokens: int
    token: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        lists = {name: [n.to_dict() for n in found] for name, found in self.lists.items()}
        query = {"tokens": list(self.query.tokens), "position": self.query.position}
        if self.token is not None:
            query["token"] = self.token
        return {"query": query, "searched_tokens": self.tokens, "neighbors": lists}

    def __repr__(self) -> str:
        return f"<Neighbors of '{self.query.word}': {', '.join(self.lists)}>"

    def _repr_html_(self) -> str:
        """Show the lists in a notebook, with words in their sentences."""
        from elmokit import html

        left, right = self.query.sides(_AROUND)
        parts = [html.marked_table([[left, self.query.word, right]])]
        for name, found in self.lists.items():
            parts.append(html.caption(name if found else f"{name}: no neighbors"))
            rows = []
            for n in found[:_SHOWN]:
                left, right = n.at.sides(_AROUND)
                rows.append([f"{n.score:.3f}", left, n.word, right])
            parts.append(html.marked_table(rows))
        return "".join(parts)

    def __str__(self) -> str:
        """Return a table for each layer: cosine, word, sentence."""
        lines = [self.query.show()]
        width = max((len(n.word) for found in self.lists.values() for n in found), default=0)
        for name, found in self.lists.items():
            lines.append(f"{name}:" if found else f"{name}: no neighbors")
            lines += [f"  {n.score:.3f}  {n.word:<{width}}  {n.at.show(_AROUND)}" for n in found]
        return "\n".join(lines)


def neighbors(
    model: ElmoModel,
    queries: Sequence[str | Marked],
    text: Iterable[Passage | str | Sequence[str]],
    *,
    k: int = 10,
    layer: Layers = ALL_AND_AVERAGE,
    mix: Sequence[float] | None = None,
    rules: Rules | None = None,
    state: Literal["reset", "warm"] = "reset",
    max_tokens: int | None = None,
    on_window: Callable[[int], None] | None = None,
) -> list[Neighbors]:
    """Find the nearest tokens of some queries in a text.

    Args:
        model: The model.
        queries: Strings with a word in brackets, or `Marked`.
        text: Sentences, as for `embed`: strings, which are tokenized, or lists of tokens. A
            `Passage` also says where the sentence comes from.
        k: Neighbors per query and layer.
        layer: The layers to compare in, as for `LayerChoice.parse_all`.
        mix: With layer "mix", its weights.
        rules: Which tokens may be neighbors.
        state: Initial LSTM state of each sentence, also of the queries.
        max_tokens: Stop after the sentence in which this many tokens are reached.
        on_window: Called with the number of tokens searched so far.

    Returns:
        One result per query, in their order.
    """
    marked = [q if isinstance(q, Marked) else Marked.read(q) for q in queries]
    choices = LayerChoice.parse_all(layer, model.config.n_layers, mix)
    layers = model.compute([q.tokens for q in marked], state)
    vectors = [h[:, q.position] for q, h in zip(marked, layers, strict=True)]
    search = NeighborSearch(marked, vectors, choices, k, rules or Rules())
    given = ((list(p.tokens), p.where) for p in _first(text, max_tokens))
    for window in windows(given, _WINDOW_TOKENS):
        layers = model.compute([tokens for tokens, _ in window], state)
        search.add([Passage(*passage) for passage in window], layers)
        if on_window is not None:
            on_window(search.tokens)
    return search.results()


def _first(
    text: Iterable[Passage | str | Sequence[str]], max_tokens: int | None
) -> Iterator[Passage]:
    """Yield sentences that have tokens, until there are enough tokens."""
    seen = 0
    check_sentences(text)
    for i, sentence in enumerate(text):
        passage = sentence if isinstance(sentence, Passage) else Passage(tokens_of(sentence, i)[0])
        if not passage.tokens:
            continue
        yield passage
        seen += len(passage.tokens)
        if max_tokens is not None and seen >= max_tokens:
            return


# -------------------------------------------------------------------------------- the exact search


class Tokens(NamedTuple):
    """Tokens to compare, or the queries to compare them with.

    Attributes:
        ids: The number of each token, (n,); -1 for a query that is not a token of the text.
        words: A number that tokens share if their words differ in case only, (n,).
        sentences: The `sentence_hash` of their sentences, (n,).
        positions: Their positions in the sentences, (n,).
        vectors: For each layer the vectors, (n, D), of any length.
    """

    ids: Ids
    words: Ids
    sentences: Ids
    positions: Ids
    vectors: Sequence[FloatArray]

    def select(self, rows: slice) -> Tokens:
        """Return some of the tokens."""
        return Tokens(
            self.ids[rows],
            self.words[rows],
            self.sentences[rows],
            self.positions[rows],
            [vectors[rows] for vectors in self.vectors],
        )


class ExactSearch:
    """Keep the k nearest tokens of each query while blocks of tokens are added.

    Args:
        queries: The queries.
        k: Neighbors per query and layer.
        rules: Which tokens may be neighbors.

    Attributes:
        best: The nearest tokens of all queries, for each layer.
    """

    def __init__(self, queries: Tokens, k: int, rules: Rules) -> None:
        if not len(queries.ids):
            raise ConfigError(
                "No queries: expected at least one sentence with a [word] in brackets."
            )
        self._rules = rules
        self._queries = queries._replace(vectors=[unit(v) for v in queries.vectors])
        self.best = [TopK(k, len(queries.ids)) for _ in queries.vectors]

    def add(self, tokens: Tokens) -> None:
        """Compare a block of tokens with all queries."""
        queries, rules = self._queries, self._rules
        rejected = tokens.ids == queries.ids[:, None]
        if rules.words != "any":
            same = tokens.words == queries.words[:, None]
            rejected |= same if rules.words == "other" else ~same
        if rules.other_sentences:
            rejected |= tokens.sentences == queries.sentences[:, None]
        groups = {  # of tokens with the same number only one is listed
            "token": tokens.ids,
            "word": tokens.words,
            "sentence": tokens.sentences + tokens.positions,
        }[rules.distinct]
        for query, vectors, best in zip(queries.vectors, tokens.vectors, self.best, strict=True):
            lengths = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))
            lengths[lengths == 0] = 1
            scores = (query @ vectors.T) / lengths
            scores[rejected] = -np.inf
            best.add(scores, tokens.ids, groups)


class NeighborSearch:
    """A search of sentences whose vectors are already computed.

    Args:
        queries: The words to look for.
        query_layers: R_k of each of them, shape (L + 1, 2D).
        choices: The layers to compare in.
        k: Neighbors per query and layer.
        rules: Which tokens may be neighbors.

    Attributes:
        tokens: Tokens searched so far.
    """

    def __init__(
        self,
        queries: Sequence[Marked],
        query_layers: Sequence[FloatArray],
        choices: Sequence[LayerChoice],
        k: int,
        rules: Rules,
    ) -> None:
        self.tokens = 0
        self._queries = queries
        self._choices = choices
        self._kept: dict[int, tuple[Passage, int]] = {}
        self._words: dict[str, int] = {}  # grows with the vocabulary of the text
        asked = Tokens(
            ids=np.full(len(queries), -1),
            words=self._numbers(q.word for q in queries),
            sentences=np.array([sentence_hash(q.tokens) for q in queries], dtype=np.int64),
            positions=np.array([q.position for q in queries], dtype=np.int64),
            vectors=[c.apply(np.stack(query_layers, axis=1)) for c in choices] if queries else [],
        )
        self._search = ExactSearch(asked, k, rules)

    def add(self, passages: Sequence[Passage], layers: Sequence[FloatArray]) -> None:
        """Search some sentences; `layers` has the vectors of each, shape (L + 1, T, 2D)."""
        lengths = [len(p.tokens) for p in passages]
        if not sum(lengths):
            return
        starts = np.cumsum([0, *lengths]) + self.tokens
        self.tokens = int(starts[-1])
        hashes = np.array([sentence_hash(p.tokens) for p in passages], dtype=np.int64)
        tokens = Tokens(
            ids=np.arange(starts[0], starts[-1]),
            words=self._numbers(token for p in passages for token in p.tokens),
            sentences=np.repeat(hashes, lengths),
            positions=np.concatenate([np.arange(n) for n in lengths]),
            vectors=[np.concatenate([c.apply(h) for h in layers]) for c in self._choices],
        )
        self._search.add(tokens)
        self._keep(passages, starts)

    def results(self) -> list[Neighbors]:
        """Return the nearest tokens so far, one result per query."""
        return [
            Neighbors(
                query,
                {
                    choice.label: tuple(self._neighbors(best, row))
                    for choice, best in zip(self._choices, self._search.best, strict=True)
                },
                self.tokens,
            )
            for row, query in enumerate(self._queries)
        ]

    def _neighbors(self, best: TopK, row: int) -> Iterator[Neighbor]:
        for number, score in best.row(row):
            passage, position = self._kept[number]
            yield Neighbor(score, Marked(tuple(passage.tokens), position), passage.where)

    def _numbers(self, words: Iterable[str]) -> Ids:
        numbers = self._words
        folded = (word.casefold() for word in words)
        return np.array([numbers.setdefault(w, len(numbers)) for w in folded], dtype=np.int64)

    def _keep(self, passages: Sequence[Passage], starts: Ids) -> None:
        """Keep only the sentences of the tokens that are among the best."""
        needed = {number for best in self._search.best for number in best.ids.ravel().tolist()}
        kept = {}
        for number in needed - {-1}:
            if number < starts[0]:
                kept[number] = self._kept[number]
            else:
                i = int(np.searchsorted(starts, number, side="right")) - 1
                kept[number] = (passages[i], number - int(starts[i]))
        self._kept = kept


def sentence_hash(tokens: Sequence[str]) -> np.int64:
    """Return a hash of a sentence, with a collision probability of 1e-18."""
    text = "\0".join(tokens).encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(text, digest_size=8).digest()
    return np.int64(int.from_bytes(digest, "big") >> 2)
