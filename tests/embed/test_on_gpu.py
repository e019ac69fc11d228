"""Embedding on a GPU: float32 is as accurate as on the CPU; batches and states are in order.

An LSTM amplifies rounding errors from token to token, so two float32 runs cannot be compared with
a fixed tolerance. Instead, both are compared with a float64 run, and the recurrent weights of the
tiny model are halved so that errors decay instead of growing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

import elmokit
from elmokit.embed.model import ElmoModel
from elmokit.embed.vectors import SentenceVectors
from elmokit.sources.resolve import load_parts
from tests.conftest import TINY_MODEL

pytestmark = pytest.mark.gpu

WORDS = "the cat sat on a mat , and then Straße x 1998 antidisestablishmentarianism ran .".split()


def sentences(n: int) -> list[list[str]]:
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 40, n)
    return [[WORDS[i] for i in rng.integers(0, len(WORDS), length)] for length in lengths]


def make(name: str, device: str, dtype: torch.dtype = torch.float32) -> ElmoModel:
    parts = load_parts(str(TINY_MODEL) if name == "tiny" else None)
    if name == "tiny":
        for parameter_name, parameter in parts.bilm.named_parameters():
            if "weight_recurrent" in parameter_name:
                parameter.data.mul_(0.5)
    parts.bilm.to(dtype)
    return ElmoModel(parts, device=device)


def assert_as_exact_as_cpu(
    name: str, gpu: ElmoModel, run: Callable[[ElmoModel], Sequence[SentenceVectors]]
) -> None:
    """Compare both devices with float64; the GPU error may be a few times the CPU error."""
    exact = run(make(name, "cpu", torch.float64))

    def error(model: ElmoModel) -> float:
        pairs = zip(run(model), exact, strict=True)
        return max(np.abs(a.layers - b.layers).max(initial=0.0) for a, b in pairs)

    assert error(gpu) < 5 * error(make(name, "cpu")) + 1e-6


@pytest.mark.parametrize("name", ["tiny", "english"])
def test_many_batches_are_returned_in_order(name: str) -> None:
    gpu = make(name, "cuda")
    gpu.batch_tokens = 200  # many batches, each launched before the previous one is copied back
    text = sentences(120)
    assert_as_exact_as_cpu(name, gpu, lambda model: model.embed(text))
    assert_as_exact_as_cpu(name, gpu, lambda model: list(model.stream(text)))


@pytest.mark.parametrize("rows", [1, 4])
def test_state_is_carried_between_calls(rows: int) -> None:
    text = sentences(30)
    assert_as_exact_as_cpu(
        "tiny", make("tiny", "cuda"), lambda model: model.embed(text, "carry", rows=rows)
    )


def test_token_cache_that_is_too_small_gives_correct_vectors() -> None:
    gpu = make("tiny", "cuda")
    gpu.cache._capacity = 3
    text = sentences(20)
    assert_as_exact_as_cpu("tiny", gpu, lambda model: model.embed(text))


def test_fast_is_close_to_exact_and_scores_agree() -> None:
    cpu = elmokit.load(device="cpu")
    fast = elmokit.load(device="cuda", precision="fast")
    text = ["I read the book yesterday .", "They walked along the bank of the river ."]
    for a, b in zip(cpu.embed(text), fast.embed(text), strict=True):
        norms = np.linalg.norm(a.layers, axis=-1) * np.linalg.norm(b.layers, axis=-1)
        assert ((a.layers * b.layers).sum(-1) / norms).min() > 0.999
    for a, b in zip(cpu.score(text), fast.score(text), strict=True):
        assert b.perplexity == pytest.approx(a.perplexity, rel=0.02)
