"""`/v1/embed`: vectors of sentences; `/v1/embeddings`: the same for OpenAI's clients."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from elmokit.embed.layer_choice import LayerChoice
from elmokit.embed.vectors import FloatArray
from elmokit.serve import answers, formats
from elmokit.serve.errors import RequestRejected, check_limit
from elmokit.serve.requests import EmbeddingsRequest, EmbedRequest
from elmokit.serve.routes.common import OrjsonRoute, choices_of, layers_of, service_of
from elmokit.serve.service import Service
from elmokit.serve.texts import Texts, texts_of
from elmokit.text.sentences import split_sentences

router = APIRouter(tags=["vectors"], route_class=OrjsonRoute)

#: Maximum number of values in JSON that is written on the event loop.
_SMALL = 65536
_BINARY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}


@router.post(
    "/v1/embed",
    response_model=answers.EmbedAnswer,
    responses={200: {"content": {formats.NPY: _BINARY, formats.ARROW: _BINARY}}},
)
async def embed(body: EmbedRequest, request: Request) -> Response:
    """Return the layers h_{k,j} of every token, a mix of them, or their mean over a sentence."""
    service = service_of(request)
    form = formats.negotiate(request.headers.get("accept"))
    name, model = service.hosted.model(body.model)
    choices = choices_of(body, model.config.n_layers, body.gamma)
    stacked = isinstance(body.layer, list) or body.layer == "all"
    dim = choices[0].dim(model.config.output_dim)
    if any(choice.dim(model.config.output_dim) != dim for choice in choices):
        raise RequestRejected(
            422, "Request 'concat' separately, because its vectors are longer.", param="layer"
        )
    texts = await texts_of(service, name, body.sentences)
    pooled = body.pooling == "mean"
    if pooled:
        _check_not_empty(texts)

    def keep(layers: FloatArray) -> FloatArray:
        chosen = np.stack([choice.apply(layers) for choice in choices])
        chosen = chosen if stacked else chosen[0]
        return chosen.mean(axis=-2, keepdims=True) if pooled else chosen

    rows = len(texts.tokens) if pooled else sum(texts.lengths)
    values = rows * len(choices) * dim
    vectors = await layers_of(request, name, body.state, texts, keep, values)
    names = [int(c.name) if c.name.isdigit() else c.name for c in choices]
    about = {
        "model": name,
        "state": body.state,
        "layer": names if stacked else names[0],
        "pooling": body.pooling,
        "dim": dim,
    }
    if form == formats.NPY:
        lengths = [1] * len(vectors) if pooled else texts.lengths
        headers = {"X-Elmo-Model": name}
        if texts.warnings:
            headers["X-Elmo-Warnings"] = str(len(texts.warnings))
        return formats.npy(vectors, lengths, headers)
    if form == formats.ARROW:
        return await service.run_in_thread(formats.arrow, vectors, texts, about)
    sentences = [
        {**sentence, "vectors": np.ascontiguousarray(h[..., 0, :] if pooled else h)}
        for sentence, h in zip(texts.sentences(), vectors, strict=True)
    ]
    answer = {**texts.answer(name, body.state), **about, "sentences": sentences}
    return await _as_json(service, answer, values)


@router.post("/v1/embeddings", response_model=answers.EmbeddingsAnswer)
async def embeddings(body: EmbeddingsRequest, request: Request) -> Response:
    """Return one vector per text: the mean over its tokens of the average of all layers.

    A text can have several sentences, which are embedded independently.
    """
    service = service_of(request)
    name, model = service.hosted.model(body.model)
    dim = model.config.output_dim
    if body.dimensions not in (None, dim):
        raise RequestRejected(
            422,
            f"Invalid dimensions {body.dimensions}: the vectors of '{name}' have {dim} dimensions "
            "and cannot be shortened.",
            param="dimensions",
        )
    inputs = [body.input] if isinstance(body.input, str) else body.input
    check_limit("max_sentences", service.limits.sentences, len(inputs), "texts")
    sentences, owners = await service.run_in_thread(_split, inputs)
    texts = await texts_of(service, name, sentences)
    counts = np.bincount(owners, weights=texts.lengths, minlength=len(inputs)).astype(int)
    if empty := [i for i, n in enumerate(counts) if not n]:
        raise RequestRejected(422, f"Text {empty[0]} has no words. Remove it.", param="input")
    average = LayerChoice.parse("average", model.config.n_layers)

    def keep(layers: FloatArray) -> FloatArray:
        total: FloatArray = average.apply(layers).sum(axis=0)
        return total

    sums = await layers_of(request, name, "reset", texts, keep, len(sentences) * dim)
    means = np.zeros((len(inputs), dim), dtype=np.float32)
    np.add.at(means, owners, np.stack(sums))
    means /= counts[:, None]
    data = [
        {"object": "embedding", "index": i, "embedding": _encoded(row, body.encoding_format)}
        for i, row in enumerate(means)
    ]
    n = int(counts.sum())
    usage = {"prompt_tokens": n, "total_tokens": n}
    answer = {"object": "list", "data": data, "model": name, "usage": usage}
    return await _as_json(service, answer, means.size)


async def _as_json(service: Service, answer: Any, values: int) -> Response:
    """Return JSON; a large response is written on another thread."""
    if values <= _SMALL:
        return formats.json_response(answer)
    return await service.run_in_thread(formats.json_response, answer)


def _encoded(row: FloatArray, form: str) -> FloatArray | str:
    return row if form == "float" else base64.b64encode(row.astype("<f4").tobytes()).decode()


def _split(inputs: list[str]) -> tuple[list[str], list[int]]:
    """Return the sentences of texts, and the number of the text that each is from."""
    spans = [(text[a:b], i) for i, text in enumerate(inputs) for a, b in split_sentences(text)]
    return [sentence for sentence, _ in spans], [i for _, i in spans]


def _check_not_empty(texts: Texts) -> None:
    for i, n in enumerate(texts.lengths):
        if not n:
            raise RequestRejected(
                422, f"Sentence {i} has no tokens to average. Remove it.", param="sentences"
            )
