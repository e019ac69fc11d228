"""precision="fast": selecting a kernel safely, caching the choice, rejecting inaccurate models."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import elmokit
from elmokit.config import BiLMConfig, CharCnnConfig, LstmConfig
from elmokit.embed import fast
from elmokit.embed.fast import FastChoice, fast_choice, fast_engine
from elmokit.embed.model import ElmoModel
from elmokit.errors import ConfigError, ElmoWarning
from elmokit.model.kernels.cpu_engine import TorchEngine
from elmokit.sources.modeldir import ModelParts
from tests.conftest import TINY, random_bilm

SHAPE = BiLMConfig(
    LstmConfig(dim=64, projection_dim=32), CharCnnConfig(filters=((1, 16), (3, 16)), n_highway=1)
)
TEXTS = ["I read the book yesterday.", "Don't!", "", "The children play in the garden ."]
INT8 = FastChoice("int8", {"exact": 2.0, "int8": 1.0}, {"native": "no compiler"})


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Use an empty cache directory, and clear what this process has cached."""
    monkeypatch.setenv("ELMOKIT_HOME", str(tmp_path / "home"))
    fast_choice.cache_clear()
    yield tmp_path / "home"
    fast_choice.cache_clear()


def choose(monkeypatch: pytest.MonkeyPatch, choice: FastChoice) -> None:
    monkeypatch.setattr(fast, "probe_fast", lambda: choice)


# ----------------------------------------------------------------------------------- user interface


# On a busy machine, possibly nothing is faster, which gives a warning.
@pytest.mark.filterwarnings("ignore:precision='fast' is the same as exact")
def test_fast_is_selected_once_and_is_close_to_exact(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bilm = random_bilm(SHAPE, scale=1.0)
    exact = ElmoModel(ModelParts(bilm), device="cpu")
    quick = ElmoModel(ModelParts(bilm), device="cpu", precision="fast")
    for a, b in zip(exact.embed(TEXTS), quick.embed(TEXTS), strict=True):
        cosine = (a.layers * b.layers).sum(-1) / (
            np.linalg.norm(a.layers, axis=-1) * np.linalg.norm(b.layers, axis=-1)
        )
        assert cosine.min(initial=1) > 0.999
        if fast_choice().kind != "exact" and a.layers.size:
            assert not np.array_equal(a.layers, b.layers)
    # Another process uses the cached choice.
    fast_choice.cache_clear()
    monkeypatch.setattr(fast, "run_process", lambda *_: pytest.fail("tried again"))
    monkeypatch.setattr(fast, "mean_cosines", lambda *_: pytest.fail("checked again"))
    ElmoModel(ModelParts(bilm), device="cpu", precision="fast")
    assert len(list(home.glob("machine/fast-*.json"))) == 1


def test_fast_vectors_do_not_depend_on_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, INT8)
    elmo = ElmoModel(ModelParts(random_bilm(SHAPE, scale=1.0)), device="cpu", precision="fast")
    together = elmo.embed(TEXTS)
    elmo.batch_tokens = 1
    for a, b in zip(together, elmo.embed(TEXTS), strict=True):
        assert np.abs(a.layers - b.layers).max(initial=0) <= 2e-6


def test_unknown_precision_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"'fast'.*Expected one of: exact, fast"):
        elmokit.load(precision="fats")


# ------------------------------------------------------------------------------- selecting a kernel


def test_exact_is_used_with_a_warning_if_nothing_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, FastChoice("exact", {"exact": 1.0}, {"int8": "killed by signal 4"}))
    bilm = random_bilm(TINY)
    with pytest.warns(ElmoWarning, match=r"the same as exact.*killed by signal 4"):
        engine = fast_engine(bilm)
    assert isinstance(engine, TorchEngine)
    assert not engine.is_int8


def test_shapes_that_the_kernel_does_not_support_use_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    choose(monkeypatch, FastChoice("native", {"exact": 2.0, "native": 1.0}, {}))
    bilm = random_bilm(TINY, scale=1.0)
    engine = fast_engine(bilm)
    assert isinstance(engine, TorchEngine)
    assert engine.is_int8


def test_candidates_that_crash_are_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[list[str]] = []

    def attempt(command: list[str], timeout: float) -> tuple[str, str]:
        kinds = command[3:]
        asked.append(kinds)
        if "int8" in kinds:
            return '{"seconds": 2.0}\n', "the process was killed by signal 4"
        return '{"seconds": 0.5}\n', ""

    monkeypatch.setattr(fast, "run_process", attempt)
    choice = fast.probe_fast()
    assert asked == [["exact", "int8", "native"], ["native"]]
    assert choice.kind == "native"
    assert choice.failed == {"int8": "the process was killed by signal 4"}


def test_crash_in_a_child_process_does_not_affect_the_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = "import os, signal; print('{\"seconds\": 1.0}', flush=True); os.kill(os.getpid(), 4)"
    monkeypatch.setattr(fast, "_trial_command", lambda kinds: [sys.executable, "-c", program])
    choice = fast.probe_fast()
    assert choice.seconds == {"exact": 1.0, "native": 1.0}
    assert choice.failed == {"int8": "the process was killed by signal 4"}


def test_candidates_that_are_not_faster_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    output = '{"seconds": 1.0}\n{"seconds": 0.95}\n{"failed": "no compiler"}\n'
    monkeypatch.setattr(fast, "run_process", lambda *_: (output, ""))
    assert fast.probe_fast().kind == "exact"


def test_candidates_that_time_out_are_retried_by_the_next_process(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeper = "import time; print('{\"seconds\": 1.0}', flush=True); time.sleep(60)"
    monkeypatch.setattr(fast, "_trial_command", lambda kinds: [sys.executable, "-c", sleeper])
    monkeypatch.setattr(fast, "_TIMEOUT", 3.0)
    choice = fast_choice()
    assert (choice.kind, list(choice.failed)) == ("exact", ["int8"])
    assert "int8" in choice.describe()
    assert fast_choice() is choice  # this process tries only once
    assert not list(home.glob("machine/fast-*.json"))
    fast_choice.cache_clear()
    choose(monkeypatch, INT8)
    assert fast_choice() == INT8


@pytest.mark.parametrize("spoilt", ["", "{", "[]", '{"kind": "int8"}', '{"other": 1}'])
def test_corrupt_cache_is_rebuilt(spoilt: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, INT8)
    fast_choice()
    (path,) = home.glob("machine/fast-*.json")
    path.write_text(spoilt)
    fast_choice.cache_clear()
    assert fast_choice() == INT8
    assert json.loads(path.read_text())["kind"] == "int8"


def test_unwritable_cache_directory_is_not_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("ELMOKIT_HOME", str(tmp_path / "file"))
    choose(monkeypatch, INT8)
    elmo = ElmoModel(ModelParts(random_bilm(SHAPE, scale=1.0)), device="cpu", precision="fast")
    assert elmo.embed("the book").layers.shape == (3, 2, 64)


# ----------------------------------------------------------------------------------------- accuracy


def test_models_that_lose_too_much_accuracy_are_rejected(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One weight is a thousand times larger than the others, which become 0 in int8."""
    choose(monkeypatch, INT8)
    bilm = random_bilm(SHAPE)
    layer = bilm.forward_lm.layers[0]
    with torch.no_grad():
        layer.weight_recurrent[:, 0] = 1000 * layer.weight_recurrent.abs().max()
        # The input of that weight is 0, so that exact vectors are unaffected.
        layer.weight_projection[0] = 0
    for _ in range(2):  # the second time from the cache
        with pytest.raises(ConfigError, match=r"not accurate enough.*layer.*'exact'"):
            ElmoModel(ModelParts(bilm), device="cpu", precision="fast")
    assert len(list(home.glob("machine/cosines-int8-*.json"))) == 1
    ElmoModel(ModelParts(bilm), device="cpu")


def test_accuracy_of_word_input_models_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    bilm = random_bilm(BiLMConfig(LstmConfig(dim=32, projection_dim=16), None, n_words=5), scale=1)
    cosines = fast.mean_cosines(bilm, TorchEngine(bilm, int8=True))
    assert len(cosines) == 3
    assert min(cosines) > 0.99
    assert min(cosines[1:]) < 1
