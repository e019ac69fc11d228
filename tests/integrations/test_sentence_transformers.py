"""ELMo as the first module of a SentenceTransformer: vectors, training and saving."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elmokit
from tests.conftest import TINY_MODEL

st: Any = pytest.importorskip(
    "sentence_transformers", reason="the extra `sentence-transformers` is not installed"
)

from sentence_transformers.sentence_transformer import modules  # noqa: E402

from elmokit.integrations.sentence_transformers import ElmoTokens  # noqa: E402

TEXTS = ["The cat sat.", "Banks lend money to people who can pay it back.", ""]


def pipeline(**options: Any) -> Any:
    torch.manual_seed(0)
    tokens = ElmoTokens(TINY_MODEL, **options)
    dim = tokens.get_embedding_dimension()
    return st.SentenceTransformer(
        modules=[tokens, modules.Pooling(dim, "mean"), modules.Dense(dim, 5)], device="cpu"
    )


def test_vectors_are_the_mean_of_the_tokens() -> None:
    tokens = ElmoTokens(TINY_MODEL)
    model = st.SentenceTransformer(
        modules=[tokens, modules.Pooling(tokens.get_embedding_dimension(), "mean")], device="cpu"
    )
    found = model.encode(TEXTS)
    elmo = elmokit.load(TINY_MODEL, device="cpu")
    for row, text in zip(found[:2], TEXTS[:2], strict=True):
        np.testing.assert_allclose(row, elmo.embed(text).average.mean(axis=0), atol=1e-5)
    assert not found[2].any()
    np.testing.assert_allclose(model.encode(TEXTS[0]), found[0], atol=1e-6)
    long = " ".join(["word"] * 600)
    assert tokens.preprocess([long])["input_ids"].shape[1] == tokens.max_seq_length == 512


@pytest.mark.parametrize("finetune", [False, True])
def test_head_and_mix_are_trained(finetune: bool) -> None:
    model = pipeline(finetune=finetune).train()
    features = model[0].preprocess(TEXTS[:2])
    model(features)["sentence_embedding"].square().sum().backward()
    mix = model[0].elmo.mixes[0]
    assert mix.w.grad.abs().sum() > 0
    assert mix.gamma.grad.abs().sum() > 0
    assert model[2].linear.weight.grad.abs().sum() > 0
    assert any(p.grad is not None for p in model[0].elmo.bilm.parameters()) == finetune


def test_saved_model_gives_the_same_vectors(tmp_path: Path) -> None:
    model = pipeline(max_seq_length=7, finetune=True)
    with torch.no_grad():
        model[0].elmo.mixes[0].w.copy_(torch.tensor([1.0, -1.0, 0.5]))
        next(model[0].elmo.bilm.parameters()).mul_(1.1)
    expected = model.encode(TEXTS)
    model.save(str(tmp_path / "saved"))
    again = st.SentenceTransformer(
        str(tmp_path / "saved"), device="cpu", trust_remote_code=True, local_files_only=True
    )
    np.testing.assert_allclose(again.encode(TEXTS), expected, atol=1e-6)
    assert (again[0].max_seq_length, again[0].finetune) == (7, True)
    assert not [p for p in (tmp_path / "saved").rglob("*") if p.suffix in (".bin", ".pkl", ".pt")]
