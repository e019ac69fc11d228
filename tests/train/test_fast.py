"""The fast training step, compared with the reference, in float32 (Triton's interpreter or GPU)."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from elmokit.config import BiLMConfig, CharCnnConfig, LstmConfig
from elmokit.data.streams import Streams
from elmokit.model.bilm import BiLM
from elmokit.model.chars import char_ids_table
from elmokit.model.softmax import LMHead
from elmokit.train.batches import make_batch, needed_columns
from elmokit.train.optimizer import OptimizerConfig
from elmokit.train.step import PlainStep, StepConfig
from tests.data.test_streams import corpus

pytest.importorskip("triton", reason="the fast kernels need Triton (Linux)")

from elmokit.train import fast
from elmokit.train.fast import FastStep

V = 60
CONFIG = BiLMConfig(
    LstmConfig(12, 8, 2, 0.5, 0.4),
    CharCnnConfig(embedding_dim=4, filters=((1, 4), (2, 6), (3, 6)), n_highway=1),
)
WORDS = ["<S>", "</S>", "<UNK>", *(f"word{i}" * (1 + i % 6) for i in range(90))]


@pytest.mark.parametrize(
    ("kind", "head_steps"),
    [("adagrad", 0), ("adamw", 1)],  # 1: the first step changes only the head
)
def test_several_steps_equal_the_reference_steps(
    kind: str, head_steps: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast, "_BLOCK", 2)  # words are padded to it: slow in the interpreter
    torch.backends.cudnn.allow_tf32 = False  # TF32 of the reference convolutions on a GPU
    torch.manual_seed(0)
    bilm, head = BiLM(CONFIG), LMHead(V, 8)
    chars = char_ids_table(WORDS).astype(np.uint16)
    columns = needed_columns(chars, 3)
    step_config = StepConfig(rows=2, steps=2, negatives=20, dropout=0.0, gradient_scale=4.0)
    optimizer_config = OptimizerConfig(
        kind=kind,  # type: ignore[arg-type]
        learning_rate=0.05,
        warmup=1,
        clip=1.0,
        head_steps=head_steps,
    )
    runs = []
    for make in (PlainStep, FastStep):
        b, h = copy.deepcopy(bilm).to(device), copy.deepcopy(head).to(device)
        options = {"dtype": torch.float32} if make is FastStep else {}
        step = make(b, h, chars, step_config, optimizer_config, **options)  # type: ignore[operator]
        streams = Streams(*corpus(), rows=2, steps=2, restart=0.3)
        results = [step(make_batch(next(streams), columns, V), n, 0.05) for n in range(3)]
        losses = [(r.forward_loss.item(), r.backward_loss.item()) for r in results]
        norms = [r.gradient_norm.item() for r in results]
        weights = [*b.parameters(), *h.parameters()]
        runs.append((losses, norms, weights, step.state))
    np.testing.assert_allclose(runs[0][0], runs[1][0], atol=2e-5)
    np.testing.assert_allclose(runs[0][1], runs[1][1], rtol=1e-4)
    for plain, found in zip(runs[0][2], runs[1][2], strict=True):
        # Adam divides by the size of the gradient, which amplifies rounding errors where it is
        # close to zero.
        assert (plain - found).abs().max() < (1e-5 if kind == "adagrad" else 2e-3)
    for plain, found in zip(runs[0][3], runs[1][3], strict=True):
        assert torch.allclose(plain, found, atol=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize(("kind", "head_steps"), [("adagrad", 0), ("adamw", 0), ("adamw", 3)])
def test_recorded_step_equals_an_unrecorded_step(kind: str, head_steps: int) -> None:
    chars = char_ids_table(WORDS).astype(np.uint16)
    columns = needed_columns(chars, 3)
    shape = StepConfig(rows=16, steps=8, negatives=20, dropout=0.1)
    how = OptimizerConfig(kind=kind, clip=1.0, head_steps=head_steps)  # type: ignore[arg-type]
    runs = []
    for graphs in (True, False):
        torch.manual_seed(0)
        bilm, head = BiLM(CONFIG).cuda(), LMHead(V, 8).cuda()
        step = FastStep(bilm, head, chars, shape, how, cuda_graphs=graphs)
        streams = Streams(*corpus(), rows=16, steps=8, restart=0.3)
        batches = [make_batch(next(streams), columns, V) for _ in range(8)]
        results = [step(batch, n, 0.02) for n, batch in enumerate(batches)]
        losses = [[r.forward_loss.item(), r.backward_loss.item()] for r in results]
        runs.append(
            (losses, [p.detach().clone() for p in (*bilm.parameters(), *head.parameters())])
        )
    np.testing.assert_allclose(runs[0][0], runs[1][0], rtol=2e-3)
    for recorded, plain in zip(runs[0][1], runs[1][1], strict=True):
        assert (recorded - plain).abs().mean() < 2e-3
