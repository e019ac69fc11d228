"""The nearest tokens in context: Table 4 of the paper, over any text.

A query is a word in its sentence. Every token of the text is compared with it by cosine, in each
space asked for, and the k nearest are kept with their sentences: an exact search whose memory does
not grow with the text. Several queries share one pass, since the vectors cost more than all else.

    from elmokit.search.neighbors import neighbors

    found = neighbors(elmo, ["The [play] was staged in London ."], sentences, k=5)
    print(found[0])

`NeighborSearch` is the part behind it that only needs vectors, wherever they come from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.embed.batching import windows
from elmokit.embed.model import ElmoModel
from elmokit.embed.spaces import Space, every_space, unit
from elmokit.embed.tokenised import check_sentences, tokens_of
from elmokit.embed.topk import TopK
from elmokit.embed.vectors import FloatArray
from elmokit.errors import ConfigError
from elmokit.text.marked import Marked

Words = Literal["any", "same", "other"]
Distinct = Literal["token", "sentence", "word"]

# Tokens that are embedded and held together: about 100 MB of vectors in the largest released model.
_WINDOW_TOKENS = 8192
_AROUND = 9  # tokens shown on each side of a neighbour
_SHOWN = 20  # neighbours of a list that a notebook shows


class Passage(NamedTuple):
    """A sentence of the text that is searched; `where` says in words where it stands."""

    tokens: Sequence[str]
    where: str = ""


@dataclass(frozen=True)
class Rules:
    """Which tokens may be neighbours.

    Attributes:
        words: "any", "same" (only the word of the query) or "other" (only other words). Case makes
            no other word.
        distinct: What is listed once: every "token"; a "sentence" (the same place of sentences that
            are the same word by word counts once); or a "word" (its nearest token only, case makes
            no other word).
        other_sentences: Leave out sentences that are the query's, word by word.
    """

    words: Words = "any"
    distinct: Distinct = "sentence"
    other_sentences: bool = False


@dataclass(frozen=True)
class Neighbor:
    """A token of the text that is near a query.

    Attributes:
        score: The cosine.
        at: The token in its sentence.
        where: Where the sentence stands.
    """

    score: float
    at: Marked
    where: str = ""

    @property
    def word(self) -> str:
        """The token."""
        return self.at.word

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "word": self.word,
            "score": round(self.score, 6),
            "tokens": list(self.at.tokens),
            "position": self.at.position,
            "where": self.where,
        }


@dataclass(frozen=True, repr=False)
class Neighbors:
    """The nearest tokens of one query.

    Attributes:
        query: The query.
        lists: For each space its name and the nearest tokens, the nearest first.
        tokens: Tokens that were searched.
    """

    query: Marked
    lists: dict[str, tuple[Neighbor, ...]]
    tokens: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        lists = {name: [n.to_dict() for n in found] for name, found in self.lists.items()}
        query = {"tokens": list(self.query.tokens), "position": self.query.position}
        return {"query": query, "searched_tokens": self.tokens, "neighbors": lists}

    def __repr__(self) -> str:
        return f"<Neighbors of '{self.query.word}': {', '.join(self.lists)}>"

    def _repr_html_(self) -> str:
        """Show the lists in a notebook, the words in their sentences."""
        from elmokit import html

        left, right = self.query.sides(_AROUND)
        parts = [html.table([[left, self.query.word, right]], marked=True)]
        for name, found in self.lists.items():
            parts.append(html.caption(name if found else f"{name}: no neighbours"))
            rows = []
            for n in found[:_SHOWN]:
                left, right = n.at.sides(_AROUND)
                rows.append([f"{n.score:.3f}", left, n.word, right])
            parts.append(html.table(rows, marked=True))
        return "".join(parts)

    def __str__(self) -> str:
        """Return a table for each space: cosine, word, sentence."""
        lines = [self.query.show()]
        width = max((len(n.word) for found in self.lists.values() for n in found), default=0)
        for name, found in self.lists.items():
            lines.append(f"{name}:" if found else f"{name}: no neighbours")
            lines += [f"  {n.score:.3f}  {n.word:<{width}}  {n.at.show(_AROUND)}" for n in found]
        return "\n".join(lines)


def neighbors(
    model: ElmoModel,
    queries: Sequence[str | Marked],
    text: Iterable[Passage | str | Sequence[str]],
    *,
    k: int = 10,
    spaces: Sequence[Space] | None = None,
    rules: Rules | Sequence[Rules] | None = None,
    state: Literal["reset", "warm"] = "reset",
    max_tokens: int | None = None,
    on_window: Callable[[int], None] | None = None,
) -> list[Neighbors]:
    """Find the nearest tokens of some queries in a text.

    Args:
        model: The model.
        queries: Strings with a word in brackets, or `Marked`.
        text: Sentences, as for `embed`: strings, which are tokenised, or lists of tokens. A
            `Passage` also says where it stands.
        k: Neighbours per query and space.
        spaces: In which layers to look; None is all of them and their average.
        rules: Which tokens may be neighbours, of all queries or of each; None is the defaults.
        state: What each sentence starts from, the queries too.
        max_tokens: Stop after the sentence in which this many tokens are reached.
        on_window: Called with the number of tokens searched so far.

    Returns:
        One result per query, in their order.
    """
    marked = [q if isinstance(q, Marked) else Marked.read(q) for q in queries]
    spaces = every_space(model.config.n_layers) if spaces is None else spaces
    layers, _ = model.compute([q.tokens for q in marked], state)
    vectors = [h[:, q.position] for q, h in zip(marked, layers, strict=True)]
    search = NeighborSearch(marked, vectors, spaces, k=k, rules=_each(rules, len(marked)))
    given = ((list(p.tokens), p.where) for p in _first(text, max_tokens))
    for window in windows(given, _WINDOW_TOKENS):
        layers, _ = model.compute([tokens for tokens, _ in window], state)
        search.add([Passage(*passage) for passage in window], layers)
        if on_window is not None:
            on_window(search.tokens)
    return search.results()


def _each(rules: Rules | Sequence[Rules] | None, n: int) -> Sequence[Rules]:
    if rules is None or isinstance(rules, Rules):
        return [rules or Rules()] * n
    return rules


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


@dataclass
class NeighborSearch:
    """A search that is fed with sentences and their vectors.

    Attributes:
        queries: The words that are asked for.
        query_layers: R_k of each of them, shape (L + 1, 2D).
        spaces: Where to compare.
        k: Neighbours per query and space.
        rules: Which tokens may be neighbours of each query.
        tokens: Tokens seen so far.
    """

    queries: Sequence[Marked]
    query_layers: Sequence[FloatArray]
    spaces: Sequence[Space]
    k: int
    rules: Sequence[Rules]
    tokens: int = 0
    _kept: dict[int, tuple[Passage, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.queries:
            raise ConfigError("There is no query. Give at least one sentence with a [word] in it.")
        if len(self.rules) != len(self.queries):
            raise ConfigError(
                f"There are {len(self.queries)} queries and {len(self.rules)} rules; give one for "
                "each, or one for all."
            )
        layers = np.stack(self.query_layers, axis=1)  # (L + 1, Q, 2D)
        self._vectors = [unit(space.of(layers)) for space in self.spaces]
        self._best = [TopK(self.k, len(self.queries)) for _ in self.spaces]
        self._words: dict[str, int] = {}  # the only thing that grows: with the words of the text

    def add(self, passages: Sequence[Passage], layers: Sequence[FloatArray]) -> None:
        """Search some sentences; `layers` has the vectors of each, shape (L + 1, T, 2D)."""
        if not sum(len(p.tokens) for p in passages):
            return
        starts = np.cumsum([0, *(len(p.tokens) for p in passages)]) + self.tokens
        ids = np.arange(self.tokens, starts[-1])
        self.tokens = int(starts[-1])
        refused = self._refused(passages)
        groups = self._groups(passages, ids)
        for space, query, best in zip(self.spaces, self._vectors, self._best, strict=True):
            block = unit(np.concatenate([space.of(h) for h in layers]))  # (n, 2D)
            scores = query @ block.T
            scores[refused] = -np.inf
            best.add(scores, ids, groups)
        self._keep(passages, starts)

    def results(self) -> list[Neighbors]:
        """Return what was found so far."""
        return [
            Neighbors(
                query,
                {
                    space.name: tuple(self._neighbors(best, row))
                    for space, best in zip(self.spaces, self._best, strict=True)
                },
                self.tokens,
            )
            for row, query in enumerate(self.queries)
        ]

    def _neighbors(self, best: TopK, row: int) -> Iterator[Neighbor]:
        for score, number in zip(best.scores[row].tolist(), best.ids[row].tolist(), strict=True):
            if number >= 0:
                passage, position = self._kept[number]
                yield Neighbor(score, Marked(tuple(passage.tokens), position), passage.where)

    def _refused(self, passages: Sequence[Passage]) -> NDArray[np.bool_]:
        """Say which tokens may not be neighbours of which query, shape (Q, n)."""
        folded = np.array([t.casefold() for p in passages for t in p.tokens], dtype=object)
        refused = np.zeros((len(self.queries), len(folded)), dtype=bool)
        for row, (query, rules) in enumerate(zip(self.queries, self.rules, strict=True)):
            if rules.words != "any":
                same = (folded == query.word.casefold()).astype(bool)
                refused[row] = same if rules.words == "other" else ~same
            if rules.other_sentences:
                own = [tuple(p.tokens) == query.tokens for p in passages]
                refused[row] |= np.repeat(own, [len(p.tokens) for p in passages])
        return refused

    def _groups(self, passages: Sequence[Passage], ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Say which tokens count as one for the user of each query, shape (Q, n)."""
        asked = {rules.distinct for rules in self.rules}
        groups = {"token": ids}
        if "word" in asked:
            words = (t.casefold() for p in passages for t in p.tokens)
            numbers = [self._words.setdefault(word, len(self._words)) for word in words]
            groups["word"] = np.array(numbers, dtype=np.int64)
        if "sentence" in asked:
            places = [sentence_print(p.tokens) + np.arange(len(p.tokens)) for p in passages]
            groups["sentence"] = np.concatenate(places)
        return np.stack([groups[rules.distinct] for rules in self.rules])

    def _keep(self, passages: Sequence[Passage], starts: NDArray[np.int64]) -> None:
        """Remember the sentences of the tokens that are among the best, and no others."""
        needed = {number for best in self._best for number in best.ids.ravel().tolist()} - {-1}
        kept = {}
        for number in needed:
            if number < starts[0]:
                kept[number] = self._kept[number]
            else:
                i = int(np.searchsorted(starts, number, side="right")) - 1
                kept[number] = (passages[i], number - int(starts[i]))
        self._kept = kept


def sentence_print(tokens: Sequence[str]) -> np.int64:
    """Return a number that sentences share only if they are the same (but for 1 in 10**18)."""
    text = "\0".join(tokens).encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(text, digest_size=8).digest()
    return np.int64(int.from_bytes(digest, "big") >> 2)
