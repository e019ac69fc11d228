"""Run a function in a forked child with limited time and memory, and report how it ended."""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

from elmokit.errors import ElmoError

OK = 0
REFUSED = 3
_FAILED = 4

_SECONDS = 10
# The wall-clock limit is longer than the CPU limit of 10 s, because the machine may be busy.
_WALL_SECONDS = 60
_BYTES = 2**30


def run(function: Callable[[], object]) -> tuple[int, str]:
    """Call a function in a child process.

    Returns:
        OK if it returned, REFUSED if it raised an `ElmoError` or ended in a usage error; and its
        output.

    Raises:
        AssertionError: It raised anything else, crashed, or needed more than 10 s or 1 GB.
    """
    with tempfile.TemporaryFile("w+") as output:
        gc.freeze()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        child = os.fork()
        if child == 0:
            _child(function, output.fileno())
        status, usage = _wait(child)
        output.seek(0)
        text = output.read()[-6000:]
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        kind = "took more than 10 s" if number in (signal.SIGXCPU, signal.SIGKILL) else "crashed"
        raise AssertionError(f"It {kind} (signal {number}):\n{text}")
    code = os.WEXITSTATUS(status)
    assert code in (OK, REFUSED), text
    grown = (usage.ru_maxrss - before) * 1024
    assert grown < _BYTES, f"It took {grown / 1e9:.1f} GB:\n{text}"
    return code, text


def _wait(child: int) -> tuple[int, resource.struct_rusage]:
    for _ in range(_WALL_SECONDS * 100):
        done, status, usage = os.wait4(child, os.WNOHANG)
        if done:
            return status, usage
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    return status, usage


def _child(function: Callable[[], object], output: int) -> None:
    code = _FAILED
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
        torch.set_num_threads(1)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        # Thread stacks and arenas are reserved but not used: allow four times the memory limit.
        resource.setrlimit(resource.RLIMIT_AS, (used + 4 * _BYTES, used + 4 * _BYTES))
        spent = int(time.process_time()) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (spent + _SECONDS, spent + _SECONDS))
        warnings.simplefilter("ignore")
        function()
        code = OK
    except ElmoError:
        traceback.print_exc()
        code = REFUSED
    except SystemExit as stop:
        code = {None: OK, 0: OK, 1: REFUSED, 2: REFUSED}.get(stop.code, _FAILED)  # type: ignore[arg-type]
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
