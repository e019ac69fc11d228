"""TensorFlow's checkpoint files, read without TensorFlow.

    model.ckpt-12.index                  the list of tensors: a sorted table as in LevelDB
    model.ckpt-12.data-00000-of-00001    their values, concatenated; large checkpoints in shards

The table maps the empty name to a BundleHeaderProto and each tensor's name to a BundleEntryProto:
type, shape, shard, offset and size. This module is independent of ELMo.

    table     data blocks, the index block that lists them, and a footer of 48 bytes: the positions
              of two blocks as varints, padding, and a magic number
    block     entries (shared, unshared, size, key without its shared prefix, value), then the
              positions of complete keys; after a block its compression (1 byte) and checksum (4)
    message   fields: a varint of number * 8 + kind; kind 0 is a varint, 2 a length and bytes,
              1 and 5 are 8 and 4 bytes

Sizes and shapes are checked before they are used; checksums are not verified.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import WeightsError, nearest

INDEX = ".index"
_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48
_TRAILER = 5
# The numbers of TensorFlow's DataType that a language model may contain.
_DTYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8", 19: "<f2"}
# The index of a language model has some kilobytes; parsing needs much more memory than the file.
_MAX_INDEX_BYTES = 1 << 20
_MAX_NAME_BYTES = 1 << 12


@dataclass(frozen=True)
class Entry:
    """The description of a tensor in the index."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    in_slices: bool


class Bundle:
    """The tensors of a checkpoint.

    Args:
        prefix: The path without `.index`, as in `model.ckpt-12`.

    Attributes:
        entries: The tensors by name.

    Raises:
        WeightsError: The index is missing, damaged or not supported.
    """

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        self.index = prefix.with_name(prefix.name + INDEX)
        try:
            if self.index.stat().st_size > _MAX_INDEX_BYTES:
                raise ValueError(f"it is larger than {_MAX_INDEX_BYTES:,} bytes")
            table = dict(_table(self.index.read_bytes()))
            self._n_shards = _n_shards(table.pop(b"", b""))
            self.entries = {name.decode(): _entry(value) for name, value in table.items()}
        except FileNotFoundError:
            raise WeightsError(f"The checkpoint index {self.index} does not exist.") from None
        except (ValueError, TypeError, IndexError) as error:
            raise WeightsError(
                f"{self.index} cannot be read as the index of a TensorFlow checkpoint: {error}. If "
                "it is truncated or damaged, copy it again; otherwise save the model with "
                "tf.train.Saver in TensorFlow's format V2."
            ) from error

    @property
    def files(self) -> tuple[Path, ...]:
        """The index and the shards."""
        return (self.index, *(self._shard(number) for number in range(self._n_shards)))

    def read(self, name: str) -> NDArray[Any]:
        """Read a tensor.

        Raises:
            WeightsError: It is missing, truncated, or of an unsupported type.
        """
        entry = self.entries.get(name)
        if entry is None:
            raise WeightsError(f"{self.index} has no tensor '{name}'.{nearest(name, self.entries)}")
        what = f"Tensor '{name}' of {self.prefix}"
        if entry.in_slices:
            raise WeightsError(
                f"{what} was saved in slices (a partitioned variable), which is not supported. "
                "Save it as one tensor with tf.train.Saver."
            )
        if entry.dtype not in _DTYPES:
            raise WeightsError(
                f"{what} has TensorFlow's data type {entry.dtype}; expected floats or integers."
            )
        dtype = np.dtype(_DTYPES[entry.dtype])
        if math.prod(entry.shape) * dtype.itemsize != entry.size:
            raise WeightsError(
                f"{what} has {entry.size:,} bytes, which does not match its shape "
                f"{list(entry.shape)} and type {dtype}. The index is damaged; copy it again."
            )
        shard = self._shard(entry.shard)
        size = shard.stat().st_size if shard.is_file() else 0
        if entry.offset + entry.size > size:
            raise WeightsError(
                f"{what} should end at byte {entry.offset + entry.size:,} of {shard}, which is "
                f"missing or truncated ({size:,} bytes). Copy it again."
            )
        count = entry.size // dtype.itemsize
        return np.fromfile(shard, dtype, count, offset=entry.offset).reshape(entry.shape)

    def _shard(self, number: int) -> Path:
        return self.prefix.with_name(
            f"{self.prefix.name}.data-{number:05d}-of-{self._n_shards:05d}"
        )


# ------------------------------------------------------------------------------------------- table


def _table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a table."""
    footer = data[-_FOOTER:]
    if int.from_bytes(footer[-8:], "little") != _MAGIC:
        raise ValueError("it does not end with the magic number of a table")
    _, _, at = _position(footer, 0)  # of a block that TensorFlow leaves empty
    offset, size, _ = _position(footer, at)
    for _, position in _entries(_block(data, offset, size)):
        yield from _entries(_block(data, *_position(position, 0)[:2]))


def _position(data: bytes, at: int) -> tuple[int, int, int]:
    offset, at = _varint(data, at)
    size, at = _varint(data, at)
    return offset, size, at


def _block(data: bytes, offset: int, size: int) -> bytes:
    block = _slice(data, offset, size + _TRAILER)
    if block[size]:
        raise ValueError(f"its blocks are compressed (method {block[size]}), which is unsupported")
    return block[:size]


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    n_restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 - 4 * n_restarts
    at, key = 0, b""
    while at < end:
        shared, at = _varint(block, at)
        unshared, at = _varint(block, at)
        size, at = _varint(block, at)
        if shared + unshared > _MAX_NAME_BYTES:
            raise ValueError("it contains an invalid name")
        key = _slice(key, 0, shared) + _slice(block, at, unshared)
        yield key, _slice(block, at + unshared, size)
        at += unshared + size


def _slice(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise ValueError("it is truncated")
    return data[at : at + size]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("it contains an invalid number")


# ---------------------------------------------------------------------------------------- messages


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a protocol buffer: number and value, an int or bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind, 0)
        if kind == 2:
            size, at = _varint(data, at)
        yield tag >> 3, _slice(data, at, size)
        at += size


def _n_shards(header: bytes) -> int:
    """Return the number of shards."""
    values = dict(_fields(header))
    if values.get(2, 0) != 0:
        raise ValueError("its values are big-endian, which is not supported")
    shards = values.get(1, 0)
    if not 1 <= shards < 100_000:
        raise ValueError(f"its header is missing or lists {shards} shards")
    return int(shards)


def _entry(data: bytes) -> Entry:
    fields = list(_fields(data))
    values = dict(fields)
    # A dimension is field 2 of the shape; its size is field 1.
    dims = [value for number, value in _fields(values.get(2, b"")) if number == 2]
    shape = tuple(int(dict(_fields(dim)).get(1, 0)) for dim in dims)
    offset, size = int(values.get(4, 0)), int(values.get(5, 0))
    if max(offset, size, *shape, 0) >= 1 << 62:
        raise ValueError("a tensor has an invalid shape or position")
    return Entry(
        dtype=int(values.get(1, 0)),
        shape=shape,
        shard=int(values.get(3, 0)),
        offset=offset,
        size=size,
        in_slices=any(number == 7 for number, _ in fields),
    )
