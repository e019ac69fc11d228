"""The base class of all readers of vector files, and the description that each file contains."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from elmokit.bulk.formats.layout import Layout
from elmokit.errors import DataError, ElmoError
from elmokit.progress import plural

#: Stored in every file. Readers reject other versions.
FORMAT_VERSION = 1
#: Name of the description in the metadata of each format.
DESCRIPTION = "elmokit"

#: Called when all blocks have been received. Returns additional metadata for the file.
GetMetadata = Callable[[], dict[str, Any]]


class StoredSentence(NamedTuple):
    """One sentence of a vector file.

    Attributes:
        tokens: The tokens; None if they are unknown, as in some files from other programs.
        vectors: Shape (L + 1, T, 2D) if the file contains all layers, otherwise (T, 2D).
    """

    tokens: list[str] | None
    vectors: NDArray[np.floating[Any]]


class StoredVectors(Sequence[StoredSentence], ABC):
    """The sentences of a vector file or of a directory of shards. Each sentence is read on access.

    Attributes:
        path: The file or directory.
        layout: The stored layers and their data type.
        metadata: Additional metadata, such as the model, the state policy and the input files.
        documents: For a directory of shards, the name of each document and the range of its
            sentences.
    """

    def __init__(self, path: Path, layout: Layout, metadata: dict[str, Any], length: int) -> None:
        self.path = path
        self.layout = layout
        self.metadata = metadata
        self.documents: list[tuple[str, range]] = []
        self._length = length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> StoredSentence: ...
    @overload
    def __getitem__(self, index: slice) -> list[StoredSentence]: ...
    def __getitem__(self, index: int | slice) -> StoredSentence | list[StoredSentence]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._length))]
        number = index + self._length if index < 0 else index
        if not 0 <= number < self._length:
            count = plural(self._length, "sentence")
            raise IndexError(f"Invalid index {index}: {self.path} has {count}.")
        with report_damage(f"{self.path} is damaged: cannot read sentence {number}"):
            tokens, vectors = self._read(number)
            *layers, dim = self.layout.shape
            shape = (*layers, vectors.shape[-2] if tokens is None else len(tokens), dim)
            if vectors.shape != shape or not isinstance(tokens, list | None):
                raise ValueError(f"its vectors have shape {vectors.shape}, expected {shape}")
            if not all(isinstance(token, str) for token in tokens or ()):
                raise ValueError("its tokens are not strings")
            return StoredSentence(tokens, vectors)

    @abstractmethod
    def _read(self, index: int) -> StoredSentence:
        """Read one sentence. The caller checks that `index` is in range."""

    @abstractmethod
    def close(self) -> None:
        """Close the file."""

    def __enter__(self) -> StoredVectors:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        layer = self.layout.choice.label.replace("all", "all layers")
        return (
            f"<{plural(self._length, 'sentence')}, {layer}, {self.layout.shape[-1]} dimensions, "
            f"{self.layout.dtype}, from {self.path}>"
        )


@contextmanager
def report_damage(problem: str) -> Iterator[None]:
    """Convert the exceptions that libraries raise for damaged files to a `DataError`."""
    try:
        yield
    except (ElmoError, MemoryError):
        raise
    except Exception as error:  # each library raises different exceptions
        raise DataError(f"{problem} ({error}). Copy the file again, or recreate it.") from error


def describe(layout: Layout, metadata: dict[str, Any]) -> str:
    """Return the description of a file as a JSON string."""
    return json.dumps({"version": FORMAT_VERSION, **layout.to_dict(), "about": metadata})


def read_description(
    text: str | bytes | None, guess_layout: Callable[[], Layout] | None = None
) -> tuple[Layout, dict[str, Any]]:
    """Parse the result of `describe`.

    Args:
        text: The description; None for files from other programs, which do not have one.
        guess_layout: Returns the layout of a file without a description. By default, such files
            cause an error.
    """
    if text is None:
        if guess_layout is None:
            raise DataError("it has no description by elmokit")
        return guess_layout(), {}
    try:
        values = json.loads(text)
        version, metadata = values.pop("version"), dict(values.pop("about"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"its description is damaged ({error!r})") from error
    if version != FORMAT_VERSION:
        raise DataError(f"it has format version {version}, but elmokit expects {FORMAT_VERSION}")
    return Layout.from_dict(values), metadata
