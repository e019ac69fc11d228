"""Shards by Ray Data: documents are read, cut and embedded on a cluster. Needs the extra `ray`.

    documents -> chunks (tasks, one per document) -> shards (actors, one model each) -> records

Ray Data streams: it reads on only as fast as the actors take chunks, starts an actor anew that has
died, and gives its chunk to another one. The vectors never travel: an actor writes its shard into
the folder, which all machines must see, and returns its record. The driver holds the records and
nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from elmokit.bulk.documents import Chunk
from elmokit.bulk.jobs import Describe, ModelFacts
from elmokit.bulk.settings import EmbedSettings
from elmokit.bulk.shard_folder import ShardFolder
from elmokit.bulk.shards import Record, ShardPlan, write_shard
from elmokit.embed.loading import is_onnx
from elmokit.embed.onnx_model import check_device
from elmokit.errors import ConfigError, DependencyError, ElmoError, optional_imports

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
        n_workers: Actors, each with a model; nothing: one per GPU, or one per two CPU cores.
        address: The cluster, as for `ray.init`; nothing: one on this machine, for this run.
    """

    model: str | None = None
    weights: str | None = None
    precision: str = "exact"
    device: str = "auto"
    n_workers: int | None = None
    address: str | None = None

    @contextmanager
    def at_work(self, settings: EmbedSettings) -> Iterator[RayHands]:
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
            yield RayHands(self, settings)
        finally:
            if joined:
                ray.shutdown()


class RayHands:
    """The cluster at work.

    Attributes:
        facts: The model, as a worker has loaded it.
    """

    def __init__(self, cluster: RayCluster, settings: EmbedSettings) -> None:
        ray = _ray()
        there = ray.cluster_resources()
        n_gpus, n_cpus = int(there.get("GPU", 0)), int(there.get("CPU", 1))
        self.cluster = cluster
        if is_onnx(cluster.model):
            check_device(cluster.device)
            n_gpus = 0
        self._on_gpu = cluster.device.startswith("cuda") or (cluster.device == "auto" and n_gpus)
        if self._on_gpu and not n_gpus:
            raise ConfigError("The Ray cluster has no GPU. Use --device cpu, or auto.")
        self.n_workers = cluster.n_workers or (n_gpus if self._on_gpu else max(1, n_cpus // 2))
        # No more than the smallest machine has, and half a core of it left for reading.
        cores = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
        most = min((int(n) for n in cores if n >= 1), default=1)
        self.threads = max(1, min(n_cpus // self.n_workers, most))
        self._needs = {"num_gpus": n_gpus / self.n_workers} if self._on_gpu else {}
        if self._on_gpu and self.n_workers <= n_gpus:
            self._needs = {"num_gpus": 1}
        with _our_errors():
            describe = ray.remote(num_cpus=1, **self._needs)(_describe)
            facts, failure = ray.get(describe.remote(self._loading, settings))
        _raise(failure)
        self.facts: ModelFacts = facts

    @property
    def _loading(self) -> tuple[Any, ...]:
        c = self.cluster
        device = "cuda" if self._on_gpu else "cpu"
        return (c.model, c.weights, device, c.precision, self.threads)

    def make(self, plan: ShardPlan) -> Iterator[Record]:
        """Make the shards that are missing; give their records as they are finished."""
        ray = _ray()
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        # A chunk is a block of its own, so that each can go to another actor.
        context.target_max_block_size = 1
        documents = [{"document": d} for d in range(len(plan.documents))]
        chunks = ray.data.from_items(documents, override_num_blocks=len(documents)).flat_map(
            _read_chunks, fn_args=(plan,), num_cpus=0.1
        )
        records = chunks.map_batches(
            _Embedder,
            fn_constructor_args=(self._loading, plan),
            batch_size=1,
            batch_format="numpy",
            compute=ray.data.ActorPoolStrategy(size=self.n_workers),
            num_cpus=self.threads - 0.5,
            **self._needs,
        )
        with _our_errors():
            for row in records.iter_rows():
                _raise(row["failure"])
                yield json.loads(row["record"])

    def close(self) -> None:
        """Do nothing: the work ends with its last record, or with this process."""


# ------------------------------------------------------------------------------- on the workers
# Errors of ours come back as data: Ray would try again what cannot be done, and wrap them up.


def _describe(loading: tuple[Any, ...], settings: EmbedSettings) -> tuple[ModelFacts | None, str]:
    try:
        return Describe(settings).run(_load(loading)), ""
    except ElmoError as error:
        return None, _failure(error)


def _read_chunks(row: dict[str, Any], plan: ShardPlan) -> Iterator[dict[str, str]]:
    """Read a document on a worker."""
    try:
        for chunk in plan.missing(int(row["document"])):
            yield {"chunk": json.dumps(vars(chunk)), "failure": ""}
    except ElmoError as error:
        yield {"chunk": "", "failure": _failure(error)}


class _Embedder:
    """An actor: one model, and a chunk at a time."""

    def __init__(self, loading: tuple[Any, ...], plan: ShardPlan) -> None:
        self.model = _load(loading)
        self.plan = plan
        self.folder = ShardFolder(plan.out)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        rows = [self._embed(*row) for row in zip(batch["chunk"], batch["failure"], strict=True)]
        return {"record": [record for record, _ in rows], "failure": [why for _, why in rows]}

    def _embed(self, text: str, failure: str) -> tuple[str, str]:
        if failure:
            return "", failure
        try:
            chunk = Chunk(**json.loads(text))
            record = write_shard(self.model, self.plan, chunk, self.folder)
        except ElmoError as error:
            return "", _failure(error)
        return json.dumps(record), ""


def _failure(error: ElmoError) -> str:
    return json.dumps([type(error).__name__, str(error)])


def _raise(failure: str) -> None:
    if failure:
        kind, message = json.loads(failure)
        known = {k.__name__: k for k in ElmoError.__subclasses__() if k is not DependencyError}
        raise known.get(kind, ElmoError)(message)


def _load(loading: tuple[Any, ...]) -> Any:
    from elmokit.embed.loading import load
    from elmokit.embed.threads import use_threads

    model, *how, threads = loading
    use_threads(threads, model)
    return load(model, *how)


@contextmanager
def _our_errors() -> Iterator[None]:
    """Say what to do when Ray itself has failed."""
    try:
        yield
    except ElmoError:
        raise
    except Exception as error:
        raise ElmoError(
            f"The work on the Ray cluster has failed: {error}. What was finished is kept; go on "
            "with --resume."
        ) from error


def _ray() -> Any:
    with optional_imports("ray", "--engine ray"):
        import ray
        import ray.data
    return ray
