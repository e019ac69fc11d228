"""TensorFlow's checkpoint files, read without TensorFlow.

    model.ckpt-12.index                  the list of tensors: a sorted table as in LevelDB
    model.ckpt-12.data-00000-of-00001    their values, concatenated; large checkpoints in shards

The table maps the empty name to a BundleHeaderProto and each tensor's name to a BundleEntryProto:
type, shape, shard, offset, size and checksum. This module is independent of ELMo.

    table     data blocks, the index block that lists them, and a footer of 48 bytes: the places of
              two blocks as varints, padding, and a magic number
    block     entries (shared, unshared, size, key without its shared start, value), then the
              places where keys are whole; after a block its compression and checksum, 1 + 4 bytes
    message   fields: a varint of number * 8 + kind; kind 0 is a varint, 2 a length and bytes,
              1 and 5 are 8 and 4 bytes

Sizes, checksums and shapes are checked before they are used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.convert.crc32c import crc32c, masked
from elmokit.errors import WeightsError, nearest

INDEX = ".index"
_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48
_TRAILER = 5
_COMPRESSIONS = {1: "snappy"}
# The numbers of TensorFlow's DataType that a language model may hold.
_DTYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8", 19: "<f2"}
_NAMES = {4: "uint8", 5: "int16", 6: "int8", 7: "string", 8: "complex64", 10: "bool"} | {
    14: "bfloat16",
    17: "uint16",
    20: "resource",
}
_LARGEST_INDEX = 1 << 28


class _Damage(ValueError):
    """What is wrong with an index file."""


@dataclass(frozen=True)
class Entry:
    """What the index says of a tensor."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int
    in_slices: bool


class Bundle:
    """The tensors of a checkpoint.

    Args:
        prefix: The path without `.index`, as in `model.ckpt-12`.

    Attributes:
        entries: What there is, by name.

    Raises:
        WeightsError: The index is missing or damaged, or of a kind that is not read here.
    """

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        self.index = prefix.with_name(prefix.name + INDEX)
        try:
            if self.index.stat().st_size > _LARGEST_INDEX:
                raise _Damage(f"it has {self.index.stat().st_size:,} bytes, no index is so large")
            table = dict(_table(self.index.read_bytes()))
            self._n_shards = _header(table.pop(b"", None))
            self.entries = {
                _text(name): _entry(_text(name), value) for name, value in table.items()
            }
        except FileNotFoundError:
            raise WeightsError(f"There is no checkpoint index {self.index}.") from None
        except _Damage as error:
            raise WeightsError(
                f"{self.index} is not the index of a TensorFlow checkpoint that can be read here: "
                f"{error}. If it is damaged or was cut short, copy it again; else save the model "
                "with tf.train.Saver in TensorFlow's format V2."
            ) from error

    @property
    def files(self) -> tuple[Path, ...]:
        """The index and the shards."""
        return (self.index, *(self._shard(number) for number in range(self._n_shards)))

    def read(self, name: str) -> NDArray[Any]:
        """Read a tensor; its checksum is compared.

        Raises:
            WeightsError: It is not there, damaged, or of a type that is not read here.
        """
        entry = self.entries.get(name)
        if entry is None:
            raise WeightsError(f"{self.index} has no tensor '{name}'.{nearest(name, self.entries)}")
        what = f"Tensor '{name}' of {self.prefix}"
        if entry.in_slices:
            raise WeightsError(
                f"{what} was saved in slices (a partitioned variable), which is not read here. "
                "Save it whole with tf.train.Saver."
            )
        if entry.dtype not in _DTYPES:
            found = _NAMES.get(entry.dtype, f"number {entry.dtype}")
            raise WeightsError(f"{what} is of type {found}; floats or integers were expected.")
        dtype = np.dtype(_DTYPES[entry.dtype])
        if math.prod(entry.shape) * dtype.itemsize != entry.size:
            raise WeightsError(
                f"{what} has shape {list(entry.shape)} and {entry.size:,} bytes; as {dtype} it "
                f"would have {math.prod(entry.shape) * dtype.itemsize:,}. The index is damaged."
            )
        raw = self._bytes(entry, what)
        if masked(crc32c(raw)) != entry.checksum:
            raise WeightsError(f"{what} is damaged: its checksum differs. Copy the files again.")
        return raw.view(dtype).reshape(entry.shape)

    def _bytes(self, entry: Entry, what: str) -> NDArray[np.uint8]:
        if entry.shard >= self._n_shards:
            raise WeightsError(
                f"{what} should be in shard {entry.shard}, and there are {self._n_shards}: the "
                "index is damaged."
            )
        path = self._shard(entry.shard)
        try:
            size = path.stat().st_size
            if entry.offset + entry.size > size:
                raise WeightsError(
                    f"{what} should end at byte {entry.offset + entry.size:,} of {path}, which has "
                    f"{size:,}: the file was cut short. Copy it again."
                )
            with path.open("rb") as file:
                return np.fromfile(file, np.uint8, entry.size, offset=entry.offset)
        except FileNotFoundError:
            raise WeightsError(
                f"There is no {path}, which holds the numbers of {self.index}. Copy it, too."
            ) from None

    def _shard(self, number: int) -> Path:
        return self.prefix.with_name(
            f"{self.prefix.name}.data-{number:05d}-of-{self._n_shards:05d}"
        )


# ------------------------------------------------------------------------------------------- table


def _table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Give the keys and values of a table."""
    if len(data) < _FOOTER:
        raise _Damage(f"it has {len(data)} bytes, and its footer alone should have {_FOOTER}")
    footer = data[-_FOOTER:]
    magic = int.from_bytes(footer[-8:], "little")
    if magic != _MAGIC:
        raise _Damage(f"it should end in the number {_MAGIC:#x}, found {magic:#x}")
    _, _, at = _place(footer, 0)  # of a block that TensorFlow leaves empty
    offset, size, _ = _place(footer, at)
    for _, place in _entries(_block(data, offset, size)):
        yield from _entries(_block(data, *_place(place, 0)[:2]))


def _place(data: bytes, at: int) -> tuple[int, int, int]:
    offset, at = _varint(data, at)
    size, at = _varint(data, at)
    return offset, size, at


def _block(data: bytes, offset: int, size: int) -> bytes:
    end = offset + size
    if end + _TRAILER > len(data):
        raise _Damage(f"a block should end at byte {end:,} of {len(data):,}")
    kind = data[end]
    checksum = int.from_bytes(data[end + 1 : end + _TRAILER], "little")
    if masked(crc32c(data[offset : end + 1])) != checksum:
        raise _Damage(f"the checksum of the block at byte {offset:,} differs")
    if kind:
        name = _COMPRESSIONS.get(kind, f"method {kind}")
        raise _Damage(f"its blocks are compressed ({name}), which TensorFlow does not do by itself")
    return data[offset:end]


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    if len(block) < 4:
        raise _Damage("a block is empty")
    n_restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 - 4 * n_restarts
    if end < 0:
        raise _Damage(f"a block of {len(block)} bytes should hold {n_restarts:,} whole keys")
    at, key = 0, b""
    while at < end:
        shared, at = _varint(block, at)
        unshared, at = _varint(block, at)
        size, at = _varint(block, at)
        if shared > len(key) or at + unshared + size > end:
            raise _Damage("an entry is longer than its block")
        key = key[:shared] + block[at : at + unshared]
        at += unshared
        yield key, block[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise _Damage("a number does not end")


# ---------------------------------------------------------------------------------------- messages


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Give the fields of a protocol buffer: number and value."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        value: int | bytes
        if kind == 0:
            value, at = _varint(data, at)
        elif kind in (1, 2, 5):
            size = {1: 8, 5: 4}.get(kind, 0)
            if kind == 2:
                size, at = _varint(data, at)
            if at + size > len(data):
                raise _Damage("a message is cut short")
            value = data[at : at + size]
            at += size
        else:
            raise _Damage(f"a message holds a field of kind {kind}")
        yield tag >> 3, value


def _header(data: bytes | None) -> int:
    """Return the number of shards."""
    if data is None:
        raise _Damage("it has no header (the entry without a name)")
    values = dict(_fields(data))
    if _number(values.get(2, 0)) != 0:
        raise _Damage("its numbers are big-endian")
    shards = _number(values.get(1, 0))
    if not 1 <= shards < 100_000:
        raise _Damage(f"it speaks of {shards} shards")
    return shards


def _entry(name: str, data: bytes) -> Entry:
    fields = list(_fields(data))
    values = dict(fields)
    shape = []
    for number, value in _fields(_message(values.get(2, b""))):
        if number == 2:  # a dimension; its size is field 1
            shape.append(_number(dict(_fields(_message(value))).get(1, 0)))
        elif number == 3 and value:
            raise _Damage(f"the shape of '{name}' is not known")
    checksum = values.get(6, b"\0\0\0\0")
    if not isinstance(checksum, bytes):
        raise _Damage(f"the checksum of '{name}' is no fixed number")
    offset, size = _number(values.get(4, 0)), _number(values.get(5, 0))
    if max(offset, size, *shape, 0) >= 1 << 62:
        raise _Damage(f"the shape or place of '{name}' is negative")
    return Entry(
        dtype=_number(values.get(1, 0)),
        shape=tuple(shape),
        shard=_number(values.get(3, 0)),
        offset=offset,
        size=size,
        checksum=int.from_bytes(checksum, "little"),
        in_slices=any(number == 7 for number, _ in fields),
    )


def _number(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise _Damage("a message has bytes where a number should be")
    return value


def _message(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise _Damage("a message has a number where a message should be")
    return value


def _text(name: bytes) -> str:
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        raise _Damage(f"a tensor's name is no text: {name[:40]!r}") from None
