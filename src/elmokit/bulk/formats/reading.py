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

#: Stored in every file; readers raise an error for other versions.
FORMAT_VERSION = 1
#: Name of the description in the metadata of each format.
DESCRIPTION = "elmokit"

#: Called after all vectors are written; returns more metadata for the file.
GetMetadata = Callable[[], dict[str, Any]]


class StoredSentence(NamedTuple):
    """One sentence of a vector file.

    Attributes:
        tokens: Its tokens; None if they are unknown, as in some files of other programs.
        vectors: Shape (L + 1, T, 2D) if the file contains all layers, otherwise (T, 2D).
    """

    tokens: list[str] | None
    vectors: NDArray[np.floating[Any]]


class StoredVectors(Sequence[StoredSentence], ABC):
    """The sentences of a vector file or of a directory of shards, which are read on access.

    Attributes:
        path: The file.
        layout: The stored layers and their data type.
        metadata: Other metadata: the model, the state policy, the input files.
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
            return self._read(number)

    @abstractmethod
    def _read(self, index: int) -> StoredSentence:
        """Read one sentence; `index` is in range."""

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
            f"<{plural(self._length, 'sentence')}, {layer} of {self.layout.shape[-1]} in "
            f"{self.layout.dtype}, from {self.path}>"
        )


@contextmanager
def report_damage(problem: str) -> Iterator[None]:
    """Report the errors that the libraries raise for damaged files as a `DataError`."""
    try:
        yield
    except (ElmoError, MemoryError):
        raise
    except Exception as error:  # each library has its own errors
        raise DataError(f"{problem} ({error}). Copy or compute the file again.") from error


def describe(layout: Layout, metadata: dict[str, Any]) -> str:
    """Return the JSON text for the metadata of a file."""
    return json.dumps({"version": FORMAT_VERSION, **layout.to_dict(), "about": metadata})


def read_description(
    text: str | bytes | None, guess_layout: Callable[[], Layout] | None = None
) -> tuple[Layout, dict[str, Any]]:
    """Parse the text of `describe`.

    Args:
        text: The text; None if the file has none, because another program wrote it.
        guess_layout: Guesses the layout of such a file. None: raise an error.
    """
    if text is None:
        if guess_layout is None:
            raise DataError("it was not written by elmokit: it has no description")
        return guess_layout(), {}
    try:
        values = json.loads(text)
        version, metadata = values.pop("version"), dict(values.pop("about"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"its description is damaged ({error!r})") from error
    if version != FORMAT_VERSION:
        raise DataError(f"it has format version {version}; this elmokit reads {FORMAT_VERSION}")
    if "layers" in values:  # the older name
        values["layer"] = values.pop("layers")
    return Layout.from_dict(values), metadata
