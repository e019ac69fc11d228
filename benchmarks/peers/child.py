"""The asking end of a measuring process: requests and answers are lines of JSON (see protocol.py).

Only a fresh process knows its load time and its peak of memory, and only processes that live side
by side can be timed in turn, so that a noisy machine disturbs all of them alike.
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

OURS = (sys.executable, str(Path(__file__).with_name("elmokit_worker.py")))


class ChildError(Exception):
    """A measuring process that died, took too long or could not do what it was asked."""


class Child:
    """The asking end: one request at a time, one answer each.

    Args:
        command: The program. Default: elmokit's worker.
        threads: Threads that the libraries in it may use.
        limit: Seconds that an answer may take.
        environment: Variables to set beside.
    """

    def __init__(
        self,
        command: Sequence[str] = OURS,
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
        """Send a request and wait for its answer."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        late = threading.Event()

        def stop() -> None:
            late.set()
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
        if late.is_set():
            raise ChildError(f"The measuring process gave no answer to '{do}' in {self._limit} s.")
        if not line:
            code = process.wait()
            raise ChildError(
                f"The measuring process ended at '{do}' (exit code {code}): {self._last_words()}"
            )
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ChildError(str(answer["error"]))
        return answer

    def close(self) -> None:
        """End the process."""
        process = self._process
        if process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.close()  # the end of its input is the end of its work
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._log.close()

    def _last_words(self) -> str:
        self._log.seek(0)
        return " ".join(self._log.read().strip().splitlines()[-3:]) or "it said nothing."

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._process.kill()
        self.close()
