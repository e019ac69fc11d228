"""A local Ray cluster: workers and drivers are killed, and the files equal those of one process."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import elmokit
from elmokit.bulk.ray_engine import RayCluster
from elmokit.bulk.run import embed_corpus
from elmokit.bulk.settings import EmbedSettings
from elmokit.embed.model import ElmoModel
from elmokit.errors import ConfigError, DataError
from elmokit.progress import Progress
from elmokit.sources.modeldir import ModelParts
from tests.bulk.runs import names
from tests.bulk.test_folder import assert_same_files
from tests.bulk.test_kill import write_text
from tests.conftest import TINY, random_bilm
from tests.process_utils import HANG_SECONDS, Pause, elmo, start

psutil = pytest.importorskip("psutil")
ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="the extra 'ray' is not installed")
pa = pytest.importorskip("pyarrow")
pytestmark = [pytest.mark.slow, pytest.mark.ci]

OPTIONS: dict[str, Any] = {"settings": EmbedSettings(chunk_bytes=1000)}
# The process name that Ray gives to our actors.
ACTOR = "ModelWorker"
# Called in the driver for each shard.
RECEIVED = "elmokit.bulk.run.Run._add"


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init(num_cpus=2, object_store_memory=200 * 2**20, include_dashboard=False)
    yield
    ray.shutdown()


@pytest.fixture
def documents(tmp_path: Path) -> list[Path]:
    text = write_text(tmp_path / "a.txt", 300)
    lines = text.read_text().splitlines()[:100]
    pq.write_table(pa.table({"text": lines}), tmp_path / "b.parquet")
    return [text, tmp_path / "b.parquet"]


@pytest.fixture
def whole(documents: list[Path], tmp_path: Path) -> Path:
    """Write the files with one process."""
    elmo = ElmoModel(ModelParts(random_bilm(TINY)), device="cpu")
    embed_corpus(elmo, documents, tmp_path / "whole", **OPTIONS)
    return tmp_path / "whole"


def actors(driver: int | None = None) -> list[psutil.Process]:
    children = psutil.Process(driver).children(recursive=True)
    return [p for p in children if ACTOR in " ".join(p.cmdline())]


def test_onnx_model_gives_the_files_of_one_process(
    cluster: None, documents: list[Path], tmp_path: Path
) -> None:
    pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")
    from elmokit.embed.onnx_export import export

    export(ModelParts(random_bilm(TINY)), tmp_path / "onnx")
    name = str(tmp_path / "onnx")
    embed_corpus(elmokit.load(name), documents, tmp_path / "whole", **OPTIONS)
    embed_corpus(RayCluster(name, n_workers=2), documents, tmp_path / "out", **OPTIONS)
    assert_same_files(tmp_path / "whole", tmp_path / "out")
    with pytest.raises(ConfigError, match="Invalid device 'cuda' for an ONNX model"):
        embed_corpus(RayCluster(name, device="cuda"), documents, tmp_path / "no", **OPTIONS)
    with elmokit.open_vectors(tmp_path / "out") as stored:
        assert len(stored) == 400


def test_killed_worker_causes_no_lost_or_duplicate_rows(
    cluster: None, model: Path, documents: list[Path], whole: Path, tmp_path: Path
) -> None:
    killed: list[int] = []
    reports: list[Progress] = []

    def kill_one(progress: Progress) -> None:
        reports.append(progress)
        if len(reports) > 3 and not killed:
            victims = actors()
            assert victims
            killed.append(victims[0].pid)
            victims[0].send_signal(signal.SIGKILL)

    summary = embed_corpus(
        RayCluster(str(model), device="cpu", n_workers=2),
        documents,
        tmp_path / "out",
        **OPTIONS,
        on_progress=kill_one,
    )
    assert killed
    assert not psutil.pid_exists(killed[0])
    assert_same_files(whole, tmp_path / "out")
    assert len(reports) == len(names(whole)) - 1
    rows = sum(pq.read_metadata(p).num_rows for p in (tmp_path / "out").glob("*.parquet"))
    assert rows == summary.tokens == reports[-1].tokens
    assert len(names(whole)) > 20


def test_killed_driver_can_be_restarted_and_resumes(
    cluster: None, model: Path, documents: list[Path], whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    arguments = ["embed", *documents, "-o", out, "--model", model, "--engine", "ray"]
    arguments += ["--workers", 2, "--device", "cpu", "--chunk-bytes", 1000]
    with start(elmo, *arguments, pause=Pause(RECEIVED, call=5)) as driver:
        driver.wait_for_pause()
        helpers = psutil.Process(driver.pid).children(recursive=True)
        at_work = actors(driver.pid)
        driver.kill()
    assert at_work  # on a busy machine, the second actor may not have started yet
    _, alive = psutil.wait_procs(at_work, timeout=HANG_SECONDS)
    assert not alive
    for left in psutil.wait_procs(helpers, timeout=1)[1]:  # Ray agents that survive for minutes
        left.kill()
    # The actors may have written all shards while the driver was paused: leave some work.
    max(out.glob("*.parquet")).unlink()
    kept = {path: path.stat().st_mtime_ns for path in out.glob("*.parquet")}
    assert len(kept) >= 3
    assert not (out / "shards.json").exists()
    again = RayCluster(str(model), device="cpu", n_workers=2)
    summary = embed_corpus(again, documents, out, **OPTIONS, resume=True)
    assert summary.resumed_sentences > 0
    assert kept == {path: path.stat().st_mtime_ns for path in kept}
    assert_same_files(whole, out)


def test_errors_of_workers_are_not_wrapped_by_ray(
    cluster: None, model: Path, documents: list[Path], tmp_path: Path
) -> None:
    documents[0].write_bytes(b"fine\n\xff\n")
    on_cpu = RayCluster(str(model), device="cpu", n_workers=1)
    with pytest.raises(DataError, match=r"^\S*a\.txt, line 2: byte 1"):
        embed_corpus(on_cpu, documents, tmp_path / "out", **OPTIONS)
    with pytest.raises(ConfigError, match="elmo warm"):
        embed_corpus(on_cpu, documents[1:], tmp_path / "warm", EmbedSettings(state="warm"))
    with pytest.raises(ConfigError, match="has no GPU"):
        embed_corpus(RayCluster(str(model), device="cuda"), documents, tmp_path / "gpu")
    assert not (tmp_path / "out").exists()
