from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sys
import tracemalloc
from pathlib import Path

import pytest

from elmokit.errors import DataError
from elmokit.text.lines import Line, SkippedLines, read_lines


def write(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def texts(path: Path) -> list[str]:
    return [line.text for line in read_lines([path])]


def error_of(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        list(read_lines([path]))
    return str(caught.value)


def test_lines_have_file_and_line_number_across_files(tmp_path: Path) -> None:
    first = write(tmp_path, "a.txt", b"one\ntwo\n")
    second = write(tmp_path, "b.txt", b"three")
    assert list(read_lines([first, str(second)])) == [
        Line(str(first), 1, "one"),
        Line(str(first), 2, "two"),
        Line(str(second), 1, "three"),
    ]


def test_last_line_needs_no_newline_and_empty_lines_are_kept(tmp_path: Path) -> None:
    assert texts(write(tmp_path, "a.txt", b"\na\n\nb")) == ["", "a", "", "b"]


def test_empty_file_has_no_lines(tmp_path: Path) -> None:
    assert texts(write(tmp_path, "a.txt", b"")) == []


def test_carriage_returns_at_line_ends_are_removed(tmp_path: Path) -> None:
    assert texts(write(tmp_path, "a.txt", b"a\r\nb\rc\r\nd\r")) == ["a", "b\rc", "d"]


def test_only_newline_separates_lines(tmp_path: Path) -> None:
    line = "a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g"
    assert texts(write(tmp_path, "a.txt", f"{line}\nh".encode())) == [line, "h"]


def test_byte_order_mark_is_removed_only_at_the_start(tmp_path: Path) -> None:
    raw = "\ufeffa\n\ufeffb".encode()
    assert texts(write(tmp_path, "a.txt", raw)) == ["a", "\ufeffb"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_utf16_is_detected(tmp_path: Path, encoding: str) -> None:
    mark = "\ufeff" if encoding.endswith("be") else ""
    message = error_of(write(tmp_path, "a.txt", (mark + "caf\u00e9\n").encode(encoding)))
    assert "a.txt" in message
    assert "iconv -f utf-16 -t utf-8" in message


def test_invalid_byte_error_states_file_line_position_and_solution(tmp_path: Path) -> None:
    path = write(tmp_path, "latin.txt", b"fine\ncaf\xe9 au lait\n")
    message = error_of(path)
    assert message.startswith(f"{path}, line 2: byte 4 of the line (0xe9) is not valid UTF-8.")
    assert "iconv -f latin1 -t utf-8" in message
    assert "--skip-bad" not in message
    with pytest.raises(DataError, match="--skip-bad"):  # the caller could catch it, but should not
        list(read_lines([path], skipped=SkippedLines(allowed=False)))


@pytest.mark.parametrize("raw", [b"\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80"])
def test_utf8_decoding_is_strict(tmp_path: Path, raw: bytes) -> None:
    assert "line 1: byte 2" in error_of(write(tmp_path, "a.txt", b"a" + raw + b"\n"))


def test_invalid_lines_are_skipped_and_reported_on_request(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", b"a\n\xff\nb\n\xfe\xff")
    skipped = SkippedLines()
    lines = list(read_lines([path], skipped=skipped))
    assert [(line.number, line.text) for line in lines] == [(1, "a"), (3, "b")]
    assert skipped.count == 2
    assert skipped.first.startswith(f"{path}, line 2:")


@pytest.mark.parametrize(
    ("suffix", "pack"), [(".gz", gzip.compress), (".XZ", lzma.compress), (".bz2", bz2.compress)]
)
def test_compressed_files_are_recognized_by_their_suffix(tmp_path: Path, suffix: str, pack) -> None:
    assert texts(write(tmp_path, f"a.txt{suffix}", pack("\u00e9\nb\n".encode()))) == ["\u00e9", "b"]


@pytest.mark.parametrize(
    ("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)]
)
def test_truncated_compressed_file_is_an_error(tmp_path: Path, suffix: str, pack) -> None:
    whole = pack("\n".join(f"line {number}" for number in range(5000)).encode())
    path = write(tmp_path, f"a{suffix}", whole[: len(whole) // 2])
    message = error_of(path)
    assert str(path) in message
    assert "is truncated" in message


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2"])
def test_damaged_compressed_file_is_an_error(tmp_path: Path, suffix: str) -> None:
    assert "Cannot read" in error_of(write(tmp_path, f"a{suffix}", b"this is plain text\n"))


def test_compressed_file_without_its_suffix_is_recognized(tmp_path: Path) -> None:
    message = error_of(write(tmp_path, "a.txt", gzip.compress(b"a\n")))
    assert "does not end in .gz" in message


def test_zstandard_files(tmp_path: Path) -> None:
    zstd = pytest.importorskip("backports.zstd")
    lines = [f"line {number}" for number in range(20_000)]
    packed = zstd.compress("\n".join(lines).encode()) + zstd.compress(b"\nlast")
    assert texts(write(tmp_path, "a.zst", packed)) == [*lines, "last"]
    assert "is truncated" in error_of(write(tmp_path, "b.zst", packed[:-5]))
    assert "Cannot read" in error_of(write(tmp_path, "c.zst", b"this is plain text\n"))


def test_zstandard_without_a_module_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    assert "pip install backports.zstd" in error_of(write(tmp_path, "a.zst", b""))


def test_missing_file_and_directory_are_identified(tmp_path: Path) -> None:
    assert error_of(tmp_path / "none.txt") == f"{tmp_path / 'none.txt'} does not exist."
    assert "is a directory" in error_of(tmp_path)


@pytest.mark.parametrize("sentence", ["I read the book .", "Dr. Smith swam", "I read it. " * 40])
def test_sentence_instead_of_a_file_name_gives_a_hint(sentence: str) -> None:
    assert "echo 'I read it .' | elmo COMMAND -" in error_of(Path(sentence))
    assert error_of(Path("two words.txt")) == "two words.txt does not exist."


def test_minus_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = io.TextIOWrapper(io.BytesIO("\u00e9\r\nb".encode()), encoding="latin-1")
    monkeypatch.setattr(sys, "stdin", stdin)
    assert list(read_lines(["-"])) == [
        Line("standard input", 1, "\u00e9"),
        Line("standard input", 2, "b"),
    ]
    assert not stdin.buffer.closed


def test_invalid_byte_of_standard_input_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff")))
    with pytest.raises(DataError, match="standard input, line 1: byte 1"):
        list(read_lines(["-"]))


def test_lines_are_read_in_bounded_memory(tmp_path: Path) -> None:
    path = write(tmp_path, "a.gz", gzip.compress(b"some words in a line\n" * 200_000))
    tracemalloc.start()
    count = sum(1 for _ in read_lines([path]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 200_000
    assert peak < 1_000_000


def test_errors_of_the_consumer_are_not_reported_as_file_errors(tmp_path: Path) -> None:
    def consume() -> None:
        for _ in read_lines([write(tmp_path, "a.txt", b"a\n")]):
            raise FileNotFoundError("mine")

    with pytest.raises(FileNotFoundError, match="mine"):
        consume()
