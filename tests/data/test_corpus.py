"""Loading valid and damaged directories with `Corpus.open`."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmokit.data.corpus import Corpus
from elmokit.data.layout import PrepareSettings
from elmokit.data.prepare import prepare
from elmokit.errors import DataError
from elmokit.storage.fingerprint import fingerprint_file
from tests.data.texts import random_text


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    (folder / "text.txt").write_text(random_text(80))
    prepare([folder / "text.txt"], folder / "data", PrepareSettings(valid=8), workers=1)
    return folder / "data"


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    """Copy the corpus, so that a test can damage it."""
    return Path(shutil.copytree(made, tmp_path / "data"))


def message_of(folder: Path) -> str:
    with pytest.raises(DataError) as caught:
        Corpus.open(folder)
    return str(caught.value)


def test_arrays_are_memory_mapped_and_read_only(made: Path) -> None:
    corpus = Corpus.open(made)
    arrays = [corpus.tokens(), corpus.documents(), corpus.counts, corpus.chars]
    for array in arrays:
        assert isinstance(array, np.memmap)
        assert not array.flags.writeable
    assert corpus.tokens("valid").dtype == np.uint32
    assert corpus.chars.dtype == np.uint16
    assert corpus.chars.shape == (corpus.n_types, 50)


def test_repr_describes_the_corpus(made: Path) -> None:
    corpus = Corpus.open(made)
    assert corpus.splits == ("train", "valid")
    assert corpus.words([0, 1, 2]) == ["<S>", "</S>", "<UNK>"]
    assert f"{corpus.n_words:,} words" in repr(corpus)


def test_fingerprint_distinguishes_corpora(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "copy")
    (tmp_path / "text.txt").write_text(random_text(80, seed=1))
    prepare([tmp_path / "text.txt"], tmp_path / "other", PrepareSettings(valid=8), workers=1)
    prints = [Corpus.open(path).fingerprint for path in (made, tmp_path / "copy")]
    assert prints[0] == prints[1] != Corpus.open(tmp_path / "other").fingerprint


def test_missing_split_error_says_how_to_create_one(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a a a\n")
    prepare([tmp_path / "text.txt"], tmp_path / "data", workers=1)
    with pytest.raises(DataError, match=r"no split 'valid': expected train.*--valid-file"):
        Corpus.open(tmp_path / "data").tokens("valid")


def test_error_for_other_directories_says_how_to_prepare_a_corpus(tmp_path: Path) -> None:
    assert f"elmo prepare FILES... -o {tmp_path}" in message_of(tmp_path)
    message = message_of(tmp_path / "nowhere")
    assert "nowhere does not exist" in message
    assert "elmo prepare FILES... -o" in message


def test_sparse_file_is_not_read(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_fingerprint(path: Path) -> str:
        raise AssertionError(f"{path} was read")

    monkeypatch.setattr("elmokit.data.corpus.fingerprint_file", no_fingerprint)
    for path in sorted((*data.glob("*.npy"), *data.glob("*.bin"), *data.glob("*.txt"))):
        size = path.stat().st_size
        os.truncate(path, size + 2**40)  # sparse: takes no disk space
        assert path.name in message_of(data)
        os.truncate(path, size)


@pytest.mark.parametrize(
    "name",
    "vocab.txt types.txt types.offsets.npy counts.npy chars.npy train.bin train.documents.npy "
    "valid.bin valid.documents.npy".split(),
)
@pytest.mark.parametrize("damage", ["gone", "empty", "cut"])
def test_missing_and_truncated_files_are_named(data: Path, name: str, damage: str) -> None:
    path = data / name
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(b"" if damage == "empty" else path.read_bytes()[:-8])
    message = message_of(data)
    assert name in message
    assert "elmo prepare" in message
    assert "--overwrite" in message


def _change_array(name: str, index: int, value: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        values = np.load(folder / name)
        values[index] = value
        np.save(folder / name, values)

    return change


def _change_id(index: int, value: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        values = np.fromfile(folder / "train.bin", "<u4")
        values[index] = value
        values.tofile(folder / "train.bin")

    return change


def _change_text(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        raw = (folder / name).read_bytes()
        (folder / name).write_bytes(raw[:-2] + b"~\n")

    return change


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "vocabulary": (_change_text("vocab.txt"), "vocab.txt was changed"),
    "types": (_change_text("types.txt"), "types.txt was changed"),
    "offsets": (_change_array("types.offsets.npy", 5, 17), "types.offsets.npy was changed"),
    "counts": (_change_array("counts.npy", 20, 10**6), "counts.npy was changed"),
    "chars": (_change_array("chars.npy", 1, 7), "chars.npy was changed"),
    "documents": (_change_array("train.documents.npy", 1, 0), "train.documents.npy was changed"),
    "large id": (_change_id(9, 10**6), "train.bin contains the id 1,000,000"),
    "opening id": (_change_id(9, 0), "train.bin contains the id 0"),
    "end": (_change_id(-1, 5), "sentences, expected"),
}


def test_contents_of_a_crafted_corpus_are_validated(data: Path) -> None:
    """Matching fingerprints prove nothing about files that were crafted to do harm."""
    for name, index, value, expected in (
        ("chars.npy", 1, 9999, "invalid character ids"),
        ("train.documents.npy", 1, 0, "does not match train.bin"),
        ("train.documents.npy", 1, 3, "ends within a sentence"),
    ):
        shutil.copytree(data, data.with_name("crafted"))
        crafted = data.with_name("crafted")
        _change_array(name, index, value)(crafted)
        meta = json.loads((crafted / "meta.json").read_text())
        meta["digests"][name] = fingerprint_file(crafted / name)
        (crafted / "meta.json").write_text(json.dumps(meta))
        assert expected in message_of(crafted)
        shutil.rmtree(crafted)


@pytest.mark.parametrize("name", DAMAGES)
def test_mismatched_files_are_detected(data: Path, name: str) -> None:
    damage, expected = DAMAGES[name]
    damage(data)
    with pytest.raises(DataError, match=expected) as caught:
        Corpus.open(data)
    assert "elmo prepare FILES" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"format": "mine"}, "'format' should be"),
        ({"format_version": 3}, "newer elmokit"),
        ({"format_version": 1}, "should be 2"),
        ({"splits": {}}, "splits"),
        ({"splits": 5}, "splits"),
        ({"splits": {"train": {"tokens": 4}}}, "splits.train.documents"),
        ({"n_types": -1}, "n_types"),
        ({"n_types": "many"}, "n_types"),
        ({"settings": 5}, "settings"),
        ({"n_words": 10**9}, "n_words"),
        ({"extra": 1}, "extra"),
    ],
)
def test_any_content_of_the_meta_file_is_handled(
    data: Path, change: dict[str, Any], expected: str
) -> None:
    values = json.loads((data / "meta.json").read_text())
    (data / "meta.json").write_text(json.dumps(values | change))
    assert expected in message_of(data)


def test_pickled_objects_are_never_loaded(data: Path) -> None:
    np.save(data / "counts.npy", np.array([{}], dtype=object), allow_pickle=True)
    assert "counts.npy cannot be read" in message_of(data)


def test_array_with_an_unbalanced_header_is_reported(data: Path) -> None:
    content = (data / "types.offsets.npy").read_bytes()
    (data / "types.offsets.npy").write_bytes(content.replace(b"'shape': (", b"'shape': ["))
    with pytest.raises(DataError, match=r"types\.offsets\.npy cannot be read"):
        Corpus.open(data)
