"""Models in zip archives: valid ones are read, malicious ones rejected, no files are left."""

from __future__ import annotations

import stat
import struct
import tempfile
import zipfile
from pathlib import Path

import pytest

from elmokit.errors import ElmoError, WeightsError
from elmokit.sources import archive, modeldir
from elmokit.sources.resolve import load_parts
from tests.sources.models import make_parts, same_bits, write_hdf5


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a separate directory for temporary files, so that leftovers can be detected."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


@pytest.fixture
def files(tmp_path: Path) -> dict[str, bytes]:
    folder = write_hdf5(make_parts(), tmp_path / "old")
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def pack(
    path: Path, files: dict[str, bytes], prefix: str = "", method: int = zipfile.ZIP_DEFLATED
) -> Path:
    with zipfile.ZipFile(path, "w", method) as target:
        for name, content in files.items():
            target.writestr(prefix + name, content)
    return path


def add(path: Path, name: str, content: bytes = b"x", mode: int = 0) -> Path:
    with zipfile.ZipFile(path, "a") as target:
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        target.writestr(info, content)
    return path


@pytest.mark.parametrize("prefix", ["", "217/", "deep/er/"])
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_model_is_found_anywhere_in_the_archive(
    files: dict[str, bytes], prefix: str, method: int, tmp_path: Path, temporary: Path
) -> None:
    others = {
        f"{prefix}meta.json": b"{}",
        f"{prefix}vocab.txt": b"<S>\n</S>\n<UNK>\n",
        "__MACOSX/._options.json": b"\0",
        "LICENSE": b"free",
    }
    path = pack(tmp_path / "217.zip", files, prefix, method)
    with zipfile.ZipFile(path, "a") as target:
        for name, content in others.items():
            target.writestr(name, content)
    parts = load_parts(path)
    assert same_bits(parts.bilm, make_parts().bilm)
    assert parts.vocabulary is not None
    assert len(parts.vocabulary) == 3
    assert (parts.source, parts.files) == (str(path), (path,))
    assert list(temporary.glob("elmokit*")) == []


def test_archive_needs_no_suffix(files: dict[str, bytes], tmp_path: Path) -> None:
    assert load_parts(pack(tmp_path / "download", files))


def test_model_directory_in_an_archive_is_read(tmp_path: Path, temporary: Path) -> None:
    modeldir.save(make_parts(full=True), tmp_path / "ours")
    content = {file.name: file.read_bytes() for file in (tmp_path / "ours").iterdir()}
    parts = load_parts(pack(tmp_path / "ours.zip", content, "ours/"))
    assert list(temporary.glob("elmokit*")) == []
    assert same_bits(parts.bilm, make_parts(full=True).bilm)
    assert parts.head is not None


@pytest.mark.parametrize(
    "name",
    ["../evil.txt", "a/../../evil.txt", "/etc/evil", "..\\evil", "C:\\evil", "C:/evil", "\\evil"],
)
def test_paths_cannot_leave_the_temporary_directory(
    files: dict[str, bytes], name: str, tmp_path: Path, temporary: Path
) -> None:
    path = add(pack(tmp_path / "a.zip", files), name)
    before = sorted(tmp_path.rglob("*"))
    with archive.extracted(path) as folder:
        created = {entry for entry in tmp_path.rglob("*") if entry not in before}
        assert folder.parent == temporary
        assert all(folder in (entry, *entry.parents) for entry in created)
        assert len(created) >= 4
    assert sorted(tmp_path.rglob("*")) == before
    assert not Path("/etc/evil").exists()


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_links_and_devices_are_extracted_as_files(
    files: dict[str, bytes], kind: int, tmp_path: Path
) -> None:
    path = add(pack(tmp_path / "a.zip", files), "vocab.txt", b"/etc/passwd", kind | 0o777)
    with archive.extracted(path) as folder:
        assert stat.S_ISREG((folder / "vocab.txt").lstat().st_mode)
        assert (folder / "vocab.txt").read_bytes() == b"/etc/passwd"


def test_encrypted_entry_is_rejected(files: dict[str, bytes], tmp_path: Path) -> None:
    path = pack(tmp_path / "a.zip", files)
    content = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = content.index(mark) + offset
        content[at] |= 1
    path.write_bytes(content)
    with pytest.raises(WeightsError, match="is encrypted"):
        load_parts(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compression_methods_without_a_bound_are_rejected(
    files: dict[str, bytes], method: int, tmp_path: Path
) -> None:
    with pytest.raises(WeightsError, match="expected stored or deflated"):
        load_parts(pack(tmp_path / "a.zip", files, method=method))


def test_zip_bomb_is_not_extracted(
    files: dict[str, bytes], tmp_path: Path, temporary: Path
) -> None:
    path = pack(tmp_path / "a.zip", files | {"weights.hdf5": bytes(60 << 20)})
    assert path.stat().st_size < 100_000
    with pytest.raises(WeightsError, match=r"uncompressed size is .* bytes; expected at most"):
        load_parts(path)
    assert list(temporary.glob("elmokit*")) == []


def test_zip_bomb_of_many_small_entries_is_stopped(files: dict[str, bytes], tmp_path: Path) -> None:
    many = {f"{i}.hdf5": bytes(8 << 20) for i in range(4)}
    with pytest.raises(WeightsError, match="uncompressed size"):
        load_parts(pack(tmp_path / "a.zip", files | many))


def test_high_compression_ratio_is_allowed_for_small_archives(
    files: dict[str, bytes], tmp_path: Path
) -> None:
    assert load_parts(pack(tmp_path / "a.zip", files | {"vocab.txt": b"a\n" + b"b" * 1_000_000}))


@pytest.mark.parametrize("claimed", [10, 1 << 30])
def test_header_with_a_wrong_size_is_an_error(
    files: dict[str, bytes], claimed: int, tmp_path: Path
) -> None:
    path = pack(tmp_path / "a.zip", files)
    content = bytearray(path.read_bytes())
    at = content.index(b"PK\x01\x02")
    while at >= 0:
        content[at + 24 : at + 28] = struct.pack("<I", claimed)
        at = content.find(b"PK\x01\x02", at + 1)
    path.write_bytes(content)
    with pytest.raises(WeightsError, match=r"a\.zip"):
        load_parts(path)


def test_too_many_entries_are_rejected(
    files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "_MAX_ENTRIES", 20)
    path = pack(tmp_path / "a.zip", files | {f"{i}.txt": b"" for i in range(30)})
    with pytest.raises(WeightsError, match="32 files"):
        load_parts(path)


@pytest.mark.parametrize("kept", [0, 4, 0.5, 0.9])
def test_truncated_archive_is_an_error(
    files: dict[str, bytes], kept: float, tmp_path: Path
) -> None:
    content = pack(tmp_path / "a.zip", files).read_bytes()
    (tmp_path / "a.zip").write_bytes(content[: int(kept * len(content)) if kept < 1 else int(kept)])
    with pytest.raises(WeightsError, match="cannot be read as a zip file"):
        load_parts(tmp_path / "a.zip")


def test_damaged_byte_is_an_elmo_error_or_harmless(files: dict[str, bytes], tmp_path: Path) -> None:
    path = pack(tmp_path / "a.zip", files)
    content = path.read_bytes()
    directory = content.index(b"PK\x01\x02")
    for at in [*range(0, 60), *range(directory, len(content))]:
        path.write_bytes(content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])
        try:
            load_parts(path)
        except ElmoError:
            continue


def test_archive_without_a_model_lists_its_contents(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"contains no model.*readme\.txt"):
        load_parts(pack(tmp_path / "a.zip", {"readme.txt": b""}))


def test_archive_with_several_models_lists_their_directories(
    files: dict[str, bytes], tmp_path: Path
) -> None:
    both = {f"{folder}/{name}": c for folder in ("en", "de") for name, c in files.items()}
    with pytest.raises(WeightsError, match="several models: de, en"):
        load_parts(pack(tmp_path / "a.zip", both))


def test_deeply_nested_directories_are_not_extracted(tmp_path: Path) -> None:
    """In earlier versions, a zip file of 1 MB could create a million directories."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a/" * 300 + "options.json", "{}")
    with pytest.raises(WeightsError, match="nested more than 20 levels deep"):
        load_parts(tmp_path / "a.zip")
