"""`/v1/neighbors`: the nearest tokens in context, from an index of `elmo index`."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from elmokit.embed.static import StaticVectors
from elmokit.embed.tokenized import tokens_of
from elmokit.errors import ElmoError
from elmokit.search.index import Query, TokenIndex
from elmokit.search.neighbors import Rules
from elmokit.serve import answers, formats
from elmokit.serve.errors import RequestRejected
from elmokit.serve.requests import MarkedSentence, NeighborsRequest
from elmokit.serve.routes.common import OrjsonRoute, choices_of, layers_of, service_of
from elmokit.serve.texts import find_uses, texts_of
from elmokit.text.marked import Marked

router = APIRouter(tags=["neighbors"], route_class=OrjsonRoute)


@router.post("/v1/neighbors", response_model=answers.NeighborsAnswer)
async def neighbors(body: NeighborsRequest, request: Request) -> Response:
    """Return the tokens of the index that are nearest to words in context."""
    service = service_of(request)
    hosted = service.hosted
    index = hosted.index
    if index is None:
        raise RequestRejected(
            404,
            "The service has no index. Build one with: elmo index TEXT -o INDEX, and start the "
            "service with: elmo serve --index INDEX",
        )
    name, model = hosted.model(hosted.index_model)
    is_set = "layer" in body.model_fields_set or body.mix is not None
    choices = choices_of(body, model.config.n_layers) if is_set else None
    queries = [_query(query, i, index) for i, query in enumerate(body.queries)]
    new = [i for i, query in enumerate(queries) if query.token is None]
    texts = await texts_of(service, name, [list(queries[i].at.tokens) for i in new])
    layers = await layers_of(request, name, index.meta.state, texts)
    for i, h in zip(new, layers, strict=True):
        queries[i] = replace(queries[i], layers=h[:, queries[i].at.position])
    rules = Rules(body.words, body.distinct, body.other_sentences)
    try:
        near = await service.run_in_thread(
            index.search, queries, choices, k=body.k, rules=rules, min_count=body.min_count
        )
    except ElmoError as error:
        message = str(error).replace(str(index.folder), "of the service")
        raise RequestRejected(422, message, param="layer") from error
    results = [_shown(result.to_dict()) for result in near]
    if body.static and hosted.static is not None:
        for row in results:
            query = row["query"]
            word = query["tokens"][query["position"]]
            row["static"] = await service.run_in_thread(_static, hosted.static, word, body.k)
    values = {"model": name, "index": about_index(index, name), "results": results}
    return formats.json_response(values)


def about_index(index: TokenIndex, model: str) -> dict[str, Any]:
    """Describe an index, without revealing where it is stored."""
    meta = index.meta
    return {
        "model": model,
        "tokens": index.tokens,
        "sentences": index.sentences,
        "state": meta.state,
        "stored_layers": list(meta.layers),
        "layers": [choice.label for choice in index.choices],
        "inputs": [Path(str(name)).name for name in meta.inputs],
    }


def _query(query: str | int | MarkedSentence, i: int, index: TokenIndex) -> Query:
    """Parse a query; its vectors are computed later, unless it is a token of the index."""
    if isinstance(query, int):
        if query >= index.tokens:
            raise RequestRejected(
                422,
                f"Query {i}: invalid token {query}; expected 0 to {index.tokens - 1}.",
                param="queries",
            )
        return Query(index.token(query).at, token=query)
    try:
        if isinstance(query, str):
            return Query(Marked.read(query))
        if query.position is not None:
            return Query(Marked.read(tokens_of(query.sentence, 0)[0], query.position))
        [use] = find_uses([query.sentence], query.word)
        return Query(Marked(tuple(use.tokens), use.positions[0]))
    except ElmoError as error:
        raise RequestRejected(422, f"Query {i}: {error}", param="queries") from error


def _shown(values: dict[str, Any]) -> dict[str, Any]:
    """Reduce paths to file names."""
    for hit in chain.from_iterable(values["neighbors"].values()):
        for key in ("where", "file"):
            if isinstance(hit.get(key), str):
                hit[key] = Path(hit[key]).name
    return values


def _static(table: StaticVectors, word: str, k: int) -> list[dict[str, Any]] | None:
    if word not in table:
        return None
    return [{"word": w, "score": round(c, 6)} for w, c in table.neighbors(word, k)]
