"""Beyond some millions of tokens: a faiss index over the vectors of a token index.

The vectors of a space are sorted into cells (an inverted file, IVF) and kept there as one byte per
number; a query looks into the nearest cells only. What faiss proposes is compared again with the
vectors of the index, so that scores are those of the exact search, and filters hold. How many cells
to look into is found by measuring: the fewest with which the answers to some tokens of the index
agree with the exact ones as well as was asked for. What was reached is noted, and told.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from elmokit.embed.spaces import Space
from elmokit.embed.topk import TopK
from elmokit.embed.vectors import FloatArray
from elmokit.errors import ConfigError, DependencyError
from elmokit.search.index_files import IndexMeta, slug
from elmokit.search.index_search import Allowed, Scorer, query_vectors, search, vectors_of
from elmokit.search.neighbors import Rules
from elmokit.storage.atomic import replace_file
from elmokit.storage.lock import RUN_LOCK, file_lock

if TYPE_CHECKING:
    from elmokit.search.index import TokenIndex

_BLOCK = 16384
_PER_CELL = 40  # vectors that k-means learns each cell from; faiss asks for 39
_QUERIES = 200
_K = 10
_MORE = 10  # candidates that are compared again, for each answer that is asked for


def add_ann(
    index: TokenIndex,
    spaces: Sequence[Space],
    *,
    recall: float = 0.95,
    seed: int = 0,
    on_tokens: Callable[[int], None] | None = None,
) -> dict[str, dict[str, Any]]:
    """Give an index a faiss index for each of some spaces.

    While it is made it is held in memory: one byte for each number of the vectors of one space.

    Args:
        index: The index; its folder is written to.
        spaces: Where to search.
        recall: What share of the 10 nearest tokens should be found, on the mean.
        seed: Of the tokens that are tried, and of k-means.
        on_tokens: Called with the number of vectors sorted in so far.

    Returns:
        For each space what was made and measured; the index notes the same.
    """
    faiss = _faiss()
    if not 0 < recall <= 1:
        raise ConfigError(f"The recall is a share of more than 0, up to 1; found {recall}.")
    for space in spaces:
        made = _trained(faiss, index, space, seed)
        for first in range(0, index.tokens, _BLOCK):
            ids = np.arange(first, min(first + _BLOCK, index.tokens))
            made.add(vectors_of(index, space, ids))
            if on_tokens is not None:
                on_tokens(int(ids[-1]) + 1)
        with replace_file(index.folder / f"ann-{slug(space.name)}.faiss") as file:
            faiss.write_index(made, str(file))
        told = _measured(index, space, made, recall, seed)
        with file_lock(index.folder / RUN_LOCK):  # another process may add another layer's
            now = IndexMeta.read(index.folder)
            index.meta = dataclasses.replace(now, ann={**now.ann, space.name: told})
            index.meta.write(index.folder)
    return {space.name: index.meta.ann[space.name] for space in spaces}


def search_ann(
    index: TokenIndex, space: Space, queries: FloatArray, allowed: Allowed, k: int
) -> TopK:
    """Return the k best tokens of each query that faiss proposes."""
    told = index.meta.ann.get(space.name)
    if told is None:
        known = ", ".join(index.meta.ann) or "none"
        raise ConfigError(
            f"The index {index.folder} has no faiss index for {space.name} (it has: "
            f"{known}). Make one with: elmo index -o {index.folder} --ann LAYER, or search exactly."
        )
    faiss = _faiss()
    path = index.folder / f"ann-{slug(space.name)}.faiss"
    try:
        made = faiss.read_index(str(path), faiss.IO_FLAG_MMAP)
    except RuntimeError as error:
        raise ConfigError(
            f"{path} cannot be read. Make it again with: elmo index -o {index.folder} --ann LAYER"
        ) from error
    return _search(faiss, made, index, space, queries, allowed, k, told["probes"])


def _search(
    faiss: Any,
    made: Any,
    index: TokenIndex,
    space: Space,
    queries: FloatArray,
    allowed: Allowed,
    k: int,
    probes: int,
) -> TopK:
    found = TopK(k, len(queries))
    n = index.tokens
    for row, query in enumerate(queries):
        own = slice(row, row + 1)
        filters = {} if allowed.everything else {"sel": _selector(faiss, allowed, own)}
        parameters = faiss.SearchParametersIVF(nprobe=probes, **filters)
        scorer = Scorer(index, [space], [query[None]])
        candidates = _MORE * k
        while True:
            _, proposed = made.search(query[None], min(candidates, n), params=parameters)
            ids = np.sort(proposed[0][proposed[0] >= 0])
            best = TopK(k)
            if len(ids):
                scores = scorer.scores(ids)[0]
                scores[allowed.refused(ids, own)] = -np.inf
                best.add(scores, ids, allowed.groups(ids))
            # Groups may have left less than was asked for: propose more, as long as there is more.
            if best.ids[0, -1] >= 0 or len(ids) < candidates or candidates >= n:
                break
            candidates *= 4
        found.scores[row], found.ids[row] = best.scores[0], best.ids[0]
    return found


def _selector(faiss: Any, allowed: Allowed, own: slice) -> Any:
    """Tell faiss which tokens one query may find."""
    n = allowed.index.tokens
    bits = [
        ~allowed.refused(np.arange(first, min(first + _BLOCK, n)), own)[0]
        for first in range(0, n, _BLOCK)
    ]
    return faiss.IDSelectorBitmap(np.packbits(np.concatenate(bits), bitorder="little"))


def _trained(faiss: Any, index: TokenIndex, space: Space, seed: int) -> Any:
    """Return an empty faiss index whose cells are learned from some of the vectors."""
    n = index.tokens
    cells = 1 << max(0, round(np.log2(2 * np.sqrt(n))))
    while cells > 1 and cells * 39 > n:  # fewer vectors per cell than k-means wants
        cells //= 2
    made = faiss.index_factory(index.meta.dim, f"IVF{cells},SQ8", faiss.METRIC_INNER_PRODUCT)
    made.cp.seed = seed
    draw = np.random.default_rng(seed)
    sample = np.sort(draw.choice(n, size=min(n, _PER_CELL * cells), replace=False))
    made.train(vectors_of(index, space, sample))
    return made


def _measured(
    index: TokenIndex, space: Space, made: Any, wanted: float, seed: int
) -> dict[str, Any]:
    """Find the fewest cells to look into, and say what they reach."""
    from elmokit.search.index import Query

    faiss = _faiss()
    draw = np.random.default_rng(seed + 1)
    tokens = np.sort(draw.choice(index.tokens, size=min(index.tokens, _QUERIES), replace=False))
    queries = [Query(index.token(token).at, token=token) for token in tokens.tolist()]
    rules = Rules(distinct="token")
    exact = search(index, queries, _K, [space], rules)[0]
    vectors = query_vectors(index, queries, space)
    allowed = Allowed(index, queries, rules, 1)
    last = np.where(np.isfinite(exact.scores), exact.scores, np.inf).min(axis=1, keepdims=True)
    asked = np.isfinite(exact.scores).sum()
    probes, recall = 1, 0.0
    while True:
        found = _search(faiss, made, index, space, vectors, allowed, _K, probes)
        # A token that is as near as the last of the exact ones is as right as they are.
        recall = float((found.scores >= last).sum() / max(asked, 1))
        if recall >= wanted or probes >= made.nlist:
            break
        probes = min(2 * probes, made.nlist)
    return {
        "kind": f"IVF{made.nlist},SQ8",
        "probes": probes,
        "recall_at_10": round(recall, 4),
        "wanted": wanted,
        "queries": len(queries),
    }


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise DependencyError("faiss-cpu", "search", "A faiss index") from error
    return faiss
