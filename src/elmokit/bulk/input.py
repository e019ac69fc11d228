"""Read documents, divide them into chunks, and split them into sentences.

A document is a text file, which may be compressed, or a Parquet file with a text column, whose rows
are treated as lines. It can be a local file or a URL that pyarrow supports, such as `s3://...`.

By default, each line is a sentence, and an empty line is a sentence without tokens, so that line
numbers and sentence numbers agree. With `split`, each line is a paragraph that is split into
sentences, and empty lines have no sentences.

Chunks are sequences of lines with approximately equal total sizes. They can span several
documents. Chunk boundaries depend only on the text and the settings, so any process can embed any
chunk. With `split`, long lines are divided at sentence boundaries, so that memory usage does not
depend on the length of the lines.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from elmokit.bulk.settings import EmbedSettings
from elmokit.errors import DataError, ElmoError, optional_imports
from elmokit.text.lines import Line, SkippedLines, check_files, read_lines, read_pieces
from elmokit.text.sentences import sentence_spans, tokenize_line

#: Maximum size of a sentence in bytes. (`job.py` limits the number of tokens.)
MAX_SENTENCE_BYTES = 2**20
# With `split`, longer lines are divided at sentence boundaries.
_PIECE_BYTES = 2**16
# Maximum number of characters after a position that can affect whether a sentence ends there.
_LOOK_AHEAD = 256


class Passage(NamedTuple):
    """A line of text, or some sentences of a long line.

    Attributes:
        document: Index of the document.
        line: Number of the line, or of the row of a Parquet file, from 1.
        sentence: Number of sentences of the line that precede the passage.
        offset: Number of characters of the line that precede the passage.
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
        number: The number of the chunk, from 0.
        is_last: Whether the chunk is the last one.
        passages: The lines, or parts of lines.
        n_bytes: Size of the text in bytes, in UTF-8.
        skipped_lines: Number of invalid lines that were skipped.
        first_skipped: The message about the first skipped line.
    """

    number: int
    is_last: bool
    passages: list[Passage]
    n_bytes: int
    skipped_lines: int = 0
    first_skipped: str = ""

    @property
    def digest(self) -> str:
        """A digest of the text and its position."""
        digest = hashlib.blake2b(b"%d\n" % self.is_last, digest_size=16)
        for *position, text in self.passages:
            encoded = text.encode("utf-8", "surrogatepass")
            digest.update(b"%d %d %d %d %d\n" % (*position, len(encoded)))
            digest.update(encoded)
        return digest.hexdigest()


def read_chunks(
    documents: Sequence[str], settings: EmbedSettings, *, column: str = "text", skip_bad: bool
) -> Iterator[Chunk]:
    """Read documents and yield their chunks. If all documents are empty, yield an empty chunk.

    Args:
        documents: The paths or URLs of the documents; "-" is standard input.
        settings: The size of chunks, and whether to split lines into sentences.
        column: The text column of Parquet files.
        skip_bad: Skip and count lines that are not valid UTF-8 instead of raising an error.
    """
    skipped = SkippedLines(skip_bad)
    passages: list[Passage] = []
    size = number = 0
    for document, name in enumerate(documents):
        for line, sentence, offset, text in _passages(name, settings, column, skipped):
            if size >= settings.chunk_bytes:
                yield Chunk(number, False, passages, size, skipped.count, skipped.first)
                passages, size, number = [], 0, number + 1
                skipped.count, skipped.first = 0, ""
            passages.append(Passage(document, line, sentence, offset, text))
            size += len(text.encode("utf-8", "surrogatepass")) + 1
    yield Chunk(number, True, passages, size, skipped.count, skipped.first)


def check_documents(names: Sequence[str]) -> None:
    """Raise an error if a local document, or a package that reads the documents, is missing."""
    check_files([name for name in names if not is_remote(name)])
    if any(is_remote(name) or _is_parquet(name) for name in names):
        _import_pyarrow()


def is_remote(name: str) -> bool:
    """Return whether a name is a URL such as s3://bucket/file."""
    return "://" in name


def _is_parquet(name: str) -> bool:
    return name.lower().endswith(".parquet")


def _passages(
    name: str, settings: EmbedSettings, column: str, skipped: SkippedLines
) -> Iterator[tuple[int, int, int, str]]:
    """Yield the line, sentence, offset and text of each passage of a document."""
    max_bytes = _PIECE_BYTES if settings.split else MAX_SENTENCE_BYTES + 1
    if _is_parquet(name):
        pieces = _parquet_pieces(name, column, max_bytes)
    elif is_remote(name):
        pieces = _remote_pieces(name, max_bytes, skipped)
    else:
        pieces = read_pieces(name, max_bytes, skipped)
    if settings.split:
        yield from _split_long_lines(pieces)
        return
    for path, line, text, is_end in pieces:
        if not is_end:
            raise DataError(
                f"{path}, line {line}: the line is longer than {MAX_SENTENCE_BYTES:,} bytes, the "
                "maximum for one sentence. If lines are paragraphs, use --split."
            )
        yield line, 0, 0, text


def _split_long_lines(pieces: Iterator[Line]) -> Iterator[tuple[int, int, int, str]]:
    """Join the pieces of each line, and divide long lines at sentence boundaries."""
    text, sentence, offset = "", 0, 0
    for name, number, piece, is_end in pieces:
        text += piece
        if is_end:
            yield number, sentence, offset, text
            text, sentence, offset = "", 0, 0
            continue
        starts = [start for start, _ in sentence_spans(text) if start < len(text) - _LOOK_AHEAD]
        if len(starts) > 1:
            boundary = starts[-1]
            yield number, sentence, offset, text[:boundary]
            text, sentence, offset = text[boundary:], sentence + len(starts) - 1, offset + boundary
        elif len(text) > MAX_SENTENCE_BYTES:
            raise DataError(
                f"{name}, line {number}: a sentence is longer than {MAX_SENTENCE_BYTES:,} "
                "characters. Check that the file is text."
            )


def _remote_pieces(name: str, max_bytes: int, skipped: SkippedLines) -> Iterator[Line]:
    # Use a local copy, which is decompressed and validated in the same way as local files.
    with tempfile.NamedTemporaryFile(suffix=Path(name).suffix) as copy:
        try:
            _import_pyarrow().fs.copy_files(name, copy.name)
            for piece in read_pieces(copy.name, max_bytes, skipped):
                yield piece._replace(path=name)
        except ElmoError as error:
            raise DataError(str(error).replace(copy.name, name)) from None
        except (OSError, ValueError) as error:
            raise DataError(f"Cannot read {name}: {error}") from error


def _parquet_pieces(name: str, column: str, max_length: int) -> Iterator[Line]:
    pyarrow = _import_pyarrow()
    try:
        with pyarrow.parquet.ParquetFile(name) as file:  # a path or a URL
            field = file.schema_arrow.field(column) if column in file.schema_arrow.names else None
            if field is None or str(field.type) not in ("string", "large_string", "string_view"):
                columns = ", ".join(f"{f.name} ({f.type})" for f in file.schema_arrow)
                raise DataError(
                    f"{name} has no text column '{column}'; its columns are: {columns}. Select the "
                    "text column with --column."
                )
            row = 0
            for batch in file.iter_batches(batch_size=1024, columns=[column]):
                for value in batch.column(0).to_pylist():
                    row += 1
                    text = value or ""
                    for start in range(0, len(text) + 1, max_length):
                        end = start + max_length
                        yield Line(name, row, text[start:end], end > len(text))
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise DataError(f"Cannot read {name} as a Parquet file: {error}") from error


def _import_pyarrow() -> Any:
    with optional_imports("arrow", "Reading Parquet files or URLs"):
        import pyarrow
        import pyarrow.fs
        import pyarrow.parquet
    return pyarrow


# ------------------------------------------------------------------------------------- sentences


class Sentence(NamedTuple):
    """The tokens of a sentence, and its position: the file and the line number, from 1."""

    tokens: list[str]
    file: str
    line: int


def read_sentences(
    files: Sequence[str | Path],
    *,
    tokenized: bool = False,
    split: bool = False,
    skipped: SkippedLines | None = None,
) -> Iterator[Sentence]:
    """Yield the sentences of text files.

    Args:
        files: Paths of the files; "-" is standard input.
        tokenized: Whether the text is already tokenized, with tokens separated by whitespace.
        split: Whether to split lines into sentences. Otherwise, each line is a sentence.
        skipped: Counts lines that are not valid UTF-8, and determines whether they are skipped;
            see `read_lines`.
    """
    for file in map(str, files):
        for line in read_lines([file], skipped=skipped):
            for _, _, tokens in tokenize_line(line.text, tokenized=tokenized, split=split):
                yield Sentence(tokens, file, line.number)
