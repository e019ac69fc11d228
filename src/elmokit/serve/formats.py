"""Responses as JSON, npy or Arrow, selected by the `Accept` header.

application/json                        the default
application/x-npy                       one float32 array with the tokens of all sentences;
                                        X-Elmo-Lengths contains the number of tokens per sentence
application/vnd.apache.arrow.stream     one row per token (or per sentence, with pooling)
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
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
_BY_ACCEPT = {JSON: JSON, NPY: NPY, ARROW: ARROW, "application/*": JSON, "*/*": JSON}


def negotiate(accept: str | None) -> str:
    """Return the first supported format of an `Accept` header."""
    for part in (accept or JSON).split(","):
        kind = part.partition(";")[0].strip().lower()
        if kind in _BY_ACCEPT:
            return _BY_ACCEPT[kind]
    raise RequestRejected(
        406, f"Unsupported Accept '{accept:.80}': expected {JSON}, {NPY} or {ARROW}."
    )


def json_response(values: Any) -> Response:
    """Return values and arrays as JSON; float32 with the fewest digits that restore it."""
    body = orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(body, media_type=JSON)


def npy(vectors: Sequence[FloatArray], lengths: Sequence[int], headers: dict[str, str]) -> Response:
    """Return one array: the vectors of all sentences, concatenated along the axis of tokens."""
    joined = np.concatenate(vectors, axis=-2)
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(joined))
    headers["X-Elmo-Shape"] = ",".join(map(str, joined.shape))
    headers["X-Elmo-Lengths"] = ",".join(map(str, lengths))
    return Response(file.getvalue() + joined.tobytes(), media_type=NPY, headers=headers)


def arrow(vectors: Sequence[FloatArray], texts: Texts, about: dict[str, Any]) -> Response:
    """Return a table with the columns sentence, token, start and end, and one per layer.

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
        pairs: list[tuple[int | None, int | None]] = []
        for offsets, n in zip(texts.offsets, texts.lengths, strict=True):
            pairs += [(None, None)] * n if offsets is None else offsets
        columns["start"] = pa.array([start for start, _ in pairs], pa.int32())
        columns["end"] = pa.array([end for _, end in pairs], pa.int32())
    for name, layer in zip(names, joined if several else joined[None], strict=True):
        flat = pa.array(np.ascontiguousarray(layer).reshape(-1))
        columns[name] = pa.FixedSizeListArray.from_arrays(flat, layer.shape[-1])
    table = pa.table(columns).replace_schema_metadata({"elmo": json.dumps(about)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Response(sink.getvalue().to_pybytes(), media_type=ARROW)
