"""Read TensorFlow checkpoint files without TensorFlow.

    model.ckpt-12.index                  the list of tensors, a sorted table as in LevelDB
    model.ckpt-12.data-00000-of-00001    the values of the tensors, in one or more shards

The table maps the empty name to a BundleHeaderProto and each tensor's name to a BundleEntryProto:
type, shape, shard, offset and size.

    table     data blocks, an index block with their handles, and a footer of 48 bytes: two block
              handles, padding, and a magic number
    handle    offset and size of a block, as varints
    block     entries (length of the key prefix shared with the previous entry, length of the rest
              of the key, length of the value, rest of the key, value), then the restart points,
              which are the offsets of entries with complete keys, and the number of restart
              points. A block is followed by its compression type (1 byte) and checksum (4 bytes)
    message   fields: a varint (field number * 8 + wire type) and a value. Wire type 0 is a varint,
              1 is 8 bytes, 2 is a length and bytes, and 5 is 4 bytes

Sizes and shapes are checked before they are used; checksums are not verified.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import WeightsError

INDEX = ".index"
_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48
_TRAILER = 5
# The values of TensorFlow's DataType that a language model may contain.
_DTYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8", 19: "<f2"}
# The index of a language model is a few kilobytes. Parsing needs much more memory than the file.
_MAX_INDEX_BYTES = 1 << 20
_MAX_NAME_BYTES = 1 << 12


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a checkpoint. `numpy.asarray` reads its values.

    Attributes:
        description: The names of the tensor and the checkpoint, for error messages.
        dtype: The TensorFlow data type.
        shape: The shape.
        shard: The file that contains the values.
        offset: The position of the values in the file.
        size: The size in bytes.
    """

    description: str
    dtype: int
    shape: tuple[int, ...]
    shard: Path
    offset: int
    size: int

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        if self.dtype not in _DTYPES:
            raise WeightsError(
                f"{self.description} has TensorFlow data type {self.dtype}; expected floats or "
                "integers."
            )
        stored = np.dtype(_DTYPES[self.dtype])
        if math.prod(self.shape) * stored.itemsize != self.size:
            raise WeightsError(
                f"{self.description} has {self.size:,} bytes, which does not match its shape "
                f"{list(self.shape)} and type {stored}. The index is damaged; copy it again."
            )
        available = self.shard.stat().st_size if self.shard.is_file() else 0
        if self.offset + self.size > available:
            raise WeightsError(
                f"{self.description} should end at byte {self.offset + self.size:,} of "
                f"{self.shard}, which is missing or truncated ({available:,} bytes). Copy it again."
            )
        count = self.size // stored.itemsize
        return np.fromfile(self.shard, stored, count, offset=self.offset).reshape(self.shape)


def read_index(prefix: Path) -> dict[str, StoredTensor]:
    """Return the tensors of a checkpoint by name.

    Args:
        prefix: The path without `.index`, such as `model.ckpt-12`.

    Raises:
        WeightsError: The index is missing, damaged or not supported.
    """
    index = prefix.with_name(prefix.name + INDEX)
    try:
        if index.stat().st_size > _MAX_INDEX_BYTES:
            raise ValueError(f"it is larger than {_MAX_INDEX_BYTES:,} bytes")
        table = dict(_read_table(index.read_bytes()))
        n_shards = _parse_header(table.pop(b"", b""))
        entries = {key.decode(): value for key, value in table.items()}
        return {name: _parse_entry(prefix, n_shards, name, entries[name]) for name in entries}
    except FileNotFoundError:
        raise WeightsError(f"The checkpoint index {index} does not exist.") from None
    except (ValueError, TypeError) as error:
        raise WeightsError(
            f"{index} cannot be read as the index of a TensorFlow checkpoint: {error}. If it is "
            "truncated or damaged, copy it again; otherwise, save the model with tf.train.Saver in "
            "TensorFlow's V2 format."
        ) from error


# ------------------------------------------------------------------------------------------- table


def _read_table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a table."""
    footer = BytesIO(data[-_FOOTER:])
    if int.from_bytes(data[-8:], "little") != _MAGIC:
        raise ValueError("it does not end with the magic number of a table")
    for _ in range(2):  # skip the handle of a block that TensorFlow does not use
        _read_varint(footer)
    unread = len(data)
    for _, handle in _read_entries(_read_block(data, footer)):
        block = _read_block(data, BytesIO(handle))
        unread -= len(block)
        if unread < 0:  # reading the same block repeatedly could take hours
            raise ValueError("its blocks overlap")
        yield from _read_entries(block)


def _read_block(data: bytes, handle: BytesIO) -> bytes:
    offset, size = _read_varint(handle), _read_varint(handle)
    block = _read_bytes(BytesIO(data[offset : offset + size + _TRAILER]), size + _TRAILER)
    if block[size]:
        raise ValueError(f"its blocks are compressed (type {block[size]}), which is not supported")
    return block[:size]


def _read_entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    n_restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 - 4 * n_restarts
    stream, key = BytesIO(block), b""
    while stream.tell() < end:
        shared, unshared, size = _read_varint(stream), _read_varint(stream), _read_varint(stream)
        if shared + unshared > _MAX_NAME_BYTES:
            raise ValueError("it contains an invalid name")
        key = key[:shared] + _read_bytes(stream, unshared)
        yield key, _read_bytes(stream, size)


def _read_bytes(stream: BytesIO, size: int) -> bytes:
    data = stream.read(min(size, _MAX_INDEX_BYTES))
    if len(data) < size:
        raise ValueError("it is truncated")
    return data


def _read_varint(stream: BytesIO) -> int:
    value = 0
    for shift in range(0, 70, 7):
        (byte,) = _read_bytes(stream, 1)
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
    raise ValueError("it contains an invalid varint")


# ---------------------------------------------------------------------------------------- messages


def _read_fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the number and the value (an int or bytes) of each field of a protocol buffer."""
    stream = BytesIO(data)
    while stream.tell() < len(data):
        number, wire_type = divmod(_read_varint(stream), 8)
        if wire_type == 0:
            yield number, _read_varint(stream)
        else:
            size = _read_varint(stream) if wire_type == 2 else {1: 8, 5: 4}.get(wire_type, 0)
            yield number, _read_bytes(stream, size)


def _parse_header(header: bytes) -> int:
    values = dict(_read_fields(header))
    if values.get(2, 0) != 0:
        raise ValueError("its values are big-endian, which is not supported")
    shards = values.get(1, 0)
    if not 1 <= shards < 100_000:
        raise ValueError(f"its header is missing or lists {shards} shards")
    return int(shards)


def _parse_entry(prefix: Path, n_shards: int, name: str, entry: bytes) -> StoredTensor:
    values = dict(_read_fields(entry))
    # Field 2 of a shape is a dimension. Field 1 of a dimension is its size.
    dims = [value for number, value in _read_fields(values.get(2, b"")) if number == 2]
    shape = tuple(int(dict(_read_fields(dim)).get(1, 0)) for dim in dims)
    offset, size = int(values.get(4, 0)), int(values.get(5, 0))
    if max(offset, size, *shape, 0) >= 1 << 62:
        raise ValueError("a tensor has an invalid shape or position")
    shard = f"{prefix.name}.data-{int(values.get(3, 0)):05d}-of-{n_shards:05d}"
    return StoredTensor(
        f"Tensor '{name}' in {prefix}",
        int(values.get(1, 0)),
        shape,
        prefix.with_name(shard),
        offset,
        size,
    )
