"""AdamW in one pass, compared with the reference optimizer."""

from __future__ import annotations

import copy

import pytest
import torch

from elmokit.model.softmax import LMHead
from elmokit.train.optimizer import Optimizer, OptimizerConfig

pytest.importorskip("triton", reason="the fast kernels need Triton (Linux)")

from elmokit.train.fused import FusedAdamW

V, D = 40, 6
SHAPES = {"a": (7, 300), "b": (5,), "c": (2, 3, 4)}


def pair(config: OptimizerConfig) -> tuple[Optimizer, FusedAdamW]:
    torch.manual_seed(0)
    tensors = {name: torch.randn(shape) for name, shape in SHAPES.items()}
    head = LMHead(V, D)
    copies = {"a": tensors["a"].to(torch.bfloat16)}
    plain = Optimizer({n: t.clone() for n, t in tensors.items()}, copy.deepcopy(head), config)
    return plain, FusedAdamW(tensors, head, config, copies)


def changes(seed: int) -> tuple[list[torch.Tensor], dict[str, torch.Tensor], list[torch.Tensor]]:
    """Generate gradients of a step in which rows of the head are listed more than once."""
    torch.manual_seed(seed)
    words = [torch.tensor([3, 5, 9, 3, 5]), torch.tensor([1, 5, 30]), torch.tensor([9, 1, 2, 39])]
    weight, bias = torch.zeros(V, D), torch.zeros(V)
    rows = torch.unique(torch.cat(words))
    weight[rows], bias[rows] = torch.randn(len(rows), D), torch.randn(len(rows))
    dense = [torch.randn(shape) for shape in SHAPES.values()]
    return dense, {"weight": weight, "bias": bias}, words


def both(config: OptimizerConfig, *, bad: bool = False, frozen: int = 0) -> None:
    plain, fused = pair(config)
    said = torch.tensor(3)  # of the five in the first list
    rate = torch.tensor(0.05)
    for number in range(4):
        norms = []
        for optimizer in (plain, fused):
            dense, head, words = changes(number)
            if bad and number == 2:
                dense[0][0, 0] = float("nan")
            dense = [] if number < frozen else dense
            norms.append(optimizer.step(rate, dense, head, words, said))
            assert not any(gradient.any() for gradient in head.values())  # set back
        if not (bad and number == 2):
            torch.testing.assert_close(norms[0], norms[1], rtol=1e-5, atol=0)
        else:
            assert not torch.isfinite(norms[1])
    for name in SHAPES:
        torch.testing.assert_close(plain.tensors[name], fused.tensors[name], rtol=0, atol=2e-6)
    for name, weight in plain.head.items():
        torch.testing.assert_close(weight, fused.head[name], rtol=0, atol=2e-6)
    for kind in ("mean", "square"):
        for name, average in plain.row_moments[kind].items():
            found = fused.row_moments[kind][name]
            torch.testing.assert_close(average, found, rtol=1e-5, atol=1e-7)
    # Triton's interpreter truncates where a GPU rounds.
    torch.testing.assert_close(fused.copies["a"].float(), fused.tensors["a"], rtol=2**-7, atol=0)
    assert fused.tensors["a"].isfinite().all()


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("clip", [0.5, 1000.0])
def test_weights_and_averages_equal_the_reference_optimizer(clip: float) -> None:
    both(OptimizerConfig(clip=clip, weight_decay=0.1))


@pytest.mark.usefixtures("device")
def test_non_finite_gradient_changes_nothing() -> None:
    both(OptimizerConfig(clip=1.0), bad=True)


@pytest.mark.usefixtures("device")
def test_averages_of_tensors_start_after_the_steps_of_the_head() -> None:
    both(OptimizerConfig(clip=1.0, head_steps=2), frozen=2)


@pytest.mark.usefixtures("device")
def test_gradients_may_have_the_dtype_of_the_products() -> None:
    plain, fused = pair(OptimizerConfig(clip=1.0))
    rate = torch.tensor(0.05)
    dense, head, words = changes(0)
    said = torch.tensor(3)
    rounded = [g.to(torch.bfloat16) if g.dim() == 2 else g for g in dense]
    exact = [g.float().clone() for g in rounded]  # the reference scales them in place
    expected = plain.step(rate, exact, copy.deepcopy(head), words, said)
    found = fused.step(rate, rounded, head, words, said)
    torch.testing.assert_close(expected, found, rtol=1e-5, atol=0)
    torch.testing.assert_close(plain.tensors["a"], fused.tensors["a"], rtol=0, atol=2e-6)


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("which", [0, 1])
def test_exploding_gradient_after_the_warmup_changes_nothing(which: int) -> None:
    optimizer = pair(OptimizerConfig(skip_norm=50.0, warmup=1))[which]
    rate = torch.tensor(0.05)
    start = optimizer.tensors["a"].clone()
    dense, head, words = changes(0)
    optimizer.step(rate, [1e6 * g for g in dense], head, words)  # clipped, because of the warm-up
    assert not torch.equal(optimizer.tensors["a"], start)

    for moment in (*optimizer.moments.values(), *optimizer.row_moments.values()):
        for average in moment.values():
            average.zero_()  # otherwise, the average of the first gradient changes the weights
    before = {name: tensor.clone() for name, tensor in optimizer.tensors.items()}
    dense, head, words = changes(1)
    norm = optimizer.step(rate, [1e6 * g for g in dense], head, words)
    assert norm > 1e5
    for name, tensor in optimizer.tensors.items():
        assert torch.equal(tensor, before[name])
    optimizer.step(rate, *changes(2))
    assert not torch.equal(optimizer.tensors["a"], before["a"])
