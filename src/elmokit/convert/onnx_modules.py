"""Convert the token encoder and the language models of a biLM to ONNX.

The token encoder computes x_k from the ids of n tokens:

    ids (n, C) or, for a word-input model, (n,)   int64, as in `chars.py` or `lexicon.py`
    x   (n, D)                                    float32

C may be smaller than the maximum number of characters, because trailing padding can be omitted
(`model/trimming.py`).

The language models compute all layers from the x_k of a batch of sentences:

    x       (B, T, D)      float32, the output of the encoder; padding may have any value
    lengths (B,)           int64, the number of tokens of each sentence
    cell    (2, L, S, H)   float32, initial states; S is B, or 1 to use one state for all sentences
    hidden  (2, L, S, D)

    layers  (L + 1, B, T, 2D)   h_{k,j}, zero for padding
    next_cell, next_hidden      final states of the sentences: (2, L, B, H) and (2, L, B, D)

Each layer is a Scan over the steps, from left to right for the forward LM and from right to left
for the backward LM. Padding does not change the state, so it does not affect any vector.
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
from elmokit.model.lstm import FORGET_BIAS, LstmLayer


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
    # Padding is mapped to the first row, as in the reference implementation.
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
        transformed = graph.op("Relu", _linear(graph, x, highway.transform))
        # g * transformed + (1 - g) * x
        difference = graph.op("Sub", transformed, x)
        x = graph.op("Add", x, graph.op("Mul", gate, difference))
    return x


def _linear(graph: Graph, x: str, linear: nn.Linear) -> str:
    # Each distinct token is encoded only once, so 14 bits per value are fast enough.
    return graph.linear(x, to_array(linear.weight), to_array(linear.bias), wide=True)


def _with_padding_row(table: nn.Parameter) -> NDArray[np.float32]:
    """Prepend a row of zeros for id 0, which is padding."""
    values = to_array(table)
    return np.concatenate([np.zeros_like(values[:1]), values])


# ---------------------------------------------------------------------------------- language models


def bilm_model(bilm: BiLM, storage: str = "float32") -> onnx.ModelProto:
    """Return both language models of a biLM as one ONNX model."""
    lstm = bilm.config.lstm
    graph = Graph("bilm", storage)
    h, d = lstm.dim, lstm.projection_dim
    x = graph.input("x", ["B", "T", d])
    lengths = graph.input("lengths", ["B"], TensorProto.INT64)
    cell = graph.input("cell", [2, lstm.n_layers, "S", h])
    hidden = graph.input("hidden", [2, lstm.n_layers, "S", d])
    mask = _token_mask(graph, x, lengths)  # (T, B, 1)
    zero = graph.scalar(0)
    x = graph.op("Where", mask, graph.op("Transpose", x, perm=[1, 0, 2]), zero)  # (T, B, D)
    initial = [_expand_state(graph, state, lengths) for state in (cell, hidden)]

    # The layers of each direction. h_{k,0} = [x_k; x_k]
    outputs = ([x], [x])
    final = []
    for direction, stack in enumerate((bilm.forward_lm, bilm.backward_lm)):
        for j, layer in enumerate(stack.layers):
            assert isinstance(layer, LstmLayer)
            previous = outputs[direction][-1]
            state = [_select_state(graph, states, direction, j) for states in initial]
            *final_state, r = _scan(graph, layer, direction, j, previous, mask, state)
            has_skip = j > 0 and lstm.use_skip_connections
            outputs[direction].append(graph.op("Add", r, previous) if has_skip else r)
            final.append(final_state)

    layers = [graph.op("Concat", *pair, axis=-1) for pair in zip(*outputs, strict=True)]
    axis = graph.ints(0)
    stacked = graph.op("Concat", *(graph.op("Unsqueeze", h, axis) for h in layers), axis=0)
    masked = graph.op("Where", mask, stacked, zero)  # (L + 1, T, B, 2D)
    transposed = graph.op("Transpose", masked, perm=[0, 2, 1, 3])
    graph.output(transposed, "layers", [bilm.config.n_layers, "B", "T", 2 * d])
    for name, index, size in (("next_cell", 0, h), ("next_hidden", 1, d)):
        states = graph.op("Concat", *(state[index] for state in final), axis=0)  # (2L * B, size)
        shape = graph.ints(2, lstm.n_layers, -1, size)
        graph.output(graph.op("Reshape", states, shape), name, [2, lstm.n_layers, "B", size])
    return graph.model("ELMo's two language models: token vectors x_k -> contextual vectors.")


def _token_mask(graph: Graph, x: str, lengths: str) -> str:
    """Return a mask (T, B, 1) that is true for tokens and false for padding."""
    steps = graph.op("Gather", graph.op("Shape", x), graph.weight(np.array(1)))
    zero, one = graph.weight(np.array(0)), graph.weight(np.array(1))
    positions = graph.op("Unsqueeze", graph.op("Range", zero, steps, one), graph.ints(1, 2))
    ends = graph.op("Unsqueeze", lengths, graph.ints(0, 2))
    return graph.op("Less", positions, ends)


def _expand_state(graph: Graph, state: str, lengths: str) -> str:
    """Repeat a single state for all sentences: (2, L, S, size) -> (2, L, B, size)."""
    rows = graph.op("Shape", lengths)
    one = graph.ints(1)
    return graph.op("Expand", state, graph.op("Concat", one, one, rows, one, axis=0))


def _select_state(graph: Graph, state: str, direction: int, layer: int) -> str:
    """Return the state of one layer: (2, L, B, size) -> (B, size)."""
    layers = graph.op("Gather", state, graph.weight(np.array(direction)), axis=0)
    return graph.op("Gather", layers, graph.weight(np.array(layer)), axis=0)


def _scan(
    graph: Graph, layer: LstmLayer, direction: int, j: int, x: str, mask: str, state: list[str]
) -> list[str]:
    """Run layer j of one direction over all steps.

    Shape:
        x (T, B, D), mask (T, B, 1), state (B, H) and (B, D)
        -> the final cell and hidden state, and r (T, B, D), without the skip connection
    """
    bias = _sigmoids_first(to_array(layer.bias))
    h = layer.config.dim
    bias[h : 2 * h] += FORGET_BIAS
    gates = graph.linear(x, _sigmoids_first(to_array(layer.weight_input)), bias)
    return graph.ops(
        "Scan",
        [*state, gates, mask],
        3,
        body=_lstm_step(f"{'backward' if direction else 'forward'}{j}", layer, graph.storage),
        num_scan_inputs=2,
        scan_input_directions=[direction] * 2,
        scan_output_directions=[direction],
    )


def _lstm_step(name: str, layer: LstmLayer, storage: str) -> onnx.GraphProto:
    """Return one step of a layer, with the equations of `model/lstm.py`.

    Shape:
        cell (B, H), hidden (B, D), gates (B, 4H) = W_x x_k + b, mask (B, 1)
        -> cell, hidden, and hidden again as the output of the layer
    """
    config = layer.config
    h, d = config.dim, config.projection_dim
    body = Graph(name, storage)
    cell = body.input(f"{name}/cell", ["B", h])
    hidden = body.input(f"{name}/hidden", ["B", d])
    gates_x = body.input(f"{name}/gates", ["B", 4 * h])
    mask = body.input(f"{name}/mask", ["B", 1], TensorProto.BOOL)
    recurrent = _sigmoids_first(to_array(layer.weight_recurrent))
    gates = body.op("Add", gates_x, body.product(hidden, recurrent))
    sigmoids, candidate = body.ops("Split", [gates, body.ints(3 * h, h)], 2, axis=-1)
    sizes = body.ints(h, h, h)
    i, f, o = body.ops("Split", [body.op("Sigmoid", sigmoids), sizes], 3, axis=-1)
    retained = body.op("Mul", f, cell)
    new_cell = body.op("Add", retained, body.op("Mul", i, body.op("Tanh", candidate)))
    new_cell = _clip(body, new_cell, config.cell_clip)
    r = body.op("Mul", o, body.op("Tanh", new_cell))
    if layer.weight_projection is not None:
        r = body.product(r, to_array(layer.weight_projection), wide=True)
        r = _clip(body, r, config.proj_clip)
    new_hidden = body.op("Where", mask, r, hidden)
    body.output(body.op("Where", mask, new_cell, cell), f"{name}/next_cell", ["B", h])
    body.output(new_hidden, f"{name}/next_hidden", ["B", d])
    body.output(new_hidden, f"{name}/r", ["B", d])
    return body.proto()


def _clip(graph: Graph, x: str, limit: float | None) -> str:
    if limit is None:
        return x
    return graph.op("Clip", x, graph.scalar(-limit), graph.scalar(limit))


def _sigmoids_first(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Reorder the gates i, j, f, o to i, f, o, j, so that one sigmoid computes three gates."""
    i, j, f, o = np.split(rows, 4)
    return np.concatenate([i, f, o, j])
