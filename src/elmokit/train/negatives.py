"""Draw the negatives of a training step while the device computes the previous step."""

from __future__ import annotations

import torch
from torch import Tensor

from elmokit.train.step import StepConfig, sample_of_step


class Negatives:
    """Fixed buffers for the sampled words of both directions.

    Samples depend only on (seed, step, direction), so that those of the next step can be drawn on a
    separate stream while a step runs; if steps are not consecutive, they are drawn when needed.

    Attributes:
        words: (2, K), the samples of the last step passed to `load`.
        time: (2,), see `Sample`.
    """

    def __init__(self, config: StepConfig, n_words: int, device: torch.device) -> None:
        self._config, self._n_words, self._device = config, n_words, device
        n_drawn = min(config.negatives or n_words, n_words)
        self.words = torch.zeros(2, n_drawn, dtype=torch.int64, device=device)
        self.time = torch.zeros(2, device=device)
        self._ahead = (torch.zeros_like(self.words), torch.zeros_like(self.time))
        self._drawn: int | None = None  # the step that `_ahead` holds
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def load(self, number: int) -> None:
        """Load the words of step `number` into the buffers, and start drawing those of the next."""
        if self._stream is None:
            self._draw(number, self.words, self.time)
            return
        now = torch.cuda.current_stream(self._device)
        if self._drawn != number:
            self._draw_ahead(number, now)
        now.wait_stream(self._stream)
        self.words.copy_(self._ahead[0])
        self.time.copy_(self._ahead[1])
        self._draw_ahead(number + 1, now)

    def _draw_ahead(self, number: int, after: torch.cuda.Stream) -> None:
        assert self._stream is not None
        self._stream.wait_stream(after)  # until the previous samples were copied
        with torch.cuda.stream(self._stream):
            self._draw(number, *self._ahead)
        self._drawn = number

    def _draw(self, number: int, words: Tensor, time: Tensor) -> None:
        for direction in (0, 1):
            sample = sample_of_step(self._config, self._n_words, number, direction, self._device)
            words[direction].copy_(sample.words)
            time[direction].copy_(sample.time)
