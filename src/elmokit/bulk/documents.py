"""Documents of a large corpus, cut into chunks that can be embedded one by one, anywhere.

A document is a text file (also a packed one), whose lines are read, or a Parquet file, whose rows
are its lines: one column of it holds the text. It may lie on this machine or, as `s3://...` and the
like, where pyarrow finds it.

A chunk is a run of lines of about a given number of bytes. Where it begins and ends depends on the
document alone, so that chunks can be given to any worker, in any order, again and again.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmokit.bulk.input import Place, Sentence, sentences_of
from elmokit.errors import DataError, ElmoError, optional_imports
from elmokit.text.lines import STDIN, Line, read_lines

#: Bytes of text in a chunk, about: two hundred thousand tokens, which become one shard.
CHUNK_BYTES = 2**20


@dataclass(frozen=True)
class Chunk:
    """A run of lines of a document.

    Attributes:
        document: Index of the document in the corpus.
        number: Number of the chunk in its document, from 0.
        is_last: Whether the document ends with it.
        numbers: The number of each line, from 1.
        texts: The lines.
        skipped: Bad lines that were left out.
    """

    document: int
    number: int
    is_last: bool
    numbers: list[int]
    texts: list[str]
    skipped: int = 0

    @property
    def name(self) -> str:
        """The name of its shard."""
        return f"{self.document:05d}-{self.number:06d}.parquet"

    @property
    def n_bytes(self) -> int:
        """Bytes of text, as UTF-8."""
        return sum(len(text.encode()) + 1 for text in self.texts)

    @property
    def digest(self) -> str:
        """A digest of the lines and their numbers."""
        digest = hashlib.blake2b(b"%d\n" % self.is_last, digest_size=16)
        for number, line in zip(self.numbers, self.texts, strict=True):
            text = line.encode()
            digest.update(b"%d %d\n" % (number, len(text)))
            digest.update(text)
        return digest.hexdigest()

    def sentences(self, *, tokenized: bool, split: bool) -> Iterator[Sentence]:
        """Yield the sentences."""
        for number, text in zip(self.numbers, self.texts, strict=True):
            place = Place(self.document, number, 0)
            yield from sentences_of(text, place, tokenized=tokenized, split=split)


def cut_chunks(
    document: int,
    name: str,
    *,
    chunk_bytes: int = CHUNK_BYTES,
    column: str = "text",
    skip_bad: bool = False,
) -> Iterator[Chunk]:
    """Read a document and cut it; one without lines is one chunk without lines.

    Args:
        document: Its index in the corpus.
        name: Its path or address.
        chunk_bytes: Bytes of text in a chunk, about.
        column: The column of the text in a Parquet file.
        skip_bad: Leave out and count lines that are not UTF-8, instead of raising.
    """
    bad: list[str] = []
    numbers: list[int] = []
    texts: list[str] = []
    size = count = 0
    for line in _lines(name, column, skip_bad, bad):
        if size >= chunk_bytes:
            yield Chunk(document, count, False, numbers, texts, len(bad))
            numbers, texts, size, count = [], [], 0, count + 1
            bad.clear()
        numbers.append(line.number)
        texts.append(line.text)
        size += len(line.text.encode()) + 1
    yield Chunk(document, count, True, numbers, texts, len(bad))


def check_documents(names: Sequence[str]) -> None:
    """Raise if a local document is missing, before anything is read."""
    if STDIN in names:
        raise DataError(
            "Standard input ('-') cannot be cut into shards, because it cannot be read again. "
            "Give files, or write one file such as vectors.h5."
        )
    for name in names:
        if not is_remote(name) and not Path(name).is_file():
            reason = "is a directory" if Path(name).is_dir() else "does not exist"
            raise DataError(f"{name} {reason}; expected a text file or a Parquet file.")
    if any(is_remote(name) or _is_parquet(name) for name in names):
        _pyarrow()


def is_remote(name: str) -> bool:
    """Tell whether a name is an address such as s3://bucket/file."""
    return "://" in name


def known_size(names: Sequence[str]) -> int | None:
    """Return how many bytes of text will be read; None if only reading them can tell."""
    packed = (".gz", ".xz", ".bz2", ".zst", ".parquet")
    if any(is_remote(name) or name.lower().endswith(packed) for name in names):
        return None
    return sum(Path(name).stat().st_size for name in names)


def _is_parquet(name: str) -> bool:
    return name.lower().endswith(".parquet")


def _lines(name: str, column: str, skip_bad: bool, bad: list[str]) -> Iterator[Line]:
    if _is_parquet(name):
        yield from _parquet_lines(name, column)
    elif not is_remote(name):
        yield from read_lines([name], skip_bad=skip_bad, on_bad=bad.append)
    else:
        # A copy, so that all is unpacked and checked as for files on this machine.
        with tempfile.NamedTemporaryFile(suffix=Path(name).suffix) as copy:
            try:
                filesystem, path = _pyarrow().fs.FileSystem.from_uri(name)
                with filesystem.open_input_stream(path, compression=None) as source:
                    shutil.copyfileobj(source, copy)
                copy.flush()
                yield from read_lines([copy.name], skip_bad=skip_bad, on_bad=bad.append)
            except ElmoError as error:
                raise DataError(str(error).replace(copy.name, name)) from None
            except (OSError, ValueError) as error:
                raise DataError(f"{name} cannot be read: {error}") from error


def _parquet_lines(name: str, column: str) -> Iterator[Line]:
    pyarrow = _pyarrow()
    try:
        if is_remote(name):
            filesystem, path = pyarrow.fs.FileSystem.from_uri(name)
            file = pyarrow.parquet.ParquetFile(filesystem.open_input_file(path))
        else:
            file = pyarrow.parquet.ParquetFile(name)
        with file:
            field = file.schema_arrow.field(column) if column in file.schema_arrow.names else None
            if field is None or not _is_text(field.type):
                found = ", ".join(f"{f.name} ({f.type})" for f in file.schema_arrow)
                raise DataError(
                    f"{name} has no column '{column}' of text; it has: {found}. Name the one with "
                    "the text by --column."
                )
            number = 0
            for batch in file.iter_batches(batch_size=1024, columns=[column]):
                for text in batch.column(0).to_pylist():
                    number += 1
                    yield Line(name, number, text or "")
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{name} cannot be read as a Parquet file: {error}") from error


def _is_text(kind: Any) -> bool:
    types = _pyarrow().types
    return bool(types.is_string(kind) or types.is_large_string(kind) or kind == "string_view")


def _pyarrow() -> Any:
    with optional_imports("arrow", "A Parquet file or a remote one"):
        import pyarrow
        import pyarrow.fs
        import pyarrow.parquet
    return pyarrow
