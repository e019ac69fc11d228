"""The client side of the protocol: requests and responses are lines of JSON (see protocol.py).

Each implementation runs in its own process, so that its load time and peak memory can be measured.
All processes run until the end of the benchmark, so that they can be measured alternately and other
processes on the machine affect all of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

ELMOKIT_WORKER = (sys.executable, str(Path(__file__).with_name("elmokit_worker.py")))


class ChildError(Exception):
    """Raised if a worker process exits, times out or reports an error."""


class Child:
    """A worker process that handles one request at a time.

    Args:
        command: The program. Default: the worker for elmokit.
        threads: Number of threads for numerical libraries.
        limit: Time limit for a response in seconds.
        environment: Additional environment variables.
    """

    def __init__(
        self,
        command: Sequence[str] = ELMOKIT_WORKER,
        *,
        threads: int | None = None,
        limit: float = 900.0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        variables = dict(os.environ) | dict(environment or {})
        if threads is not None:
            for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
                variables[name] = str(threads)
        self._limit = limit
        self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 (see close)
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=variables,
        )

    def ask(self, do: str, **values: Any) -> dict[str, Any]:
        """Send a request and return the response."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        timed_out = threading.Event()

        def stop() -> None:
            timed_out.set()
            process.kill()

        timer = threading.Timer(self._limit, stop)
        timer.start()
        try:
            process.stdin.write(json.dumps({"do": do, **values}) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if timed_out.is_set():
            raise ChildError(f"The worker did not respond to '{do}' within {self._limit} s.")
        if not line:
            code = process.wait()
            raise ChildError(
                f"The worker exited during '{do}' (exit code {code}): {self._last_lines()}"
            )
        response: dict[str, Any] = json.loads(line)
        if "error" in response:
            raise ChildError(str(response["error"]))
        return response

    def close(self) -> None:
        """Stop the process."""
        process = self._process
        if process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.close()  # the worker exits at the end of its input
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._log.close()

    def _last_lines(self) -> str:
        self._log.seek(0)
        return " ".join(self._log.read().strip().splitlines()[-3:]) or "no output."

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._process.kill()
        self.close()
