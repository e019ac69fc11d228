r"""Read lines of text from files.

A line ends at "\n" only; "\r" before it is dropped, and nothing else separates lines (U+2028 or a
form feed inside a sentence is an ordinary character). Text must be UTF-8; other bytes raise an
error with their position, because a wrongly guessed encoding would silently train a model on
garbage.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import importlib
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple, cast

from elmokit.errors import DataError, ElmoError

STDIN = "-"
#: The default limit for lines: a corpus may be a single line, but not an endless one.
MAX_LINE_BYTES = 2**28


class Line(NamedTuple):
    """A line of a file, or a part of a long line.

    Attributes:
        path: The file, or "standard input".
        number: Its number in the file, counted from 1.
        text: Its text, without the line end.
        is_end: Whether the line ends here; always, except for parts from `read_pieces`.
    """

    path: str
    number: int
    text: str
    is_end: bool = True

    def error(self, problem: str) -> DataError:
        """Return an error that names this line."""
        return DataError(f"{self.path}, line {self.number}: {problem}")


@dataclass
class SkippedLines:
    """Whether lines that are not UTF-8 are skipped, and which were.

    Attributes:
        allowed: Skip such lines; otherwise, they raise an error that mentions --skip-bad.
        count: Number of skipped lines.
        first: The problem of the first one.
    """

    allowed: bool = True
    count: int = 0
    first: str = ""


def read_lines(
    paths: Iterable[str | os.PathLike[str]],
    *,
    skipped: SkippedLines | None = None,
    max_bytes: int = MAX_LINE_BYTES,
) -> Iterator[Line]:
    """Read the lines of `paths`, one file after the other, a line at a time.

    Args:
        paths: Files; "-" is standard input. Names that end in .gz, .xz, .bz2 or .zst are
            decompressed.
        skipped: Whether to skip lines that are not UTF-8; counts them. Files that cannot be read to
            the end always raise an error. None: raise an error that does not mention --skip-bad,
            because the caller does not support it.
        max_bytes: Maximum length of a line.

    Yields:
        The lines without their line ends. Skipped lines count toward line numbers.

    Raises:
        DataError: A file is missing, damaged or not UTF-8, or a line is too long; the message names
            file and line.
    """
    for path in paths:
        for line in read_pieces(path, max_bytes + 1, skipped):
            if not line.is_end:
                raise line.error(
                    f"the line is longer than {max_bytes:,} bytes. Split it into several lines. If "
                    "each line is a paragraph, use `elmo embed --split`."
                )
            yield line


def read_pieces(
    file: str | os.PathLike[str], max_bytes: int, skipped: SkippedLines | None = None
) -> Iterator[Line]:
    """Read the lines of a file as `read_lines` does; split lines longer than `max_bytes`."""
    path = os.fspath(file)
    name = "standard input" if path == STDIN else path
    number, rest, is_start = 1, b"", True
    for raw in chain(_raw_lines(path, name, max_bytes), [b""]):
        if not raw and is_start:
            return
        piece = _checked_start(raw, name) if number == 1 and is_start else raw
        is_end = len(raw) < max_bytes or raw.endswith(b"\n")
        piece, rest = (
            (rest + piece.rstrip(b"\r\n"), b"") if is_end else _split_incomplete_end(rest + piece)
        )
        try:
            yield Line(name, number, piece.decode("utf-8"), is_end)
        except UnicodeDecodeError as error:
            message = (
                f"{name}, line {number}: byte {error.start + 1} of the line "
                f"(0x{piece[error.start]:02x}) is not valid UTF-8."
            )
            if skipped is None or not skipped.allowed:
                remedy = _remedy(name, can_skip=skipped is not None)
                raise DataError(f"{message} {remedy}") from None
            skipped.count += 1
            skipped.first = skipped.first or message
        number, is_start = number + is_end, is_end


def _split_incomplete_end(raw: bytes) -> tuple[bytes, bytes]:
    """Split bytes before a character or line end that may continue in the next piece."""
    for n in range(1, min(4, len(raw)) + 1):
        if raw[-n] & 0xC0 != 0x80:  # not inside a character
            return (raw[:-n], raw[-n:]) if raw[-n] >= 0xC0 or raw[-n:] == b"\r" else (raw, b"")
    return raw, b""


def _raw_lines(path: str, name: str, max_bytes: int) -> Iterator[bytes]:
    """Read lines as bytes; errors of files and decompressors become a `DataError`."""
    done = 0
    try:
        with _open(path) as stream:
            while raw := stream.readline(max_bytes):
                yield raw
                done += 1
    except ElmoError:
        raise
    except FileNotFoundError:
        raise DataError(missing(name)) from None
    except IsADirectoryError:
        raise DataError(
            f"{name} is a directory; expected a text file. List its files: {name}/*.txt"
        ) from None
    except EOFError:
        raise DataError(
            f"{name} is truncated: its compressed data ends after line {done}. "
            "Copy or download it again."
        ) from None
    except Exception as error:  # decompressors raise various errors
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            raise DataError(missing(name)) from None
        raise DataError(f"Cannot read {name} after line {done}: {error}") from error


def check_files(files: Iterable[str | os.PathLike[str]]) -> None:
    """Raise a `DataError` if a file is missing or standard input is listed twice."""
    names = [os.fspath(file) for file in files]
    if names.count(STDIN) > 1:
        raise DataError("Standard input ('-') can be read only once.")
    for name in names:
        # Path.exists raises an error if the name is too long, as a sentence may be.
        if name != STDIN and not os.path.exists(name):  # noqa: PTH110
            raise DataError(missing(name))
        if name != STDIN and Path(name).is_dir():
            raise DataError(f"{name} is a directory; expected a file. List the files in it.")


def text_size(files: Iterable[str | os.PathLike[str]]) -> int | None:
    """Return the number of bytes of text in some files; None if it is unknown before reading."""
    paths = [Path(file) for file in files]
    unknown = (".gz", ".xz", ".bz2", ".zst", ".parquet")
    if any(path.suffix.lower() in unknown or not path.is_file() for path in paths):
        return None
    return sum(path.stat().st_size for path in paths)


def missing(name: str) -> str:
    """Return the error of a missing file, with a hint if its name looks like a sentence."""
    error = f"{name} does not exist."
    if " " in name.strip() and not Path(name).suffix[1:].isalnum():
        error += " Expected a file. To pass text directly: echo 'I read it .' | elmo COMMAND -"
    return error


def _remedy(name: str, *, can_skip: bool) -> str:
    """Return how to fix a file that is not UTF-8."""
    file = "FILE" if name == "standard input" else name
    skip = "skip such lines with --skip-bad (skip_bad=True)"
    return (
        f"If the text is Latin-1, convert it with: iconv -f latin1 -t utf-8 '{file}' > utf8.txt; "
        f"otherwise {skip if can_skip else 'correct or remove such lines'}."
    )


_MARKS = {  # UTF-32 first: its little-endian mark begins with that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# No UTF-8 text starts like this.
_COMPRESSED = {b"\x1f\x8b": ".gz", b"\xfd7zXZ": ".xz", b"\x28\xb5\x2f\xfd": ".zst"}


def _checked_start(raw: bytes, name: str) -> bytes:
    """Return the first line without its byte order mark; raise if it is not UTF-8 text."""
    for mark, encoding in _MARKS.items():
        if raw.startswith(mark):
            raise DataError(
                f"{name} starts with a {encoding.upper()} byte order mark; expected UTF-8. "
                f"Convert it with: iconv -f {encoding} -t utf-8"
            )
    for magic, suffix in _COMPRESSED.items():
        if raw.startswith(magic):
            raise DataError(
                f"{name} is compressed, but its name does not end in {suffix}. "
                "Rename it, or decompress it first."
            )
    return raw.removeprefix(codecs.BOM_UTF8)


# Modules with a function `open`, the first that is installed; `compression` is in Python 3.14.
_DECOMPRESSORS = {
    ".gz": ("gzip",),
    ".xz": ("lzma",),
    ".bz2": ("bz2",),
    ".zst": ("compression.zstd", "backports.zstd"),
}


def _open(path: str) -> contextlib.AbstractContextManager[IO[bytes]]:
    """Open a file for reading bytes, decompressed according to its suffix."""
    if path == STDIN:
        if sys.stdin is None:
            raise DataError("Standard input is closed. Specify a file, or pipe text to it.")
        return contextlib.nullcontext(sys.stdin.buffer)  # must stay open
    suffix = Path(path).suffix.lower()
    for module in _DECOMPRESSORS.get(suffix, ()):
        with contextlib.suppress(ModuleNotFoundError):
            return cast(IO[bytes], importlib.import_module(module).open(path, "rb"))
    if suffix == ".zst":
        raise DataError(
            f"{path} is compressed with Zstandard, which this Python does not support. Install it "
            f"with: pip install backports.zstd; or decompress the file: zstd -d '{path}'"
        )
    return Path(path).open("rb")
