"""The Ray executor: actors on a cluster, each with its own copy of the model.

The driver reads the text and sends each chunk to an idle actor. Vectors are never sent: the actor
writes the chunk to the output directory, which all machines must share, and returns the record of
the chunk. If an actor dies, Ray restarts it and retries its chunk. Requires the extra `ray`.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from elmokit.bulk.executors import ModelWorker, WorkerExecutor, Workers
from elmokit.bulk.input import Chunk
from elmokit.bulk.job import ChunkJob, FinishedChunk
from elmokit.bulk.settings import EmbedSettings
from elmokit.embed.loading import is_onnx
from elmokit.embed.onnx_model import check_device
from elmokit.errors import ConfigError, ElmoError, optional_imports, warn

# Small, because the object store contains only the text and the records of a few chunks.
_STORE_BYTES = 200 * 2**20


@dataclass(frozen=True)
class RayCluster(Workers):
    """Actors on a Ray cluster, each of which loads the model.

    Attributes:
        model: The name or path of the model, which must be valid on every machine of the cluster.
        weights: The HDF5 weights file, if it is not in the same directory as `options.json`.
        precision: "exact" or "fast".
        device: "cpu", "cuda" or "auto" (GPUs if the cluster has any).
        n_workers: Number of actors. Default: one per GPU or, on CPUs, one per two cores.
        address: The address of the cluster, as in `ray.init`. By default, a cluster is started on
            this machine for the duration of the run.
    """

    address: str | None = None

    @contextmanager
    def executor(self, settings: EmbedSettings) -> Iterator[WorkerExecutor]:
        """Connect to the cluster, and disconnect when the context exits."""
        with optional_imports("ray", "--engine ray"):
            import ray
        is_new_connection = not ray.is_initialized()
        if is_new_connection:
            options: dict[str, Any] = {
                "object_store_memory": _STORE_BYTES,
                "include_dashboard": False,
            }
            try:
                ray.init(self.address, log_to_driver=False, **({} if self.address else options))
            except (ConnectionError, ValueError, RuntimeError) as error:
                action = f"connect to Ray at '{self.address}'" if self.address else "start Ray"
                raise ConfigError(f"Cannot {action}: {error}") from error
        try:
            yield _start_actors(ray, self, settings)
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", error)
            if isinstance(cause, ElmoError):
                raise cause from None
            raise ElmoError(
                f"A Ray worker failed: {error}. Finished chunks are kept: repeat the command with "
                "--resume."
            ) from error
        finally:
            if is_new_connection:
                ray.shutdown()


def _start_actors(ray: Any, cluster: RayCluster, settings: EmbedSettings) -> WorkerExecutor:
    resources = ray.cluster_resources()
    n_gpus, n_cpus = int(resources.get("GPU", 0)), int(resources.get("CPU", 1))
    if is_onnx(cluster.model):
        check_device(cluster.device)
        n_gpus = 0
    on_gpu = cluster.device.startswith("cuda") or (cluster.device == "auto" and n_gpus > 0)
    if on_gpu and not n_gpus:
        raise ConfigError(
            f"Invalid device '{cluster.device}': the Ray cluster has no GPU. Use 'cpu' or 'auto'."
        )
    n = cluster.n_workers or (n_gpus if on_gpu else max(1, n_cpus // 2))
    # An actor uses at most as many threads as the smallest machine has cores. It reserves half a
    # core less, so that the driver also gets CPU time.
    cores = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
    threads = max(1, min(n_cpus // n, min((int(c) for c in cores if c >= 1), default=1)))
    actor = ray.remote(
        num_cpus=threads - 0.5,
        num_gpus=min(1, n_gpus / n) if on_gpu else 0,
        max_restarts=-1,
        max_task_retries=-1,
    )(ModelWorker)
    device = "cuda" if on_gpu else "cpu"
    workers = [actor.remote(cluster, device, threads)]
    info, messages = ray.get(workers[0].describe.remote(settings))
    for message in messages:
        warn(message, stacklevel=5)
    workers += [actor.remote(cluster, device, threads) for _ in range(n - 1)]
    idle: SimpleQueue[Any] = SimpleQueue()
    for worker in workers:
        idle.put(worker)

    def submit(job: ChunkJob, chunk: Chunk) -> Future[FinishedChunk]:
        worker = idle.get()
        future: Future[FinishedChunk] = worker.run.remote(job, chunk, info).future()
        future.add_done_callback(lambda _: idle.put(worker))
        return future

    return WorkerExecutor(info, n, submit)
