"""A short text that is embedded in several chunks, and ways to interrupt that."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from elmokit.bulk.settings import EmbedSettings

SUFFIXES = [".h5", ".npz", ".safetensors", ".parquet"]
TEXT = """I read the book yesterday.
Can you read the letter now?

Don't!
The children play in the garden, and then they read: "It's mine."

I read the book yesterday.
The play was long. It was good.
"""
SMALL = EmbedSettings(chunk_bytes=20)


class Stdin:
    """Standard input with the given bytes."""

    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)


class Stopped(Exception):
    """Stands for anything that ends a run."""


def stop_after(calls_before: int) -> Callable[..., Any]:
    calls = iter(range(calls_before))

    def report(*_: object) -> None:
        if next(calls, None) is None:
            raise Stopped

    return report


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def work_path(out: Path) -> Path:
    """Return the directory with the chunks of an unfinished file."""
    return out.with_name(f".{out.name}.chunks")
