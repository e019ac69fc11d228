"""Build an ONNX graph node by node.

torch's exporter is not used: the LSTM operator of ONNX has no projection, so that the layer is a
Scan, whose body determines speed, rounding and compatibility with old runtimes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

#: What onnxruntime has read since 2022.
OPSET = 17
IR_VERSION = 8

#: Axes of an input or output: numbers, or names for those that may be of any size.
Axes = Sequence[int | str]


class Graph:
    """Collects nodes and weights; every name in it begins with the name of the graph."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []

    def weight(self, values: NDArray[Any]) -> str:
        """Store an array in the graph and return its name."""
        name = f"{self.name}/weight{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.asarray(values, order="C"), name))
        return name

    def number(self, value: float) -> str:
        """Store one float."""
        return self.weight(np.array(value, dtype=np.float32))

    def ints(self, *values: int) -> str:
        """Store a list of integers, such as a shape."""
        return self.weight(np.array(values, dtype=np.int64))

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add an operator with one output and return the name of that."""
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
        """Declare what is given."""
        self._inputs.append(helper.make_tensor_value_info(name, kind, axes))
        return name

    def output(self, value: str, name: str, axes: Axes) -> None:
        """Declare what is given back: floats."""
        self._nodes.append(
            helper.make_node("Identity", [value], [name], name=f"{self.name}/{name}")
        )
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, axes))

    def proto(self) -> onnx.GraphProto:
        """Return the graph as ONNX has it."""
        return helper.make_graph(self._nodes, self.name, self._inputs, self._outputs, self._weights)

    def model(self, about: str) -> onnx.ModelProto:
        """Return a model of this graph alone, checked."""
        model = helper.make_model(
            self.proto(),
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="elmokit",
            doc_string=about,
        )
        onnx.checker.check_model(model)
        return model
