"""Several processes: the same bytes as one process, even if processes die.

Processes of a pool take seconds to start: tests that start one are marked slow.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from multiprocessing import active_children
from multiprocessing.connection import wait
from pathlib import Path

import pytest

from elmokit.bulk import run as module
from elmokit.bulk.executors import (
    Executor,
    InProcessExecutor,
    Workers,
    make_executor,
)
from elmokit.bulk.output import count_finished_sentences
from elmokit.bulk.run import embed_corpus
from elmokit.bulk.settings import EmbedSettings
from elmokit.embed.model import ElmoModel
from elmokit.errors import ConfigError, DataError, ElmoError, WeightsError
from elmokit.progress import Progress
from tests.bulk.runs import Stopped, names, stop_after, work_path
from tests.bulk.test_folder import assert_same_files
from tests.bulk.test_kill import command, write_text
from tests.process_utils import HANG_SECONDS, Pause, start
from tests.process_utils import elmo as run_elmo

psutil = pytest.importorskip("psutil")

SETTINGS = EmbedSettings(chunk_bytes=200)
CHUNK_DONE = "elmokit.bulk.run.Run._add"


@pytest.fixture(scope="module")
def pool(model: Path) -> Iterator[Executor]:
    """Share three workers between tests, because starting them takes seconds."""
    with make_executor(Workers(str(model), device="cpu", n_workers=3), SETTINGS) as pool:
        yield pool


@pytest.fixture
def pool_is_used(pool: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `embed_corpus` use these workers."""
    monkeypatch.setattr(module, "make_executor", lambda *_: nullcontext(pool))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return write_text(tmp_path / "text.txt", 60)


# --------------------------------------------------------------------------------------- same bytes


@pytest.mark.parametrize("output", ["v.h5", "v.npz", "v.safetensors", "v.parquet", "folder"])
def test_three_workers_give_the_same_bytes_as_one_process(
    pool: Executor,
    elmo: ElmoModel,
    text: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    output: str,
) -> None:
    (folder / "one").mkdir()
    embed_corpus(elmo, [text], whole := folder / "one" / output, SETTINGS)
    monkeypatch.setattr(module, "make_executor", lambda *_: nullcontext(pool))
    reports: list[Progress] = []
    out = folder / output
    summary = embed_corpus(Workers(), [text], out, SETTINGS, on_progress=reports.append)
    assert summary.sentences == 60
    assert len(reports) > 5
    assert reports[-1].n_bytes == reports[-1].total_bytes == text.stat().st_size
    assert [p.n_bytes for p in reports] == sorted(p.n_bytes for p in reports)
    if output == "folder":
        assert_same_files(whole, out)
    else:
        assert out.read_bytes() == whole.read_bytes()


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("state", ["reset", "carry"])
def test_pool_that_tokenizes_and_several_writers_give_the_same_bytes(
    elmo: ElmoModel, text: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """The configuration for a GPU, here on a CPU."""
    settings = EmbedSettings(chunk_bytes=200, state=state)  # type: ignore[arg-type]
    embed_corpus(elmo, [text], whole := folder / "whole.h5", settings)
    executor = InProcessExecutor(elmo, settings)
    executor._tokenizers, executor._writers = 2, 3
    monkeypatch.setattr(module, "make_executor", lambda *_: nullcontext(executor))
    summary = embed_corpus(elmo, [text], out := folder / "v.h5", settings)
    assert out.read_bytes() == whole.read_bytes()
    assert executor.parallel["tokenize"] == 2
    assert summary.stages.keys() == {"read", "tokenize", "compute", "write", "assemble"}
    bad = text.with_name("bad.txt")
    bad.write_bytes(text.read_bytes() + b"\xff\n")
    with pytest.raises(DataError, match=r"bad\.txt, line 61"):
        embed_corpus(elmo, [bad], folder / "bad.h5", settings)
    assert 50 < count_finished_sentences(folder / "bad.h5") <= 60


# ------------------------------------------------------------------------------------- resuming


@pytest.mark.slow
@pytest.mark.ci
def test_run_resumes_with_any_number_of_workers(
    pool: Executor,
    elmo: ElmoModel,
    text: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    embed_corpus(elmo, [text], whole := folder / "whole.h5", SETTINGS)
    out = folder / "v.h5"
    with pytest.raises(Stopped):
        embed_corpus(elmo, [text], out, SETTINGS, on_progress=stop_after(2))
    with monkeypatch.context() as patch:
        patch.setattr(module, "make_executor", lambda *_: nullcontext(pool))
        with pytest.raises(Stopped):
            embed_corpus(Workers(), [text], out, SETTINGS, resume=True, on_progress=stop_after(2))
    assert embed_corpus(elmo, [text], out, SETTINGS, resume=True).resumed_sentences > 0
    assert out.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("gap", [(0,), (1,), (1, 3), (0, 1, 2)])
@pytest.mark.parametrize("state", ["reset", "carry"])
def test_gaps_are_filled_without_recomputing_other_chunks(
    elmo: ElmoModel,
    text: Path,
    folder: Path,
    gap: tuple[int, ...],
    state: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = EmbedSettings(chunk_bytes=200, state=state)  # type: ignore[arg-type]
    embed_corpus(elmo, [text], whole := folder / "whole.npz", settings)
    out = folder / "v.npz"
    stop_before_assembly(elmo, text, out, settings, monkeypatch)
    for number in gap:
        (work_path(out) / f"{number:06d}.safetensors").unlink()
    kept = {path: path.stat().st_mtime_ns for path in work_path(out).glob("0*")}
    with monkeypatch.context() as patch:
        patch.setattr("elmokit.bulk.run.Run._description", stop_after(0))
        with pytest.raises(Stopped):
            embed_corpus(elmo, [text], out, settings, resume=True)
    assert kept == {path: path.stat().st_mtime_ns for path in kept}
    embed_corpus(elmo, [text], out, settings, resume=True)
    assert out.read_bytes() == whole.read_bytes()


def stop_before_assembly(
    elmo: ElmoModel,
    text: Path,
    out: Path,
    settings: EmbedSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("elmokit.bulk.run.Run._description", stop_after(0))
        with pytest.raises(Stopped):
            embed_corpus(elmo, [text], out, settings)


def test_text_that_changed_after_a_gap_is_rejected(
    elmo: ElmoModel, text: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = folder / "v.npz"
    stop_before_assembly(elmo, text, out, SETTINGS, monkeypatch)
    (work_path(out) / "000001.safetensors").unlink()
    before = text.read_text()
    lines = before.splitlines(keepends=True)
    text.write_text("".join([*lines[:-1], "other\n"]))
    with pytest.raises(DataError, match="differs from the text of the interrupted run"):
        embed_corpus(elmo, [text], out, SETTINGS, resume=True)
    text.write_text("".join(lines[:20]))
    with pytest.raises(DataError, match=r"ends before chunk|differs from the text"):
        embed_corpus(elmo, [text], out, SETTINGS, resume=True)
    text.write_text(before)
    embed_corpus(elmo, [text], out, SETTINGS, resume=True)
    embed_corpus(elmo, [text], whole := folder / "whole.npz", SETTINGS)
    assert out.read_bytes() == whole.read_bytes()


def test_run_interrupted_before_assembly_resumes_despite_trailing_empty_lines(
    elmo: ElmoModel, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (text := tmp_path / "paragraphs.txt").write_text("One here. Two here.\n\n\n")
    settings = EmbedSettings(split=True)
    stop_before_assembly(elmo, text, folder / "v.npz", settings, monkeypatch)
    summary = embed_corpus(elmo, [text], folder / "v.npz", settings, resume=True)
    assert (summary.sentences, summary.resumed_sentences) == (2, 2)


# --------------------------------------------------------------------------------------- errors


@pytest.mark.usefixtures("pool_is_used")
def test_carried_state_needs_one_process(text: Path, folder: Path) -> None:
    with pytest.raises(ConfigError, match="requires a single process"):
        embed_corpus(Workers(), [text], folder / "v.npz", EmbedSettings(state="carry"))
    assert names(folder) == []


@pytest.mark.slow
@pytest.mark.ci
def test_errors_of_workers_equal_those_of_one_process(
    text: Path, folder: Path, model: Path
) -> None:
    with pytest.raises(WeightsError, match="nowhere"):
        embed_corpus(Workers("nowhere", n_workers=2), [text], folder / "v.npz", SETTINGS)
    warm = EmbedSettings(state="warm")
    with pytest.raises(ConfigError, match="elmo warm"):
        embed_corpus(Workers(str(model), n_workers=2), [text], folder / "v.npz", warm)
    assert names(folder) == []


def test_killed_worker_ends_the_run_and_finished_chunks_are_kept(
    elmo: ElmoModel, model: Path, text: Path, folder: Path
) -> None:
    embed_corpus(elmo, [text], whole := folder / "whole.npz", SETTINGS)
    out = folder / "v.npz"
    others = active_children()  # of the pool above
    killed: list[int | None] = []

    def kill_one(progress: Progress) -> None:
        if progress.tokens and not killed:
            victim = next(process for process in active_children() if process not in others)
            killed.append(victim.pid)
            victim.kill()
            # Dying takes time, in which the other worker could finish the remaining work.
            assert wait([victim.sentinel], timeout=HANG_SECONDS)

    workers = Workers(str(model), n_workers=2)
    with pytest.raises(ElmoError, match=r"A worker process died.* --resume"):
        embed_corpus(workers, [text], out, SETTINGS, on_progress=kill_one)
    assert killed
    assert [process for process in active_children() if process not in others] == []
    assert (
        count_finished_sentences(out) > 0
    )  # and the incomplete file of the worker, which is ignored
    assert embed_corpus(elmo, [text], out, SETTINGS, resume=True).resumed_sentences > 0
    assert not work_path(out).exists()
    assert out.read_bytes() == whole.read_bytes()


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_workers_exit_with_the_command(
    elmo: ElmoModel, model: Path, tmp_path: Path, folder: Path, number: signal.Signals
) -> None:
    text = write_text(tmp_path / "long.txt", 60)
    arguments = [*command(model, text, folder / "v.npz", 200), "--workers", 2, "--device", "cpu"]
    work = work_path(folder / "v.npz")
    with start(run_elmo, *arguments, pause=Pause(CHUNK_DONE, call=3)) as child:
        child.wait_for_pause()
        children = psutil.Process(child.pid).children(recursive=True)
        assert len(children) >= 2
        if number is signal.SIGINT:
            os.killpg(child.pid, number)  # as a terminal does: to the workers, too
        else:
            child.send_signal(number)
        if number is signal.SIGINT:
            child.resume()
        code, errors = child.wait(), child.stderr
    gone, alive = psutil.wait_procs(children, timeout=HANG_SECONDS)
    assert gone
    assert not alive
    if number is signal.SIGINT:
        assert code == 130, errors
        assert "--resume" in errors
        assert "Traceback" not in errors
    kept = {path: path.stat().st_mtime_ns for path in work.glob("0*.safetensors")}
    assert len(kept) >= 3
    assert embed_corpus(elmo, [text], folder / "v.npz", SETTINGS, resume=True).resumed_sentences
    embed_corpus(elmo, [text], folder / "whole.npz", SETTINGS)
    assert (folder / "v.npz").read_bytes() == (folder / "whole.npz").read_bytes()
    assert names(folder) == ["v.npz", "whole.npz"]


# -------------------------------------------------------------------------------------- devices


def test_all_workers_use_the_selected_device() -> None:
    assert Workers(device="cpu", n_workers=3).devices() == ["cpu"] * 3
    assert len(Workers().devices()) == 1


def test_workers_are_distributed_over_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert Workers(n_workers=3).devices() == ["cuda:0", "cuda:1", "cuda:0"]


@pytest.mark.slow
@pytest.mark.ci
def test_script_without_a_main_guard_can_use_workers(model: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("I read it .\nThey do not .\n")
    script = tmp_path / "script.py"
    script.write_text(
        "from elmokit.bulk.executors import Workers\n"
        "from elmokit.bulk.run import embed_corpus\n"
        f"workers = Workers({str(model)!r}, n_workers=2)\n"
        "print(embed_corpus(workers, ['text.txt'], 'vectors.npz').tokens)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "8\n", done.stderr
