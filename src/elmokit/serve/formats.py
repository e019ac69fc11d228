"""Answers as JSON, npy or Arrow, by the `Accept` of a request.

application/json                        everything (the default)
application/x-npy                       one float32 array, the tokens of all sentences in a row;
                                        X-Elmo-Lengths says how many each sentence has
application/vnd.apache.arrow.stream     a row per token (or per sentence, if they are pooled)
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson
from starlette.responses import Response

from elmokit.embed.vectors import FloatArray
from elmokit.serve.errors import RequestRejected
from elmokit.serve.texts import Texts

JSON = "application/json"
NPY = "application/x-npy"
ARROW = "application/vnd.apache.arrow.stream"
_ALIASES = {
    "application/json": JSON,
    "application/*": JSON,
    "*/*": JSON,
    "text/html": JSON,  # a browser that is shown an answer
    "application/x-npy": NPY,
    "application/npy": NPY,
    "application/vnd.apache.arrow.stream": ARROW,
    "application/x-apache-arrow-stream": ARROW,
}


def wanted(accept: str | None) -> str:
    """Choose a format by an `Accept` header: the first that is known."""
    for part in (accept or JSON).split(","):
        kind = part.partition(";")[0].strip().lower()
        if kind in _ALIASES:
            return _ALIASES[kind]
    raise RequestRejected(
        406, f"Unsupported Accept '{accept:.80}': expected {JSON}, {NPY} or {ARROW}."
    )


def to_json(values: Any) -> bytes:
    """Write plain values and arrays; float32 in as few digits as it takes to read it back."""
    return orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)


def json_response(values: Any, headers: Mapping[str, str] | None = None) -> Response:
    """Answer with JSON."""
    return Response(to_json(values), media_type=JSON, headers=dict(headers or {}))


def npy(vectors: Sequence[FloatArray], lengths: Sequence[int], headers: dict[str, str]) -> Response:
    """Answer with one array: what the sentences have, side by side along the axis of tokens."""
    joined = np.concatenate(vectors, axis=-2)
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(joined))
    headers["X-Elmo-Shape"] = ",".join(map(str, joined.shape))
    headers["X-Elmo-Lengths"] = ",".join(map(str, lengths))
    return Response(file.getvalue() + joined.tobytes(), media_type=NPY, headers=headers)


def arrow(vectors: Sequence[FloatArray], texts: Texts, about: dict[str, Any]) -> Response:
    """Answer with a table: sentence, token, start, end, and a column per layer.

    Columns are named as in the Parquet files of `elmo embed`: `vector`, or `layer_0` and so on.
    """
    try:
        import pyarrow as pa
    except ImportError:
        raise RequestRejected(
            406,
            "Arrow requires the package 'pyarrow' on the server. Install it there with: pip "
            f"install 'elmokit[arrow]', or request {JSON} or {NPY}.",
        ) from None
    pooled = about["pooling"] == "mean"
    joined = np.concatenate(vectors, axis=-2)
    several = isinstance(about["layer"], list)
    names = [f"layer_{name}" for name in about["layer"]] if several else ["vector"]
    columns: dict[str, Any] = {}
    if pooled:
        columns["sentence"] = pa.array(range(len(vectors)), pa.int32())
        columns["tokens"] = pa.array(texts.tokens, pa.list_(pa.string()))
    else:
        numbers = np.repeat(np.arange(len(vectors), dtype=np.int32), texts.lengths)
        columns["sentence"] = pa.array(numbers)
        columns["token"] = pa.array([t for tokens in texts.tokens for t in tokens], pa.string())
        columns["start"] = pa.array(_ends(texts, 0), pa.int32())
        columns["end"] = pa.array(_ends(texts, 1), pa.int32())
    for name, layer in zip(names, joined if several else joined[None], strict=True):
        flat = pa.array(np.ascontiguousarray(layer).reshape(-1))
        columns[name] = pa.FixedSizeListArray.from_arrays(flat, layer.shape[-1])
    table = pa.table(columns).replace_schema_metadata({"elmo": json.dumps(about)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Response(sink.getvalue().to_pybytes(), media_type=ARROW)


def _ends(texts: Texts, side: int) -> list[int | None]:
    found: list[int | None] = []
    for tokens, offsets in zip(texts.tokens, texts.offsets, strict=True):
        found += [None] * len(tokens) if offsets is None else [pair[side] for pair in offsets]
    return found
