"""Bounded memory for long texts, and full disks."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from elmokit.bulk.formats import open_vectors, write_vectors
from elmokit.bulk.run import embed_corpus
from elmokit.bulk.settings import EmbedSettings
from elmokit.config import BiLMConfig, CharCnnConfig, LstmConfig
from elmokit.embed.model import ElmoModel
from elmokit.embed.vectors import SentenceVectors
from elmokit.errors import OutputError
from elmokit.sources.modeldir import ModelParts, save
from tests.bulk.runs import SUFFIXES, work_path
from tests.conftest import random_bilm

SETTINGS = EmbedSettings(chunk_bytes=1500)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("I read the book yesterday , and you read the letter .\n" * 400)
    return path


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a 1.5 MB file system; the vectors of the text need 1.06 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1536k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small file system can be mounted by root only")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill(path: Path) -> None:
    with contextlib.suppress(OSError), path.open("wb") as file:
        while True:
            file.write(bytes(4096))


def enlarge(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=20m", str(folder)], check=True)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("when", ["while assembling", "while computing"])
def test_full_disk_is_an_error_and_the_work_is_kept(
    elmo: ElmoModel,
    text: Path,
    small_disk: Path,
    suffix: str,
    when: str,
) -> None:
    out = small_disk / f"vectors{suffix}"
    if when == "while computing":
        (small_disk / "other").write_bytes(b"x" * 1_000_000)
    with pytest.raises(OutputError, match=r"no space left"):
        embed_corpus(elmo, [text], out, SETTINGS)
    assert not out.exists()
    kept = {path.name for path in work_path(out).iterdir()}
    assert "000000.safetensors" in kept
    assert not any(name.endswith(".tmp") for name in kept)
    enlarge(small_disk)
    summary = embed_corpus(elmo, [text], out, SETTINGS, resume=True)
    assert summary.resumed_sentences > 0
    embed_corpus(elmo, [text], text.with_name(out.name), SETTINGS)
    assert text.with_name(out.name).read_bytes() == out.read_bytes()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_disk_without_any_space_is_an_error(
    elmo: ElmoModel, text: Path, small_disk: Path, suffix: str
) -> None:
    fill(small_disk / "other")
    with pytest.raises(OutputError):
        embed_corpus(elmo, [text], small_disk / f"vectors{suffix}", SETTINGS)
    assert [path.name for path in small_disk.iterdir()] == ["other"]


# -------------------------------------------------------------------------------------- memory

# Prints the peak memory of the process in megabytes.
MEASURE = """
import resource, sys
from elmokit.cli.main import run
try:
    run()
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def measured(*arguments: str, code: str = MEASURE) -> float:
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
        "OMP_NUM_THREADS": "1",
        # Otherwise, the amount of freed memory that the allocator keeps varies between runs.
        "MALLOC_TRIM_THRESHOLD_": "0",
        "MALLOC_MMAP_THRESHOLD_": "65536",
    }
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return float(done.stdout.split()[-1])


@pytest.fixture(scope="module")
def wide_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with large vectors (3 x 256 dimensions) that is fast to run."""
    config = BiLMConfig(
        LstmConfig(dim=128, projection_dim=128, n_layers=2),
        CharCnnConfig(embedding_dim=4, filters=((1, 16), (2, 16)), n_highway=1),
    )
    path = tmp_path_factory.mktemp("models") / "wide"
    save(ModelParts(random_bilm(config, scale=1.0)), path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_memory_does_not_grow_with_the_text(tmp_path: Path, wide_model: Path, suffix: str) -> None:
    """With eight times the text, the file grows by 250 MB, but memory stays almost the same."""
    rng = np.random.default_rng(0)
    words = [f"word{i}" for i in range(2000)]
    used = {}
    for lines in (4_000, 32_000):
        text, out = tmp_path / f"{lines}.txt", tmp_path / f"{lines}{suffix}"
        text.write_text("".join(" ".join(rng.choice(words, 3)) + "\n" for _ in range(lines)))
        options = ("--model", str(wide_model), "--chunk-bytes", "16384", "--quiet")
        used[lines] = measured("embed", str(text), "-o", str(out), *options)
    grown = used[32_000] - used[4_000]
    size = out.stat().st_size / 2**20
    assert size > 250
    assert grown < 30, f"{used} MB for a file of {size:.0f} MB"


LONG_LINE = """
import re, sys
from elmokit.bulk.input import read_chunks
from elmokit.bulk.settings import EmbedSettings
settings = EmbedSettings(split=True)
assert sum(len(c.passages) for c in read_chunks(sys.argv[1:], settings, skip_bad=False)) > 10
# Not what the process that started this one had in memory.
print(int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_length_of_a_line(tmp_path: Path) -> None:
    used = {}
    for megabytes in (2, 40):
        path = tmp_path / f"{megabytes}.txt"
        path.write_text("It was read by many people. " * (megabytes * 2**20 // 28))
        used[megabytes] = measured(str(path), code=LONG_LINE)
    assert used[40] - used[2] < 10, used


READ = """
import resource, sys
from elmokit.bulk.formats import open_vectors
with open_vectors(sys.argv[1]) as stored:
    for index in (0, len(stored) // 2, len(stored) - 1):
        stored[index]
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_reading_a_sentence_does_not_read_the_whole_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"vectors{suffix}"
    layers = np.ones((3, 1000, 512), np.float32)
    items = [SentenceVectors(["word"] * 1000, None, layers) for _ in range(60)]
    write_vectors(tmp_path / f"small{suffix}", items[:1])
    write_vectors(path, items)
    assert path.stat().st_size > 350 * 2**20
    grown = measured(str(path), code=READ) - measured(str(tmp_path / f"small{suffix}"), code=READ)
    # Parquet files are read in row groups, and each write creates one.
    assert suffix == ".parquet" or grown < 60
    assert len(open_vectors(path)) == 60
