"""The Ray executor: actors on a cluster with one model each. Needs the extra `ray`.

The driver reads the text and sends each chunk to an idle actor. Vectors are never sent: the actor
writes its chunk to the directory, which all machines must share, and returns its record. Ray
restarts an actor that died and retries its chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from elmokit.bulk.chunks import Chunk
from elmokit.bulk.executors import Dones, Workers
from elmokit.bulk.job import STAGES, ChunkJob, Done, ModelInfo, describe
from elmokit.bulk.settings import EmbedSettings
from elmokit.embed.loading import is_onnx
from elmokit.embed.onnx_model import check_device
from elmokit.embed.threads import use_threads
from elmokit.errors import ConfigError, ElmoError, optional_imports

# The text of a few chunks and their records are all that goes through the object store.
_STORE_BYTES = 200 * 2**20


@dataclass(frozen=True)
class RayCluster:
    """A cluster, and what its workers load.

    Attributes:
        model: The model, by a path or name that every machine of the cluster knows.
        weights: Its HDF5 file, if it has one elsewhere.
        precision: "exact" or "fast".
        device: "cpu", "cuda", or "auto": GPUs if the cluster has any.
        n_workers: Actors, each with a model. Default: one per GPU, or one per two CPU cores.
        address: The cluster, as for `ray.init`. Default: one on this machine, for this run.
    """

    model: str | None = None
    weights: str | None = None
    precision: str = "exact"
    device: str = "auto"
    n_workers: int | None = None
    address: str | None = None

    @contextmanager
    def executor(self, settings: EmbedSettings) -> Iterator[RayExecutor]:
        """Join the cluster, and leave it in the end."""
        ray = _ray()
        joined = not ray.is_initialized()
        if joined:
            own: dict[str, Any] = {"object_store_memory": _STORE_BYTES, "include_dashboard": False}
            try:
                ray.init(self.address, log_to_driver=False, **({} if self.address else own))
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise ConfigError(f"No Ray cluster at '{self.address}': {error}") from error
        try:
            yield RayExecutor(self, settings)
        finally:
            if joined:
                ray.shutdown()


class RayExecutor:
    """The cluster with its actors; see `Executor`."""

    def __init__(self, cluster: RayCluster, settings: EmbedSettings) -> None:
        ray = _ray()
        there = ray.cluster_resources()
        n_gpus, n_cpus = int(there.get("GPU", 0)), int(there.get("CPU", 1))
        if is_onnx(cluster.model):
            check_device(cluster.device)
            n_gpus = 0
        on_gpu = cluster.device.startswith("cuda") or (cluster.device == "auto" and n_gpus > 0)
        if on_gpu and not n_gpus:
            raise ConfigError("The Ray cluster has no GPU. Use --device cpu, or auto.")
        n = cluster.n_workers or (n_gpus if on_gpu else max(1, n_cpus // 2))
        # No more threads than the smallest machine has cores, and half a core left for the driver.
        cores = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
        threads = max(1, min(n_cpus // n, min((int(c) for c in cores if c >= 1), default=1)))
        needs = {"num_gpus": 1 if n <= n_gpus else n_gpus / n} if on_gpu else {}
        workers = Workers(
            ("cuda" if on_gpu else "cpu",), cluster.model, cluster.weights, cluster.precision
        )
        actor = ray.remote(num_cpus=threads - 0.5, max_restarts=-1, max_task_retries=-1, **needs)(
            _Actor
        )
        first = actor.remote(workers, threads)
        with _our_errors():
            self.info: ModelInfo = ray.get(first.describe.remote(settings))
        self._actors = [first, *(actor.remote(workers, threads) for _ in range(n - 1))]
        self.in_order = False
        self.parallel = dict.fromkeys(STAGES, n) | {"read": 1}

    def run(self, job: ChunkJob, chunks: Iterable[Chunk], n_chunks: int | None) -> Dones:
        """Do a job with chunks; see `Executor`."""
        ray = _ray()
        idle = list(self._actors)
        running: dict[Any, Any] = {}
        source = iter(chunks)
        failure: ElmoError | None = None
        while True:
            try:
                while idle and failure is None and (chunk := next(source, None)) is not None:
                    actor = idle.pop()
                    running[actor.run.remote(job, chunk)] = actor
            except ElmoError as error:
                failure = error
            if not running:
                break
            [reference], _ = ray.wait(list(running))
            idle.append(running.pop(reference))
            try:
                with _our_errors():
                    done: Done = ray.get(reference)
            except ElmoError as error:
                failure = failure or error
            else:
                yield done
        if failure is not None:
            raise failure


class _Actor:
    """One model, and a chunk at a time."""

    def __init__(self, workers: Workers, threads: int) -> None:
        use_threads(threads, workers.model)
        self._workers = workers
        self._model: Any = None

    def describe(self, settings: EmbedSettings) -> ModelInfo:
        """Load the model."""
        self._model = self._model or self._workers.load(self._workers.devices[0])
        return describe(self._model, settings)

    def run(self, job: ChunkJob, chunk: Chunk) -> Done:
        """Do a job with a chunk."""
        self._model = self._model or self._workers.load(self._workers.devices[0])
        return job.run(self._model, chunk)


@contextmanager
def _our_errors() -> Iterator[None]:
    """Raise errors of ours as they are; say what to do when Ray itself has failed."""
    try:
        yield
    except Exception as error:
        cause = getattr(error, "cause", error)
        if isinstance(cause, ElmoError):
            raise cause from None
        raise ElmoError(
            f"The work on the Ray cluster has failed: {error}. Finished chunks are kept; continue "
            "with --resume."
        ) from error


def _ray() -> Any:
    with optional_imports("ray", "--engine ray"):
        import ray
    return ray
