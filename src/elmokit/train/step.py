"""One training step: read T tokens of every row in both directions and update the weights.

`PlainStep` is the reference implementation, with the modules of `model/` and autograd, on any
device; `fast.FastStep` is the fast implementation for CUDA GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from elmokit.errors import ElmoError
from elmokit.model.bilm import BiLM
from elmokit.model.lstm import LstmStack, LstmState
from elmokit.model.softmax import LMHead, Sample, draw_sample
from elmokit.settings import Bounds, CountOrZero, Fraction, Positive, Seed, Settings, Size
from elmokit.train.batches import Batch
from elmokit.train.distributed import SINGLE_PROCESS, Group
from elmokit.train.optimizer import Optimizer, OptimizerConfig


@dataclass(frozen=True)
class StepResult:
    """The result of a step, as scalar tensors, so that the host does not wait.

    Attributes:
        forward_loss: Mean sampled loss of the forward LM.
        backward_loss: Mean sampled loss of the backward LM.
        gradient_norm: Norm of the complete gradient before clipping.
    """

    forward_loss: Tensor
    backward_loss: Tensor
    gradient_norm: Tensor


class StepConfig(Settings):
    """The shape and objective of a step.

    Attributes:
        rows: B, the number of streams that are read in parallel.
        steps: T, the length of truncated backpropagation through time.
        negatives: Number of negative samples; 0 uses the full softmax.
        dropout: Dropout on the input of every layer and on the top output.
        gradient_scale: Factor of the gradient before clipping; `steps` in bilm-tf.
        seed: Random seed for negative samples and dropout.
    """

    rows: Size = 128
    steps: Annotated[int, Bounds(ge=1, le=4096)] = 20
    negatives: CountOrZero = 8192
    dropout: Fraction = 0.1
    gradient_scale: Positive = 1.0
    seed: Seed = 0


class TrainStep(Protocol):
    """A training step: `PlainStep` or `FastStep`.

    Attributes:
        bilm: The model.
        head: The LM head.
        optimizer: The optimizer of both.
        group: The processes of the run.
        state: The LSTM states of the rows.
    """

    bilm: BiLM
    head: LMHead
    optimizer: Optimizer
    group: Group
    state: LstmState

    def __call__(self, batch: Batch, number: int, rate: float) -> StepResult:
        """Run step `number` with the learning rate `rate`."""

    def moments(self) -> dict[str, Tensor]:
        """Return views of the optimizer's moments, by kind and name of the parameter."""

    @property
    def capacity(self) -> Mapping[int, int] | None:
        """The sizes of fixed buffers, if any, which affect the bits of results."""

    def set_capacity(self, capacity: Mapping[int, int]) -> None:
        """Allocate buffers of these sizes."""


def sample_of_step(
    config: StepConfig, n_words: int, number: int, direction: int, device: torch.device
) -> Sample:
    """Draw the negatives of a step and direction; they depend only on (seed, step, direction)."""
    generator = torch.Generator(device)
    generator.manual_seed((config.seed * 1_000_003 + number) * 2 + direction)
    return draw_sample(n_words, config.negatives or n_words, generator)


class PlainStep:
    """The reference implementation of the training step.

    Args:
        bilm: The model; its dropout is set from `config`.
        head: The LM head.
        chars: Character ids of every type, shape (types, C).
        config: Shape and objective; `rows` are those of this process.
        optimizer: The settings of the optimizer.
        group: The processes of the run.
    """

    def __init__(
        self,
        bilm: BiLM,
        head: LMHead,
        chars: NDArray[np.uint16],
        config: StepConfig,
        optimizer: OptimizerConfig,
        *,
        group: Group = SINGLE_PROCESS,
    ) -> None:
        self.group = group
        self.bilm, self.head, self.chars, self.config = bilm, head, chars, config
        tensors = {name: p.data for name, p in bilm.named_parameters()}
        self.optimizer = Optimizer(tensors, head, optimizer)
        self.device = head.weight.device
        for stack in (bilm.forward_lm, bilm.backward_lm):
            stack.dropout = config.dropout
        like = head.weight
        self.state = LstmState.zeros(bilm.config.lstm, config.rows, like=like)

    def __call__(self, batch: Batch, number: int, rate: float) -> StepResult:
        """Run step `number` with the learning rate `rate`."""
        self.bilm.train()
        frozen = number < self.optimizer.config.head_steps
        self.bilm.requires_grad_(not frozen)
        batch = self.group.union_words(batch, len(self.head.bias))
        losses, words = self.losses(batch, number)
        objective = self.config.gradient_scale * 0.5 * (losses[0] + losses[1])
        learned = [p for p in self.bilm.parameters() if not frozen]
        learned += [self.head.weight, self.head.bias]
        *gradients, weight, bias = torch.autograd.grad(objective, learned)
        head_gradients = {"weight": weight, "bias": bias}
        forward_loss, backward_loss = (loss.detach() for loss in losses)
        self.group.average([*gradients, forward_loss, backward_loss], head_gradients, words)
        rate_now = torch.tensor(rate, device=self.device)
        norm = self.optimizer.step(rate_now, gradients, head_gradients, words)
        return StepResult(forward_loss, backward_loss, norm)

    def losses(self, batch: Batch, number: int) -> tuple[list[Tensor], list[Tensor]]:
        """Return the mean loss of both directions, and the rows of the head that were used."""
        x_types = self.encode(batch)
        active = [self.config.rows] * self.config.steps
        words = [torch.from_numpy(batch.words).to(self.device)]
        losses, cells, hiddens = [], [], []
        for direction, stack in enumerate((self.bilm.forward_lm, self.bilm.backward_lm)):
            index = torch.from_numpy(batch.index[direction]).to(self.device)  # (T, B)
            starts = torch.from_numpy(batch.starts[direction]).to(self.device).flatten()
            assert isinstance(stack, LstmStack)
            outputs, cell, hidden = stack(
                x_types.index_select(0, index.flatten()),
                active,
                self.state.cell[direction],
                self.state.hidden[direction],
                starts,
            )
            top = F.dropout(outputs[-1], self.config.dropout, stack.training)
            targets = torch.from_numpy(batch.targets[direction]).to(self.device).flatten()
            n_words = len(self.head.bias)
            sample = sample_of_step(self.config, n_words, number, direction, self.device)
            losses.append(self.head.sampled_loss(top, targets, sample).mean())
            words.append(sample.words)
            cells.append(cell.detach())
            hiddens.append(hidden.detach())
        self.state = LstmState(torch.stack(cells), torch.stack(hiddens))
        return losses, words

    @property
    def capacity(self) -> None:
        """No fixed buffers."""

    def set_capacity(self, capacity: Mapping[int, int]) -> None:
        """Ignore the sizes, because there are no fixed buffers."""

    def moments(self) -> dict[str, Tensor]:
        """Return views of the optimizer's moments, by kind and name of the parameter."""
        named = {
            f"{kind}.bilm.{name}": tensor
            for kind, tensors in self.optimizer.moments.items()
            for name, tensor in tensors.items()
        }
        return named | self.optimizer.head_moments()

    def encode(self, batch: Batch) -> Tensor:
        """Return x of the distinct types of a batch, shape (U, D)."""
        # Types are sorted by the columns they need, so that short words need fewer convolutions.
        parts, end = [], 0
        for columns, count in batch.groups:
            begin, end = end, end + count
            spelled = self.chars[batch.types[begin:end], :columns].astype(np.int64)
            parts.append(self.bilm.encoder(torch.from_numpy(spelled).to(self.device)))
        return torch.cat(parts)


class OutOfMemoryError(ElmoError):
    """The device does not have enough memory for a batch."""


@contextmanager
def explain_out_of_memory(config: StepConfig) -> Iterator[None]:
    """Convert out-of-memory errors into an error with advice."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        # For CPU memory, torch raises a RuntimeError and numpy a MemoryError.
        known = isinstance(error, torch.OutOfMemoryError | MemoryError)
        if not known and "allocate memory" not in str(error):
            raise
        reason = (str(error).splitlines() or [""])[0]
        raise OutOfMemoryError(
            f"{config.rows} rows x {config.steps} steps do not fit into memory: {reason} Use fewer "
            f"rows (--set step.rows={max(1, config.rows // 2)}) or a smaller preset. Checkpoints "
            "are kept: continue with --resume."
        ) from error
