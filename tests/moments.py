"""Moments in the life of another process, for whoever may be too slow to see them.

A test that stops a process has to wait until it has done something, and both of them share a busy
machine: folders go between two looks, and a process may be at its end before the test looks again.
So nothing here counts on being quick: who missed the moment begins once more.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.context
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ATTEMPTS = 10
# All that copied processes of any test need: the first of them starts the server for all.
_PRELOADED = ["torch", "elmokit.embed.model", "elmokit.bulk.corpus", "elmokit.cli.main", "h5py"]
_PRELOADED += ["elmokit.cli.embed", "pyarrow.parquet", "safetensors.torch"]
_PRELOADED += ["tests.bulk.test_kill", "tests.analysis.index.test_interruption"]


def copied_processes() -> multiprocessing.context.ForkServerContext:
    """Give processes that are copies of one which has imported everything: they start at once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


def files_in(folder: Path, pattern: str = "*") -> list[Path]:
    """List what is there now; a folder that somebody removes at this moment has nothing in it."""
    try:
        return sorted(folder.glob(pattern))
    except FileNotFoundError:
        return []


def lines_in(path: Path) -> int:
    """Count the finished lines of a file that somebody writes, or will write."""
    try:
        return path.read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def seen(moment: Callable[[], object], process: subprocess.Popen[Any]) -> bool:
    """Wait for a moment; False if the process ended before anyone saw it."""
    while process.poll() is None:
        if moment():
            return True
        time.sleep(0.002)
    return False


def passed(before: Any, measure: Callable[[], Any], process: subprocess.Popen[Any]) -> bool:
    """Wait until a measure is more than it was; False if the process ended before that."""
    return seen(lambda: measure() > before, process)


def struck(
    start: Callable[[], subprocess.Popen[str]],
    moment: Callable[[], object],
    strike: Callable[[subprocess.Popen[str]], object],
) -> tuple[int, str]:
    """Start a process, strike it at a moment, and wait for its end.

    Args:
        start: Removes what an earlier attempt left, and starts the process with its stderr piped.
        moment: Whether it has come far enough.
        strike: Kills it, or asks it to stop.

    Returns:
        Its exit code, which is not 0, and what it said on stderr.
    """
    for _ in range(ATTEMPTS):
        process = start()
        if seen(moment, process):
            strike(process)
        _, errors = process.communicate(timeout=300)
        if process.returncode != 0:
            return process.returncode, errors
    raise AssertionError(f"{ATTEMPTS} times the process was at its end before it could be struck")
