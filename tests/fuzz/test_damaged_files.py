"""Damaged files of all formats are either read or rejected with an `ElmoError`.

Each artifact is created by its own command, damaged by hypothesis, and used by the command that a
user would run, in a child process with 10 s and 1 GB. `ELMOKIT_FUZZ_EXAMPLES` sets the number of
cases per artifact; `ELMOKIT_FUZZ_SEED` selects other cases.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from elmokit.cli.main import app
from elmokit.sources.modeldir import save
from tests import process_utils
from tests.conftest import TINY_MODEL
from tests.convert.manylangs import tiny as manylangs
from tests.fuzz import sandbox
from tests.fuzz.mutations import Draw, mutate
from tests.sources.models import make_parts, write_hdf5
from tests.tasks.conftest import SMALL, write_columns
from tests.train.conftest import SETTINGS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the memory of a child is bounded on Linux"),
]

EXAMPLES = int(os.environ.get("ELMOKIT_FUZZ_EXAMPLES", "60"))
SEED = int(os.environ.get("ELMOKIT_FUZZ_SEED", "0"))
TF_CHECKPOINT = Path(__file__).parents[1] / "convert" / "tf_checkpoint"


def elmo(*arguments: object) -> None:
    """Run a command; end with SystemExit or an exception."""
    app([str(argument) for argument in arguments])


@dataclass(frozen=True)
class Artifact:
    """Something that a user may receive or that a run may leave.

    Attributes:
        build: Create it at `path`; `inputs` is a directory with text.txt, train.txt and dev.txt.
        use: What a user does with it; `out` does not exist yet.
    """

    build: Callable[[Path, Path], object]
    use: Callable[[Path, Path, Path], object]


def changes(names: list[str]) -> list[str]:
    return [part for name in names for part in ("--set", name)]


def embed_with(inputs: Path, path: Path, out: Path) -> None:
    elmo("embed", inputs / "text.txt", "-o", f"{out}.npz", "--model", path)


def read_vectors(inputs: Path, path: Path, out: Path) -> None:
    from elmokit import open_vectors

    with open_vectors(path) as vectors:
        for sentence in vectors:
            assert sentence is not None


def vectors() -> Artifact:
    def build(inputs: Path, path: Path) -> None:
        elmo("embed", inputs / "text.txt", "-o", path, "--model", TINY_MODEL)

    return Artifact(build, read_vectors)


def zipped(inputs: Path, path: Path) -> None:
    save(make_parts(full=True), path.with_name("folder"))
    shutil.make_archive(str(path.with_suffix("")), "zip", path.with_name("folder"))
    shutil.rmtree(path.with_name("folder"))


def train(inputs: Path, path: Path, *more: str) -> None:
    elmo(
        *("train", inputs / "corpus", "-o", path, "--preset", "toy", "--device", "cpu", "--quiet"),
        *changes([*SETTINGS, "checkpoint_every=2", "evaluate_every=0"]),
        *more,
    )


def train_task(inputs: Path, path: Path) -> None:
    elmo(
        *("task", "ner", "train", inputs / "train.txt", inputs / "dev.txt", "-o", path),
        *("--model", TINY_MODEL, "--device", "cpu", "--quiet"),
        *changes([*SMALL, "train.epochs=1"]),
    )


ARTIFACTS = {
    "model": Artifact(lambda inputs, path: save(make_parts(full=True), path), embed_with),
    "int8-model": Artifact(
        lambda inputs, path: elmo("convert", TINY_MODEL, path, "--storage", "int8"), embed_with
    ),
    "hdf5-model": Artifact(lambda inputs, path: write_hdf5(make_parts(), path), embed_with),
    "many-langs-model": Artifact(
        lambda inputs, path: manylangs.write(path, manylangs.SHAPE), embed_with
    ),
    "tensorflow-checkpoint": Artifact(
        lambda inputs, path: shutil.copytree(TF_CHECKPOINT, path), embed_with
    ),
    "onnx-model": Artifact(
        lambda inputs, path: elmo("convert", TINY_MODEL, path, "--to", "onnx"), embed_with
    ),
    "model.zip": Artifact(zipped, embed_with),
    "vectors.h5": vectors(),
    "vectors.npz": vectors(),
    "vectors.safetensors": vectors(),
    "vectors.parquet": vectors(),
    "shards": vectors(),
    "index": Artifact(
        lambda inputs, path: elmo("index", inputs / "text.txt", "-o", path, "--model", TINY_MODEL),
        lambda inputs, path, out: elmo(
            "neighbors", path, "--query", "the [cat] .", "--model", TINY_MODEL
        ),
    ),
    "corpus": Artifact(
        lambda inputs, path: elmo("prepare", inputs / "text.txt", "-o", path, "--workers", 1),
        lambda inputs, path, out: elmo(
            *("train", path, "-o", out, "--preset", "toy", "--device", "cpu", "--quiet"),
            *("--max-steps", 2, *changes(SETTINGS)),
        ),
    ),
    "training-run": Artifact(
        lambda inputs, path: train(inputs, path, "--max-steps", "5"),
        lambda inputs, path, out: train(inputs, path, "--max-steps", "7", "--resume"),
    ),
    "task-folder": Artifact(
        train_task,
        lambda inputs, path, out: elmo(
            "task", "ner", "evaluate", path, inputs / "dev.txt", "--device", "cpu"
        ),
    ),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    words = random.Random(0).choices("the a cat dog read saw book of on bank . ,".split(), k=600)
    lines = [" ".join(words[start : start + 10]) for start in range(0, len(words), 10)]
    (folder / "text.txt").write_text("\n".join(lines), "utf-8")
    write_columns(folder / "train.txt", 12, 1)
    write_columns(folder / "dev.txt", 6, 2)
    prepare = ("prepare", folder / "text.txt", "-o", folder / "corpus", "--workers", 1)
    in_new_process(elmo, *prepare)
    return folder


def in_new_process(function: Callable[..., object], *arguments: object) -> None:
    """Call a function in a process that has no threads yet, such as those of Lance.

    Children that are forked from a process with threads may wait forever.
    """
    result = process_utils.run(function, *arguments)
    assert result.exit_code == 0, result.stdout + result.stderr


def in_child(function: Callable[..., object], *arguments: object) -> None:
    """Call a function in a forked child, so that this process stays without threads."""
    context = multiprocessing.get_context("fork")
    child = context.Process(target=function, args=arguments)
    child.start()
    child.join()
    assert child.exitcode == 0


@pytest.mark.parametrize("name", ARTIFACTS)
def test_damaged_files_are_read_or_rejected(name: str, inputs: Path, tmp_path: Path) -> None:
    in_new_process(check_damaged_files, name, inputs, tmp_path)


def check_damaged_files(name: str, inputs: Path, tmp_path: Path) -> None:
    artifact = ARTIFACTS[name]
    whole = tmp_path / name
    in_child(artifact.build, inputs, whole)
    counts: Counter[int] = Counter()

    @seed(SEED)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def case(data: st.DataObject) -> None:
        with tempfile.TemporaryDirectory(dir=tmp_path) as scratch:
            path = Path(scratch) / name
            copy = shutil.copytree if whole.is_dir() else shutil.copy
            copy(whole, path)
            draw: Draw = data.draw
            damage = mutate(lambda strategy: draw(strategy), path)
            try:
                ending, _ = sandbox.run(lambda: artifact.use(inputs, path, Path(scratch) / "out"))
            except AssertionError as error:
                raise AssertionError(f"{damage}\n{error}") from None
            counts[ending] += 1

    case()
    # Some damage is harmless, but if all of it is, the test is ineffective.
    assert counts[sandbox.REFUSED], counts


def test_undamaged_files_can_be_used(inputs: Path, tmp_path: Path) -> None:
    in_new_process(check_undamaged_files, inputs, tmp_path)


def check_undamaged_files(inputs: Path, tmp_path: Path) -> None:
    for name, artifact in random.Random(SEED).sample(sorted(ARTIFACTS.items()), len(ARTIFACTS)):
        in_child(artifact.build, inputs, tmp_path / name)
        ending, output = sandbox.run(
            lambda name=name, artifact=artifact: artifact.use(  # type: ignore[misc]
                inputs, tmp_path / name, tmp_path / f"out-{name}"
            )
        )
        assert ending == sandbox.OK, f"{name}: {output}"
