from __future__ import annotations

import pytest
import torch

from elmokit.model.softmax import LMHead, draw_sample

pytest.importorskip("triton", reason="the fast kernels need Triton (Linux)")

from elmokit.model.kernels.sampled_softmax import sampled_loss

V, D, N = 50, 8, 13


@pytest.mark.parametrize("size", [11, 16, V])
def test_loss_and_gradients_equal_the_reference_head(size: int, device: torch.device) -> None:
    torch.manual_seed(0)
    head = LMHead(V, D)
    torch.nn.init.normal_(head.bias)
    h, targets = torch.randn(N, D, requires_grad=True), torch.randint(0, V, (N,))
    sample = draw_sample(V, size, torch.Generator(device).manual_seed(3))
    plain = head.sampled_loss(h, targets, sample).mean()
    plain.backward()
    gradients = {"weight": torch.zeros(V, D), "bias": torch.zeros(V)}
    fast, d_h = sampled_loss(h, targets, head.weight, head.bias, sample, gradients)
    assert fast.item() == pytest.approx(plain.item(), abs=1e-6)
    for found, expected in (
        (d_h, h.grad),
        (gradients["weight"], head.weight.grad),
        (gradients["bias"], head.bias.grad),
    ):
        assert expected is not None
        assert torch.allclose(found, expected, atol=1e-6)


def test_share_of_the_loss_scales_only_the_gradient(device: torch.device) -> None:
    torch.manual_seed(0)
    head, h, targets = LMHead(V, D), torch.randn(N, D), torch.randint(0, V, (N,))
    sample = draw_sample(V, 11, torch.Generator(device).manual_seed(3))
    found = []
    for share in (1.0, 0.5):
        gradients = {"weight": torch.zeros(V, D), "bias": torch.zeros(V)}
        loss, d_h = sampled_loss(h, targets, head.weight, head.bias, sample, gradients, share=share)
        found.append((loss.item(), d_h, gradients["weight"]))
    assert found[0][0] == found[1][0]
    for whole, half in zip(found[0][1:], found[1][1:], strict=True):
        assert torch.allclose(whole * 0.5, half, atol=1e-7)
