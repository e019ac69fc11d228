"""Write an HDF5 file with many small datasets, several times as fast as the HDF5 library.

The library needs more than 100 microseconds for a dataset with an attribute, longer than a GPU
needs to compute the vectors in it (`benchmarks/hdf5_writing.py`), and it crashes if the disk is
full when a file is closed. This module writes the oldest structures of the HDF5 file format, which
h5py also writes by default; all versions of HDF5 can read and extend them. The structures have the
names of the "HDF5 File Format Specification",
https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t3.html
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from struct import pack
from typing import IO

import numpy as np

from elmokit.bulk.formats.columns import Array

_NO_ADDRESS = 2**64 - 1
_MIN_HEAP_BYTES = 4096
# The default sizes of B-tree nodes: twice as many names in a leaf, and children in other nodes.
_LEAF_K, _INTERNAL_K = 4, 16

# Types of header messages.
_DATASPACE, _DATATYPE, _FILL_VALUE, _LAYOUT, _ATTRIBUTE, _SYMBOL_TABLE = 1, 3, 5, 8, 12, 17

_NUMBER_TYPES = {
    "float16": bytes.fromhex("11200f0002000000000010000a05000a0f000000"),
    "float32": bytes.fromhex("11201f000400000000002000170800177f000000"),
}
# A UTF-8 string of variable length, stored as its length and its position in a global heap.
_STRING_TYPE = bytes.fromhex("1901010010000000100000000100000000000800")
_SCALAR = pack("<B7x", 1)

_LEAF = np.dtype(
    [
        ("signature", "S4"),
        ("version", "<u2"),
        ("count", "<u2"),
        ("entries", [("name", "<u8"), ("object", "<u8"), ("unused", "V24")], 2 * _LEAF_K),
    ]
)
_NODE = np.dtype(
    [
        ("signature", "S4"),
        ("type", "u1"),
        ("level", "u1"),
        ("count", "<u2"),
        ("left", "<u8"),
        ("right", "<u8"),
        ("keys_and_children", "<u8", 4 * _INTERNAL_K + 1),
    ]
)


class Hdf5Writer:
    """Writes datasets into the root group: "0", "1", ... and others that are named.

    Args:
        file: A new file. It is an HDF5 file only after `finish`.
        dtype: The number type of the numbered datasets, "float32" or "float16".
    """

    def __init__(self, file: IO[bytes], dtype: str) -> None:
        self._file = file
        self._end = 0
        self._write(bytes(96))  # the superblock, which `finish` writes
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._numbered = array("Q")  # the addresses of the datasets
        self._named: dict[str, int] = {}

    def add_strings(self, strings: Sequence[str]) -> list[bytes]:
        """Write at most 65,535 strings to a global heap; return a reference to each."""
        texts = [string.encode() for string in strings]
        objects = [
            pack("<H6xQ", index, len(text)) + _padded(text)
            for index, text in enumerate(texts, start=1)
        ]
        free = max(16, _MIN_HEAP_BYTES - 16 - sum(map(len, objects)))
        objects.append(pack("<8xQ", free).ljust(free, b"\0"))
        heap = b"".join(objects)
        address = self._write(b"GCOL" + pack("<B3xQ", 1, 16 + len(heap)) + heap)
        return [pack("<IQI", len(text), address, i) for i, text in enumerate(texts, start=1)]

    def add_numbers(self, values: Array, attributes: Mapping[str, bytes]) -> None:
        """Write the next numbered dataset; the attributes are references to strings."""
        data = np.ascontiguousarray(values, self._dtype).reshape(-1).view(np.uint8).data
        number_type = _NUMBER_TYPES[self._dtype.name]
        self._numbered.append(self._write_dataset(number_type, values.shape, data, attributes))

    def add_string(self, name: str, reference: bytes) -> None:
        """Write a dataset of one string."""
        self._named[name] = self._write_dataset(_STRING_TYPE, (1,), reference, {})

    def finish(self, attributes: Mapping[str, bytes]) -> None:
        """Write the root group, with these attributes, and the superblock."""
        numbers = np.arange(len(self._numbered)).astype("S")
        names = np.concatenate([numbers, np.array(list(self._named), "S")])
        names = names.astype(f"S{names.itemsize // 8 * 8 + 8}")  # each name ends with a zero
        objects = np.array([*self._numbered, *self._named.values()], np.uint64)
        order = np.argsort(names)
        tree = self._write_tree(8 + order * names.itemsize, objects[order])
        data = self._write(bytes(8) + names.tobytes())
        heap = self._write(b"HEAP" + pack("<4xQQQ", 8 + names.nbytes, 1, data))
        group = pack("<QQ", tree, heap)
        root = self._write(_object_header([_message(_SYMBOL_TABLE, group)], attributes))
        self._file.seek(0)
        self._file.write(
            b"\x89HDF\r\n\x1a\n"
            + pack("<5xBBxHHI", 8, 8, _LEAF_K, _INTERNAL_K, 0)
            + pack("<QQQQ", 0, _NO_ADDRESS, self._end, _NO_ADDRESS)
            + pack("<QQQ", 0, root, 1)
            + group
        )

    def _write(self, data: bytes | memoryview) -> int:
        """Write a structure, padded to a multiple of 8 bytes; return its address."""
        address = self._end
        padding = bytes(-len(data) % 8)
        self._file.write(data)
        self._file.write(padding)
        self._end += len(data) + len(padding)
        return address

    def _write_dataset(
        self,
        datatype: bytes,
        shape: Sequence[int],
        data: bytes | memoryview,
        attributes: Mapping[str, bytes],
    ) -> int:
        address = self._write(data) if len(data) else _NO_ADDRESS
        messages = [
            _message(_DATASPACE, pack(f"<BB6x{len(shape)}Q", 1, len(shape), *shape)),
            _message(_DATATYPE, datatype),
            _message(_FILL_VALUE, pack("<BBBB4x", 2, 2, 2, 1)),  # the default, zero
            _message(_LAYOUT, pack("<BBQQ", 3, 1, address, len(data))),  # contiguous
        ]
        return self._write(_object_header(messages, attributes))

    def _write_tree(self, names: Array, objects: Array) -> int:
        """Write the symbol table, a B-tree with levels of nodes; return the address of its root.

        Args:
            names: The positions of the names in the local heap, in order of the names.
            objects: The addresses of their datasets.
        """
        leaves = _nodes(_LEAF, b"SNOD", len(names), 2 * _LEAF_K)
        leaves["version"] = 1
        leaves["entries"]["name"] = _rows(names, 2 * _LEAF_K)
        leaves["entries"]["object"] = _rows(objects, 2 * _LEAF_K)
        children, last_names = self._write_nodes(leaves), _last(names, 2 * _LEAF_K)
        level = 0
        while level == 0 or len(children) > 1:  # the root is not a leaf
            nodes = _nodes(_NODE, b"TREE", len(children), 2 * _INTERNAL_K)
            nodes["level"] = level
            nodes["left"], nodes["right"] = _NO_ADDRESS, _NO_ADDRESS
            addresses = self._end + np.arange(len(nodes)) * nodes.itemsize
            nodes["left"][1:], nodes["right"][:-1] = addresses[:-1], addresses[1:]
            slots = nodes["keys_and_children"]
            slots[:, 1::2] = _rows(children, 2 * _INTERNAL_K)
            slots[:, 2::2] = _rows(last_names, 2 * _INTERNAL_K)
            last_names = _last(last_names, 2 * _INTERNAL_K)
            slots[1:, 0] = last_names[:-1]
            children, level = self._write_nodes(nodes), level + 1
        return int(children[0])

    def _write_nodes(self, nodes: Array) -> Array:
        """Write the nodes of one level; return their addresses."""
        return self._write(nodes.tobytes()) + np.arange(len(nodes)) * nodes.itemsize


def _nodes(dtype: np.dtype[np.void], signature: bytes, count: int, size: int) -> Array:
    """Return empty nodes for a number of entries, `size` in each."""
    nodes = np.zeros(-(-count // size), dtype)
    nodes["signature"] = signature
    nodes["count"] = size
    nodes["count"][-1] = count - size * (len(nodes) - 1)
    return nodes


def _rows(values: Array, size: int) -> Array:
    """Divide an array into rows; the last one is padded with zeros."""
    return np.append(values, np.zeros(-len(values) % size, values.dtype)).reshape(-1, size)


def _last(values: Array, size: int) -> Array:
    """Return the last value of each row of `_rows`."""
    return np.append(values[size - 1 : -1 : size], values[-1])


def _object_header(messages: list[bytes], attributes: Mapping[str, bytes]) -> bytes:
    for name, reference in attributes.items():
        sizes = pack("<BxHHH", 1, len(name.encode()) + 1, len(_STRING_TYPE), len(_SCALAR))
        parts = (name.encode() + b"\0", _STRING_TYPE, _SCALAR, reference)
        messages.append(_message(_ATTRIBUTE, sizes + b"".join(map(_padded, parts))))
    body = b"".join(messages)
    return pack("<BxHII4x", 1, len(messages), 1, len(body)) + body


def _message(kind: int, body: bytes) -> bytes:
    body = _padded(body)
    return pack("<HH4x", kind, len(body)) + body


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)
