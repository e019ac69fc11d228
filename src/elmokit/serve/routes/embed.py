"""The vectors of sentences: `/v1/embed`, and `/v1/embeddings` for OpenAI clients.

The `Accept` header selects the response format of `/v1/embed`:

application/json                        the default
application/x-npy                       one float32 array with the vectors of all sentences; the
                                        header X-Elmo-Lengths contains the number of tokens of each
                                        sentence (1 with pooling)
application/vnd.apache.arrow.stream     one row per token (or per sentence, with pooling)
"""

from __future__ import annotations

import asyncio
import base64
import io
import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from elmokit.embed.layer_choice import LayerChoice
from elmokit.embed.vectors import FloatArray
from elmokit.serve import responses
from elmokit.serve.errors import RequestRejected
from elmokit.serve.requests import EmbeddingsRequest, EmbedRequest
from elmokit.serve.routes.common import (
    OrjsonRoute,
    Texts,
    compute_layers,
    json_response,
    parse_layer_choices,
    run_tokenizer,
    tokenize_request,
)
from elmokit.text.sentences import split_sentences

router = APIRouter(tags=["vectors"], route_class=OrjsonRoute)

_JSON = "application/json"
_NPY = "application/x-npy"
_ARROW = "application/vnd.apache.arrow.stream"
_BY_ACCEPT = {_JSON: _JSON, _NPY: _NPY, _ARROW: _ARROW, "application/*": _JSON, "*/*": _JSON}
_BINARY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}


@router.post(
    "/v1/embed",
    response_model=responses.EmbedResponse,
    responses={200: {"content": {_NPY: _BINARY, _ARROW: _BINARY}}},
)
async def embed(body: EmbedRequest, request: Request) -> Response:
    """Return the vectors of all tokens in the selected layers, or their mean per sentence."""
    media_type = _negotiate(",".join(request.headers.getlist("accept")))
    texts = await tokenize_request(request, body.model, body.sentences)
    choices = parse_layer_choices(body, texts.elmo, body.gamma)
    is_stacked = isinstance(body.layer, list) or body.layer == "all"
    dim, *other_dims = {choice.dim(texts.elmo.config.output_dim) for choice in choices}
    if other_dims:
        raise RequestRejected(
            "Cannot combine 'concat' with other layers, because its vectors are longer. Request it "
            "separately.",
            param="layer",
        )
    is_pooled = body.pooling == "mean"
    if is_pooled:
        _check_not_empty("sentences", texts.lengths)

    def reduce(layers: FloatArray) -> FloatArray:
        selected = np.stack([choice.apply(layers) for choice in choices])
        selected = selected if is_stacked else selected[0]
        return selected.mean(axis=-2, keepdims=True) if is_pooled else selected

    rows = len(texts.tokens) if is_pooled else sum(texts.lengths)
    values = rows * len(choices) * dim
    vectors = await compute_layers(request, texts, body.state, reduce, values)
    names = [int(c.name) if c.name.isdigit() else c.name for c in choices]
    info = {
        "model": texts.model,
        "state": body.state,
        "layer": names if is_stacked else names[0],
        "pooling": body.pooling,
        "dim": dim,
    }
    if media_type == _NPY:
        return _npy_response(vectors)
    if media_type == _ARROW:
        return await asyncio.to_thread(_arrow_response, vectors, texts, info)
    sentences = [
        {**sentence, "vectors": np.ascontiguousarray(h[..., 0, :] if is_pooled else h)}
        for sentence, h in zip(texts.sentences(), vectors, strict=True)
    ]
    return json_response({**texts.response(body.state), **info, "sentences": sentences})


def _negotiate(accept: str) -> str:
    """Return the supported format with the highest quality value in an `Accept` header."""
    qualities: dict[str, float] = {}
    for part in (accept or _JSON).lower().split(","):
        kind, _, parameters = part.partition(";")
        if media_type := _BY_ACCEPT.get(kind.strip()):
            quality = re.search(r"\bq=([01](\.[0-9]*)?)", parameters)
            qualities.setdefault(media_type, float(quality[1]) if quality else 1.0)
    best = max(qualities, key=qualities.__getitem__, default=_JSON)
    if qualities.get(best):
        return best
    raise RequestRejected(
        f"Unsupported Accept header '{accept:.80}': expected {_JSON}, {_NPY} or {_ARROW}.", 406
    )


def _npy_response(vectors: Sequence[FloatArray]) -> Response:
    """Return one array: the vectors of all sentences, concatenated along the token axis."""
    file = io.BytesIO()
    np.save(file, np.concatenate(vectors, axis=-2))
    headers = {"X-Elmo-Lengths": ",".join(str(h.shape[-2]) for h in vectors)}
    return Response(file.getvalue(), media_type=_NPY, headers=headers)


def _arrow_response(vectors: Sequence[FloatArray], texts: Texts, info: dict[str, Any]) -> Response:
    """Return a table with the columns sentence, token, start and end, and one column per layer.

    With pooling, the column tokens replaces token, start and end. The columns of layers are named
    as in the Parquet files of `elmo embed`: `vector`, or `layer_0` and so on.
    """
    try:
        import pyarrow as pa
    except ImportError:
        raise RequestRejected(
            "The Arrow format requires the package 'pyarrow' on the server. Install it with: pip "
            f"install 'elmokit[arrow]', or request {_JSON} or {_NPY}.",
            406,
        ) from None
    rows: list[tuple[Any, ...]]
    no_offsets: tuple[Any, Any] = (None, None)  # for lists of tokens
    if info["pooling"] == "mean":
        types = {"sentence": pa.int32(), "tokens": pa.list_(pa.string())}
        rows = list(enumerate(texts.tokens))
    else:
        types = {"sentence": pa.int32(), "token": pa.string()}
        types |= {"start": pa.int32(), "end": pa.int32()}
        rows = [
            (i, token, *span)
            for i, (tokens, offsets) in enumerate(zip(texts.tokens, texts.offsets, strict=True))
            for token, span in zip(tokens, offsets or [no_offsets] * len(tokens), strict=True)
        ]
    columns = {
        name: pa.array([row[k] for row in rows], kind)
        for k, (name, kind) in enumerate(types.items())
    }
    all_vectors, layer = np.concatenate(vectors, axis=-2), info["layer"]
    is_stacked = isinstance(layer, list)
    names = [f"layer_{name}" for name in layer] if is_stacked else ["vector"]
    for name, h in zip(names, all_vectors if is_stacked else [all_vectors], strict=True):
        columns[name] = pa.FixedSizeListArray.from_arrays(pa.array(h.reshape(-1)), h.shape[-1])
    table = pa.table(columns).replace_schema_metadata({"elmo": orjson.dumps(info)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Response(sink.getvalue().to_pybytes(), media_type=_ARROW)


# --------------------------------------------------------------------------------- OpenAI clients


@router.post("/v1/embeddings", response_model=responses.EmbeddingsResponse)
async def embeddings(body: EmbeddingsRequest, request: Request) -> Response:
    """Return one vector per text: the average of all layers, averaged over all tokens.

    A text can have several sentences, which are embedded independently.
    """
    inputs = [body.input] if isinstance(body.input, str) else body.input
    sentences, text_ids = await run_tokenizer(request, partial(_split_texts, inputs))
    texts = await tokenize_request(request, body.model, sentences)
    dim = texts.elmo.config.output_dim
    if body.dimensions not in (None, dim):
        raise RequestRejected(
            f"Invalid value for dimensions: {body.dimensions}. The vectors of '{texts.model}' have "
            f"{dim} dimensions and cannot be shortened.",
            param="dimensions",
        )
    counts = np.bincount(text_ids, weights=texts.lengths, minlength=len(inputs)).astype(int)
    _check_not_empty("input", counts)
    average = LayerChoice.parse("average", texts.elmo.config.n_layers)

    def reduce(layers: FloatArray) -> FloatArray:
        total: FloatArray = average.apply(layers).sum(axis=0)
        return total

    sums = await compute_layers(request, texts, "reset", reduce, len(sentences) * dim)
    means = np.zeros((len(inputs), dim), dtype=np.float32)
    np.add.at(means, text_ids, np.stack(sums))
    means /= counts[:, None]
    data = [
        {"object": "embedding", "index": i, "embedding": _encode(mean, body.encoding_format)}
        for i, mean in enumerate(means)
    ]
    n = int(counts.sum())
    usage = {"prompt_tokens": n, "total_tokens": n}
    response = {"object": "list", "data": data, "model": texts.model, "usage": usage}
    return json_response(response)


def _encode(vector: FloatArray, encoding: str) -> FloatArray | str:
    if encoding == "float":
        return vector
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


def _split_texts(inputs: list[str]) -> tuple[list[str], list[int]]:
    """Return the sentences of all texts, and the index of the text that contains each sentence."""
    pairs = [(sentence, i) for i, text in enumerate(inputs) for sentence in split_sentences(text)]
    return [sentence for sentence, _ in pairs], [i for _, i in pairs]


def _check_not_empty(param: str, lengths: Iterable[int]) -> None:
    for i, n in enumerate(lengths):
        if not n:
            raise RequestRejected(
                f"{param}[{i}] has no tokens. Remove it, or provide text with at least one token.",
                param=param,
            )
