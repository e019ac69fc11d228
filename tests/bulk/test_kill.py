"""Kill `elmo embed` at any time: no work is lost or repeated.

After each kill, the run is resumed, and the resulting file must have the same bytes as that of an
uninterrupted run.
"""

from __future__ import annotations

import random
import signal
import warnings
from pathlib import Path

import pytest

import elmokit
from elmokit.bulk.run import embed_corpus
from elmokit.bulk.settings import EmbedSettings
from elmokit.errors import ElmoWarning
from tests.bulk.runs import work_path
from tests.process_utils import FileOperation, Pause, elmo, kill_when, run, start

SUFFIXES = [".h5", ".npz", ".safetensors", ".parquet"]
CHUNKS = "0*.safetensors"
# Calls at which the runs below are paused.
WRITE_CHUNK = "elmokit.bulk.output.FileOutput.write"
SAVE_CHUNK = "elmokit.bulk.formats.block.save_block"  # under a temporary name
MAKE_OUTPUT = "elmokit.bulk.run.Run._description"


def write_text(path: Path, lines: int) -> Path:
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefgh", k=rng.randint(1, 9))) for _ in range(300)]
    text = "".join(" ".join(rng.choices(words, k=rng.randint(0, 20))) + "\n" for _ in range(lines))
    path.write_text(text)
    return path


def command(model: Path, text: Path, out: Path, chunk_bytes: int, *options: str) -> list[object]:
    return ["embed", text, "-o", out, "--model", model, "--chunk-bytes", chunk_bytes, *options]


def run_to_end(arguments: list[object]) -> str:
    done = run(elmo, *arguments)
    assert done.exit_code == 0, done.stderr
    return done.stderr


def chunk_times(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in work_path(out).glob(CHUNKS)}


# ---------------------------------------------------------------------------------- at chosen calls


def test_three_kills(tmp_path: Path, model: Path) -> None:
    text = write_text(tmp_path / "text.txt", 60)
    (folder := tmp_path / "killed").mkdir()
    whole, out = tmp_path / "whole.h5", folder / "v.h5"
    run_to_end(command(model, text, whole, 200))
    kept: list[dict[Path, int]] = []
    for point in (
        Pause(WRITE_CHUNK, call=3, after=True),
        Pause(SAVE_CHUNK, call=3, after=True),
        Pause(MAKE_OUTPUT),
    ):
        assert kill_when(point, elmo, *command(model, text, out, 200, "--resume"))
        assert not out.exists()
        kept.append(chunk_times(out))
    assert len(kept[0]) == 3
    assert len(kept[1]) == 5
    assert kept[0].items() < kept[1].items() < kept[2].items()  # no chunk was lost or recomputed
    run_to_end(command(model, text, out, 200, "--resume"))
    assert out.read_bytes() == whole.read_bytes()
    assert [path.name for path in folder.iterdir()] == [out.name]


# -------------------------------------------------------------------------- at every file operation


def embed(model: Path, text: Path, out: Path, resume: bool = False) -> None:
    """Do what the command does, without the startup time of the command line."""
    loaded = elmokit.load(model, device="cpu")
    embed_corpus(loaded, [text], out, EmbedSettings(chunk_bytes=120), resume=resume)


def check_kills_at(
    tmp_path: Path, model: Path, suffix: str, *, first: int, every: int, twice: bool
) -> None:
    """Kill a run at its n-th file operation and resume it, for every `every`-th n."""
    text = write_text(tmp_path / "text.txt", 8)
    whole = tmp_path / f"whole{suffix}"
    embed(model, text, whole)
    expected = whole.read_bytes()
    for n in range(first, 1000, every):
        (folder := tmp_path / str(n)).mkdir()
        out = folder / f"vectors{suffix}"
        point = FileOperation(folder, n)
        if not kill_when(point, embed, model, text, out):
            break
        assert not out.exists() or out.read_bytes() == expected
        if twice:  # and again while it is resumed
            kill_when(point, embed, model, text, out, True)
        with warnings.catch_warnings(action="ignore", category=ElmoWarning):  # nothing to resume
            embed(model, text, out, resume=True)
        assert out.read_bytes() == expected
        assert [path.name for path in folder.iterdir()] == [out.name]
    assert n > 30


def test_kill_at_some_file_operations_loses_nothing(tmp_path: Path, model: Path) -> None:
    check_kills_at(tmp_path, model, ".h5", first=4, every=6, twice=False)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [pytest.param(".h5", marks=pytest.mark.ci), *SUFFIXES[1:]])
def test_kill_at_any_file_operation_loses_nothing(tmp_path: Path, model: Path, suffix: str) -> None:
    check_kills_at(tmp_path, model, suffix, first=1, every=1, twice=suffix == ".npz")


# ---------------------------------------------------------------------------------- interruptions


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, pytest.param(signal.SIGTERM, marks=[pytest.mark.slow, pytest.mark.ci])],
)
def test_interrupted_command_says_how_to_resume(
    tmp_path: Path, model: Path, number: signal.Signals
) -> None:
    text = write_text(tmp_path / "text.txt", 60)
    (folder := tmp_path / "out").mkdir()
    out = folder / "vectors.npz"
    point = Pause(SAVE_CHUNK, call=3, after=True)
    with start(elmo, *command(model, text, out, 200), pause=point) as child:
        child.wait_for_pause()
        child.send_signal(number)
        child.resume()
        assert child.wait() == 130, child.stderr
        assert "--resume" in child.stderr
        assert "Traceback" not in child.stderr
    assert not out.exists()
    assert len(chunk_times(out)) >= 3  # the current chunk is finished
    assert all(path.suffix != ".tmp" for path in work_path(out).iterdir())
    assert "sentences from an earlier run" in run_to_end(command(model, text, out, 200, "--resume"))
    assert [path.name for path in folder.iterdir()] == [out.name]
