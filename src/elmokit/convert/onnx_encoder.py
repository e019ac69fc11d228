"""The token encoder in ONNX: ids of n tokens -> x_k.

    ids (n, C) or, for a model that reads words, (n,)   int64, as in `chars.py` or `lexicon.py`
    x   (n, D)                                          float32

C may be smaller than the longest token: a word may be cut after as many padding characters as the
width of the widest filter (`model/trimming.py`).
"""

from __future__ import annotations

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto
from torch import nn

from elmokit.convert.onnx_graph import Graph, to_array
from elmokit.model.bilm import BiLM
from elmokit.model.charcnn import CharacterEncoder, Highway, WordEncoder
from elmokit.model.lexicon_encoder import LexiconEncoder


def encoder_model(bilm: BiLM, storage: str = "float32") -> onnx.ModelProto:
    """Return the token encoder of a biLM as an ONNX model."""
    graph = Graph("encoder", storage)
    encoder = bilm.encoder
    axes = ["n"] if isinstance(encoder, WordEncoder) else ["n", "C"]
    ids = graph.input("ids", axes, TensorProto.INT64)
    if isinstance(encoder, WordEncoder):
        x = graph.op("Gather", graph.weight(_with_padding_row(encoder.embedding)), ids)
    elif isinstance(encoder, LexiconEncoder):
        x = _lexicon(graph, ids, encoder)
    else:
        x = _characters(graph, ids, encoder)
    graph.output(x, "x", ["n", bilm.config.lstm.projection_dim])
    return graph.model("ELMo's token encoder: ids of distinct tokens -> their vectors x_k.")


def _characters(graph: Graph, ids: str, encoder: CharacterEncoder) -> str:
    table = graph.weight(_with_padding_row(encoder.char_embed))
    x = _convolve(graph, graph.op("Gather", table, ids), encoder)
    return x if encoder.projection is None else _linear(graph, x, encoder.projection)


def _lexicon(graph: Graph, ids: str, encoder: LexiconEncoder) -> str:
    zero, one, axis = graph.ints(0), graph.ints(1), graph.ints(1)
    end = graph.ints(np.iinfo(np.int64).max)
    # Padding uses the first row, as in the reference implementation.
    rows = graph.op("Max", graph.op("Sub", ids, one), zero)
    parts = []
    if encoder.word_embed is not None:
        word = graph.op("Gather", rows, graph.weight(np.array(0)), axis=1)
        parts.append(graph.op("Gather", graph.weight(to_array(encoder.word_embed)), word))
    if encoder.char_embed is not None:
        spelling = graph.op("Slice", rows, one, end, axis)
        table = graph.weight(to_array(encoder.char_embed))
        parts.append(_convolve(graph, graph.op("Gather", table, spelling), encoder))
    x = graph.op("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]
    return _linear(graph, x, encoder.projection)


def _convolve(graph: Graph, characters: str, encoder: CharacterEncoder | LexiconEncoder) -> str:
    """Apply the filters and highways: characters (n, C, e) -> (n, F)."""
    transposed = graph.op("Transpose", characters, perm=[0, 2, 1])  # (n, e, C)
    pooled = []
    for conv in encoder.convolutions:
        assert isinstance(conv, nn.Conv1d)
        assert conv.bias is not None
        weight, bias = graph.weight(to_array(conv.weight)), graph.weight(to_array(conv.bias))
        windows = graph.op("Conv", transposed, weight, bias)
        pooled.append(graph.op("ReduceMax", windows, axes=[2], keepdims=0))
    x = graph.op("Concat", *pooled, axis=1)
    x = graph.op("Relu" if encoder.config.activation == "relu" else "Tanh", x)
    for highway in encoder.highways:
        assert isinstance(highway, Highway)
        gate = graph.op("Sigmoid", _linear(graph, x, highway.carry))
        changed = graph.op("Relu", _linear(graph, x, highway.transform))
        # g * changed + (1 - g) * x
        difference = graph.op("Sub", changed, x)
        x = graph.op("Add", x, graph.op("Mul", gate, difference))
    return x


def _linear(graph: Graph, x: str, linear: nn.Linear) -> str:
    # Each distinct token is encoded only once, so the more accurate 14 bits cost little.
    return graph.linear(x, to_array(linear.weight), to_array(linear.bias), wide=True)


def _with_padding_row(table: nn.Parameter) -> NDArray[np.float32]:
    """Prepend a row of zeros for id 0, which is padding."""
    values = to_array(table)
    return np.concatenate([np.zeros_like(values[:1]), values])
