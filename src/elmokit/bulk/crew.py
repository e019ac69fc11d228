"""The workers of a machine at work, as the process that started them sees them.

A worker is a new process (spawned, never forked) that loads the model and does whole jobs (see
worker.py). The first one starts alone: what is fetched, compiled or tried out for a model is so
done once. All must have come to the same model by the same arithmetic, or the work does not begin.

A worker that dies ends the run: the others end the jobs they have begun, and what is finished is
kept. If this process dies, so do the workers, at once.
"""

from __future__ import annotations

import multiprocessing
import signal
import warnings
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from elmokit.bulk.jobs import Hands, Job, ModelFacts, OwnHands, Result
from elmokit.bulk.settings import EmbedSettings
from elmokit.bulk.worker import work
from elmokit.bulk.workers import Workers
from elmokit.embed.embedder import Embedder
from elmokit.embed.threads import threads_of
from elmokit.errors import ElmoError, ElmoWarning


def hands_of(
    model: Embedder[Any] | Workers, settings: EmbedSettings
) -> AbstractContextManager[Hands]:
    """Return who does the work: the model that is here, or workers that are started."""
    if isinstance(model, Workers):
        return _crew(model, settings)
    return nullcontext(OwnHands(model, settings))


@contextmanager
def _crew(workers: Workers, settings: EmbedSettings) -> Iterator[Hands]:
    crew = Crew(workers, settings)
    try:
        crew.start()
        yield crew
    finally:
        crew.close()


@dataclass
class _Worker:
    """A worker as this process sees it."""

    number: int
    process: BaseProcess
    connection: Connection
    ready: bool = False
    busy: bool = False


@dataclass
class Crew:
    """Workers at work.

    Attributes:
        workers: What they load.
        settings: Which vectors.
        facts: The model that they have, known once the first one is ready.
    """

    workers: Workers
    settings: EmbedSettings
    facts: ModelFacts = field(init=False)
    in_order: bool = field(init=False)
    _there: list[_Worker] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.in_order = len(self.workers.devices) == 1

    def start(self) -> None:
        """Start the first worker and wait until it is ready; then start the others."""
        self._start_one()
        first = self._there[0]
        while not first.ready:
            wait([first.connection, first.process.sentinel])
            self._hear(first)
        for _ in self.workers.devices[1:]:
            self._start_one()

    def _start_one(self) -> None:
        number = len(self._there)
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        threads = max(1, threads_of(self.workers.model) // len(self.workers.devices))
        arguments = (theirs, self.workers, number, threads, self.settings)
        process = context.Process(target=work, args=arguments, daemon=True)
        resource_tracker.ensure_running()  # else `start` does it, and lets signals through again
        with _signals_blocked():  # Ctrl-C is for this process, which then stops the workers
            process.start()
        theirs.close()
        self._there.append(_Worker(number, process, ours))

    def do(self, jobs: Iterable[Job[Result]]) -> Iterator[Result]:
        """Do jobs; see `Hands`."""
        waiting = iter(jobs)
        failure: Exception | None = None
        more = True
        while True:
            try:
                more = more and self._give(waiting)
            except Exception as error:  # a worker has died, or the text cannot be read on
                failure, more = error, False
            if not more and not any(worker.busy for worker in self._there):
                break
            for worker in self._heard_of():
                try:
                    answer = self._hear(worker)
                except Exception as error:
                    failure, more = failure or error, False
                    self._bury(worker)
                else:
                    if answer is not None:
                        yield answer
        if failure is not None:
            raise failure

    def _give(self, waiting: Iterator[Job[Any]]) -> bool:
        """Give each idle worker a job; tell whether there may be more."""
        for worker in [w for w in self._there if w.ready and not w.busy]:
            job = next(waiting, None)
            if job is None:
                return False
            try:
                worker.connection.send(job)
            except ConnectionError:
                self._bury(worker)
                raise _death(worker) from None
            worker.busy = True
        return True

    def _heard_of(self) -> list[_Worker]:
        ends: dict[Any, _Worker] = {}
        for worker in self._there:
            ends[worker.connection] = ends[worker.process.sentinel] = worker
        heard = wait(list(ends))
        return list({id(ends[end]): ends[end] for end in heard}.values())

    def _hear(self, worker: _Worker) -> Any:
        """Take what a worker has to say; raise if it has failed or died."""
        try:
            # What it said before it died counts.
            if not worker.connection.poll():
                raise EOFError
            kind, content = worker.connection.recv()
        except (EOFError, OSError):
            raise _death(worker) from None
        worker.busy = False
        if kind == "failed":
            error, message = content
            raise error(message)
        if kind == "done":
            return content
        facts, warned = content
        worker.ready = True
        if worker.number == 0:
            self.facts = facts
            for message in warned:
                warnings.warn(message, ElmoWarning, stacklevel=5)
        elif facts != self.facts:
            raise ElmoError(
                f"Worker {worker.number} does not compute as the first one does: {facts.engine} "
                f"and {self.facts.engine}, {facts.manifest} and {self.facts.manifest}. The model "
                "must not change while it is loaded; name devices of one kind."
            )
        return None

    def _bury(self, worker: _Worker) -> None:
        self._there.remove(worker)
        _end(worker)

    def close(self) -> None:
        """End all workers, whatever they are doing."""
        for worker in self._there:
            worker.process.kill()
        for worker in self._there:
            _end(worker)
        self._there.clear()


def _end(worker: _Worker) -> None:
    worker.process.kill()
    worker.process.join()
    worker.connection.close()


def _death(worker: _Worker) -> ElmoError:
    worker.process.join(5)
    code = worker.process.exitcode
    told = f"ended with code {code}"
    if code is not None and code < 0:
        told = f"was killed by signal {-code}"
        if -code == signal.SIGKILL:
            told += ", as the system does where memory is short (each worker holds a model)"
    return ElmoError(
        f"Worker {worker.number} (process {worker.process.pid}) {told}. What was finished is kept; "
        "go on with the same command and --resume, with fewer workers if memory was short."
    )


@contextmanager
def _signals_blocked() -> Iterator[None]:
    if not hasattr(signal, "pthread_sigmask"):  # not a POSIX system
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
