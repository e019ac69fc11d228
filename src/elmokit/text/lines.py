r"""Read lines of text from files, which may be compressed.

Only "\n" and "\r\n" end a line. Other characters that some programs treat as line breaks, for
example U+2028 and form feeds, are part of the line. Text must be encoded in UTF-8. The encoding is
not guessed, because a wrong guess would produce garbage without an error.
"""

from __future__ import annotations

import codecs
import contextlib
import importlib
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple, cast

from elmokit.errors import DataError, ElmoError
from elmokit.progress import plural

STDIN = "-"
#: The maximum length of a line. It is large, because some files consist of a single line.
MAX_LINE_BYTES = 2**28


class Line(NamedTuple):
    """A line of a file, or one piece of a long line.

    Attributes:
        path: The path of the file, or "standard input".
        number: The 1-based line number.
        text: The text without the line ending.
        is_end: Whether the line ends with this text. Always True for lines from `read_lines`.
    """

    path: str
    number: int
    text: str
    is_end: bool = True

    def error(self, problem: str) -> DataError:
        """Return an error with the path and number of this line."""
        return DataError(f"{self.path}, line {self.number}: {problem}")


@dataclass
class SkippedLines:
    """Counts the lines that are skipped because they are not valid UTF-8.

    Attributes:
        allowed: Whether to skip such lines. Otherwise, they raise an error that mentions the
            option --skip-bad.
        count: Number of skipped lines.
        first: Description of the first skipped line.
    """

    allowed: bool = True
    count: int = 0
    first: str = ""


def read_lines(
    paths: Iterable[str | os.PathLike[str]],
    *,
    skipped: SkippedLines | None = None,
) -> Iterator[Line]:
    """Yield the lines of one file after another.

    Args:
        paths: Text files. "-" is standard input. Files with the extensions .gz, .xz, .bz2 and .zst
            are decompressed.
        skipped: Whether to skip lines that are not valid UTF-8, and a counter for them. Default:
            such lines raise an error that does not mention --skip-bad.

    Raises:
        DataError: A file is missing, damaged or not valid UTF-8, or a line is too long.
    """
    for path in paths:
        for line in read_pieces(path, MAX_LINE_BYTES + 1, skipped):
            if not line.is_end:
                raise line.error(
                    f"the line is longer than {MAX_LINE_BYTES:,} bytes. Split it into several "
                    "lines, or use `elmo embed --split` if lines are paragraphs."
                )
            yield line


def read_pieces(
    file: str | os.PathLike[str], max_bytes: int, skipped: SkippedLines | None = None
) -> Iterator[Line]:
    """Yield the lines of a file, with long lines split into pieces of about `max_bytes` bytes."""
    path = os.fspath(file)
    name = "standard input" if path == STDIN else path
    number, incomplete, is_start = 1, b"", True
    for raw in chain(_read_raw_lines(path, name, max_bytes), [b""]):
        if not raw and is_start:
            return
        piece = incomplete + (_check_encoding(raw, name) if number == 1 and is_start else raw)
        is_end = len(raw) < max_bytes or raw.endswith(b"\n")
        piece, incomplete = (piece.rstrip(b"\r\n"), b"") if is_end else _split_incomplete_end(piece)
        try:
            yield Line(name, number, piece.decode("utf-8"), is_end)
        except UnicodeDecodeError as error:
            message = (
                f"{name}, line {number}: byte {error.start + 1} of the line "
                f"(0x{piece[error.start]:02x}) is not valid UTF-8."
            )
            if skipped is None or not skipped.allowed:
                hint = _encoding_hint(name, can_skip=skipped is not None)
                raise DataError(f"{message} {hint}") from None
            skipped.count += 1
            skipped.first = skipped.first or message
        number, is_start = number + is_end, is_end


def _split_incomplete_end(raw: bytes) -> tuple[bytes, bytes]:
    """Split off the end of a piece if it may be part of a character or of a line ending."""
    for n in range(1, min(4, len(raw)) + 1):
        if raw[-n] & 0xC0 != 0x80:  # the first byte of a character
            return (raw[:-n], raw[-n:]) if raw[-n] >= 0xC0 or raw[-n:] == b"\r" else (raw, b"")
    return raw, b""


def _read_raw_lines(path: str, name: str, max_bytes: int) -> Iterator[bytes]:
    """Yield lines as bytes, and convert errors of files and decompressors to a `DataError`."""
    check_files([path])
    number = 0
    try:
        with _open(path) as stream:
            while raw := stream.readline(max_bytes):
                yield raw
                number += 1
    except ElmoError:
        raise
    except EOFError:
        raise DataError(
            f"{name} is truncated: the compressed data ends after {plural(number, 'line')}. "
            "Copy or download the file again."
        ) from None
    except Exception as error:  # decompressors raise many types of errors
        place = f" after line {number}" if number else ""
        raise DataError(
            f"Cannot read {name}{place}: {error}. Check the file and its permissions."
        ) from error


def check_files(files: Iterable[str | os.PathLike[str]]) -> None:
    """Raise a `DataError` if a file is missing or is a directory, or if "-" is listed twice."""
    names = [os.fspath(file) for file in files]
    if names.count(STDIN) > 1:
        raise DataError("Standard input ('-') can be used only once.")
    for name in names:
        # Path.exists raises an error for very long names, for example if a sentence is passed.
        if name != STDIN and not os.path.exists(name):  # noqa: PTH110
            message = f"{name} does not exist."
            if " " in name.strip() and not Path(name).suffix[1:].isalnum():
                message += " Expected a file. To pass text: echo 'I read it .' | elmo COMMAND -"
            raise DataError(message)
        if name != STDIN and Path(name).is_dir():
            raise DataError(f"{name} is a directory; expected a file. Specify its files: {name}/*")


def text_size(files: Iterable[str | os.PathLike[str]]) -> int | None:
    """Return the total size of text files in bytes.

    Return None if a file is compressed, is a Parquet file, or is not a regular file.
    """
    paths = [Path(file) for file in files]
    compressed = (*_DECOMPRESSORS, ".parquet")
    if any(path.suffix.lower() in compressed or not path.is_file() for path in paths):
        return None
    return sum(path.stat().st_size for path in paths)


def _file_argument(name: str) -> str:
    return "FILE" if name == "standard input" else name


def _encoding_hint(name: str, *, can_skip: bool) -> str:
    """Return advice for a file that is not valid UTF-8."""
    file = _file_argument(name)
    skip = "skip such lines with --skip-bad (skip_bad=True)"
    return (
        f"If the text is Latin-1, convert it with: iconv -f latin1 -t utf-8 '{file}' > utf8.txt. "
        f"Otherwise, {skip if can_skip else 'correct or remove such lines'}."
    )


# Magic numbers of compressed files, which are not valid UTF-8.
_COMPRESSED = {b"\x1f\x8b": ".gz", b"\xfd7zXZ": ".xz", b"\x28\xb5\x2f\xfd": ".zst"}


def _check_encoding(raw: bytes, name: str) -> bytes:
    """Return the first line without a byte order mark.

    Raises:
        DataError: The file is compressed, or not encoded in UTF-8.
    """
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(
            f"{name} is encoded in UTF-16; expected UTF-8. Convert it with: "
            f"iconv -f utf-16 -t utf-8 '{_file_argument(name)}' > utf8.txt"
        )
    for magic, suffix in _COMPRESSED.items():
        if raw.startswith(magic):
            if name == "standard input":
                raise DataError(f"{name} is compressed ({suffix}). Decompress it first.")
            raise DataError(
                f"{name} is compressed, but its name does not end in {suffix}. "
                "Rename it, or decompress it first."
            )
    return raw.removeprefix(codecs.BOM_UTF8)


# For each extension, modules with a function `open`. The first one that is installed is used.
# `compression.zstd` is part of Python 3.14 and later.
_DECOMPRESSORS = {
    ".gz": ("gzip",),
    ".xz": ("lzma",),
    ".bz2": ("bz2",),
    ".zst": ("compression.zstd", "backports.zstd"),
}


def _open(path: str) -> contextlib.AbstractContextManager[IO[bytes]]:
    """Open a file for reading bytes, and decompress it if its extension is known."""
    if path == STDIN:
        if sys.stdin is None:
            raise DataError("Standard input is closed. Specify a file, or pipe text to elmo.")
        return contextlib.nullcontext(sys.stdin.buffer)  # standard input must not be closed
    suffix = Path(path).suffix.lower()
    for module in _DECOMPRESSORS.get(suffix, ()):
        with contextlib.suppress(ModuleNotFoundError):
            return cast(IO[bytes], importlib.import_module(module).open(path, "rb"))
    if suffix == ".zst":
        raise DataError(
            f"{path} is compressed with Zstandard, which this version of Python does not support. "
            f"Run pip install backports.zstd, or decompress the file with: zstd -d '{path}'"
        )
    return Path(path).open("rb")
