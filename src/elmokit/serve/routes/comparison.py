"""Routes that compare vectors of tokens: similarities, projections and nearest neighbors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from elmokit.embed.layer_choice import LayerChoice
from elmokit.embed.static import StaticVectors
from elmokit.embed.tokenized import as_tokens
from elmokit.embed.vectors import FloatArray
from elmokit.embed.vectors import similarity as cosine_similarity
from elmokit.errors import ConfigError, DataError, ElmoError
from elmokit.plot import plane
from elmokit.progress import plural
from elmokit.search.index import TokenIndex
from elmokit.search.neighbors import NeighborFilter, Query
from elmokit.serve import responses
from elmokit.serve.errors import RequestRejected, check_limit
from elmokit.serve.requests import (
    FIXED_LIMITS,
    MarkedSentence,
    NeighborsRequest,
    ProjectRequest,
    SimilarityRequest,
)
from elmokit.serve.routes.common import (
    OrjsonRoute,
    compute_layers,
    find_uses,
    get_service,
    json_response,
    parse_layer_choices,
    run_queued,
    run_tokenizer,
    static_neighbors,
    tokenize_request,
)
from elmokit.text.marked import MarkedWord

router = APIRouter(tags=["comparison"], route_class=OrjsonRoute)

_STATIC_NEIGHBORS = 8
#: Number of tokens in the index that can be searched in about the time it takes to embed a token.
_TOKENS_PER_COST = 2000


# ------------------------------------------------------------------------------------- similarity


@router.post("/v1/similarity", response_model=responses.SimilarityResponse)
async def similarity(body: SimilarityRequest, request: Request) -> Response:
    """Return the cosine similarities of all pairs of tokens in each layer."""
    static = get_service(request).resources.static
    texts = await tokenize_request(request, body.model, body.sentences)
    max_tokens = FIXED_LIMITS["matrix_tokens"]
    check_limit("matrix_tokens", max_tokens, sum(texts.lengths), "tokens")
    choices = parse_layer_choices(body, texts.elmo)
    sentences = await compute_layers(request, texts, body.state)
    words = [token for tokens in texts.tokens for token in tokens]

    def compare() -> Response:
        layers = np.concatenate(sentences, axis=1)
        matrices: list[dict[str, Any]] = [
            {"name": c.label, "matrix": _cosines(c.apply(layers))} for c in choices
        ]
        if body.static and static is not None:
            matrices.append({"name": "static", "matrix": _static_cosines(static, words)})
        response = {
            **texts.response(body.state),
            "sentences": texts.sentences(),
            "starts": np.cumsum([0, *texts.lengths])[:-1],
            "layers": matrices,
        }
        if body.gram:
            response["gram"] = np.round(np.einsum("iad,jbd->ijab", layers, layers), 4)
        return json_response(response)

    return await run_queued(request, "similarity", compare, len(words))


def _cosines(vectors: FloatArray) -> FloatArray:
    return cosine_similarity(vectors, vectors).clip(-1.0, 1.0).round(5)


def _static_cosines(table: StaticVectors, words: Sequence[str]) -> FloatArray:
    """Return the cosines of static vectors; NaN (null in JSON) for unknown words."""
    vectors, known = table.look_up(words)
    cosines = _cosines(vectors)
    cosines[~np.outer(known, known)] = np.nan
    return cosines


# ---------------------------------------------------------------------------------------- project


@router.post("/v1/project", response_model=responses.ProjectResponse)
async def project(body: ProjectRequest, request: Request) -> Response:
    """Return two-dimensional projections of the uses of a word in each layer, with clusters."""
    senses = [None] * len(body.sentences) if body.senses is None else body.senses
    if len(senses) != len(body.sentences):
        raise RequestRejected(
            f"Found {plural(len(senses), 'sense')} for {plural(len(body.sentences), 'sentence')}; "
            "expected one per sentence (null if unknown).",
            param="senses",
        )
    uses = await run_tokenizer(request, partial(find_uses, body.sentences, body.word))
    points = [
        {"sentence": i, "position": k, "word": use.tokens[k], "sense": senses[i]}
        for i, use in enumerate(uses)
        for k in use.positions
    ]
    check_limit("uses", FIXED_LIMITS["uses"], len(points), "uses of the word")
    words = [str(point["word"]) for point in points]
    is_one_word = len({word.casefold() for word in words}) == 1
    word = body.word or (words[0] if is_one_word else None)
    texts = await tokenize_request(request, body.model, [use.tokens for use in uses])
    texts = replace(texts, offsets=[use.offsets for use in uses])
    choices = parse_layer_choices(body, texts.elmo)
    static = get_service(request).resources.static
    layers = await compute_layers(request, texts, body.state)
    vectors = np.concatenate(  # (L + 1, n, 2D)
        [h[:, use.positions] for h, use in zip(layers, uses, strict=True)], axis=1
    )

    def project() -> Response:
        response = {
            **texts.response(body.state),
            "word": word,
            "sentences": texts.sentences(),
            "points": points,
            "sentences_without_word": [i for i, use in enumerate(uses) if not use.positions],
            "layers": _project_layers(
                vectors, choices, [p["sense"] for p in points], body.clusters
            ),
            "static": static_neighbors(static, word, _STATIC_NEIGHBORS),
        }
        return json_response(response)

    return await run_queued(request, "project", project, len(points))


def _project_layers(
    vectors: FloatArray,
    choices: Sequence[LayerChoice],
    senses: Sequence[Any],
    clusters: str | int,
) -> list[dict[str, Any]]:
    """Project vectors onto one plane per layer choice.

    All planes are aligned with the plane of the last single layer.
    """
    selected = [choice.apply(vectors) for choice in choices]
    layers = [i for i, choice in enumerate(choices) if choice.number is not None]
    planes = plane.principal_planes(selected, reference=layers[-1] if layers else 0)
    labeled = [i for i, sense in enumerate(senses) if sense is not None]
    gold_senses = [str(senses[i]) for i in labeled]
    rows = []
    for choice, points, (coordinates, explained) in zip(choices, selected, planes, strict=True):
        cluster_ids = plane.cluster(points, None if clusters == "auto" else int(clusters))
        purity = plane.purity(cluster_ids[labeled].tolist(), gold_senses) if labeled else None
        rows.append(
            {
                "name": choice.label,
                "coordinates": np.round(coordinates, 5),
                "explained": explained,
                "clusters": cluster_ids,
                "sense_purity": purity,
                "mean_cosine": round(plane.mean_cosine(points), 4),
            }
        )
    return rows


# -------------------------------------------------------------------------------------- neighbors


@router.post("/v1/neighbors", response_model=responses.NeighborsResponse)
async def neighbors(body: NeighborsRequest, request: Request) -> Response:
    """Return the nearest neighbors of words in context among the tokens in the index."""
    resources = get_service(request).resources
    index = resources.index
    if index is None:
        raise RequestRejected(
            "The service has no index. Build one with `elmo index TEXT -o INDEX`, and start the "
            "service with `elmo serve --index INDEX`.",
            404,
        )
    name, elmo = resources.model(resources.index_model)
    has_layer = "layer" in body.model_fields_set or body.mix is not None
    choices = parse_layer_choices(body, elmo) if has_layer else None

    def parse_queries() -> list[Query]:
        return [_parse_query(query, i, index) for i, query in enumerate(body.queries)]

    filter = NeighborFilter(body.words, body.distinct, body.other_sentences)
    static = resources.static if body.static else None

    def search() -> list[dict[str, Any]]:
        results = index.search(queries, choices, k=body.k, filter=filter, min_count=body.min_count)
        static_lists = [static_neighbors(static, query.marked.word, body.k) for query in queries]
        return [
            {**result.to_dict(), "static": static_list}
            for result, static_list in zip(results, static_lists, strict=True)
        ]

    cost = index.n_tokens * len(choices or index.default_choices) // _TOKENS_PER_COST
    try:
        queries = await run_tokenizer(request, parse_queries)
        pending = [i for i, query in enumerate(queries) if query.token_id is None]
        sentences = [list(queries[i].marked.tokens) for i in pending]
        texts = await tokenize_request(request, name, sentences)
        layers = await compute_layers(request, texts, index.meta.state)
        for i, h in zip(pending, layers, strict=True):
            queries[i] = replace(queries[i], layers=h[:, queries[i].marked.position])
        results = await run_queued(request, "neighbors", search, cost)
    except ConfigError as error:
        message = str(error).replace(str(index.folder), "of the service")
        raise RequestRejected(message, param="layer") from error
    except DataError as error:  # the index is damaged or was removed
        raise RuntimeError("Cannot read the index") from error
    values = {"model": name, "index": describe_index(index, name), "results": results}
    return json_response(values)


def describe_index(index: TokenIndex, model: str) -> dict[str, Any]:
    """Describe an index without revealing its path."""
    meta = index.meta
    return {
        "model": model,
        "tokens": index.n_tokens,
        "sentences": index.n_sentences,
        "state": meta.state,
        "stored_layers": list(meta.layers),
        "layers": [choice.label for choice in index.default_choices],
        "inputs": meta.inputs,
    }


def _parse_query(query: str | int | MarkedSentence, i: int, index: TokenIndex) -> Query:
    """Parse a query. If it is a word in a sentence, the vectors are computed later."""
    if isinstance(query, int):
        if query >= index.n_tokens:
            raise RequestRejected(
                f"Query {i}: invalid token ID {query}; expected 0 to {index.n_tokens - 1}.",
                param="queries",
            )
        return Query(index.token(query).marked, token_id=query)
    try:
        if isinstance(query, str):
            return Query(MarkedWord.parse(query))
        if query.position is not None:
            return Query(MarkedWord.parse(as_tokens(query.sentence, 0)[0], query.position))
        [use] = find_uses([query.sentence], query.word)
        return Query(MarkedWord(tuple(use.tokens), use.positions[0]))
    except ElmoError as error:
        raise RequestRejected(f"Query {i}: {error}", param="queries") from error
