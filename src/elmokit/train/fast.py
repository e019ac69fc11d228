"""The training step on a CUDA GPU: the fused kernels of `model/kernels/`, in bfloat16.

Master weights, cells, gradients and the optimizer stay in float32. The whole step is one CUDA graph
over fixed buffers, so that the host only copies a few arrays and replays it. Inputs whose size
varies between batches (distinct words by length, target words) are padded to a capacity with
repetitions, which do not change results. A batch that does not fit makes the step record a larger
graph.

With several processes, no graph is recorded: gradients are reduced within the step, and ranks would
outgrow their graphs at different times, which would change the order of reductions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.model.bilm import BiLM
from elmokit.model.charcnn import CharacterEncoder
from elmokit.model.kernels.charcnn import EncoderWeights, encode_types
from elmokit.model.kernels.sampled_softmax import sampled_loss
from elmokit.model.kernels.wavefront import StackedWeights, Wavefront
from elmokit.model.lstm import LstmState
from elmokit.model.softmax import LMHead, Sample
from elmokit.train.batches import Batch
from elmokit.train.buffers import Negatives, Staging
from elmokit.train.distributed import SINGLE_PROCESS, Group
from elmokit.train.fused import FusedAdamW
from elmokit.train.optimizer import Optimizer, OptimizerConfig
from elmokit.train.step import StepConfig, StepResult

# Buffers are larger than needed, so that most later batches fit, and multiples of a block.
_SPARE, _BLOCK = 1.08, 128


class FastStep:
    """A fast implementation of `PlainStep` for a GPU.

    Args:
        bilm: The model, on a CUDA device; its LSTM parameters become views of stacked storage.
        head: The LM head, on the same device.
        chars: Character ids of every type, which are copied to the device.
        config: Shape and objective; `rows` are those of this process.
        optimizer: The settings of the optimizer.
        dtype: The type of matrix products.
        graphs: Record the step as a CUDA graph, unless there are several processes.
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
        dtype: torch.dtype = torch.bfloat16,
        graphs: bool = True,
        group: Group = SINGLE_PROCESS,
    ) -> None:
        assert isinstance(bilm.encoder, CharacterEncoder)
        self.bilm, self.head, self.config = bilm, head, config
        self.encoder: CharacterEncoder = bilm.encoder
        self.device, self.dtype = head.weight.device, dtype
        self.group = group
        self.graphs = graphs and self.device.type == "cuda" and group.world == 1
        self.chars = torch.from_numpy(np.asarray(chars).astype(np.int16)).to(self.device)
        lstm, rows, steps = bilm.config.lstm, config.rows, config.steps
        self.wave = Wavefront(
            lstm, rows, steps, dropout=config.dropout, dtype=dtype, device=self.device
        )
        self.weights = StackedWeights.adopt(bilm)
        # Products return gradients in their dtype; sums over ranks need more precision.
        kept = dtype if group.world == 1 else torch.float32
        self.d_weights = StackedWeights.like(lstm, self.device, kept)
        self.optimizer = self._make_optimizer(optimizer)
        # Zero except in a step; the optimizer clears the rows that the step has used.
        self.head_gradients = {
            name: torch.zeros_like(parameter.data) for name, parameter in head.named_parameters()
        }
        self.cell = torch.zeros(2 * lstm.n_layers, rows, lstm.dim, device=self.device)
        self.hidden = self.cell.new_zeros(2 * lstm.n_layers, rows, lstm.projection_dim, dtype=dtype)
        self.negatives = Negatives(config, len(head.bias), self.device)
        self.result = torch.zeros(3, device=self.device)
        #: Number of types by number of columns, and under 0 the number of target words.
        self.capacity: dict[int, int] = {0: 0}
        self.frozen = False  # whether only the head is trained
        self._run: Callable[[], None] = self._work
        self.set_capacity(self.capacity)

    def _make_optimizer(self, config: OptimizerConfig) -> Optimizer:
        tensors = {f"encoder.{name}": p.data for name, p in self.encoder.named_parameters()}
        tensors |= self.weights._asdict()
        if config.kind != "adamw":
            return Optimizer(tensors, self.head, config)
        return FusedAdamW(tensors, self.head, config, self.wave.weights()._asdict())

    # ------------------------------------------------------------------------------------- state

    @property
    def state(self) -> LstmState:
        """The LSTM states of the rows, in the layout of the reference modules."""
        return LstmState(*(_by_direction(part) for part in (self.cell, self.hidden.float())))

    @state.setter
    def state(self, state: LstmState) -> None:
        self.cell.copy_(state.cell.transpose(0, 1).flatten(0, 1))
        self.hidden.copy_(state.hidden.transpose(0, 1).flatten(0, 1))
        self._reset_graph()  # the weights were loaded as well; a recorded step has old copies

    def moments(self) -> dict[str, Tensor]:
        """Return the optimizer's moments, by kind and name of the parameter."""
        named: dict[str, Tensor] = {}
        for kind, tensors in self.optimizer.moments.items():
            stacked = StackedWeights(*(tensors[name] for name in StackedWeights._fields))
            views = stacked.by_parameter()
            views |= {n: t for n, t in tensors.items() if n not in StackedWeights._fields}
            named |= {f"{kind}.bilm.{name}": tensor for name, tensor in views.items()}
        return named | self.optimizer.head_moments()

    # -------------------------------------------------------------------------------------- step

    def __call__(self, batch: Batch, number: int, rate: float) -> StepResult:
        """Run step `number` with the learning rate `rate`."""
        frozen = number < self.optimizer.config.head_steps
        if frozen != self.frozen:
            self.frozen = frozen
            self._reset_graph()
        batch = self.group.union_words(batch, len(self.head.bias))
        if not self._fits(batch):
            self._grow(batch)
        self._load(batch, number, rate)
        self.negatives.load(number)
        self._run()
        forward_loss, backward_loss, norm = self.result.clone().unbind()
        return StepResult(forward_loss, backward_loss, norm)

    def _work(self, *, recorded: bool = False) -> None:
        """Run the device part of a step, from buffers to buffers."""
        wave = self.wave
        if not (recorded and isinstance(self.optimizer, FusedAdamW)):
            wave.load_weights(self.weights)  # the fused optimizer does it for the next step
        wave.load_state(self.cell, self.hidden)
        x_types = encode_types(EncoderWeights.of(self.encoder, self.dtype), self._groups())
        top = wave.forward(x_types.detach(), self.index)
        drawn, losses, d_tops = self.negatives, [], []
        for direction in (0, 1):
            sample = Sample(drawn.words[direction], drawn.time[direction], len(self.head.bias))
            loss, d_top = sampled_loss(
                top[direction].flatten(0, 1),
                self.targets[direction].flatten(),
                self.head.weight,
                self.head.bias,
                sample,
                self.head_gradients,
                share=0.5 * self.config.gradient_scale,
            )
            losses.append(loss)
            d_tops.append(d_top)
        d_out = torch.stack(d_tops).view_as(top)
        gradients = [] if self.frozen else self._gradients(x_types, d_out)
        words = [self.target_words, *drawn.words]
        self.group.average([*gradients, *losses], self.head_gradients, words)
        norm = self.optimizer.step(self.rate, gradients, self.head_gradients, words, self.n_targets)
        for mine, now in zip((self.cell, self.hidden), wave.state(), strict=True):
            mine.copy_(now)
        self.result.copy_(torch.stack([*losses, norm]))

    def _gradients(self, x_types: Tensor, d_out: Tensor) -> list[Tensor]:
        """Return the gradients of the biLM, given the gradient of its top outputs."""
        d_types = self.wave.backward(d_out, self.index, len(x_types), self.d_weights)
        learned = list(self.encoder.parameters())
        gradients = torch.autograd.grad(x_types, learned, d_types.to(self.dtype))
        return [*(g.contiguous() for g in gradients), *self.d_weights]

    def _groups(self) -> list[Tensor]:
        columns = [c for c in sorted(self.capacity) if c > 0]
        parts = torch.split(self.types, [self.capacity[c] for c in columns])
        return [self.chars[part][:, :c] for part, c in zip(parts, columns, strict=True)]

    # ----------------------------------------------------------------------------------- buffers

    def _fits(self, batch: Batch) -> bool:
        fits = [self.capacity.get(columns, 0) >= count for columns, count in batch.groups]
        return all(fits) and len(self.target_words) >= len(batch.words)

    def _grow(self, batch: Batch) -> None:
        for columns, count in [*batch.groups, (0, len(batch.words))]:
            if self.capacity.get(columns, 0) < count:
                self.capacity[columns] = -(-int(count * _SPARE) // _BLOCK) * _BLOCK
        # There cannot be more distinct words than in the vocabulary.
        self.capacity[0] = min(self.capacity[0], len(self.head.bias))
        self.set_capacity(self.capacity)

    def set_capacity(self, capacity: Mapping[int, int]) -> None:
        """Allocate buffers for numbers of types by columns (and, under 0, of target words)."""
        self.capacity = dict(capacity)
        n_types = sum(n for columns, n in capacity.items() if columns > 0)
        places = (2, self.config.steps, self.config.rows)
        self.staging = Staging(
            {
                "types": ((n_types,), torch.int64),
                "target_words": ((capacity[0],), torch.int64),
                "n_targets": ((), torch.int64),
                "index": (places, torch.int64),
                "targets": (places, torch.int64),
                "starts": (places, torch.uint8),
                "seed": ((1,), torch.int64),
                "rate": ((), torch.float32),
            },
            self.device,
        )
        there = self.staging.on_device
        self.types, self.rate = there["types"], there["rate"]
        self.target_words, self.n_targets = there["target_words"], there["n_targets"]
        self.index, self.targets = there["index"], there["targets"]
        self.wave.starts, self.wave.seed = there["starts"], there["seed"]
        self._reset_graph()

    def _reset_graph(self) -> None:
        """Record a new graph in the next step, because weights, buffers or phase have changed."""
        self._run = self._record if self.graphs else self._work

    def _load(self, batch: Batch, number: int, rate: float) -> None:
        """Copy the inputs of a step into the buffers, padded to their capacity."""
        here = self.staging.next()
        types = here["types"]
        moved = np.empty(len(batch.types), dtype=np.int64)  # place of each type in the buffer
        counts = dict(batch.groups)
        to = source = 0
        for columns in (c for c in sorted(self.capacity) if c > 0):
            n = counts.get(columns, 0)
            types[to : to + n] = batch.types[source : source + n]
            moved[source : source + n] = np.arange(to, to + n)
            # Padding is any word that needs no more columns; nothing refers to it.
            types[to + n : to + self.capacity[columns]] = batch.types[0]
            to, source = to + self.capacity[columns], source + n
        np.take(moved, batch.index, out=here["index"])
        here["targets"][...] = batch.targets
        here["target_words"][:] = np.resize(batch.words, len(self.target_words))
        here["n_targets"][...] = len(batch.words)
        here["starts"][...] = batch.starts
        # The rank is in the upper half, so that masks differ between ranks.
        here["seed"][0] = self.config.seed * 1_000_003 + number + (self.group.rank << 32)
        here["rate"][...] = rate
        self.staging.send()

    def _record(self) -> None:
        """Run the step once directly, then record it for the next steps."""
        self._work()
        torch.cuda.synchronize()
        snapshot = [t.clone() for t in self._changed()]
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            self._work()  # warm-up of the allocator and cuBLAS on this stream
            stream.synchronize()
            with torch.cuda.graph(graph, stream=stream):
                self._work(recorded=True)
        torch.cuda.current_stream().wait_stream(stream)
        for tensor, before in zip(self._changed(), snapshot, strict=True):
            tensor.copy_(before)
        self.wave.load_weights(self.weights)
        self._run = graph.replay

    def _changed(self) -> list[Tensor]:
        """Return all tensors that a step changes, which recording must restore."""
        moments = (*self.optimizer.moments.values(), *self.optimizer.row_moments.values())
        tensors = [*self.optimizer.tensors.values(), *self.optimizer.head.values()]
        tensors += [t for moment in moments for t in moment.values()]
        return [*tensors, self.optimizer.count, self.cell, self.hidden, self.result]


def _by_direction(stacked: Tensor) -> Tensor:
    """(2L, B, n), layer by layer -> (2, L, B, n)."""
    return stacked.view(-1, 2, *stacked.shape[1:]).transpose(0, 1)
