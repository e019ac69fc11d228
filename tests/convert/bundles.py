"""Write TensorFlow checkpoint files, including ones that TensorFlow itself would not write: other
dtypes, several shards, damaged files. Simple and slow, one tensor per entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

TYPES = {"float32": 1, "float64": 2, "int32": 3, "int64": 9, "float16": 19, "bool": 10}
MAGIC = 0xDB4775248B80FB57


def varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def block(entries: list[tuple[bytes, bytes]], *, prefixes: bool = True) -> bytes:
    """Return a block whose keys omit the prefix that they share with the previous key."""
    out, before = b"", b""
    for key, value in entries:
        shared = 0
        while prefixes and shared < min(len(key), len(before)) and key[shared] == before[shared]:
            shared += 1
        out += varint(shared) + varint(len(key) - shared) + varint(len(value))
        out += key[shared:] + value
        before = key
    return out + (0).to_bytes(4, "little") + (1).to_bytes(4, "little")


def table(entries: list[tuple[bytes, bytes]], *, compression: int = 0, per_block: int = 3) -> bytes:
    out, places = b"", []

    def add(data: bytes) -> bytes:
        nonlocal out
        place = varint(len(out)) + varint(len(data))
        out += data + bytes([compression]) + bytes(4)  # checksums are not validated
        return place

    for start in range(0, len(entries), per_block):
        part = entries[start : start + per_block]
        places.append((part[-1][0], add(block(part))))
    meta = add(block([]))
    index = add(block(places))
    footer = (meta + index).ljust(40, b"\0") + MAGIC.to_bytes(8, "little")
    return out + footer


def entry(value: np.ndarray, offset: int, place: int, **changes: Any) -> bytes:
    shape = b"".join(field(2, field(1, size)) for size in changes.get("shape", value.shape))
    raw = value.tobytes()
    out = field(1, changes.get("dtype", TYPES.get(str(value.dtype), 7))) + field(2, shape)
    out += field(3, changes.get("shard", place)) + field(4, offset) + field(5, len(raw))
    return out + varint(6 << 3 | 5) + bytes(4)


def write_bundle(
    prefix: Path,
    tensors: Mapping[str, np.ndarray],
    *,
    shards: int = 1,
    compression: int = 0,
    endianness: int = 0,
    header: bool = True,
    changes: Mapping[str, dict[str, Any]] | None = None,
) -> Path:
    """Write a checkpoint; `changes` overrides index entries of some tensors with false values."""
    data = [b""] * shards
    entries = [(b"", field(1, shards) + field(2, endianness))] if header else []
    for number, (name, value) in enumerate(sorted(tensors.items())):
        shard = number % shards
        item = entry(value, len(data[shard]), shard, **(changes or {}).get(name, {}))
        entries.append((name.encode(), item))
        data[shard] += value.tobytes()
    prefix.with_name(prefix.name + ".index").write_bytes(table(entries, compression=compression))
    for shard, raw in enumerate(data):
        prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{shards:05d}").write_bytes(raw)
    return prefix
