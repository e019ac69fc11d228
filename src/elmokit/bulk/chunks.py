"""Divide documents into chunks of text that can be embedded independently.

A document is a text file, optionally compressed, or a Parquet file with a text column, whose rows
are treated as lines. It can be local, or at a URL such as `s3://...` that pyarrow supports.

A chunk is a sequence of lines with about a given number of bytes, possibly from several documents.
Its boundaries depend only on the text, so that any process can compute it. With `split`, long lines
are divided between sentences, so that memory does not grow with the line.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from elmokit.bulk.input import check_inputs
from elmokit.bulk.settings import EmbedSettings
from elmokit.errors import DataError, ElmoError, optional_imports
from elmokit.text.lines import STDIN, Line, read_lines, read_pieces
from elmokit.text.sentences import split_sentences

#: The longest sentence, in bytes of text. (In tokens: `tokens.py`.)
MAX_SENTENCE_BYTES = 2**20
# With `split`, longer lines are divided between sentences.
_PIECE_BYTES = 2**16
# Characters after a sentence that determine whether it ends there.
_LOOK_AHEAD = 256


class Passage(NamedTuple):
    """A line of text, or some sentences of a long one.

    Attributes:
        document: Index of its document.
        line: Number of the line (of the row, in a Parquet file), from 1.
        sentence: Number of sentences of the line before it.
        offset: Number of characters of the line before it.
        text: The text.
    """

    document: int
    line: int
    sentence: int
    offset: int
    text: str


@dataclass(frozen=True)
class Chunk:
    """A sequence of lines.

    Attributes:
        number: Its number, from 0.
        is_last: Whether it is the last one.
        passages: The text.
        n_bytes: Bytes of the text, as UTF-8.
        skipped: Messages of invalid lines that were skipped.
    """

    number: int
    is_last: bool
    passages: list[Passage]
    n_bytes: int
    skipped: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """A digest of the text and its position."""
        digest = hashlib.blake2b(b"%d\n" % self.is_last, digest_size=16)
        for *place, text in self.passages:
            encoded = text.encode("utf-8", "surrogatepass")
            digest.update(b"%d %d %d %d %d\n" % (*place, len(encoded)))
            digest.update(encoded)
        return digest.hexdigest()


def read_chunks(
    documents: Sequence[str], settings: EmbedSettings, *, column: str = "text", skip_bad: bool
) -> Iterator[Chunk]:
    """Read documents and yield chunks; empty text is one empty chunk.

    Args:
        documents: Their paths or URLs; "-" is standard input.
        settings: The size of chunks, and whether lines are paragraphs.
        column: The text column of Parquet files.
        skip_bad: Skip and count lines that are not UTF-8, instead of raising.
    """
    skipped: list[str] = []
    passages: list[Passage] = []
    size = number = 0
    for document, name in enumerate(documents):
        for line, sentence, offset, text in _passages(name, settings, column, skip_bad, skipped):
            if size >= settings.chunk_bytes:
                yield Chunk(number, False, passages, size, tuple(skipped))
                passages, size, number = [], 0, number + 1
                skipped.clear()
            passages.append(Passage(document, line, sentence, offset, text))
            size += len(text.encode("utf-8", "surrogatepass")) + 1
    yield Chunk(number, True, passages, size, tuple(skipped))


def check_documents(names: Sequence[str]) -> None:
    """Raise an error if a local document, or a package to read one, is missing."""
    check_inputs([name for name in names if not is_remote(name)])
    if any(is_remote(name) or _is_parquet(name) for name in names):
        _pyarrow()


def is_remote(name: str) -> bool:
    """Return whether a name is a URL such as s3://bucket/file."""
    return "://" in name


def known_size(names: Sequence[str]) -> int | None:
    """Return the number of bytes of text; None if it is unknown before reading."""
    packed = (".gz", ".xz", ".bz2", ".zst", ".parquet")
    if any(
        is_remote(name) or name.lower().endswith(packed) or not Path(name).is_file()
        for name in names
    ):
        return None
    return sum(Path(name).stat().st_size for name in names)


def _is_parquet(name: str) -> bool:
    return name.lower().endswith(".parquet") and name != STDIN


def _passages(
    name: str, settings: EmbedSettings, column: str, skip_bad: bool, skipped: list[str]
) -> Iterator[tuple[int, int, int, str]]:
    """Yield (line, sentence, offset, text) of a document."""
    if _is_parquet(name):
        pieces = _parquet_pieces(name, column, _PIECE_BYTES if settings.split else None)
    elif is_remote(name):
        pieces = _remote_pieces(name, settings, skip_bad, skipped)
    else:
        pieces = _text_pieces(name, settings, skip_bad, skipped)
    if settings.split:
        yield from _cut_long_lines(pieces)
        return
    for piece in pieces:
        yield piece.number, 0, 0, piece.text


def _text_pieces(
    name: str, settings: EmbedSettings, skip_bad: bool, skipped: list[str]
) -> Iterator[Line]:
    if settings.split:
        return read_pieces(name, _PIECE_BYTES, skip_bad=skip_bad, on_bad=skipped.append)
    return read_lines(
        [name], skip_bad=skip_bad, on_bad=skipped.append, max_bytes=MAX_SENTENCE_BYTES
    )


def _cut_long_lines(pieces: Iterator[Line]) -> Iterator[tuple[int, int, int, str]]:
    """Join the parts of a line, and divide it between sentences if it is long."""
    text, sentence, offset = "", 0, 0
    for name, number, more, is_end in pieces:
        text += more
        if is_end:
            yield number, sentence, offset, text
            text, sentence, offset = "", 0, 0
            continue
        starts = [start for start, _ in split_sentences(text) if start < len(text) - _LOOK_AHEAD]
        if len(starts) > 1:
            cut = starts[-1]
            yield number, sentence, offset, text[:cut]
            text, sentence, offset = text[cut:], sentence + len(starts) - 1, offset + cut
        elif len(text) > MAX_SENTENCE_BYTES:
            raise DataError(
                f"{name}, line {number}: a sentence is longer than {MAX_SENTENCE_BYTES:,} "
                "characters. Is the file text?"
            )


def _remote_pieces(
    name: str, settings: EmbedSettings, skip_bad: bool, skipped: list[str]
) -> Iterator[Line]:
    # A local copy, so that it is decompressed and checked like local files.
    with tempfile.NamedTemporaryFile(suffix=Path(name).suffix) as copy:
        try:
            filesystem, path = _pyarrow().fs.FileSystem.from_uri(name)
            with filesystem.open_input_stream(path, compression=None) as source:
                shutil.copyfileobj(source, copy)
            copy.flush()
            for piece in _text_pieces(copy.name, settings, skip_bad, skipped):
                yield piece._replace(path=name)
        except ElmoError as error:
            raise DataError(str(error).replace(copy.name, name)) from None
        except (OSError, ValueError) as error:
            raise DataError(f"Cannot read {name}: {error}") from error


def _parquet_pieces(name: str, column: str, longest: int | None) -> Iterator[Line]:
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
                columns = ", ".join(f"{f.name} ({f.type})" for f in file.schema_arrow)
                raise DataError(
                    f"{name} has no text column '{column}'; its columns are: {columns}. Select the "
                    "text column with --column."
                )
            number = 0
            for batch in file.iter_batches(batch_size=1024, columns=[column]):
                for text in batch.column(0).to_pylist():
                    number += 1
                    yield from _row_pieces(name, number, text or "", longest)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise DataError(f"Cannot read {name} as a Parquet file: {error}") from error


def _row_pieces(name: str, number: int, text: str, longest: int | None) -> Iterator[Line]:
    if longest is None and len(text) > MAX_SENTENCE_BYTES:
        raise DataError(
            f"{name}, row {number}: the text is longer than {MAX_SENTENCE_BYTES:,} characters, the "
            "maximum for one sentence. If rows are paragraphs, use --split."
        )
    size = longest or max(1, len(text))
    for start in range(0, max(1, len(text)), size):
        yield Line(name, number, text[start : start + size], start + size >= len(text))


def _is_text(kind: Any) -> bool:
    types = _pyarrow().types
    return bool(types.is_string(kind) or types.is_large_string(kind) or kind == "string_view")


def _pyarrow() -> Any:
    with optional_imports("arrow", "A Parquet file or a remote one"):
        import pyarrow
        import pyarrow.fs
        import pyarrow.parquet
    return pyarrow
