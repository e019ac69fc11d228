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

#: A run is finished when its directory contains this file.
RESULT_FILE = "config.json"

_REPORT_SECONDS = 15.0
_GRACE_SECONDS = 60.0  # to write a checkpoint


def print_line(line: str) -> None:
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
    started: float = field(default=0.0)


class Pool:
    """Runs jobs in a limited number of concurrent processes, until a deadline.

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

    def run(self, jobs: Sequence[Job], deadline: float) -> None:
        """Run jobs in order. Stop all at the deadline, or after SIGINT or SIGTERM."""
        old_handlers = {
            s: signal.signal(s, self._request_stop) for s in (signal.SIGINT, signal.SIGTERM)
        }
        waiting, reported = list(jobs), time.monotonic()
        try:
            while (waiting or self._running) and time.monotonic() < deadline and not self._stopped:
                self._remove_ended()
                self._start_jobs(waiting)
                if time.monotonic() - reported > _REPORT_SECONDS:
                    reported = time.monotonic()
                    self._report(len(jobs), deadline)
                time.sleep(0.2)
        finally:
            self._stop_running()
            for number, handler in old_handlers.items():
                signal.signal(number, handler)
        for name in self._failed:
            print_line(f"FAILED {name}: see {self._log(name)}")
        if self._stopped:
            sys.exit(130)

    def _start_jobs(self, waiting: list[Job]) -> None:
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
                job.started = time.monotonic()
                self._running.append(job)

    def _remove_ended(self) -> None:
        for job in list(self._running):
            assert job.process is not None
            if (exit_code := job.process.poll()) is not None:
                self._running.remove(job)
                self._ended.add(job.name)  # if the job failed, jobs that need it report an error
                seconds = time.monotonic() - job.started
                print_line(
                    f"{job.name}: {_outcome(self._out / job.name, exit_code)}, {seconds:.0f} s"
                )
                if exit_code:
                    self._failed.append(job.name)

    def _report(self, total: int, deadline: float) -> None:
        minutes = (deadline - time.monotonic()) / 60
        print_line(
            f"-- {len(self._ended)} of {total} ended, {len(self._running)} running"
            + (f", {minutes:.1f} minutes left" if minutes < 1e4 else "")
        )
        for job in self._running:
            print_line(f"   {job.name}: {_progress(self._out / job.name)}")

    def _stop_running(self) -> None:
        for job in self._running:
            _signal(job, signal.SIGTERM)
        deadline = time.monotonic() + _GRACE_SECONDS
        for job in self._running:
            assert job.process is not None
            try:
                job.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                _signal(job, signal.SIGKILL)
                job.process.wait()
            print_line(f"{job.name}: stopped, {_progress(self._out / job.name)}")
        self._running.clear()

    def _request_stop(self, *_: object) -> None:
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


def _outcome(folder: Path, exit_code: int) -> str:
    if exit_code:
        return f"failed with exit code {exit_code}"
    with contextlib.suppress(OSError, ValueError, KeyError, StopIteration, AttributeError):
        results = json.loads((folder / RESULT_FILE).read_text("utf-8"))["results"]
        dev, test = (
            next(value for value in results[part].values() if isinstance(value, float))
            for part in ("dev", "test")
        )
        return f"dev {dev:.2f}, test {test:.2f}, best of {results['epochs']} epochs"
    return "done"


@contextlib.contextmanager
def mps(*, enabled: bool) -> Iterator[dict[str, str]]:
    """Start NVIDIA MPS, so that processes can share a GPU, and yield its environment variables."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None or not enabled:
        yield {}
        return
    with tempfile.TemporaryDirectory() as folder:
        variables = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        environment = {**os.environ, **variables}
        subprocess.run([control, "-d"], env=environment, check=False)
        # In some containers, MPS starts but does not work.
        probe = [sys.executable, "-c", "import torch; torch.zeros(1).cuda()"]
        works = subprocess.run(probe, env=environment, check=False, timeout=120).returncode == 0
        print_line(
            f"NVIDIA MPS {'enabled' if works else 'does not work: processes share GPU time'}"
        )
        try:
            yield variables if works else {}
        finally:
            subprocess.run([control], input=b"quit\n", env=environment, check=False, timeout=60)
