from __future__ import annotations

import pytest
import torch

from elmokit.config import CharCnnConfig
from elmokit.model.charcnn import CharacterEncoder
from elmokit.model.chars import char_ids_table

pytest.importorskip("triton", reason="the fast kernels need Triton (Linux)")

from elmokit.model.kernels.charcnn import EncoderWeights, encode_types

WORDS = ["a", "the", "reading", "quick", "antidisestablishment", "x" * 60, "\u672c"]
GROUPS = ((16, [0, 1, 2, 3, 6]), (32, [4]), (50, [5]))


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("projection_dim", [8, 20])
def test_vectors_and_gradients_equal_the_reference_encoder(
    activation: str, projection_dim: int, device: torch.device
) -> None:
    torch.backends.cudnn.allow_tf32 = False  # TF32 of the reference convolutions on a GPU
    torch.manual_seed(0)
    filters = ((1, 4), (2, 4), (3, 4), (7, 8))
    config = CharCnnConfig(filters=filters, activation=activation)  # type: ignore[arg-type]
    encoder = CharacterEncoder(config, projection_dim)
    for p in encoder.parameters():
        p.data.add_(torch.randn_like(p), alpha=0.1)
    ids = torch.from_numpy(char_ids_table(WORDS)).to(device)
    order = [i for _, members in GROUPS for i in members]
    fast = encode_types(
        EncoderWeights.of(encoder, torch.float32), [ids[m][:, :c] for c, m in GROUPS]
    )
    direction = torch.randn_like(fast)
    fast.backward(direction)
    gradients = [p.grad.clone() for p in encoder.parameters() if p.grad is not None]
    encoder.zero_grad()
    slow = encoder(ids[order])
    slow.backward(direction)
    assert torch.allclose(fast, slow, atol=1e-5)
    assert len(gradients) == len(list(encoder.parameters()))
    for found, p in zip(gradients, encoder.parameters(), strict=True):
        assert p.grad is not None
        assert torch.allclose(found, p.grad, atol=1e-4)
