"""Child processes that pause at a chosen point, so that a test can kill or signal them there.

A test specifies the point. The child reports when it reaches it and waits, regardless of how long
the test or the machine takes. There is no polling and no `sleep`, and `src/` needs no hooks::

    save = Pause("elmokit.train.checkpoint.save", call=3)
    with start(elmo, "train", ..., pause=save) as child:
        child.wait_for_pause()
        child.send_signal(signal.SIGINT)  # or child.kill()
        child.resume()
        assert child.wait() == 130, child.stderr

    assert kill_when(save, elmo, "train", ...)  # start, wait for the pause, kill -9
    assert run(elmo, "train", ..., "--resume").exit_code == 0

`elmo` is the command line; any other module-level function can be used instead.

`Pause` is a call of a function. `FileOperation` is the n-th file operation in a directory, for
tests that try every n. Processes that the child starts (worker pools) do not pause.

Children are forked from a server process that has already imported everything, so they start in
milliseconds. A kill is a real SIGKILL.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import pytest

# Only reached if a child hangs, even on a machine that is overloaded by a factor of ten.
HANG_SECONDS = 900
# Modules that the children import, including those that torch and typer import lazily.
_PRELOADED = """
    pytest numpy.random numpy.ma torch torch._dynamo typer._adapters h5py pyarrow.parquet
    safetensors.torch elmokit.cli.main elmokit.embed.model elmokit.bulk.run elmokit.train.loop
    elmokit.tasks.loop elmokit.tasks.ner elmokit.model.kernels.cpu_engine tests.conftest
""".split()
_FILE_EVENTS = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.truncate"}


@dataclass(frozen=True)
class Pause:
    """Pause at a call of a function or method, regardless of the caller.

    Attributes:
        function: Dotted path: "elmokit.storage.atomic.replace_file", "pathlib.Path.replace".
        call: Number of the call, starting at 1.
        after: Pause after the call instead of before it.
    """

    function: str
    call: int = 1
    after: bool = False

    def install(self, pause: Callable[[], None]) -> None:
        """Wrap the function in this process, including references imported by name."""
        owner, name = _resolve(self.function)
        original = getattr(owner, name)
        calls = 0

        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            here = calls == self.call
            if here and not self.after:
                pause()
            result = original(*args, **kwargs)
            if here and self.after:
                pause()
            return result

        setattr(owner, name, wrapped)
        for module in list(sys.modules.values()):
            if getattr(module, "__name__", "").startswith("elmokit"):
                for key, value in list(vars(module).items()):
                    if value is original:
                        setattr(module, key, wrapped)


@dataclass(frozen=True)
class FileOperation:
    """Pause before the n-th file operation (open, rename, mkdir, remove, ...) in a directory.

    Attributes:
        directory: Only operations on paths in this directory are counted.
        number: Number of the operation, starting at 1.
    """

    directory: Path
    number: int

    def install(self, pause: Callable[[], None]) -> None:
        """Intercept all file operations of this process."""
        inside = str(self.directory)
        count = 0

        def watch(event: str, details: tuple[Any, ...]) -> None:
            nonlocal count
            if event not in _FILE_EVENTS:
                return
            # shutil.rmtree removes entries by name, relative to an open directory.
            relative = event in ("os.remove", "os.rmdir") and details[1] != -1
            if relative or str(details[0]).startswith(inside):
                count += 1
                if count == self.number:
                    pause()

        sys.addaudithook(watch)


class Child:
    """A child process. Use it as a context manager: it is killed when the block ends.

    Attributes:
        pid: Its process id, which is also its process group id.
    """

    def __init__(self, process: BaseProcess, connection: Connection, output: Path) -> None:
        assert process.pid is not None
        self.pid = process.pid
        self._process = process
        self._connection = connection
        self._output = output

    def wait_for_pause(self) -> None:
        """Wait until the child pauses; fail if it exits first."""
        if not self.pauses():
            raise AssertionError(
                f"The child ended (exit code {self.wait()}) before it paused:\n{self.stderr}"
            )

    def pauses(self) -> bool:
        """Wait until the child pauses (True) or exits (False)."""
        ready = wait([self._connection, self._process.sentinel], HANG_SECONDS)
        assert ready, f"The child neither paused nor ended:\n{self.stderr}"
        try:
            return self._connection.poll() and bool(self._connection.recv())
        except (EOFError, ConnectionError):
            return False

    def resume(self) -> None:
        """Resume a paused child. A signal sent before this is handled first."""
        self._connection.send("resume")

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the child only; `os.killpg(child.pid, ...)` includes its workers."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the child with SIGKILL and wait until it exits."""
        self.send_signal(signal.SIGKILL)
        assert self.wait() == -signal.SIGKILL

    def wait(self) -> int:
        """Wait until the child exits; return the exit code, or the negative signal number."""
        self._process.join(HANG_SECONDS)
        assert self._process.exitcode is not None, f"The child hangs:\n{self.stderr}"
        return self._process.exitcode

    @property
    def stdout(self) -> str:
        """Return what the child has written to standard output so far."""
        return (self._output / "stdout").read_text("utf-8")

    @property
    def stderr(self) -> str:
        """Return what the child has written to standard error so far."""
        return (self._output / "stderr").read_text("utf-8")


class Finished(NamedTuple):
    """The result of a process that has exited."""

    exit_code: int
    stdout: str
    stderr: str


@contextlib.contextmanager
def start(
    target: Callable[..., object], *args: Any, pause: Pause | FileOperation | None = None
) -> Iterator[Child]:
    """Call a module-level function in a child process with its own session."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        pytest.skip("child processes are forked, which this system cannot do")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    ours, theirs = context.Pipe()
    with tempfile.TemporaryDirectory() as output:
        for name in ("stdout", "stderr"):
            (Path(output) / name).touch()
        given = (theirs, Path(output), dict(os.environ), pause, target, args)
        process = context.Process(target=_run_child, args=given)
        process.start()
        theirs.close()
        child = Child(process, ours, Path(output))
        try:
            yield child
        finally:
            process.kill()
            process.join()
            process.close()
            ours.close()


def run(target: Callable[..., object], *args: Any) -> Finished:
    """Call a function in a child process and wait until it exits."""
    with start(target, *args) as child:
        return Finished(child.wait(), child.stdout, child.stderr)


def kill_when(pause: Pause | FileOperation, target: Callable[..., object], *args: Any) -> bool:
    """Call a function in a child process and kill it with SIGKILL at the pause.

    Returns:
        True if it was killed, False if it exited (with code 0) without reaching the pause.
    """
    with start(target, *args, pause=pause) as child:
        if child.pauses():
            child.kill()
            return True
        assert child.wait() == 0, child.stderr
        return False


def elmo(*arguments: object) -> None:
    """Run `elmo ARGUMENTS` and exit: a target for the functions above."""
    from elmokit.cli.main import run as main

    sys.argv = ["elmo", *map(str, arguments)]
    main()


# ------------------------------------------------------------------------------------ in the child


def _run_child(
    connection: Connection,
    output: Path,
    environment: dict[str, str],
    pause: Pause | FileOperation | None,
    target: Callable[..., object],
    args: tuple[Any, ...],
) -> None:
    os.setsid()
    # Background jobs start with SIGINT ignored, and child processes would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(environment)
    sys.stdout = _redirect(1, output / "stdout")
    sys.stderr = _redirect(2, output / "stderr")
    import torch

    torch.set_num_threads(1)

    def block() -> None:
        connection.send("paused")
        try:
            # Python runs signal handlers between these calls. A single `recv` would never return if
            # a signal arrived just before it started to wait.
            while not connection.poll(0.1):
                pass
            connection.recv()
        except EOFError:  # the parent process is gone
            os._exit(1)

    if pause is not None:
        pause.install(block)
    target(*args)


def _redirect(descriptor: int, path: Path) -> TextIO:
    opened = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.dup2(opened, descriptor)
    os.close(opened)
    return os.fdopen(descriptor, "w", buffering=1, encoding="utf-8", closefd=False)


def _resolve(path: str) -> tuple[Any, str]:
    """Return the module or class that contains a function, and the name of the function."""
    parts = path.split(".")
    for n in range(len(parts) - 1, 0, -1):
        try:
            owner: Any = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        for part in parts[n:-1]:
            owner = getattr(owner, part)
        return owner, parts[-1]
    raise ValueError(f"No module in {path!r}")
