"""Embedding on a GPU gives what a CPU gives, whatever is under way at once."""

from __future__ import annotations

import numpy as np
import pytest

import elmokit
from elmokit.embed.model import ElmoModel
from tests.conftest import TINY_MODEL

pytestmark = pytest.mark.gpu

WORDS = "the cat sat on a mat , and then Straße x 1998 antidisestablishmentarianism ran .".split()


def sentences(n: int) -> list[list[str]]:
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 40, n)
    return [[WORDS[i] for i in rng.integers(0, len(WORDS), length)] for length in lengths]


def pair(model: str | None) -> tuple[ElmoModel, ElmoModel]:
    return elmokit.load(model, device="cpu"), elmokit.load(model, device="cuda")


@pytest.mark.parametrize("model", [str(TINY_MODEL), None], ids=["tiny", "english"])
def test_many_batches_come_back_in_order(model: str | None) -> None:
    cpu, gpu = pair(model)
    gpu.batch_tokens = 200  # many batches, each started before the one before is fetched
    text = sentences(120)
    for a, b in zip(cpu.embed(text), gpu.embed(text), strict=True):
        np.testing.assert_allclose(a.layers, b.layers, atol=1e-5)
    for a, b in zip(cpu.stream(text), gpu.stream(text), strict=True):
        np.testing.assert_allclose(a.layers, b.layers, atol=1e-5)


def test_a_carried_state_goes_on() -> None:
    cpu, gpu = pair(str(TINY_MODEL))
    text = sentences(30)
    for rows in (1, 4):
        for a, b in zip(
            cpu.embed(text, "carry", rows=rows), gpu.embed(text, "carry", rows=rows), strict=True
        ):
            # What differs in the last bits is carried on, and this small random model amplifies it.
            np.testing.assert_allclose(a.layers, b.layers, rtol=1e-5, atol=5e-5)


def test_a_cache_that_is_too_small_still_gives_the_right_words() -> None:
    cpu, gpu = pair(str(TINY_MODEL))
    gpu.cache._capacity = 3
    text = sentences(20)
    for a, b in zip(cpu.embed(text), gpu.embed(text), strict=True):
        np.testing.assert_allclose(a.layers, b.layers, atol=1e-5)


def test_fast_is_near_exact_and_the_language_models_agree() -> None:
    cpu = elmokit.load(device="cpu")
    fast = elmokit.load(device="cuda", precision="fast")
    text = ["I read the book yesterday .", "They walked along the bank of the river ."]
    for a, b in zip(cpu.embed(text), fast.embed(text), strict=True):
        norms = np.linalg.norm(a.layers, axis=-1) * np.linalg.norm(b.layers, axis=-1)
        assert ((a.layers * b.layers).sum(-1) / norms).min() > 0.999
    for a, b in zip(cpu.score(text), fast.score(text), strict=True):
        assert b.perplexity == pytest.approx(a.perplexity, rel=0.02)
