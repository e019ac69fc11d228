from __future__ import annotations

import torch

from elmokit.model.quantize import dequantize_rows, quantize_rows, quantize_rows_wide


def test_each_value_is_within_half_a_step_and_the_largest_is_exact() -> None:
    w = torch.randn(7, 33) * torch.logspace(-6, 3, 7).unsqueeze(1)
    q, scale = quantize_rows(w)
    assert q.dtype == torch.int8
    assert (q.abs().amax(dim=1) == 127).all()
    error = (dequantize_rows(q, scale) - w).abs()
    assert (error <= 0.5001 * scale.unsqueeze(1)).all()


def test_stored_int8_weights_are_restored_as_the_same_integers() -> None:
    q, scale = quantize_rows(torch.randn(64, 512))
    again, scale_again = quantize_rows(dequantize_rows(q, scale))
    assert torch.equal(q, again)
    torch.testing.assert_close(scale, scale_again)


def test_row_of_zeros_stays_zero_and_rows_are_independent() -> None:
    w = torch.randn(3, 16)
    w[1] = 0
    q, scale = quantize_rows(w)
    assert scale[1] == 0
    assert not q[1].any()
    assert torch.equal(dequantize_rows(q, scale)[1], w[1])
    alone, _ = quantize_rows(w[2:])
    assert torch.equal(q[2:], alone)


def test_two_halves_store_sixteen_bits() -> None:
    x = torch.randn(5, 301) * torch.logspace(-4, 2, 5).unsqueeze(1)
    x[2] = 0
    high, low, scale = quantize_rows_wide(x)
    assert high.dtype == low.dtype == torch.int8
    whole = 256 * high.double() + low.double()
    assert (whole.abs().amax(dim=1)[scale > 0] == 32639).all()
    error = (whole * scale.double().unsqueeze(1) - x).abs()
    assert (error <= 0.51 * scale.unsqueeze(1)).all()
    assert not error[2].any()
