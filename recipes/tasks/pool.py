"""Run processes concurrently and in order, with a limit on their number and a deadline."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

#: A file that exists when a run is finished.
DONE = "config.json"

_REPORT_SECONDS = 15.0
_GRACE = 60.0  # seconds to write a checkpoint


def say(line: str) -> None:
    """Print a line without buffering."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@dataclass
class Job:
    """A process that is waiting or running.

    Attributes:
        name: The name of the run.
        command: The command line.
        needs: The name of a job that must end before this one starts.
    """

    name: str
    command: list[str]
    needs: str | None = None
    process: subprocess.Popen[bytes] | None = None
    began: float = field(default=0.0)


class Pool:
    """Runs jobs in a limited number of processes until all have ended or the time is up.

    Args:
        out: The directory for the jobs' directories and logs.
        size: The number of concurrent processes.
        environment: The environment variables of the processes.
    """

    def __init__(self, out: Path, size: int, environment: dict[str, str]) -> None:
        self._out = out
        self._size = size
        self._environment = environment
        self._running: list[Job] = []
        self._ended: set[str] = set()
        self._failed: list[str] = []
        self._stopped = False

    def work(self, jobs: Sequence[Job], deadline: float) -> None:
        """Run jobs in order. Stop all at the deadline, or after SIGINT or SIGTERM."""
        before = {s: signal.signal(s, self._stop) for s in (signal.SIGINT, signal.SIGTERM)}
        waiting, reported = list(jobs), time.monotonic()
        try:
            while (waiting or self._running) and time.monotonic() < deadline and not self._stopped:
                self._collect()
                self._fill(waiting)
                if time.monotonic() - reported > _REPORT_SECONDS:
                    reported = time.monotonic()
                    self._report(len(jobs), deadline)
                time.sleep(0.2)
        finally:
            self._end_all()
            for number, handler in before.items():
                signal.signal(number, handler)
        for name in self._failed:
            say(f"FAILED {name}: see {self._log(name)}")
        if self._stopped:
            sys.exit(130)

    def _fill(self, waiting: list[Job]) -> None:
        for job in list(waiting):
            if len(self._running) >= self._size:
                return
            if job.needs is None or job.needs in self._ended:
                waiting.remove(job)
                with self._log(job.name).open("ab") as log:
                    job.process = subprocess.Popen(
                        job.command,
                        stdout=log,
                        stderr=log,
                        stdin=subprocess.DEVNULL,
                        env=self._environment,
                        start_new_session=True,  # Ctrl-C must not reach it directly
                    )
                job.began = time.monotonic()
                self._running.append(job)

    def _collect(self) -> None:
        for job in list(self._running):
            assert job.process is not None
            if (code := job.process.poll()) is not None:
                self._running.remove(job)
                self._ended.add(job.name)  # if it failed, jobs that need it report an error
                seconds = time.monotonic() - job.began
                say(f"{job.name}: {_outcome(self._out / job.name, code)}, {seconds:.0f} s")
                if code:
                    self._failed.append(job.name)

    def _report(self, total: int, deadline: float) -> None:
        minutes = (deadline - time.monotonic()) / 60
        say(
            f"-- {len(self._ended)} of {total} ended, {len(self._running)} running"
            + (f", {minutes:.1f} minutes left" if minutes < 1e4 else "")
        )
        for job in self._running:
            say(f"   {job.name}: {_progress(self._out / job.name)}")

    def _end_all(self) -> None:
        for job in self._running:
            _signal(job, signal.SIGTERM)
        until = time.monotonic() + _GRACE
        for job in self._running:
            assert job.process is not None
            try:
                job.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                _signal(job, signal.SIGKILL)
                job.process.wait()
            say(f"{job.name}: stopped, {_progress(self._out / job.name)}")
        self._running.clear()

    def _stop(self, *_: object) -> None:
        self._stopped = True

    def _log(self, name: str) -> Path:
        return self._out / f"{name.replace(' ', '_').replace('/', '_')}.log"


def _signal(job: Job, number: signal.Signals) -> None:
    """Send a signal to a job and its child processes."""
    assert job.process is not None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(job.process.pid, number)


def _progress(folder: Path) -> str:
    """Describe the progress of a run from the last line of its metrics."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        last = json.loads((folder / "metrics.jsonl").read_text("utf-8").splitlines()[-1])
        score = next(value for value in last["dev"].values() if isinstance(value, float))
        return f"epoch {last['epoch']}, dev {score:.2f}, {last['seconds']:.0f} s"
    return "no epoch yet"


def _outcome(folder: Path, code: int) -> str:
    if code:
        return f"failed with {code}"
    with contextlib.suppress(OSError, ValueError, KeyError, StopIteration, AttributeError):
        results = json.loads((folder / DONE).read_text("utf-8"))["results"]
        dev, test = (
            next(value for value in results[part].values() if isinstance(value, float))
            for part in ("dev", "test")
        )
        return f"dev {dev:.2f}, test {test:.2f}, best of {results['epochs']} epochs"
    return "done"


@contextlib.contextmanager
def mps(*, enabled: bool) -> Iterator[dict[str, str]]:
    """Start NVIDIA MPS, with which processes share a GPU, and yield its environment variables."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None or not enabled:
        yield {}
        return
    with tempfile.TemporaryDirectory() as folder:
        places = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        environment = {**os.environ, **places}
        subprocess.run([control, "-d"], env=environment, check=False)
        # In some containers, MPS starts but does not work.
        probe = [sys.executable, "-c", "import torch; torch.zeros(1).cuda()"]
        works = subprocess.run(probe, env=environment, check=False, timeout=120).returncode == 0
        say(f"NVIDIA MPS {'enabled' if works else 'does not work: processes share GPU time'}")
        try:
            yield places if works else {}
        finally:
            subprocess.run([control], input=b"quit\n", env=environment, check=False, timeout=60)
