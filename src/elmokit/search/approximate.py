"""Approximate search of large indexes: an inverted file (IVF) over the vectors of a stored layer.

A query reads only the nearest partitions. The candidates from the database are scored again with
the stored vectors, so scores are exact and all filters apply, but neighbors in other partitions are
missed. The number of partitions to read is determined with a sample of tokens: it is the smallest
power of two with which a search finds the required fraction of the nearest neighbors of these
tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from elmokit.embed.layer_choice import LayerChoice
from elmokit.embed.topk import TopK
from elmokit.errors import ConfigError
from elmokit.search.files import MANIFEST, column_name, database_errors, import_lance, table_path
from elmokit.search.index import TokenIndex
from elmokit.search.neighbors import NeighborFilter, Query, SearchRequest
from elmokit.storage.lock import run_lock

_SAMPLE_SIZE = 200  # tokens that are used as queries to measure recall
_SAMPLE_K = 10  # neighbors per query
_CANDIDATES = 10  # candidates that are scored again, per requested neighbor


def search_approximately(index: TokenIndex, request: SearchRequest) -> list[TopK]:
    """For each layer, return the k candidates nearest to each query."""
    results = []
    for layer, choice in enumerate(request.choices):
        if choice.label not in index.meta.ann:
            available = ", ".join(index.meta.ann) or "none"
            raise ConfigError(
                f"The index {index.folder} has no approximate index for {choice.label}; available: "
                f"{available}. Add one with: elmo index -o {index.folder} --ann LAYER, or use "
                "exact search."
            )
        best = TopK(request.k, len(request.queries.ids))
        for row in range(len(request.queries.ids)):
            query = request.queries.select(row, layer)
            nearest = _search(index, choice, request._replace(queries=query, choices=[choice]))
            best.scores[row], best.ids[row] = nearest.scores[0], nearest.ids[0]
        results.append(best)
    return results


def _search(index: TokenIndex, choice: LayerChoice, request: SearchRequest) -> TopK:
    """Return the k candidates nearest to one query in one layer."""
    nearest = {
        "column": column_name(choice),
        "q": request.queries.vectors[0][0].astype(np.float16),
        "metric": "cosine",
        "nprobes": index.meta.ann[choice.label]["probes"],
    }
    n_candidates = min(_CANDIDATES * request.k, index.n_tokens)
    while True:
        with database_errors(index.folder):
            rows = index.tables["tokens"].to_table(
                columns=[*index.columns([choice]), "_distance"],
                nearest={**nearest, "k": n_candidates},
                filter=_condition(index, request),
                prefilter=True,
            )
        best = index.compare(rows.to_batches(), request)[0]
        # If fewer than k candidates pass the filter, get more.
        if best.ids[0, -1] >= 0 or len(rows) < n_candidates or n_candidates == index.n_tokens:
            return best
        n_candidates = min(4 * n_candidates, index.n_tokens)


def _condition(index: TokenIndex, request: SearchRequest) -> str | None:
    """Return the SQL filter for words. `ExactSearch` applies the other filters."""
    if request.filter.words == "any":
        return None
    is_same_word = index.same_word_filter(request.queries.words)
    return is_same_word if request.filter.words == "same" else f"NOT ({is_same_word})"


# --------------------------------------------------------------------------------------- building


def add_ann(
    index: TokenIndex, choices: Sequence[LayerChoice], *, recall: float = 0.95
) -> TokenIndex:
    """Add an approximate index for each of the given layers.

    Args:
        index: The index; its directory is changed.
        choices: Stored layers other than layer 0, which has one vector per word.
        recall: The required recall: the mean fraction of the 10 nearest tokens that a search must
            find.

    Returns:
        The index with the new approximate indexes; `meta.ann` has their measured recall.
    """
    if not 0 < recall <= 1:
        raise ConfigError(
            f"Invalid recall {recall}: expected a number greater than 0 and at most 1."
        )
    with run_lock(index.folder):
        index = TokenIndex.open(index.folder)
        for choice in choices:
            index = _add(index, choice, recall)
    return index


def _add(index: TokenIndex, choice: LayerChoice, recall: float) -> TokenIndex:
    if choice.number == 0 or index.meta.stored.get(choice.label) != list(choice.weights):
        if choice.number == 0:
            problem = "Layer 0 has one vector per word, so it cannot have an approximate index"
        else:
            problem = f"An approximate index requires the stored vectors of {choice.label}"
        raise ConfigError(
            f"{problem}. The index {index.folder} stores: {', '.join(index.meta.stored)}. Choose a "
            "stored layer other than layer 0, or build an index with: elmo index TEXT -o DIR "
            f"--layer {choice.name if choice.number != 0 else 'top'}"
        )
    table = import_lance().dataset(table_path(index.folder, "tokens"))
    if table.version != index.meta.versions["tokens"]:  # an interrupted call left a newer version
        table = index.tables["tokens"]
        table.restore()
    partitions = 1 << max(0, round(np.log2(np.sqrt(index.n_tokens))))
    table.create_index(
        column_name(choice), "IVF_FLAT", metric="cosine", num_partitions=partitions, replace=True
    )
    versions = {**index.meta.versions, "tokens": table.version}
    meta = replace(index.meta, versions=versions)
    updated = TokenIndex(index.folder, meta, {**index.tables, "tokens": table})
    parameters = _measure(updated, choice, partitions, recall)
    updated.meta = replace(meta, ann={**meta.ann, choice.label: parameters})
    updated.meta.write(index.folder / MANIFEST)
    return updated


def _measure(
    index: TokenIndex, choice: LayerChoice, partitions: int, required: float
) -> dict[str, Any]:
    """Find how many partitions (a power of two) must be read to reach the required recall."""
    rng = np.random.default_rng(0)
    sample = rng.choice(
        index.n_tokens, size=min(index.n_tokens, _SAMPLE_SIZE), replace=False
    ).tolist()
    tokens = index.read_tokens(sorted(sample))
    queries = index.query_tokens([Query(t.marked, token_id=t.token_id) for t in tokens], [choice])
    request = SearchRequest(queries, [choice], _SAMPLE_K, NeighborFilter(distinct="token"))
    scores = index.search_exactly(request)[0].scores
    # Other tokens with the lowest score of the exact search are equally correct.
    lowest = np.where(np.isfinite(scores), scores, np.inf).min(axis=1, keepdims=True)
    expected = max(int(np.isfinite(scores).sum()), 1)
    probes = 1
    while True:
        index.meta = replace(index.meta, ann={choice.label: {"probes": probes}})
        nearest = search_approximately(index, request)[0]
        recall = float((nearest.scores >= lowest).sum() / expected)
        if recall >= required or probes >= partitions:
            break
        probes = min(2 * probes, partitions)
    return {
        "partitions": partitions,
        "probes": probes,
        "recall_at_10": round(recall, 4),
        "required_recall": required,
        "queries": len(sample),
    }
