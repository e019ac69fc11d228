"""What all readers of vector files have in common."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from elmokit.bulk.formats.layout import Layout
from elmokit.errors import DataError, ElmoError
from elmokit.progress import plural

#: Goes into every file; a reader refuses what it does not know.
FORMAT_VERSION = 1
#: Under this name the description stands in the metadata of each format.
DESCRIPTION = "elmokit"


#: Called when all vectors are written: what else to note in the file.
About = Callable[[], dict[str, Any]]


class StoredSentence(NamedTuple):
    """One sentence of a vector file.

    Attributes:
        tokens: Its tokens; None if the file (of another program) does not tell them.
        vectors: Shape (L + 1, T, 2D) if the file holds all layers, else (T, 2D).
    """

    tokens: list[str] | None
    vectors: NDArray[np.floating[Any]]


class StoredVectors(Sequence[StoredSentence], ABC):
    """The sentences of a vector file or of a folder of shards, each read when it is asked for.

    Attributes:
        path: The file.
        layout: Which layers it holds and in which number type.
        about: What else was noted when it was made: the model, the state policy, the input files.
        documents: Of a folder of shards, each document by the name it was given, with the range of
            its sentences.
    """

    def __init__(self, path: Path, layout: Layout, about: dict[str, Any], length: int) -> None:
        self.path = path
        self.layout = layout
        self.about = about
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
            return [self._checked(i) for i in range(*index.indices(self._length))]
        place = index + self._length if index < 0 else index
        if not 0 <= place < self._length:
            raise IndexError(
                f"{self.path} has {plural(self._length, 'sentence')}; there is no {index}."
            )
        return self._checked(place)

    def __iter__(self) -> Iterator[StoredSentence]:
        return (self._checked(i) for i in range(self._length))

    def _checked(self, index: int) -> StoredSentence:
        try:
            return self._read(index)
        except (ElmoError, MemoryError):
            raise
        except Exception as error:  # each library has its own errors for damaged files
            raise DataError(
                f"{self.path} is damaged: sentence {index} cannot be read ({error}). Copy or "
                "compute the file again."
            ) from error

    @abstractmethod
    def _read(self, index: int) -> StoredSentence:
        """Read one sentence; `index` is in range."""

    @abstractmethod
    def close(self) -> None:
        """Close the file."""

    def __enter__(self) -> StoredVectors:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        layer = self.layout.choice.label.replace("all", "all layers")
        return (
            f"<{plural(self._length, 'sentence')}, {layer} of {self.layout.shape[-1]} in "
            f"{self.layout.dtype}, from {self.path}>"
        )

    def _sentence(
        self, tokens: list[str] | None, vectors: NDArray[np.floating[Any]]
    ) -> StoredSentence:
        """Turn (T, L + 1, 2D), as files hold it, to (L + 1, T, 2D), as `layers` everywhere is."""
        return StoredSentence(tokens, vectors.swapaxes(0, 1) if vectors.ndim == 3 else vectors)


def describe(layout: Layout, about: dict[str, Any]) -> str:
    """Return the JSON text that goes into the metadata of a file."""
    return json.dumps({"version": FORMAT_VERSION, **layout.to_dict(), "about": about})


def read_description(text: str | bytes | None) -> tuple[Layout, dict[str, Any]]:
    """Read what `describe` wrote."""
    if text is None:
        raise DataError("it was not written by elmokit: its description is missing")
    try:
        values = json.loads(text)
        version = values["version"]
        layout = Layout.from_dict(values)
        about = dict(values["about"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"its description is damaged ({error!r})") from error
    if version != FORMAT_VERSION:
        raise DataError(f"it is of format {version}; this elmokit reads {FORMAT_VERSION}")
    return layout, about
