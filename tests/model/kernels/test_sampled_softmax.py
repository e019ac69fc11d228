from __future__ import annotations

import pytest
import torch

from elmokit.model.softmax import LMHead, draw_sample

pytest.importorskip("triton", reason="the fast kernels need Triton (Linux)")

from elmokit.model.kernels.sampled_softmax import HeadGradient, sampled_loss

V, D, N = 50, 8, 13


@pytest.mark.parametrize("size", [11, 16, V])
def test_loss_and_gradients_equal_the_plain_head(size: int, device: torch.device) -> None:
    torch.manual_seed(0)
    head = LMHead(V, D)
    torch.nn.init.normal_(head.bias)
    h, targets = torch.randn(N, D, requires_grad=True), torch.randint(0, V, (N,))
    sample = draw_sample(V, size, torch.Generator(device).manual_seed(3))
    plain = head.sampled_loss(h, targets, sample).mean()
    plain.backward()
    fast_h = h.detach().clone().requires_grad_()
    gradient = HeadGradient(V, D, device)
    fast = sampled_loss(fast_h, targets, head.weight, head.bias, sample, gradient)
    fast.backward()
    assert fast.item() == pytest.approx(plain.item(), abs=1e-6)
    for found, expected in (
        (fast_h.grad, h.grad),
        (gradient.weight, head.weight.grad),
        (gradient.bias, head.bias.grad),
    ):
        assert found is not None
        assert expected is not None
        assert torch.allclose(found, expected, atol=1e-6)


def test_a_share_of_the_loss_scales_the_gradient_and_not_the_loss(device: torch.device) -> None:
    torch.manual_seed(0)
    head, h, targets = LMHead(V, D), torch.randn(N, D), torch.randint(0, V, (N,))
    sample = draw_sample(V, 11, torch.Generator(device).manual_seed(3))
    found = []
    for share in (1.0, 0.5):
        gradient = HeadGradient(V, D, device)
        x = h.clone().requires_grad_()
        loss = sampled_loss(x, targets, head.weight, head.bias, sample, gradient, share=share)
        loss.backward()
        found.append((loss.item(), x.grad, gradient.weight))
    assert found[0][0] == found[1][0]
    for whole, half in zip(found[0][1:], found[1][1:], strict=True):
        assert torch.allclose(whole * 0.5, half, atol=1e-7)


def test_clearing_leaves_no_gradient_behind(device: torch.device) -> None:
    gradient = HeadGradient(V, D, device)
    gradient.add(torch.tensor([3, 3, 7]), torch.ones(3, D), torch.ones(3))
    assert gradient.weight[3, 0] == 2
    gradient.clear()
    assert not gradient.weight.any()
    assert not gradient.bias.any()
