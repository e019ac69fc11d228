"""Executors run the job of a chunk: in this process, in a worker pool, or on a Ray cluster.

All executors run the same job (job.py) and produce the same bytes. In this process, its steps are
stages of a pipeline with a bounded number of chunks between them: a thread reads and tokenizes (for
a GPU, a pool of processes), the main thread computes, other threads write.

A worker is a new process (spawned, not forked) with its own model. The first worker loads the model
alone, so that downloads, compilation and trials happen once. If a worker dies, the run stops and
finished chunks are kept; all workers exit with this process.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from elmokit.bulk.chunks import Chunk
from elmokit.bulk.job import STAGES, ChunkJob, Done, ModelInfo, TokenizedChunk, describe
from elmokit.bulk.settings import EmbedSettings
from elmokit.embed.embedder import Embedder
from elmokit.embed.loading import is_onnx, load, need_torch
from elmokit.embed.onnx_model import check_device
from elmokit.embed.threads import threads_of, use_threads
from elmokit.errors import ConfigError, ElmoError, ElmoWarning
from elmokit.text.lines import STDIN

if TYPE_CHECKING:
    from elmokit.bulk.ray_engine import RayCluster

Item = TypeVar("Item")
Dones = Generator[Done, None, None]

# Maximum number of tokenized chunks that wait for the model.
_READ_AHEAD = 2
# A GPU computes faster than one core tokenizes, or writes Parquet files.
_GPU_TOKENIZERS = 4
_GPU_WRITERS = 6
# Starting processes pays off for more text than this, in chunks.
_POOL_CHUNKS = 16


class Executor(Protocol):
    """Runs jobs on chunks.

    Attributes:
        info: The model.
        parallel: Threads or processes of each stage.
        in_order: Whether a chunk is computed only after the one before it.
    """

    info: ModelInfo
    parallel: dict[str, int]
    in_order: bool

    def run(self, job: ChunkJob, chunks: Iterable[Chunk], n_chunks: int | None) -> Dones:
        """Run a job on chunks and yield the results in any order.

        After an error no more chunks are begun, but those that have begun are finished first.

        Args:
            job: What to do.
            chunks: Taken when they can be begun.
            n_chunks: Their number, about; None: not known.
        """


@dataclass(frozen=True)
class Workers:
    """The processes that load a model, as `elmokit.load` does; one means this process.

    Attributes:
        devices: The device of each, "cpu" or "cuda:N"; as many as there are workers. One alone may
            be "auto".
        model: The model.
        weights: Its HDF5 file, if it has one elsewhere.
        precision: "exact" or "fast".
    """

    devices: tuple[str, ...] = ("auto",)
    model: str | None = None
    weights: str | None = None
    precision: str = "exact"

    def load(self, device: str) -> Embedder[Any]:
        """Load the model."""
        return load(self.model, self.weights, device, self.precision)

    def check(self) -> None:
        """Raise if the devices cannot be used together."""
        if not self.devices:
            raise ConfigError("Work needs at least one worker, found no device for any.")
        if is_onnx(self.model):
            for name in self.devices:
                check_device(name)
            return
        need_torch(self.model)
        from elmokit.device import choose_device

        kinds = {choose_device(name).type for name in self.devices}
        if len(kinds) > 1:
            raise ConfigError(
                f"The devices {', '.join(self.devices)} are of different kinds, which round "
                "differently: vectors would depend on who computed them. Name GPUs only, or CPUs."
            )


def choose_devices(
    n_workers: int | None, devices: str | None, device: str, model: str | None = None
) -> tuple[str, ...]:
    """Parse `--workers N`, `--devices 0,1` or `--devices cpu,cpu`.

    Args:
        n_workers: A number of workers, on `device`; "auto" distributes them over all GPUs.
        devices: One worker for each of these: numbers of GPUs, or "cpu".
        device: As for `elmokit.load`.
        model: As for `elmokit.load`; one in ONNX runs on the CPU.
    """
    if devices is not None:
        if n_workers is not None or device != "auto":
            raise ConfigError(
                "--devices names the device of each worker: leave out --workers and --device."
            )
        names = [name.strip() for name in devices.split(",")]
        return tuple(f"cuda:{name}" if name.isdecimal() else name for name in names)
    if n_workers in (None, 1):
        return (device,)
    assert n_workers is not None
    if is_onnx(model):
        return ("cpu" if device == "auto" else device,) * n_workers
    need_torch(model)
    import torch

    from elmokit.device import choose_device

    n_gpus = torch.cuda.device_count() if device == "auto" else 0
    if n_gpus:
        return tuple(f"cuda:{i % n_gpus}" for i in range(n_workers))
    return (str(choose_device(device)),) * n_workers


def make_executor(
    model: Embedder[Any] | Workers | RayCluster, settings: EmbedSettings
) -> AbstractContextManager[Executor]:
    """Return the executor: this process, a worker pool, or a cluster."""
    from elmokit.bulk.ray_engine import RayCluster

    if isinstance(model, RayCluster):
        return model.executor(settings)
    if isinstance(model, Workers):
        model.check()
        if len(model.devices) > 1:
            return _worker_pool(model, settings)
        model = model.load(model.devices[0])
    return nullcontext(InProcessExecutor(model, settings))


# --------------------------------------------------------------------------------- this process


class InProcessExecutor:
    """This process, with a thread or a pool for each stage."""

    def __init__(self, model: Embedder[Any], settings: EmbedSettings) -> None:
        self.model = model
        self.info = describe(model, settings)
        self.in_order = True
        on_gpu = str(getattr(model, "device", "cpu")).startswith("cuda")
        cores = os.cpu_count() or 1
        self._writers = min(_GPU_WRITERS, cores) if on_gpu else 1
        self._tokenizers = min(_GPU_TOKENIZERS, cores // 2) if on_gpu else 0
        self.parallel = dict.fromkeys(STAGES, 1) | {"write": self._writers}

    def run(self, job: ChunkJob, chunks: Iterable[Chunk], n_chunks: int | None) -> Dones:
        """Do a job with chunks; see `Executor`."""
        writing: deque[Future[Done]] = deque()
        failure: ElmoError | None = None
        ready = self._tokenize(job, chunks, n_chunks)
        if STDIN not in job.documents:  # Ctrl-C does not end a thread that waits for input
            ready = prefetched(ready)
        with ThreadPoolExecutor(self._writers) as writers, closing(ready):
            try:
                for computed in self._compute(job, ready):
                    writing.append(writers.submit(job.write, self.model, computed))
                    while writing and (len(writing) > self._writers or writing[0].done()):
                        yield writing.popleft().result()
            except ElmoError as error:
                failure = error
            for future in writing:
                try:
                    yield future.result()
                except ElmoError as error:
                    failure = failure or error
        if failure is not None:
            raise failure

    def _compute(self, job: ChunkJob, chunks: Iterable[TokenizedChunk]) -> Iterator[Any]:
        done, carried = -1, None
        for chunk in chunks:
            number = int(chunk.record["chunk"])
            if job.settings.state == "carry" and number and done != number - 1:
                carried = job.store.state_after(number - 1)
            computed = job.compute(self.model, chunk, carried)
            done, carried = number, computed.carried
            yield computed

    def _tokenize(
        self, job: ChunkJob, chunks: Iterable[Chunk], n_chunks: int | None
    ) -> Generator[TokenizedChunk, None, None]:
        if self._tokenizers < 2 or (n_chunks is not None and n_chunks < _POOL_CHUNKS):
            yield from map(job.tokenize, chunks)
            return
        self.parallel["tokenize"] = self._tokenizers
        source = iter(chunks)
        failure: ElmoError | None = None
        with process_pool(self._tokenizers) as pool:
            under_way: deque[Future[TokenizedChunk]] = deque()
            while failure is None or under_way:
                try:
                    free = 2 * self._tokenizers - len(under_way) if failure is None else 0
                    for chunk in islice(source, free):
                        under_way.append(pool.submit(job.tokenize, chunk))
                except ElmoError as error:  # what came before it is finished first
                    failure = error
                if not under_way:
                    break
                yield under_way.popleft().result()
        if failure is not None:
            raise failure


def prefetched(items: Iterator[Item]) -> Generator[Item, None, None]:
    """Iterate in a separate thread, a few items ahead of the consumer."""
    with ThreadPoolExecutor(1) as reader:
        ahead = deque(reader.submit(next, items, None) for _ in range(_READ_AHEAD))
        try:
            while (item := ahead.popleft().result()) is not None:
                ahead.append(reader.submit(next, items, None))
                yield item
        finally:
            for future in ahead:
                future.cancel()


# -------------------------------------------------------------------------------- other processes


@contextmanager
def process_pool(
    n: int, start: Callable[..., None] | None = None, *arguments: Any
) -> Iterator[ProcessPoolExecutor]:
    """Start processes as they are needed; they exit with this one, or when the block is left.

    Args:
        n: How many at most.
        start: Called in each first.
        arguments: Its arguments.
    """
    context = multiprocessing.get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    resource_tracker.ensure_running()  # else starting a process does it, and lets signals through
    with _Pool(n, context, initializer=_begin, initargs=(theirs, start, arguments)) as pool:
        try:
            yield pool
        finally:
            ours.close()  # which ends them


class _Pool(ProcessPoolExecutor):
    def submit(self, *given: Any, **named: Any) -> Any:
        with _interrupts_blocked():  # Ctrl-C is for this process, which then ends the others
            return super().submit(*given, **named)


def _begin(parent: Connection, start: Callable[..., None] | None, arguments: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()
    if start is not None:
        start(*arguments)


def _exit_with(parent: Connection) -> None:
    """Exit when the other end is closed: by the process that started this one, or its death."""
    parent.poll(None)
    os._exit(1)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    if not hasattr(signal, "pthread_sigmask"):  # not a POSIX system
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _worker_pool(workers: Workers, settings: EmbedSettings) -> Iterator[Executor]:
    n = len(workers.devices)
    devices = multiprocessing.get_context("spawn").SimpleQueue()
    for device in workers.devices:
        devices.put(device)
    threads = max(1, threads_of(workers.model) // n)
    with process_pool(n, _Worker.start, workers, devices, threads) as pool:
        yield WorkerPool(pool, n, settings)


class WorkerPool:
    """Processes with a model each."""

    def __init__(self, pool: ProcessPoolExecutor, n: int, settings: EmbedSettings) -> None:
        self._pool = pool
        self._n = n
        self.in_order = False
        self.parallel = dict.fromkeys(STAGES, n) | {"read": 1}
        with _deaths_explained():
            self.info, warned = pool.submit(_Worker.describe, settings).result()
        for message in warned:
            warnings.warn(message, ElmoWarning, stacklevel=6)

    def run(self, job: ChunkJob, chunks: Iterable[Chunk], n_chunks: int | None) -> Dones:
        """Do a job with chunks; see `Executor`."""
        source = iter(chunks)
        running: set[Future[Done]] = set()
        failure: ElmoError | None = None
        while True:
            try:
                free = self._n + 1 - len(running) if failure is None else 0
                with _deaths_explained():
                    for chunk in islice(source, free):
                        running.add(self._pool.submit(_Worker.run, job, chunk, self.info))
            except ElmoError as error:
                failure = error
            if not running:
                break
            finished, running = wait_for(running, return_when=FIRST_COMPLETED)
            for future in finished:
                try:
                    with _deaths_explained():
                        done = future.result()
                except ElmoError as error:
                    failure = failure or error
                else:
                    yield done
        if failure is not None:
            raise failure


class _Worker:
    """The state of a worker: its model, loaded when it is first needed."""

    workers: Workers
    device: str
    model: Embedder[Any] | None = None

    @classmethod
    def start(cls, workers: Workers, devices: Any, threads: int) -> None:
        cls.workers, cls.device = workers, devices.get()
        use_threads(threads, workers.model)

    @classmethod
    def describe(cls, settings: EmbedSettings) -> tuple[ModelInfo, list[str]]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ElmoWarning)
            cls.model = cls.workers.load(cls.device)
        warned = [str(w.message) for w in caught if issubclass(w.category, ElmoWarning)]
        return describe(cls.model, settings), warned

    @classmethod
    def run(cls, job: ChunkJob, chunk: Chunk, expected: ModelInfo) -> Done:
        if cls.model is None:
            info, _ = cls.describe(job.settings)
            if info != expected:
                raise ElmoError(
                    f"A worker does not compute as the first one does: {info.engine} and "
                    f"{expected.engine}, {info.manifest} and {expected.manifest}. The model must "
                    "not change while it is loaded; name devices of one kind."
                )
        assert cls.model is not None
        return job.run(cls.model, chunk)


@contextmanager
def _deaths_explained() -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool:
        raise ElmoError(
            "A worker process died; the system kills processes when memory is short, and each "
            "worker holds a model. Finished chunks are kept: continue with the same command and "
            "--resume, with fewer workers if memory was short."
        ) from None
