"""Approximate search of large indices: an inverted file (IVF) over the vectors of a stored layer.

A query looks into the nearest cells only. The candidates of the database are compared again with
the stored vectors, so scores are exact and all filters hold; what may be missing are tokens in
other cells. How many cells to look into is measured: the fewest with which some tokens of the index
find the requested fraction of their nearest neighbors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from elmokit.embed.layer_choice import LayerChoice
from elmokit.embed.topk import TopK
from elmokit.errors import ConfigError
from elmokit.search.files import MANIFEST, column_name, import_lance, reading, table_path
from elmokit.search.index import Query, TokenIndex
from elmokit.search.neighbors import ExactSearch, Rules, Tokens
from elmokit.storage.lock import run_lock

_QUERIES = 200
_K = 10
_CANDIDATES = 10  # candidates that are compared again, per requested neighbor


def search_approximately(
    index: TokenIndex,
    queries: Tokens,
    choices: Sequence[LayerChoice],
    k: int,
    rules: Rules,
    min_count: int = 1,
) -> list[TopK]:
    """Return the k nearest tokens of each query among the candidates, for each layer."""
    found = []
    for i, choice in enumerate(choices):
        about = index.meta.ann.get(choice.label)
        if about is None:
            known = ", ".join(index.meta.ann) or "none"
            raise ConfigError(
                f"The index {index.folder} has no approximate index for {choice.label} (it has: "
                f"{known}). Add one with: elmo index -o {index.folder} --ann LAYER, or search "
                "exactly."
            )
        own = queries._replace(vectors=[queries.vectors[i]])
        found.append(_search(index, own, choice, k, rules, min_count, about["probes"]))
    return found


def _search(
    index: TokenIndex,
    queries: Tokens,
    choice: LayerChoice,
    k: int,
    rules: Rules,
    min_count: int,
    probes: int,
) -> TopK:
    found = TopK(k, len(queries.ids))
    for row in range(len(queries.ids)):
        query = queries.select(slice(row, row + 1))
        nearest = {
            "column": column_name(choice),
            "q": query.vectors[0][0].astype(np.float16),
            "metric": "cosine",
            "nprobes": probes,
        }
        candidates = min(_CANDIDATES * k, index.tokens)
        while True:
            with reading(index.folder):
                rows = index.tables["tokens"].to_table(
                    columns=[*index.columns([choice]), "_distance"],
                    nearest={**nearest, "k": candidates},
                    filter=_condition(index, query, rules),
                    prefilter=True,
                )
            exact = ExactSearch(query, k, rules)
            for batch in rows.to_batches():
                exact.add(index.read_tokens(batch, [choice], min_count))
            best = exact.best[0]
            # Rules may leave fewer than k: get more candidates, as long as there are more.
            if best.ids[0, -1] >= 0 or len(rows) < candidates or candidates == index.tokens:
                break
            candidates = min(4 * candidates, index.tokens)
        found.scores[row], found.ids[row] = best.scores[0], best.ids[0]
    return found


def _condition(index: TokenIndex, query: Tokens, rules: Rules) -> str:
    """Return the SQL filter for one query."""
    conditions = [f"token != {query.ids[0]}"]
    if rules.words != "any":
        same = index.same_words(query.words)
        conditions.append(same if rules.words == "same" else f"NOT ({same})")
    if rules.other_sentences:
        conditions.append(f"sentence_hash != {query.sentences[0]}")
    return " AND ".join(conditions)


# --------------------------------------------------------------------------------------- building


def add_ann(
    index: TokenIndex, choices: Sequence[LayerChoice], *, recall: float = 0.95, seed: int = 0
) -> TokenIndex:
    """Add an approximate index for each of some stored layers.

    Args:
        index: The index; its directory is changed.
        choices: Stored layers other than layer 0, which has one vector per word.
        recall: The required mean fraction of the 10 nearest tokens that are found.
        seed: Random seed for the choice of tokens used to measure recall.

    Returns:
        The index with the new approximate indices; `meta.ann` has their measured recall.
    """
    if not 0 < recall <= 1:
        raise ConfigError(f"Invalid recall {recall}: expected a value above 0 and at most 1.")
    with run_lock(index.folder):
        index = TokenIndex.open(index.folder)
        for choice in choices:
            index = _add(index, choice, recall, seed)
    return index


def _add(index: TokenIndex, choice: LayerChoice, recall: float, seed: int) -> TokenIndex:
    if choice.number == 0 or index.meta.stored.get(choice.label) != list(choice.weights):
        known = ", ".join(index.meta.stored.keys() - {"layer 0"}) or "none"
        raise ConfigError(
            f"An approximate index needs the vectors of {choice.label}, but the index "
            f"{index.folder} stores: {known}. Choose one of these, or build an index with: elmo "
            f"index TEXT -o DIR --layer {choice.name}"
        )
    table = import_lance().dataset(table_path(index.folder, "tokens"))
    if table.version != index.meta.versions["tokens"]:  # left by an interrupted call
        table = index.tables["tokens"]
        table.restore()
    cells = 1 << max(0, round(np.log2(np.sqrt(index.tokens))))
    table.create_index(
        column_name(choice), "IVF_FLAT", metric="cosine", num_partitions=cells, replace=True
    )
    versions = {**index.meta.versions, "tokens": table.version}
    meta = index.meta.model_copy(update={"versions": versions})
    changed = TokenIndex(index.folder, meta, {**index.tables, "tokens": table})
    about = _measure(changed, choice, cells, recall, seed)
    changed.meta = meta.model_copy(update={"ann": {**meta.ann, choice.label: about}})
    changed.meta.write(index.folder / MANIFEST)
    return changed


def _measure(
    index: TokenIndex, choice: LayerChoice, cells: int, wanted: float, seed: int
) -> dict[str, Any]:
    """Find the fewest cells that reach the requested recall."""
    draw = np.random.default_rng(seed)
    tokens = draw.choice(index.tokens, size=min(index.tokens, _QUERIES), replace=False).tolist()
    queries = [Query(hit.at, token=hit.token) for hit in index.hits(sorted(tokens))]
    asked = index.as_tokens(queries, [choice])
    rules = Rules(distinct="token")
    exact = ExactSearch(asked, _K, rules)
    for batch in index.scan([choice]):
        exact.add(index.read_tokens(batch, [choice]))
    scores = exact.best[0].scores
    # Tokens with the score of the last one of the exact search are equally correct.
    last = np.where(np.isfinite(scores), scores, np.inf).min(axis=1, keepdims=True)
    expected = max(int(np.isfinite(scores).sum()), 1)
    probes = 1
    while True:
        found = _search(index, asked, choice, _K, rules, 1, probes)
        recall = float((found.scores >= last).sum() / expected)
        if recall >= wanted or probes >= cells:
            break
        probes = min(2 * probes, cells)
    return {
        "cells": cells,
        "probes": probes,
        "recall_at_10": round(recall, 4),
        "wanted": wanted,
        "queries": len(queries),
    }
