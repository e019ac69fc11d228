"""Shared fixtures: tiny models, and the golden files of the original systems."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import torch

from elmokit.config import BiLMConfig, CharCnnConfig, LstmConfig
from elmokit.model.bilm import BiLM

# One thread per process, also in child processes: models this small do not benefit from more, and
# `make test` runs one process per core.
os.environ["OMP_NUM_THREADS"] = "1"
torch.set_num_threads(1)

# Background jobs start with SIGINT ignored, and child processes would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # under nohup
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Use the same examples in every run; HYPOTHESIS_PROFILE=random draws new ones. No deadline, because
# the machine may be shared.
hypothesis.settings.register_profile("same", derandomize=True, deadline=None)
hypothesis.settings.register_profile("random", deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

# A model directory with random weights, made by recipes/tiny_model.py.
TINY_MODEL = Path(__file__).with_name("models") / "tiny"

SHARED = Path(__file__).resolve().parents[2] / "shared"

TINY = BiLMConfig(
    lstm=LstmConfig(dim=24, projection_dim=10, n_layers=2),
    char_cnn=CharCnnConfig(embedding_dim=4, filters=((1, 4), (2, 5), (3, 6)), n_highway=1),
)


def pytest_configure(config: pytest.Config) -> None:
    """Run Triton kernels in Triton's interpreter, except with `-m gpu`.

    Triton reads the variable when a module with kernels is imported, so set it before that.
    """
    if config.option.markexpr != "gpu":
        os.environ["TRITON_INTERPRET"] = "1"


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("no CUDA device")


def random_bilm(config: BiLMConfig, seed: int = 0, scale: float = 3.0) -> BiLM:
    """Return a biLM with weights large enough that all gates and clips matter."""
    torch.manual_seed(seed)
    bilm = BiLM(config)
    with torch.no_grad():
        for name, parameter in bilm.named_parameters():
            if "lm.layers" in name:
                parameter.mul_(scale)
            if name.endswith("bias"):
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return bilm.eval()


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """Return the device for the kernels: the CPU with Triton's interpreter, or a GPU.

    It is also the default device for tensors that the test creates.
    """
    before = torch.get_default_device()
    torch.set_default_device(request.param)
    try:
        yield torch.device(request.param)
    finally:
        torch.set_default_device(before)


@pytest.fixture
def tiny_bilm() -> BiLM:
    return random_bilm(TINY)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the directory with the golden files, next to the checkout."""
    if not (SHARED / "fixtures").is_dir():
        pytest.skip("the golden files of AllenNLP and bilm-tf are not beside this checkout")
    return SHARED
