"""Write HDF5 files with many small datasets several times as fast as the HDF5 library.

The library needs more than 100 microseconds to write a dataset with an attribute
(`benchmarks/hdf5_writing.py`). A GPU computes the vectors of a dataset in less time. The library
also crashes if the disk is full when a file is closed. This module writes the oldest structures of
the HDF5 file format, which h5py also writes by default. All versions of HDF5 can read and extend
them. The names of the structures are those of the "HDF5 File Format Specification",
https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t3.html
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from struct import pack
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
#: The named members of a group: the address of each dataset, and the members of each nested group.
Members: TypeAlias = "dict[str, int | Members]"

#: Longer texts are stored in several attributes. The format limits an attribute, including its
#: header, to 64 kB.
MAX_ATTRIBUTE_BYTES = 65_000

_NO_ADDRESS = 2**64 - 1
_MIN_HEAP_BYTES = 4096
# The default sizes of B-tree nodes: leaves have up to 2 * _LEAF_K names, and internal nodes up to
# 2 * _INTERNAL_K children.
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

_LEAF_BYTES = 8 + 2 * _LEAF_K * 40
_NODE_BYTES = 24 + (4 * _INTERNAL_K + 1) * 8


class Hdf5Writer:
    """Writes named datasets, and numbered datasets ("0", "1", ...) in the root group.

    Args:
        file: A new file. It is a valid HDF5 file only after `finish`.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._end = 0
        self._write(bytes(96))  # the superblock, which `finish` writes
        self._numbered = array("Q")  # the addresses of the numbered datasets
        self._named: Members = {}

    def add_numbers(
        self, values: Array, attributes: Mapping[str, bytes] = {}, name: str | None = None
    ) -> None:
        """Write a dataset of float32 or float16 numbers.

        Args:
            values: The numbers.
            attributes: Texts to store with the dataset. `read_attribute` reads them.
            name: The name, in which slashes separate groups. Default: the next number.

        Raises:
            ValueError: The name is invalid or already used.
        """
        dtype = values.dtype.newbyteorder("<")
        data = np.ascontiguousarray(values, dtype).reshape(-1).view(np.uint8).data
        number_type = _NUMBER_TYPES[dtype.name]
        address = self._write_dataset(number_type, values.shape, data, attributes)
        if name is None:
            self._numbered.append(address)
        else:
            self._add_to_group(name, address)

    def add_string(self, name: str, text: str) -> None:
        """Write a named dataset that contains a single string of variable length."""
        data = text.encode()
        heap = pack("<H6xQ", 1, len(data)) + _pad(data)
        free = max(16, _MIN_HEAP_BYTES - 16 - len(heap))
        heap += pack("<8xQ", free).ljust(free, b"\0")
        address = self._write(b"GCOL" + pack("<B3xQ", 1, 16 + len(heap)) + heap)
        reference = pack("<IQI", len(data), address, 1)
        self._named[name] = self._write_dataset(_STRING_TYPE, (1,), reference, {})

    def finish(self, attributes: Mapping[str, bytes] = {}) -> None:
        """Write the groups, the attributes of the file, and the superblock."""
        root, group = self._write_group(self._named, attributes, self._numbered)
        self._file.seek(0)
        self._file.write(
            b"\x89HDF\r\n\x1a\n"
            + pack("<5xBBxHHI", 8, 8, _LEAF_K, _INTERNAL_K, 0)
            + pack("<QQQQ", 0, _NO_ADDRESS, self._end, _NO_ADDRESS)
            + pack("<QQQ", 0, root, 1)
            + group
        )

    def _add_to_group(self, name: str, address: int) -> None:
        *parents, key = [part for part in name.split("/") if part not in ("", ".")] or [""]
        group = self._named
        for parent in parents:
            child = group.setdefault(parent, {})
            if isinstance(child, int):
                raise ValueError(f"'{parent}' is a dataset, not a group")
            group = child
        if not key or "\0" in name:
            raise ValueError("this is not a valid name in HDF5")
        if key in group:
            raise ValueError("the name is already used")
        group[key] = address

    def _write_group(
        self, members: Members, attributes: Mapping[str, bytes] = {}, numbered: Sequence[int] = ()
    ) -> tuple[int, bytes]:
        """Write a group. Return its address and the contents of its symbol table message."""
        addresses = [m if isinstance(m, int) else self._write_group(m)[0] for m in members.values()]
        numbers = np.arange(len(numbered)).astype("S")
        names = np.concatenate([numbers, np.array([name.encode() for name in members], "S")])
        names = names.astype(f"S{names.itemsize // 8 * 8 + 8}")  # each name ends with a zero byte
        objects = np.array([*numbered, *addresses], np.uint64)
        order = np.argsort(names)
        tree = self._write_tree(8 + order * names.itemsize, objects[order])
        data = self._write(bytes(8) + names.tobytes())
        heap = self._write(b"HEAP" + pack("<4xQQQ", 8 + names.nbytes, 1, data))
        group = pack("<QQ", tree, heap)
        return self._write(_object_header([_message(_SYMBOL_TABLE, group)], attributes)), group

    def _write(self, data: bytes | memoryview) -> int:
        """Write a structure, padded to a multiple of 8 bytes, and return its address."""
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
        """Write the symbol table, a B-tree, and return the address of its root.

        Args:
            names: The positions of the names in the local heap, sorted by name.
            objects: The addresses of the datasets and groups, in the same order.
        """
        children: list[int] = []
        keys = [0]  # the last name before each child, then the last name in the tree
        for first in range(0, len(names), 2 * _LEAF_K):
            group = slice(first, first + 2 * _LEAF_K)
            entries = list(zip(names[group].tolist(), objects[group].tolist(), strict=True))
            leaf = b"SNOD" + pack("<BxH", 1, len(entries))
            leaf += b"".join(pack("<QQ24x", *entry) for entry in entries)
            children.append(self._write(leaf.ljust(_LEAF_BYTES, b"\0")))
            keys.append(entries[-1][0])
        level = 0
        while level == 0 or len(children) > 1:  # the root is never a leaf
            children, keys = self._write_level(level, children, keys)
            level += 1
        return children[0]

    def _write_level(
        self, level: int, children: list[int], keys: list[int]
    ) -> tuple[list[int], list[int]]:
        """Write the parents of the given nodes. Return the addresses and keys of the parents."""
        firsts = range(0, len(children), 2 * _INTERNAL_K)
        addresses = [self._end + i * _NODE_BYTES for i in range(len(firsts))]
        siblings = [_NO_ADDRESS, *addresses, _NO_ADDRESS]
        for i, first in enumerate(firsts):
            group = children[first : first + 2 * _INTERNAL_K]
            node = b"TREE" + pack("<BBHQQ", 0, level, len(group), siblings[i], siblings[i + 2])
            for key, child in zip(keys[first:], group, strict=False):
                node += pack("<QQ", key, child)
            node += pack("<Q", keys[first + len(group)])
            self._write(node.ljust(_NODE_BYTES, b"\0"))
        return addresses, [*(keys[first] for first in firsts), keys[-1]]


def _object_header(messages: list[bytes], attributes: Mapping[str, bytes]) -> bytes:
    for name, text in attributes.items():
        for number, start in enumerate(range(0, len(text), MAX_ATTRIBUTE_BYTES)):
            part = text[start : start + MAX_ATTRIBUTE_BYTES]
            key = f"{name}{number or ''}".encode() + b"\0"
            text_type = pack("<BB2xI", 0x13, 0x11, len(part))  # UTF-8, padded with zeros
            sizes = pack("<BxHHH", 1, len(key), len(text_type), len(_SCALAR))
            fields = (key, text_type, _SCALAR, part)
            messages.append(_message(_ATTRIBUTE, sizes + b"".join(map(_pad, fields))))
    body = b"".join(messages)
    return pack("<BxHII4x", 1, len(messages), 1, len(body)) + body


def _message(kind: int, body: bytes) -> bytes:
    body = _pad(body)
    return pack("<HH4x", kind, len(body)) + body


def _pad(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)
