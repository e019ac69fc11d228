"""`/v1/embed`: vectors of sentences, and `/v1/embeddings`: the same for OpenAI's clients."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from elmokit.embed.layer_choice import LayerChoice
from elmokit.embed.vectors import FloatArray
from elmokit.serve import answers, formats
from elmokit.serve.errors import RequestRejected
from elmokit.serve.requests import EmbeddingsRequest, EmbedRequest, Json
from elmokit.serve.routes.common import (
    SMALL,
    Router,
    choices_of,
    layers_of,
    service_of,
    tokens_of,
    usage,
)
from elmokit.serve.service import Service
from elmokit.serve.texts import Texts, texts_of
from elmokit.text.sentences import split_sentences

router = Router("vectors")

_BINARY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}


@router.answer(
    *("POST", "/v1/embed", answers.EmbedAnswer, 404, 406),
    description="Vectors, in the format requested with Accept.",
    content={formats.NPY: _BINARY, formats.ARROW: _BINARY},
)
async def embed(body: Json[EmbedRequest], request: Request) -> Response:
    """Return h_{k,j} of every token, or a mix of its layers, or their mean over a sentence."""
    service = service_of(request)
    form = formats.wanted(request.headers.get("accept"))
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
    numbers = rows * len(choices) * dim
    vectors = await layers_of(request, name, body.state, texts, keep, numbers)
    about = {
        "model": name,
        "state": body.state,
        "layer": [_asked(choice) for choice in choices] if stacked else _asked(choices[0]),
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
        {**sentence, "vectors": np.ascontiguousarray(found[..., 0, :] if pooled else found)}
        for sentence, found in zip(tokens_of(texts), vectors, strict=True)
    ]
    values = {**about, "sentences": sentences, "usage": usage(texts), "warnings": texts.warnings}
    return await as_json(service, values, sum(found.size for found in vectors))


@router.answer(
    "POST",
    "/v1/embeddings",
    answers.EmbeddingsAnswer,
    404,
)
async def embeddings(body: Json[EmbeddingsRequest], request: Request) -> Response:
    """Return one vector per text: the mean over its tokens of the average of all layers.

    A text may have several sentences; each is read by itself.
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
    given = [body.input] if isinstance(body.input, str) else body.input
    service.limits.check_sentences(len(given))
    sentences, owners = await service.run_in_thread(_split, given)
    texts = await texts_of(service, name, sentences, most_sentences=10**9)
    counts = np.bincount(owners, weights=texts.lengths, minlength=len(given)).astype(int)
    if empty := [i for i, n in enumerate(counts) if not n]:
        raise RequestRejected(422, f"Text {empty[0]} has no words. Remove it.", param="input")
    average = LayerChoice.parse("average", model.config.n_layers)

    def keep(layers: FloatArray) -> FloatArray:
        total: FloatArray = average.apply(layers).sum(axis=0)
        return total

    sums = await layers_of(request, name, "reset", texts, keep, len(sentences) * dim)
    means = np.zeros((len(given), dim), dtype=np.float32)
    np.add.at(means, owners, np.stack(sums))
    means /= counts[:, None]
    data = [
        {"object": "embedding", "index": i, "embedding": _encoded(row, body.encoding_format)}
        for i, row in enumerate(means)
    ]
    n = int(counts.sum())
    used = {"prompt_tokens": n, "total_tokens": n}
    values = {"object": "list", "data": data, "model": name, "usage": used}
    return await as_json(service, values, means.size)


async def as_json(service: Service, values: Any, size: int) -> Response:
    """Answer with JSON of `size` numbers; a large one is written aside."""
    if size <= SMALL:
        return formats.json_response(values)
    return await service.run_in_thread(formats.json_response, values)


def _asked(choice: LayerChoice) -> str | int:
    return int(choice.name) if choice.name.isdigit() else choice.name


def _encoded(row: FloatArray, form: str) -> FloatArray | str:
    return row if form == "float" else base64.b64encode(row.astype("<f4").tobytes()).decode()


def _split(given: list[str]) -> tuple[list[str | list[str]], list[int]]:
    """Find the sentences of texts, and say which text each is of."""
    sentences: list[str | list[str]] = []
    owners: list[int] = []
    for i, text in enumerate(given):
        for start, end in split_sentences(text):
            sentences.append(text[start:end])
            owners.append(i)
    return sentences, owners


def _check_not_empty(texts: Texts) -> None:
    for i, n in enumerate(texts.lengths):
        if not n:
            raise RequestRejected(
                422, f"Sentence {i} has no tokens to average. Remove it.", param="sentences"
            )
