"""A training step, which reads T tokens of each row in both directions and updates the weights.

`PlainStep` is the reference implementation. It uses autograd and the modules of `model/`, and works
on all devices. `FastStep` (in `fast.py`) is the fast implementation for CUDA GPUs.
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
from elmokit.progress import plural
from elmokit.settings import Bounds, CountOrZero, Fraction, Positive, Seed, Settings, Size
from elmokit.train.batches import Batch
from elmokit.train.distributed import SINGLE_PROCESS, Group
from elmokit.train.optimizer import Optimizer, OptimizerConfig


@dataclass(frozen=True)
class StepResult:
    """The result of a step. The values are tensors, because converting them to floats would block.

    Attributes:
        forward_loss: Mean sampled loss of the forward LM.
        backward_loss: Mean sampled loss of the backward LM.
        gradient_norm: Norm of the complete gradient before clipping.
    """

    forward_loss: Tensor
    backward_loss: Tensor
    gradient_norm: Tensor


class StepConfig(Settings):
    """The batch size and objective of a step.

    Attributes:
        rows: The number of rows B (streams of text) in a batch.
        steps: The number of time steps T of truncated backpropagation through time.
        negatives: Number of negative samples. 0 means the full softmax.
        dropout: Dropout rate for the input of each layer and for the top output.
        gradient_scale: Factor by which the gradient is multiplied before clipping. bilm-tf uses
            the value of `steps`.
        seed: Random seed for negative samples and (on a GPU) dropout.
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
        optimizer: The optimizer of the model and the head.
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
        """Return views of the optimizer's moments, by kind of moment and parameter name."""

    @property
    def capacity(self) -> Mapping[int, int] | None:
        """The sizes of fixed-size buffers, if any. They affect rounding errors."""

    def set_capacity(self, capacity: Mapping[int, int]) -> None:
        """Allocate fixed-size buffers."""


def draw_negatives(
    config: StepConfig, n_words: int, number: int, direction: int, device: torch.device
) -> Sample:
    """Draw negative samples, which depend only on the seed, the step number and the direction."""
    generator = torch.Generator(device)
    generator.manual_seed((config.seed * 1_000_003 + number) * 2 + direction)
    return draw_sample(n_words, config.negatives or n_words, generator)


class PlainStep:
    """The reference implementation of the training step.

    Args:
        bilm: The model. Its dropout rate is set to `config.dropout`.
        head: The LM head.
        chars: Character ids of all types, shape (types, C).
        config: The batch size and objective. `rows` is the number of rows of this process.
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
        self.state = LstmState.zeros(bilm.config.lstm, config.rows, like=head.weight)

    def __call__(self, batch: Batch, number: int, rate: float) -> StepResult:
        """Run step `number` with the learning rate `rate`."""
        self.bilm.train()
        frozen = number < self.optimizer.config.head_steps
        self.bilm.requires_grad_(not frozen)
        batch = self.group.union_words(batch, len(self.head.bias))
        losses, words = self.losses(batch, number)
        objective = self.config.gradient_scale * 0.5 * (losses[0] + losses[1])
        trained = [p for p in self.bilm.parameters() if not frozen]
        trained += [self.head.weight, self.head.bias]
        *gradients, weight, bias = torch.autograd.grad(objective, trained)
        head_gradients = {"weight": weight, "bias": bias}
        forward_loss, backward_loss = (loss.detach() for loss in losses)
        self.group.average([*gradients, forward_loss, backward_loss], head_gradients, words)
        rate_tensor = torch.tensor(rate, device=self.device)
        norm = self.optimizer.step(rate_tensor, gradients, head_gradients, words)
        return StepResult(forward_loss, backward_loss, norm)

    def losses(self, batch: Batch, number: int) -> tuple[list[Tensor], list[Tensor]]:
        """Return the mean loss of each direction, and lists of the used rows of the head."""
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
            sample = draw_negatives(self.config, n_words, number, direction, self.device)
            losses.append(self.head.sampled_loss(top, targets, sample).mean())
            words.append(sample.words)
            cells.append(cell.detach())
            hiddens.append(hidden.detach())
        self.state = LstmState(torch.stack(cells), torch.stack(hiddens))
        return losses, words

    @property
    def capacity(self) -> None:
        """None, because there are no fixed-size buffers."""

    def set_capacity(self, capacity: Mapping[int, int]) -> None:
        """Do nothing, because there are no fixed-size buffers."""

    def moments(self) -> dict[str, Tensor]:
        """Return views of the optimizer's moments, by kind of moment and parameter name."""
        moments = {
            f"{kind}.bilm.{name}": tensor
            for kind, tensors in self.optimizer.moments.items()
            for name, tensor in tensors.items()
        }
        return moments | self.optimizer.head_moments()

    def encode(self, batch: Batch) -> Tensor:
        """Return x_k of the distinct types of a batch, shape (U, D)."""
        # Each group has only as many character columns as its words need, to save computation.
        outputs, end = [], 0
        for columns, count in batch.groups:
            begin, end = end, end + count
            char_ids = self.chars[batch.types[begin:end], :columns].astype(np.int64)
            outputs.append(self.bilm.encoder(torch.from_numpy(char_ids).to(self.device)))
        return torch.cat(outputs)


@contextmanager
def explain_out_of_memory(config: StepConfig) -> Iterator[None]:
    """Convert out-of-memory errors of torch and NumPy to an `ElmoError` with advice."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        # For CPU memory, torch raises a RuntimeError and NumPy a MemoryError.
        is_memory_error = isinstance(error, torch.OutOfMemoryError | MemoryError)
        if not is_memory_error and "allocate memory" not in str(error):
            raise
        reason = (str(error).splitlines() or ["out of memory"])[0].rstrip(".")
        raise ElmoError(
            f"There is not enough memory for {plural(config.rows, 'row')} of "
            f"{plural(config.steps, 'step')}: {reason}. Use fewer rows (--set "
            f"step.rows={max(1, config.rows // 2)}) or a smaller preset. To continue from the last "
            "checkpoint, use --resume."
        ) from error
