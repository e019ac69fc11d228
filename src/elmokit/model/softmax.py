"""The LM head, which predicts words from the top layer of one direction.

Both directions share the weights and the bias, just as they share the token encoder. Training
compares the true word with a sample of other words (the negatives), which are drawn from a
log-uniform distribution over ranks. If the vocabulary is sorted by frequency, this distribution is
close to that of words in text.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# Number of rows and words per block of the full softmax. On a CPU, a block should fit into the
# cache of a core.
_BLOCK, _BLOCK_ON_GPU = (1024, 512), (4096, 4096)


class LMHead(nn.Module):
    """log p(word) = log softmax(W h + b), over the words of a vocabulary.

    Shape:
        h (n, D), the output of one direction in the top layer -> (n, V)
    """

    def __init__(self, n_words: int, projection_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_words, projection_dim))
        self.bias = nn.Parameter(torch.zeros(n_words))
        nn.init.normal_(self.weight, std=projection_dim**-0.5)

    def forward(self, h: Tensor) -> Tensor:
        return F.log_softmax(F.linear(h, self.weight, self.bias), dim=-1)

    @torch.no_grad()
    def losses(self, h: Tensor, targets: Tensor) -> Tensor:
        """Return -log p of each target over the vocabulary, in bounded memory.

        Shape:
            h (n, D), targets (n,) -> (n,) in float64, so that sums over long texts are accurate
        """
        rows, words = _BLOCK_ON_GPU if h.is_cuda else _BLOCK
        log_sums = torch.cat([self._log_sum_exp(block, words) for block in torch.split(h, rows)])
        return (log_sums - self.target_logits(h, targets)).double()

    def _log_sum_exp(self, h: Tensor, n_words: int) -> Tensor:
        """Return log sum_v exp(logit_v), with the logits of `n_words` words in memory at a time.

        The sums are relative to the largest logit so far. The exponentials overwrite the logits,
        because allocating memory for each block would take longer than the product.

        Shape:
            h (n, D) -> (n,)
        """
        largest, sums = h.new_full((len(h),), -math.inf), h.new_zeros(len(h))
        buffer = h.new_empty(len(h) * n_words)
        parameters = (torch.split(p, n_words) for p in (self.weight, self.bias))
        for weight, bias in zip(*parameters, strict=True):
            logits = buffer[: len(h) * len(bias)].view(len(h), len(bias))
            torch.addmm(bias, h, weight.t(), out=logits)
            new_largest = torch.maximum(largest, logits.amax(dim=1))
            sums *= torch.exp(largest - new_largest)
            sums += logits.sub_(new_largest.unsqueeze(1)).exp_().sum(dim=1)
            largest = new_largest
        return largest + sums.log()

    def target_logits(self, h: Tensor, targets: Tensor) -> Tensor:
        """Return the logit of one word for each row: h (n, D), targets (n,) -> (n,)."""
        return (h * self.weight[targets]).sum(-1) + self.bias[targets]

    def sampled_loss(self, h: Tensor, targets: Tensor, sample: Sample) -> Tensor:
        """Return -log p of each target, normalized over the target and the sampled words.

        The log of a word's expected count in the sample is subtracted from the word's logit. If the
        target is one of the sampled words, it is not counted twice.

        Shape:
            h (n, D), targets (n,) -> (n,)
        """
        # Use index_select instead of weight[targets]. On a CPU, several threads would sum the
        # gradient of weight[targets] in random order, so runs would not be reproducible.
        true = (h * self.weight.index_select(0, targets)).sum(-1)  # (n,)
        true = true + self.bias.index_select(0, targets)
        true = true - sample.log_expected(targets)
        weight = self.weight.index_select(0, sample.words)
        others = F.linear(h, weight, self.bias.index_select(0, sample.words))  # (n, K)
        others = others - sample.log_expected(sample.words)
        others = others.masked_fill(targets.unsqueeze(1) == sample.words, -math.inf)
        return torch.logsumexp(torch.cat([true.unsqueeze(1), others], dim=1), dim=1) - true


def log_uniform(ranks: Tensor, n_words: int) -> Tensor:
    """Return P(k) = log((k + 2) / (k + 1)) / log(V + 1) for the words with these ranks."""
    ranks = ranks.to(torch.float32)
    return torch.log1p(1.0 / (ranks + 1.0)) / math.log(n_words + 1)


class Sample(NamedTuple):
    """Distinct words that were drawn as negatives.

    Attributes:
        words: The ids of the words, shape (K,).
        time: Duration of the race (see `draw_sample`), a scalar; infinite if the sample contains
            all words. A word with probability P is in the sample with probability
            1 - exp(-P * time).
        n_words: Size of the vocabulary, V.
    """

    words: Tensor
    time: Tensor
    n_words: int

    def log_expected(self, words: Tensor) -> Tensor:
        """Return the log of the expected count of each word in a sample of the same duration."""
        expected = -torch.expm1(-log_uniform(words, self.n_words) * self.time)
        return torch.log(expected)


def draw_sample(n_words: int, size: int, generator: torch.Generator) -> Sample:
    """Draw distinct words with log-uniform probabilities.

    Drawing with replacement until there are `size` distinct words is equivalent to a race in which
    word v arrives after an exponentially distributed time with rate P(v), and the first `size`
    words win. The race ends when the next word arrives. Simulating the race requires neither a loop
    nor synchronization with the device.

    Args:
        n_words: Size of the vocabulary, V.
        size: Size of the sample, K. If K >= V, the sample contains all words, and the loss is that
            of the full softmax.
        generator: Random number generator. The words are drawn on its device.
    """
    device = generator.device
    if size >= n_words:
        return Sample(
            torch.arange(n_words, device=device), torch.tensor(math.inf, device=device), n_words
        )
    rates = log_uniform(torch.arange(n_words, device=device), n_words)
    arrivals = torch.empty(n_words, device=device).exponential_(generator=generator) / rates
    times, words = torch.topk(arrivals, size + 1, largest=False, sorted=True)
    return Sample(words[:size], times[size], n_words)
