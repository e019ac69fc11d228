from __future__ import annotations

import math

import pytest
import torch

from elmokit.model.softmax import LMHead, Sample, draw_sample, log_uniform


def test_head_returns_log_probabilities() -> None:
    torch.manual_seed(0)
    head = LMHead(11, 4)
    log_p = head(torch.randn(5, 4))
    assert torch.allclose(log_p.exp().sum(dim=1), torch.ones(5), atol=1e-6)


def test_log_uniform_is_a_distribution_that_decreases_with_the_rank() -> None:
    p = log_uniform(torch.arange(1000), 1000)
    assert p.sum().item() == pytest.approx(1.0, abs=1e-5)
    assert (p[1:] < p[:-1]).all()
    assert p[0].item() == pytest.approx(math.log(2) / math.log(1001))


def test_sampling_all_other_words_equals_the_full_softmax() -> None:
    torch.manual_seed(0)
    head = LMHead(30, 6)
    torch.nn.init.normal_(head.bias)
    h, targets = torch.randn(20, 6), torch.randint(0, 30, (20,))
    sample = draw_sample(30, 30, torch.Generator().manual_seed(0))
    full = -head(h).gather(1, targets[:, None]).squeeze(1)
    assert (head.sampled_loss(h, targets, sample) - full).abs().max() <= 1e-6


def test_sampled_words_are_distinct_with_the_expected_frequencies() -> None:
    generator = torch.Generator().manual_seed(0)
    n_words, size, rounds = 500, 60, 400
    seen, expected = torch.zeros(n_words), torch.zeros(n_words)
    for _ in range(rounds):
        sample = draw_sample(n_words, size, generator)
        assert len(sample.words.unique()) == size
        seen[sample.words] += 1
        expected += sample.log_expected(torch.arange(n_words)).exp()
    seen, expected = seen / rounds, expected / rounds
    assert expected.sum().item() == pytest.approx(size, rel=0.03)
    # Four standard deviations of a frequency over `rounds` draws.
    spread = 4 * (expected * (1 - expected) / rounds).sqrt() + 0.005
    assert ((seen - expected).abs() < spread).all()


def test_corrected_loss_is_close_to_the_full_loss() -> None:
    # Over many samples, the mean gradient of the sampled loss has the direction of the full
    # softmax.
    torch.manual_seed(0)
    head = LMHead(200, 6)
    h, targets = torch.randn(64, 6), torch.randint(0, 200, (64,))
    (-head(h).gather(1, targets[:, None]).mean()).backward()
    assert head.weight.grad is not None
    full = head.weight.grad.clone()
    head.zero_grad()
    generator = torch.Generator().manual_seed(1)
    for _ in range(150):
        head.sampled_loss(h, targets, draw_sample(200, 100, generator)).mean().backward()
    cosine = torch.nn.functional.cosine_similarity(full.flatten(), head.weight.grad.flatten(), 0)
    assert cosine > 0.98


def test_sampled_target_does_not_count_twice() -> None:
    head = LMHead(4, 2)
    h, targets = torch.randn(1, 2), torch.tensor([2])
    sample = Sample(torch.tensor([2]), torch.tensor(math.inf), 4)
    assert head.sampled_loss(h, targets, sample).item() == 0.0


def test_same_seed_samples_the_same_words() -> None:
    a, b = (draw_sample(500, 50, torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(a.words, b.words)
    assert torch.equal(a.time, b.time)
