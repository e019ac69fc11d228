"""Training in two processes with gloo, compared with one process and the same rows."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from elmokit.data.corpus import Corpus
from elmokit.data.streams import Streams
from elmokit.errors import ConfigError, ElmoError
from elmokit.settings import with_settings
from elmokit.train import checkpoint
from elmokit.train.__main__ import arguments
from elmokit.train.batches import make_batch, needed_columns
from elmokit.train.config import RunConfig, run_preset
from elmokit.train.distributed import SINGLE_PROCESS, Group
from elmokit.train.loop import train
from tests.process_utils import HANG_SECONDS, Child, Pause, start
from tests.train.conftest import SETTINGS
from tests.train.test_loop import losses

# Adagrad: Adam divides by the size of the gradient, which amplifies differences in the order of
# summation where that is close to zero.
EXACT = [*SETTINGS, "step.dropout=0", "optimizer.kind=adagrad", "optimizer.learning_rate=0.2"]
EXACT += ["optimizer.clip=0.3"]  # below the usual norm
# Triton's interpreter takes seconds per step for any other size.
TINY = [*EXACT, "step.rows=2", "step.steps=2", "lstm.dim=12", "lstm.projection_dim=8"]
TINY += ["char_cnn.filters=[[1,4],[2,6],[3,6]]", "char_cnn.n_highway=1"]
STEPS = 14
# Called by all ranks, which then wait for each other.
SAVE = "elmokit.train.checkpoint.save"


def config_of(settings: list[str], **changes: Any) -> RunConfig:
    config = with_settings(run_preset("toy"), settings)
    values = {"log_every": 1, "evaluate_every": 0, "checkpoint_every": 1, "max_steps": STEPS}
    return dataclasses.replace(config, **{**values, **changes})


def command(corpus: Corpus, run: Path, settings: list[str], *more: str) -> list[str]:
    """Return the settings of config_of as arguments."""
    words = [str(corpus.path), "-o", str(run), "--max-steps", str(STEPS)]
    for setting in ("log_every=1", "evaluate_every=0", "checkpoint_every=1", *settings):
        words += ["--set", setting]
    return [*words, "--device", "cpu", *more]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


def run_rank(rank: int, world: int, port: int, words: list[str]) -> None:
    """Run one of torchrun's processes, without its agent, which ends all when one exits."""
    own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_PORT": port}
    os.environ |= {name: str(value) for name, value in own.items()}
    os.environ["MASTER_ADDR"] = "localhost"
    sys.argv = ["elmokit.train", *words]
    runpy.run_module("elmokit.train", run_name="__main__", alter_sys=True)


@contextmanager
def ranks(world: int, words: list[str], pause: Pause | None = None) -> Iterator[list[Child]]:
    """Start ranks; the last one pauses."""
    port = free_port()
    with ExitStack() as stack:
        started = []
        for rank in range(world):
            point = pause if rank == world - 1 else None
            child = start(run_rank, rank, world, port, words, pause=point)
            started.append(stack.enter_context(child))
        yield started


def run_ranks(world: int, words: list[str]) -> None:
    with ranks(world, words) as started:
        for rank in started:
            assert rank.wait() == 0, rank.stderr


def largest_difference(a: Path, b: Path) -> float:
    first, second = losses(a), losses(b)
    assert [step for step, *_ in first] == [step for step, *_ in second] != []
    return float(np.abs(np.array(first) - np.array(second)).max())


def weights_differ_by(a: Path, b: Path) -> float:
    largest = 0.0
    for name in ("model.safetensors", "head.safetensors"):
        first, second = (load_file(run / "model" / name) for run in (a, b))
        assert first.keys() == second.keys()
        largest = max([largest, *(float((first[k] - second[k]).abs().max()) for k in first)])
    return largest


def shapes(run: Path) -> dict[str, tuple[int, ...]]:
    newest = checkpoint.newest(run)
    assert newest is not None
    return {
        f"{name}/{key}": tuple(tensor.shape)
        for name in (checkpoint.WEIGHTS, checkpoint.OPTIMIZER, checkpoint.STATE)
        for key, tensor in load_file(newest / name).items()
    }


@pytest.fixture(scope="session")
def whole(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Do a run in one process."""
    run = tmp_path_factory.mktemp("whole") / "run"
    train(config_of(EXACT), corpus, run)
    return run


@pytest.mark.slow
@pytest.mark.ci
def test_two_ranks_of_torchrun_equal_one_process(corpus: Corpus, whole: Path, out: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    launcher += ["--nproc_per_node=2", "-m", "elmokit.train"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launcher, *command(corpus, out, EXACT, "--json")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)  # only rank 0 prints
    assert summary["steps"] == STEPS
    assert done.stderr.count(f"step {STEPS}/{STEPS}") == 1
    assert largest_difference(whole, out) < 1e-6
    assert weights_differ_by(whole, out) < 1e-5
    assert shapes(whole) == shapes(out)


@pytest.mark.slow
@pytest.mark.ci
def test_run_of_two_killed_ranks_resumes_in_one_process(
    corpus: Corpus, whole: Path, out: Path
) -> None:
    with ranks(2, command(corpus, out, EXACT), Pause(SAVE, call=4)) as (first, second):
        second.wait_for_pause()
        second.kill()
        assert first.wait() == 1
        assert "Rank 0 lost the connection to another rank" in first.stderr
    newest = checkpoint.newest(out)
    assert newest is not None
    assert int(newest.name[5:]) == 3
    train(config_of(EXACT), corpus, out, resume=True)
    assert largest_difference(whole, out) < 1e-6
    assert weights_differ_by(whole, out) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("before", [1, pytest.param(2, marks=pytest.mark.ci)])
def test_signal_to_any_rank_stops_all_and_any_number_can_resume(
    corpus: Corpus, whole: Path, out: Path, before: int
) -> None:
    stop_ranks(before, command(corpus, out, EXACT), signal.SIGTERM)
    newest = checkpoint.newest(out)
    assert newest is not None
    assert int(newest.name[5:]) == len(losses(out)) == 3
    run_ranks(2, command(corpus, out, EXACT, "--resume"))
    assert largest_difference(whole, out) < 1e-6
    assert weights_differ_by(whole, out) < 1e-5


def stop_ranks(world: int, words: list[str], number: signal.Signals) -> None:
    """Send a signal to the last rank while it saves its third step, which must stop all ranks."""
    with ranks(world, words, Pause(SAVE, call=3)) as started:
        started[-1].wait_for_pause()
        started[-1].send_signal(number)
        started[-1].resume()
        assert [rank.wait() for rank in started] == [130] * world
        assert "--resume" in started[0].stderr


@pytest.mark.slow
def test_same_number_of_ranks_resumes_bit_identically_with_dropout(
    corpus: Corpus, tmp_path: Path
) -> None:
    cut = tmp_path / "cut"
    stop_ranks(2, command(corpus, cut, SETTINGS), signal.SIGINT)
    run_ranks(2, command(corpus, cut, SETTINGS, "--resume"))
    run_ranks(2, command(corpus, tmp_path / "whole", SETTINGS))
    assert losses(tmp_path / "whole") == losses(tmp_path / "cut")
    assert weights_differ_by(tmp_path / "whole", tmp_path / "cut") == 0.0


@pytest.mark.slow
def test_evaluation_and_early_stopping_are_shared_by_all_ranks(corpus: Corpus, out: Path) -> None:
    stuck = [*EXACT, "optimizer.learning_rate=1e-30", "patience=2", "evaluate_every=1"]
    run_ranks(2, command(corpus, out, stuck))
    assert len(losses(out)) == 3  # the first one is the best, two more are worse


# -------------------------------------------------------------------------------- the training step


def run_steps(kind: str, corpus: Corpus, group: Group) -> tuple[Any, list[list[float]]]:
    """Do steps with the rows of this rank; the fast step in float32 in Triton's interpreter."""
    config = config_of(TINY if kind == "fast" else EXACT)
    from elmokit.train import loop, step

    made = loop.make_step(config, corpus.chars, corpus.n_words, torch.device("cpu"), group=group)
    if kind == "fast":
        from elmokit.train.fast import FastStep

        parts = (made.bilm, made.head, corpus.chars, made.config, config.optimizer)
        made = FastStep(*parts, dtype=torch.float32, group=group)
    assert isinstance(made, step.PlainStep) == (kind == "plain")
    share = group.local_rows(config.step.rows)
    size = {"rows": config.step.rows, "steps": config.step.steps, "restart": 0.3}
    streams = Streams(corpus.tokens(), corpus.documents(), local_rows=share, **size)  # type: ignore[arg-type]
    columns = needed_columns(corpus.chars, 3)
    found = []
    for number in range(3 if kind == "fast" else 12):
        result = made(make_batch(next(streams), columns, corpus.n_words), number, 0.1)
        found.append([float(x) for x in dataclasses.astuple(result)])
    return made, found


def checksum(made: Any) -> str:
    digest = hashlib.sha256()
    for tensor in [*made.bilm.parameters(), *made.head.parameters(), *made.moments().values()]:
        digest.update(tensor.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()


def rank_of_steps(rank: int, world: int, port: int, kind: str, data: str, out: str) -> None:
    address = f"tcp://localhost:{port}"
    dist.init_process_group("gloo", address, rank=rank, world_size=world)
    group = Group(rank, world)
    made, found = run_steps(kind, Corpus.open(Path(data)), group)
    state = [group.gather(part, dim=2).tolist() for part in made.state]
    values = {"found": found, "checksum": checksum(made), "state": state}
    group.check_identical("weights", made.bilm.parameters())
    with torch.no_grad():
        made.head.bias[0] += rank
    try:
        group.check_identical("weights", made.head.parameters())
    except ElmoError as error:
        values["error"] = str(error)
    (Path(out) / f"{rank}.json").write_text(json.dumps(values))
    dist.destroy_process_group()


@pytest.mark.parametrize("kind", ["plain", pytest.param("fast", marks=pytest.mark.slow)])
def test_ranks_have_bit_identical_weights(corpus: Corpus, tmp_path: Path, kind: str) -> None:
    if kind == "fast":
        pytest.importorskip("triton", reason="the fast kernels need Triton (Linux)")
    alone, expected = run_steps(kind, corpus, SINGLE_PROCESS)
    given = (2, free_port(), kind, str(corpus.path), str(tmp_path))
    with start(rank_of_steps, 0, *given) as one, start(rank_of_steps, 1, *given) as other:
        for child in (one, other):
            assert child.wait() == 0, child.stderr
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert first["checksum"] == second["checksum"]
    assert first["found"] == second["found"]
    np.testing.assert_allclose(first["found"], expected, atol=1e-6)
    for part, whole in zip(first["state"], alone.state, strict=True):
        np.testing.assert_allclose(part, whole, atol=1e-5)
    assert "weights of rank 1 differ from those of rank 0" in second["error"]


# -------------------------------------------------------------------------------- without processes


def test_number_of_rows_must_be_divisible_by_the_processes() -> None:
    assert [list(Group(rank, 2).local_rows(6)) for rank in (0, 1)] == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(ConfigError, match=r"5 rows .* 2 processes.* for example 6"):
        Group(1, 2).local_rows(5)


def test_only_rank_0_prints() -> None:
    given = ["data", "-o", "run", "--json"]
    assert arguments(given, 0) == ["train", *given]
    assert arguments(given, 1) == ["train", "--quiet", "data", "-o", "run"]


def test_one_process_is_a_group_of_one() -> None:
    tensor = torch.ones(2, 3)
    assert SINGLE_PROCESS.gather(tensor, 0) is tensor
    assert torch.equal(SINGLE_PROCESS.local_slice(tensor, 1), tensor)
    assert SINGLE_PROCESS.any(True)
    assert not SINGLE_PROCESS.any(False)
    assert SINGLE_PROCESS.broadcast({"a": 1}) == {"a": 1}
