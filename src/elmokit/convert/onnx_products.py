"""W x in ONNX: in float32, or in int8 with one scale per row of W and one per token.

ONNX's dynamic quantization uses one scale for a whole batch, so that a vector would depend on the
other tokens of its batch. Here each token has its own scale, as in `model/quantize.py`, and sums
are exact integers.

W has 8 bits and x 7, or 14 in two halves where 7 are not accurate enough. onnxruntime is fastest
with unsigned x and signed W, and adds two 8-bit products in a 16-bit register, which overflows
silently on CPUs without VNNI; products with 7 bits never do.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto
from torch import Tensor

from elmokit.convert.onnx_graph import Graph
from elmokit.model.quantize import LARGEST

# Smaller matrices stay float32: rounding their input would cost more than it saves.
_SMALLEST_INT8 = 1 << 14
_ZERO = 64  # of the unsigned numbers of 7 bits, 0 to 127
_HALF = 128
_LARGEST_TOKEN = _ZERO - 1
_LARGEST_WIDE_TOKEN = _HALF * _LARGEST_TOKEN + _LARGEST_TOKEN
_TINY = 1e-30  # a token of zeros alone is divided by it

Matrix = NDArray[np.float32]


def array_of(parameter: Tensor) -> Matrix:
    """Return the numbers of a parameter."""
    values: Matrix = parameter.detach().cpu().float().numpy()
    return values


class Products:
    """Writes products into graphs.

    Args:
        storage: "float32", or "int8" for matrices that are large enough.
    """

    def __init__(self, storage: str = "float32") -> None:
        self.storage = storage

    def product(self, graph: Graph, x: str, w: Matrix, *, wide: bool = False) -> str:
        """Return W x.

        Args:
            graph: Where it is written.
            x: Shape (..., K).
            w: Shape (N, K).
            wide: In int8, give x 14 bits.
        """
        if self.storage == "float32" or w.size < _SMALLEST_INT8:
            return graph.op("MatMul", x, graph.weight(w.T))
        scale = np.abs(w).max(axis=1) / LARGEST
        inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
        weight = graph.weight(np.rint(w * inverse[:, None]).astype(np.int8).T)
        largest = graph.op("ReduceMax", graph.op("Abs", x), axes=[-1])
        steps = _LARGEST_WIDE_TOKEN if wide else _LARGEST_TOKEN
        token_scale = graph.op(
            "Mul", graph.op("Max", largest, graph.number(_TINY)), graph.number(1 / steps)
        )
        whole = graph.op("Round", graph.op("Div", x, token_scale))
        if wide:
            part = graph.number(_HALF)
            shifted = graph.op("Add", whole, graph.number(_ZERO))
            high = graph.op("Floor", graph.op("Div", shifted, part))
            low = graph.op("Sub", whole, graph.op("Mul", high, part))
            sums = graph.op(
                "Add",
                graph.op("Mul", _integer_product(graph, high, weight), part),
                _integer_product(graph, low, weight),
            )
        else:
            sums = _integer_product(graph, whole, weight)
        return graph.op("Mul", graph.op("Mul", sums, token_scale), graph.weight(scale))

    def linear(self, graph: Graph, x: str, w: Matrix, bias: Matrix, *, wide: bool = False) -> str:
        """Return W x + b."""
        return graph.op("Add", self.product(graph, x, w, wide=wide), graph.weight(bias))


def _integer_product(graph: Graph, x: str, weight: str) -> str:
    """Return the sums of whole numbers from -64 to 63 by the rows of a weight, as floats."""
    zero = graph.weight(np.array(_ZERO, dtype=np.uint8))
    shifted = graph.op("Add", x, graph.number(_ZERO))
    unsigned = graph.op("Cast", shifted, to=TensorProto.UINT8)
    sums = graph.op("MatMulInteger", unsigned, weight, zero)
    return graph.op("Cast", sums, to=TensorProto.FLOAT)
