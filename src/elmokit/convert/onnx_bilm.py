"""Both language models in ONNX: x_k of a batch of sentences -> R_k.

    x       (B, T, D)      float32, as the encoder gives it; anything where there is no token
    lengths (B,)           int64, tokens of each sentence
    cell    (2, L, S, H)   float32, what the sentences start from: S = B, or 1 for all the same
    hidden  (2, L, S, D)

    layers  (L + 1, B, T, 2D)   h_{k,j}, zero where there is no token
    next_cell, next_hidden      where each sentence ended, (2, L, B, H) and (2, L, B, D)

A layer is a Scan over the steps, from the left for the forward and from the right for the backward
LM. Where a sentence has no token its state stands still, so that padding reaches no vector.
"""

from __future__ import annotations

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto

from elmokit.config import LstmConfig
from elmokit.convert.onnx_graph import Graph
from elmokit.convert.onnx_products import Products, array_of
from elmokit.model.bilm import BiLM
from elmokit.model.lstm import FORGET_BIAS, LstmLayer

_DIRECTIONS = ("forward", "backward")


def bilm_model(bilm: BiLM, storage: str = "float32") -> onnx.ModelProto:
    """Write both language models of a biLM as one model of ONNX."""
    lstm, products = bilm.config.lstm, Products(storage)
    graph = Graph("bilm")
    h, d = lstm.dim, lstm.projection_dim
    x = graph.input("x", ["B", "T", d])
    lengths = graph.input("lengths", ["B"], TensorProto.INT64)
    cell = graph.input("cell", [2, lstm.n_layers, "S", h])
    hidden = graph.input("hidden", [2, lstm.n_layers, "S", d])
    there = _there(graph, x, lengths)  # (T, B, 1)
    nothing = graph.number(0)
    x = graph.op("Where", there, graph.op("Transpose", x, perm=[1, 0, 2]), nothing)  # (T, B, D)
    starts = [_rows_of(graph, state, lengths) for state in (cell, hidden)]

    layers = [[x, x]]  # h_{k,0} = [x_k; x_k]
    last: list[list[str]] = [[], []]
    for direction, stack in enumerate((bilm.forward_lm, bilm.backward_lm)):
        below = x
        for j, layer in enumerate(stack.layers):
            assert isinstance(layer, LstmLayer)
            start = [_pick(graph, state, direction, j) for state in starts]
            where = f"{_DIRECTIONS[direction]}{j}"
            *ends, r = _layer(graph, where, layer, products, below, there, start, direction)
            below = graph.op("Add", r, below) if j > 0 and lstm.use_skip_connections else r
            if direction == 0:
                layers.append([below])
            else:
                layers[j + 1].append(below)
            for states, end in zip(last, ends, strict=True):
                states.append(end)

    stacked = [graph.op("Concat", *halves, axis=-1) for halves in layers]  # (T, B, 2D) each
    axis = graph.ints(0)
    joined = graph.op("Concat", *(graph.op("Unsqueeze", s, axis) for s in stacked), axis=0)
    kept = graph.op("Where", there, joined, nothing)
    turned = graph.op("Transpose", kept, perm=[0, 2, 1, 3])
    graph.output(turned, "layers", [bilm.config.n_layers, "B", "T", 2 * d])
    for name, states, size in zip(("next_cell", "next_hidden"), last, (h, d), strict=True):
        together = graph.op("Concat", *states, axis=0)  # (2L * B, size)
        shape = graph.ints(2, lstm.n_layers, -1, size)
        graph.output(graph.op("Reshape", together, shape), name, [2, lstm.n_layers, "B", size])
    return graph.model("ELMo's two language models: vectors of tokens -> vectors in context.")


def _there(graph: Graph, x: str, lengths: str) -> str:
    """Say where there is a token, shape (T, B, 1)."""
    steps = graph.op("Gather", graph.op("Shape", x), graph.weight(np.array(1)))
    zero, one = graph.weight(np.array(0)), graph.weight(np.array(1))
    places = graph.op("Unsqueeze", graph.op("Range", zero, steps, one), graph.ints(1, 2))
    ends = graph.op("Unsqueeze", lengths, graph.ints(0, 2))
    return graph.op("Less", places, ends)


def _rows_of(graph: Graph, state: str, lengths: str) -> str:
    """Repeat a state of one row for all sentences: (2, L, S, size) -> (2, L, B, size)."""
    rows = graph.op("Shape", lengths)
    one = graph.ints(1)
    return graph.op("Expand", state, graph.op("Concat", one, one, rows, one, axis=0))


def _pick(graph: Graph, state: str, direction: int, layer: int) -> str:
    """Take the state of one layer: (2, L, B, size) -> (B, size)."""
    side = graph.op("Gather", state, graph.weight(np.array(direction)), axis=0)
    return graph.op("Gather", side, graph.weight(np.array(layer)), axis=0)


def _layer(
    graph: Graph,
    name: str,
    layer: LstmLayer,
    products: Products,
    x: str,
    there: str,
    start: list[str],
    direction: int,
) -> list[str]:
    """Run one layer of one direction.

    Shape:
        x (T, B, D), there (T, B, 1), start (B, H) and (B, D)
        -> the last cell, the last hidden, and r (T, B, D), without the skip
    """
    bias = _sigmoids_first(array_of(layer.bias))
    h = layer.config.dim
    bias[h : 2 * h] += FORGET_BIAS
    gates = products.linear(graph, x, _sigmoids_first(array_of(layer.weight_input)), bias)
    return graph.ops(
        "Scan",
        [*start, gates, there],
        3,
        body=_step(name, layer, products),
        num_scan_inputs=2,
        scan_input_directions=[direction] * 2,
        scan_output_directions=[direction],
    )


def _step(name: str, layer: LstmLayer, products: Products) -> onnx.GraphProto:
    """Write one step of a layer; the equations are those of `model/lstm.py`.

    Shape:
        cell (B, H), hidden (B, D), gates (B, 4H) = W_x x_k + b, there (B, 1)
        -> cell, hidden, and hidden again as what leaves the layer
    """
    config: LstmConfig = layer.config
    h, d = config.dim, config.projection_dim
    body = Graph(name)
    cell = body.input(f"{name}/cell", ["B", h])
    hidden = body.input(f"{name}/hidden", ["B", d])
    gates_x = body.input(f"{name}/gates", ["B", 4 * h])
    there = body.input(f"{name}/there", ["B", 1], TensorProto.BOOL)
    recurrent = _sigmoids_first(array_of(layer.weight_recurrent))
    gates = body.op("Add", gates_x, products.product(body, hidden, recurrent))
    opened, candidate = body.ops("Split", [gates, body.ints(3 * h, h)], 2, axis=-1)
    sides = body.ints(h, h, h)
    i, f, o = body.ops("Split", [body.op("Sigmoid", opened), sides], 3, axis=-1)
    kept = body.op("Mul", f, cell)
    new = body.op("Add", kept, body.op("Mul", i, body.op("Tanh", candidate)))
    new = _clip(body, new, config.cell_clip)
    r = body.op("Mul", o, body.op("Tanh", new))
    if layer.weight_projection is not None:
        r = products.product(body, r, array_of(layer.weight_projection), wide=True)
        r = _clip(body, r, config.proj_clip)
    after = body.op("Where", there, r, hidden)
    body.output(body.op("Where", there, new, cell), f"{name}/next_cell", ["B", h])
    body.output(after, f"{name}/next_hidden", ["B", d])
    body.output(after, f"{name}/r", ["B", d])
    return body.proto()


def _clip(graph: Graph, x: str, limit: float | None) -> str:
    if limit is None:
        return x
    return graph.op("Clip", x, graph.number(-limit), graph.number(limit))


def _sigmoids_first(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Put the rows of the gates i, j, f, o into the order i, f, o, j: one sigmoid for three."""
    i, j, f, o = np.split(rows, 4)
    return np.concatenate([i, f, o, j])
