"""The token encoder in ONNX: ids of n tokens -> x_k.

    ids (n, C) or, for a model that reads words, (n,)   int64, as `chars.py` or `lexicon.py` spell
    x   (n, D)                                          float32

C may be smaller than the longest token: a word may be cut after as many padding characters as the
widest filter has (`model/trimming.py`).
"""

from __future__ import annotations

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto
from torch import nn

from elmokit.convert.onnx_graph import Graph
from elmokit.convert.onnx_products import Products, array_of
from elmokit.model.bilm import BiLM
from elmokit.model.charcnn import CharacterEncoder, Highway, WordEncoder
from elmokit.model.lexicon_encoder import LexiconEncoder


def encoder_model(bilm: BiLM, storage: str = "float32") -> onnx.ModelProto:
    """Write the token encoder of a biLM as a model of ONNX."""
    graph = Graph("encoder")
    encoder = bilm.encoder
    columns = ["n"] if isinstance(encoder, WordEncoder) else ["n", "C"]
    ids = graph.input("ids", columns, TensorProto.INT64)
    if isinstance(encoder, WordEncoder):
        x = _words(graph, ids, encoder)
    elif isinstance(encoder, LexiconEncoder):
        x = _lexicon(graph, ids, encoder, Products(storage))
    else:
        x = _characters(graph, ids, encoder, Products(storage))
    graph.output(x, "x", ["n", bilm.config.lstm.projection_dim])
    return graph.model("ELMo's token encoder: ids of distinct tokens -> their vectors x_k.")


def _words(graph: Graph, ids: str, encoder: WordEncoder) -> str:
    # Row 0 is "no word here".
    return graph.op("Gather", graph.weight(_after_zero(encoder.embedding)), ids)


def _characters(graph: Graph, ids: str, encoder: CharacterEncoder, products: Products) -> str:
    table = graph.weight(_after_zero(encoder.char_embed))
    x = _convolved(graph, graph.op("Gather", table, ids), encoder, products)
    if encoder.projection is None:
        return x
    return _linear(graph, x, encoder.projection, products)


def _lexicon(graph: Graph, ids: str, encoder: LexiconEncoder, products: Products) -> str:
    zero, one, axis = graph.ints(0), graph.ints(1), graph.ints(1)
    end = graph.ints(np.iinfo(np.int64).max)
    # Padding stands for the first row, as in the plain module.
    places = graph.op("Max", graph.op("Sub", ids, one), zero)
    parts = []
    if encoder.word_embed is not None:
        word = graph.op("Gather", places, graph.weight(np.array(0)), axis=1)
        parts.append(graph.op("Gather", graph.weight(array_of(encoder.word_embed)), word))
    if encoder.char_embed is not None:
        spelling = graph.op("Slice", places, one, end, axis)
        table = graph.weight(array_of(encoder.char_embed))
        parts.append(_convolved(graph, graph.op("Gather", table, spelling), encoder, products))
    x = graph.op("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]
    return _linear(graph, x, encoder.projection, products)


def _convolved(
    graph: Graph, characters: str, encoder: CharacterEncoder | LexiconEncoder, products: Products
) -> str:
    """Run filters and highways: characters (n, C, e) -> (n, F)."""
    turned = graph.op("Transpose", characters, perm=[0, 2, 1])  # (n, e, C)
    pooled = []
    for conv in encoder.convolutions:
        assert isinstance(conv, nn.Conv1d)
        assert conv.bias is not None
        weight, bias = graph.weight(array_of(conv.weight)), graph.weight(array_of(conv.bias))
        windows = graph.op("Conv", turned, weight, bias)
        pooled.append(graph.op("ReduceMax", windows, axes=[2], keepdims=0))
    x = graph.op("Concat", *pooled, axis=1)
    x = graph.op("Relu" if encoder.config.activation == "relu" else "Tanh", x)
    for highway in encoder.highways:
        assert isinstance(highway, Highway)
        gate = graph.op("Sigmoid", _linear(graph, x, highway.carry, products))
        changed = graph.op("Relu", _linear(graph, x, highway.transform, products))
        # g * changed + (1 - g) * x
        difference = graph.op("Sub", changed, x)
        x = graph.op("Add", x, graph.op("Mul", gate, difference))
    return x


def _linear(graph: Graph, x: str, linear: nn.Linear, products: Products) -> str:
    # Each distinct token is encoded once: 14 bits cost nothing here.
    return products.linear(graph, x, array_of(linear.weight), array_of(linear.bias), wide=True)


def _after_zero(table: nn.Parameter) -> NDArray[np.float32]:
    values = array_of(table)
    return np.concatenate([np.zeros_like(values[:1]), values])
