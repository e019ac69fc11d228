"""Executors run jobs on chunks: in this process, in a worker pool, or on a Ray cluster.

All executors run the same job (job.py) and produce the same bytes. In this process, the steps of
the job are the stages of a pipeline, with a bounded number of chunks between them: a thread reads
and tokenizes (with a GPU, a pool of processes tokenizes), the main thread computes, and other
threads write.

A worker is a spawned process with its own copy of the model. The first worker loads the model
before the others, so that downloads, compilation and the selection of kernels happen only once. If
a worker dies, the run stops, and finished chunks are kept. All workers exit when this process
exits.
"""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from elmokit.bulk.input import Chunk
from elmokit.bulk.job import STAGES, ChunkJob, FinishedChunk, ModelInfo, TokenizedChunk, describe
from elmokit.bulk.settings import EmbedSettings
from elmokit.embed.embedder import Embedder
from elmokit.embed.loading import is_onnx, load, require_torch, thread_count
from elmokit.embed.onnx_model import check_device
from elmokit.errors import ElmoError, ElmoWarning, warn
from elmokit.parallel import available_cores, prefetch, process_pool, run_futures
from elmokit.text.lines import STDIN, text_size

Results = Generator[FinishedChunk, None, None]

# A GPU embeds text faster than one core can tokenize it or write the Parquet files.
_GPU_TOKENIZERS = 4
_GPU_WRITERS = 10
# With fewer chunks, starting a process pool takes more time than the pool saves.
_POOL_CHUNKS = 16


@dataclass(frozen=True)
class Workers:
    """Worker processes on this machine, each of which loads the model.

    Attributes:
        model: The model, as in `elmokit.load`.
        weights: The HDF5 weights file, if it is not in the same directory as `options.json`.
        precision: "exact" or "fast".
        device: The device, as in `elmokit.load`. "auto" distributes the processes over all GPUs.
        n_workers: Number of processes. With one (the default), this process is the worker.
    """

    model: str | None = None
    weights: str | None = None
    precision: str = "exact"
    device: str = "auto"
    n_workers: int | None = None

    def load(self, device: str) -> Embedder:
        """Load the model."""
        return load(self.model, self.weights, device, self.precision)

    def devices(self) -> list[str]:
        """Return the device of each process."""
        n = self.n_workers or 1
        if is_onnx(self.model):
            check_device(self.device)
            return ["cpu"] * n
        require_torch(self.model)
        import torch

        from elmokit.device import choose_device

        n_gpus = torch.cuda.device_count() if self.device == "auto" else 0
        if n > 1 and n_gpus:
            return [f"cuda:{i % n_gpus}" for i in range(n)]
        return [str(choose_device(self.device))] * n

    @contextmanager
    def executor(self, settings: EmbedSettings) -> Iterator[Executor]:
        """Start the processes, and stop them when the context exits."""
        devices = self.devices()
        n = len(devices)
        if n == 1:
            yield InProcessExecutor(self.load(devices[0]), settings)
            return
        device_queue = multiprocessing.get_context("spawn").SimpleQueue()
        for device in devices:
            device_queue.put(device)
        threads = max(1, thread_count(self.model) // n)
        try:
            with process_pool(n, _start_worker, self, device_queue, threads) as pool:
                info, messages = pool.submit(_describe, settings).result()
                for message in messages:
                    warn(message, stacklevel=5)

                def submit(job: ChunkJob, chunk: Chunk) -> Future[FinishedChunk]:
                    return pool.submit(_run, job, chunk, info)

                yield WorkerExecutor(info, n, submit)
        except BrokenProcessPool:
            raise ElmoError(
                "A worker process died. The system kills processes when memory runs out, and each "
                "worker has its own copy of the model. Finished chunks are kept: repeat the "
                "command with --resume, and with fewer workers if memory ran out."
            ) from None


def make_executor(
    model: Embedder | Workers, settings: EmbedSettings
) -> AbstractContextManager[Executor]:
    """Return an executor for a loaded model (this process) or for workers."""
    if isinstance(model, Workers):
        return model.executor(settings)
    return nullcontext(InProcessExecutor(model, settings))


# --------------------------------------------------------------------------------- this process


class InProcessExecutor:
    """Runs jobs in this process, with threads or a process pool for each stage.

    Args:
        model: The model.
        settings: Which vectors to compute.
        writers: Number of threads that write chunks. Default: 1, or several for a GPU.

    Attributes:
        info: The description of the model.
        parallel: Number of threads or processes for each stage.
    """

    def __init__(
        self, model: Embedder, settings: EmbedSettings, *, writers: int | None = None
    ) -> None:
        self.model = model
        self.info = describe(model, settings)
        on_gpu = str(getattr(model, "device", "cpu")).startswith("cuda")
        cores = available_cores()
        self._tokenizers = min(_GPU_TOKENIZERS, cores // 2) if on_gpu else 0
        n_writers = max(1, min(_GPU_WRITERS, cores - self._tokenizers - 2))
        self._writers = writers or (n_writers if on_gpu else 1)
        self.parallel = dict.fromkeys(STAGES, 1) | {"write": self._writers}

    def run(self, job: ChunkJob, chunks: Iterable[Chunk]) -> Results:
        """Run a job on chunks, which are read only when needed, and yield the results."""
        tokenized = self._tokenize(job, chunks)
        if STDIN not in job.documents:  # Ctrl-C does not interrupt a thread waiting for input
            tokenized = prefetch(tokenized)
        with ThreadPoolExecutor(self._writers) as writers, closing(tokenized):
            yield from run_futures(
                lambda computed: writers.submit(job.write, self.model, computed),
                self._compute(job, tokenized),
                self._writers + 1,
                in_order=True,
            )

    def _compute(self, job: ChunkJob, chunks: Iterable[TokenizedChunk]) -> Iterator[Any]:
        previous, carried = -1, None
        for chunk in chunks:
            number = int(chunk.record["chunk"])
            if job.settings.state == "carry" and number and previous != number - 1:
                carried = job.output.state_after(number - 1)
            computed = job.compute(self.model, chunk, carried)
            previous, carried = number, computed.carried
            yield computed

    def _tokenize(
        self, job: ChunkJob, chunks: Iterable[Chunk]
    ) -> Generator[TokenizedChunk, None, None]:
        size = text_size(job.documents)
        is_short = size is not None and size < _POOL_CHUNKS * job.settings.chunk_bytes
        if self._tokenizers < 2 or is_short:
            yield from map(job.tokenize, chunks)
            return
        self.parallel["tokenize"] = self._tokenizers
        with process_pool(self._tokenizers) as pool:
            yield from run_futures(
                lambda chunk: pool.submit(job.tokenize, chunk),
                chunks,
                2 * self._tokenizers,
                in_order=True,
            )


# -------------------------------------------------------------------------------- other processes


@dataclass(frozen=True)
class WorkerExecutor:
    """Runs jobs in other processes, each with its own copy of the model.

    Attributes:
        info: The description of the model.
        n_workers: Number of workers.
        submit: Starts a job on a chunk in a worker.
    """

    info: ModelInfo
    n_workers: int
    submit: Callable[[ChunkJob, Chunk], Future[FinishedChunk]]

    @property
    def parallel(self) -> dict[str, int]:
        """Number of processes for each stage."""
        return dict.fromkeys(STAGES, self.n_workers) | {"read": 1}

    def run(self, job: ChunkJob, chunks: Iterable[Chunk]) -> Results:
        """Run a job on chunks; see `InProcessExecutor`."""
        return run_futures(lambda chunk: self.submit(job, chunk), chunks, self.n_workers + 1)


Executor = InProcessExecutor | WorkerExecutor


class ModelWorker:
    """The model of a worker process, loaded on first use."""

    def __init__(self, workers: Workers, device: str, threads: int) -> None:
        self._workers, self._device = workers, device
        self._model: Embedder | None = None
        os.environ["OMP_NUM_THREADS"] = str(threads)  # torch and onnxruntime are not loaded yet

    def describe(self, settings: EmbedSettings) -> tuple[ModelInfo, list[str]]:
        """Load the model, and return its description and the warnings about it."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ElmoWarning)
            self._model = self._model or self._workers.load(self._device)
        messages = [str(w.message) for w in caught if issubclass(w.category, ElmoWarning)]
        return describe(self._model, settings), messages

    def run(self, job: ChunkJob, chunk: Chunk, expected: ModelInfo) -> FinishedChunk:
        """Run a job on a chunk, after checking that the model is the expected one."""
        if self._model is None:
            info, _ = self.describe(job.settings)
            if info != expected:
                raise ElmoError(
                    f"Workers loaded different models: {info.engine} and {expected.engine}, "
                    f"{info.manifest} and {expected.manifest}. Do not change the model while it "
                    "is being loaded, and use devices of the same type."
                )
        assert self._model is not None
        return job.run(self._model, chunk)


_worker: ModelWorker  # set in each worker process


def _start_worker(workers: Workers, device_queue: Any, threads: int) -> None:
    global _worker
    _worker = ModelWorker(workers, device_queue.get(), threads)


def _describe(settings: EmbedSettings) -> tuple[ModelInfo, list[str]]:
    return _worker.describe(settings)


def _run(job: ChunkJob, chunk: Chunk, expected: ModelInfo) -> FinishedChunk:
    return _worker.run(job, chunk, expected)
