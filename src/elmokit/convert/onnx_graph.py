"""Build an ONNX graph node by node, with matrix products W x in float32 or int8.

The LSTM operator of ONNX does not support projections, so an LSTM layer is a Scan. The body
of the Scan determines speed, rounding and compatibility with old runtimes, so elmokit builds it
directly instead of using torch's exporter.

ONNX's dynamic quantization uses one scale per batch, so the vector of a token would depend on the
other tokens in the batch. Instead, W has one scale per row and x one scale per token, as in
`model/quantize.py`, and sums are exact integers.

W has 8 bits. x has 7 bits or, where 7 bits are not accurate enough, 14 bits in two halves.
onnxruntime is fastest with unsigned x and signed W. On CPUs without VNNI, it adds two products in a
16-bit register, which can overflow silently if x has 8 bits, but not if x has 7 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

from elmokit.model.quantize import MAX_INT8

# Supported by onnxruntime since 2022.
_OPSET = 17
_IR_VERSION = 8

# Smaller matrices stay float32, because quantizing x takes more time than the int8 product saves.
_MIN_INT8_MATRIX_SIZE = 1 << 14
_ZERO_POINT = 64  # represents 0 in unsigned 7-bit numbers, from 0 to 127
_BASE = 128  # a 14-bit x is `_BASE` * its upper half + its lower half
_MAX_X = _ZERO_POINT - 1
_MAX_WIDE_X = _BASE * _MAX_X + _MAX_X
_MIN_RANGE = 1e-30  # avoids a division by zero for tokens whose values are all 0

#: Axes of an input or output: sizes, or names of axes with variable sizes.
Axes = Sequence[int | str]
FloatArray = NDArray[np.float32]


def to_array(parameter: Tensor) -> FloatArray:
    """Return the values of a parameter."""
    values: FloatArray = parameter.detach().cpu().float().numpy()
    return values


class Graph:
    """An ONNX graph under construction. The names of its values begin with the name of the graph.

    Args:
        name: The name of the graph.
        storage: "float32", or "int8" for all matrices except small ones.
    """

    def __init__(self, name: str, storage: str) -> None:
        self.name = name
        self.storage = storage
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []

    def weight(self, values: NDArray[Any]) -> str:
        """Store an array in the graph and return its name."""
        name = f"{self.name}/weight{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.asarray(values, order="C"), name))
        return name

    def scalar(self, value: float) -> str:
        """Store a float and return its name."""
        return self.weight(np.array(value, dtype=np.float32))

    def ints(self, *values: int) -> str:
        """Store a list of integers, such as a shape, and return its name."""
        return self.weight(np.array(values, dtype=np.int64))

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add an operator with one output and return the name of the output."""
        return self.ops(kind, inputs, 1, **attributes)[0]

    def ops(self, kind: str, inputs: Sequence[str], outputs: int, **attributes: Any) -> list[str]:
        """Add an operator with several outputs and return their names."""
        number = len(self._nodes)
        names = [f"{self.name}/{kind}{number}_{i}" for i in range(outputs)]
        self._nodes.append(
            helper.make_node(kind, inputs, names, name=f"{self.name}/{kind}{number}", **attributes)
        )
        return names

    def input(self, name: str, axes: Axes, kind: int = TensorProto.FLOAT) -> str:
        """Declare an input and return its name."""
        self._inputs.append(helper.make_tensor_value_info(name, kind, axes))
        return name

    def output(self, value: str, name: str, axes: Axes) -> None:
        """Declare a value as a float output."""
        self._nodes.append(
            helper.make_node("Identity", [value], [name], name=f"{self.name}/{name}")
        )
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, axes))

    def product(self, x: str, w: FloatArray, *, wide: bool = False) -> str:
        """Add the product W x and return its name.

        Args:
            x: Shape (..., K).
            w: Shape (N, K).
            wide: With int8, use 14 bits for x.
        """
        if self.storage == "float32" or w.size < _MIN_INT8_MATRIX_SIZE:
            return self.op("MatMul", x, self.weight(w.T))
        scale = np.abs(w).max(axis=1) / MAX_INT8
        inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
        weight = self.weight(np.rint(w * inverse[:, None]).astype(np.int8).T)
        largest = self.op("ReduceMax", self.op("Abs", x), axes=[-1])
        max_x = _MAX_WIDE_X if wide else _MAX_X
        token_scale = self.op(
            "Mul", self.op("Max", largest, self.scalar(_MIN_RANGE)), self.scalar(1 / max_x)
        )
        rounded = self.op("Round", self.op("Div", x, token_scale))
        if wide:
            base = self.scalar(_BASE)
            shifted = self.op("Add", rounded, self.scalar(_ZERO_POINT))
            high = self.op("Floor", self.op("Div", shifted, base))
            low = self.op("Sub", rounded, self.op("Mul", high, base))
            sums = self.op(
                "Add",
                self.op("Mul", self._integer_product(high, weight), base),
                self._integer_product(low, weight),
            )
        else:
            sums = self._integer_product(rounded, weight)
        return self.op("Mul", self.op("Mul", sums, token_scale), self.weight(scale))

    def linear(self, x: str, w: FloatArray, bias: FloatArray, *, wide: bool = False) -> str:
        """Add W x + b and return its name."""
        return self.op("Add", self.product(x, w, wide=wide), self.weight(bias))

    def _integer_product(self, x: str, weight: str) -> str:
        """Add the product of a weight and integers from -64 to 63, and return its name."""
        zero_point = self.weight(np.array(_ZERO_POINT, dtype=np.uint8))
        shifted = self.op("Add", x, self.scalar(_ZERO_POINT))
        unsigned = self.op("Cast", shifted, to=TensorProto.UINT8)
        sums = self.op("MatMulInteger", unsigned, weight, zero_point)
        return self.op("Cast", sums, to=TensorProto.FLOAT)

    def proto(self) -> onnx.GraphProto:
        """Return the graph as an ONNX object."""
        return helper.make_graph(self._nodes, self.name, self._inputs, self._outputs, self._weights)

    def model(self, description: str) -> onnx.ModelProto:
        """Validate the graph and return it as a model."""
        model = helper.make_model(
            self.proto(),
            opset_imports=[helper.make_opsetid("", _OPSET)],
            ir_version=_IR_VERSION,
            producer_name="elmokit",
            doc_string=description,
        )
        onnx.checker.check_model(model)
        return model
