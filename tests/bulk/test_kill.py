"""Real kills: a process that embeds a corpus dies at any moment, and nothing is lost or repeated.

Two ways to die. At a moment of our choosing: the process ends itself, without any clean-up, at the
n-th file operation in the folder of the output, for every n. At a random moment: SIGKILL from
outside. Each time the run is resumed, until it is done, and then the file must have the same bytes
as that of a run which nobody disturbed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from elmokit.bulk.work import work_path
from tests.moments import ATTEMPTS, copied_processes, files_in, seen, struck

SUFFIXES = [".h5", ".npz", ".safetensors", ".parquet"]
START = [sys.executable, "-c", "from elmokit.cli.main import run; run()"]
ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
DIED = 9
# A kill may also leave a `part-*.tmp`, which the next run removes.
FINISHED = "part-*.safetensors"


def write_text(path: Path, lines: int) -> Path:
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefgh", k=rng.randint(1, 9))) for _ in range(300)]
    text = "".join(" ".join(rng.choices(words, k=rng.randint(0, 20))) + "\n" for _ in range(lines))
    path.write_text(text)
    return path


def command(model: Path, text: Path, out: Path, part_tokens: int, *options: str) -> list[str]:
    return [
        *("embed", str(text), "-o", str(out), "--model", str(model), "--quiet"),
        *("--part-tokens", str(part_tokens), *options),
    ]


def run_to_end(arguments: list[str]) -> str:
    done = subprocess.run(
        [*START, *arguments], env=ENVIRONMENT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


# -------------------------------------------------------------------- at every file operation


def die_at(operation: int, folder: str, arguments: list[str]) -> None:
    """Run the command in a process of its own; end it at the n-th operation inside `folder`."""
    seen = 0

    def watch(event: str, details: tuple[Any, ...]) -> None:
        nonlocal seen
        inside = str(details[0]).startswith(folder) if details else False
        if event in ("os.remove", "os.rmdir"):  # by name, or in a directory that is open
            inside = inside or details[1] != -1
        if inside and event in ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir"):
            seen += 1
            if seen == operation:
                os._exit(DIED)  # like a kill: no clean-up, nothing flushed

    import torch

    from elmokit.cli.main import run

    torch.set_num_threads(1)
    sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    sys.addaudithook(watch)
    sys.argv = ["elmo", *arguments]
    run()


@pytest.mark.parametrize(
    "suffix", [".h5", *(pytest.param(s, marks=pytest.mark.slow) for s in SUFFIXES[1:])]
)
def test_death_at_any_file_operation_loses_nothing(
    tmp_path: Path, model: Path, suffix: str
) -> None:
    context = copied_processes()
    text = write_text(tmp_path / "text.txt", 8)

    def run(operation: int, out: Path, *options: str) -> int | None:
        arguments = command(model, text, out, 40, *options)
        process = context.Process(target=die_at, args=(operation, str(out.parent), arguments))
        process.start()
        process.join(120)
        return process.exitcode

    (whole := tmp_path / "whole").mkdir()
    assert run(0, whole / f"vectors{suffix}") == 0
    expected = (whole / f"vectors{suffix}").read_bytes()
    for operation in range(1, 1000):
        (folder := tmp_path / str(operation)).mkdir()
        out = folder / f"vectors{suffix}"
        code = run(operation, out)
        if code == 0:
            break
        assert code == DIED
        assert not out.exists() or out.read_bytes() == expected
        assert run(operation, out, "--resume") in (0, DIED)  # and again, during the resumption
        assert run(0, out, "--resume") == 0
        assert out.read_bytes() == expected
        assert [path.name for path in folder.iterdir()] == [out.name]
    assert operation > 30


# --------------------------------------------------------------------------- at random moments


def kill_once(arguments: list[str], out: Path, rng: random.Random) -> bool:
    """Start the command and kill it at some moment; tell whether it was still alive."""
    work = work_path(out)
    finished = {path: path.stat().st_mtime_ns for path in work.glob(FINISHED)}
    late = rng.random() < 0.3  # while the output is being assembled, if it comes to that
    more = rng.randint(0, 12)

    def far_enough() -> bool:
        if late:
            return (work / "output.tmp").exists()
        return work.exists() and len(files_in(work, FINISHED)) >= len(finished) + more

    process = subprocess.Popen([*START, *arguments], env=ENVIRONMENT, stderr=subprocess.PIPE)
    if seen(far_enough, process):
        time.sleep(rng.random() * 0.05)
        process.kill()
    _, errors = process.communicate(timeout=300)
    assert process.returncode in (0, -signal.SIGKILL), errors.decode()
    if work.exists():  # no finished part was lost or made again
        assert finished == {path: path.stat().st_mtime_ns for path in finished}
    return process.returncode != 0


def check_kills(tmp_path: Path, model: Path, suffix: str, kills: int, lines: int) -> None:
    rng = random.Random(kills)
    text = write_text(tmp_path / "text.txt", lines)
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    whole, out = tmp_path / "whole" / f"v{suffix}", tmp_path / "killed" / f"v{suffix}"
    run_to_end(command(model, text, whole, 60))
    attempts = done = 0
    while done < kills:
        attempts += 1
        assert attempts < ATTEMPTS * kills
        done += kill_once(command(model, text, out, 60, "--resume"), out, rng)
        if out.exists() and not work_path(out).exists():
            out.unlink()  # it came to its end: once more from the beginning
    run_to_end(command(model, text, out, 60, "--resume"))
    assert out.read_bytes() == whole.read_bytes()
    assert [path.name for path in out.parent.iterdir()] == [out.name]


def test_three_kills(tmp_path: Path, model: Path) -> None:
    check_kills(tmp_path, model, ".h5", kills=3, lines=400)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_many_kills(tmp_path: Path, model: Path, suffix: str) -> None:
    check_kills(tmp_path, model, suffix, kills=25, lines=2000)


# ------------------------------------------------------------------------------ polite requests


@pytest.mark.parametrize(
    "request_", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_an_interrupted_command_says_how_to_go_on(
    tmp_path: Path, model: Path, request_: signal.Signals
) -> None:
    text = write_text(tmp_path / "text.txt", 3000)
    (folder := tmp_path / "out").mkdir()
    out = folder / "vectors.npz"

    def start() -> subprocess.Popen[str]:
        out.unlink(missing_ok=True)
        arguments = [*START, *command(model, text, out, 60)]
        return subprocess.Popen(arguments, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)

    code, errors = struck(
        start,
        lambda: len(files_in(work_path(out), FINISHED)) >= 3,
        lambda process: process.send_signal(request_),
    )
    assert code == 130, errors
    assert "sentences are finished and kept; go on with the same command and --resume" in errors
    assert not out.exists()
    assert all(path.suffix != ".tmp" for path in work_path(out).iterdir())
    assert "sentences of them from before" in run_to_end(command(model, text, out, 60, "--resume"))
    assert [path.name for path in folder.iterdir()] == [out.name]
