"""The training step for CUDA GPUs, with the fused kernels of `model/kernels/` in bfloat16.

Master weights, cell states and the optimizer state are in float32. A step is captured in a CUDA
graph with fixed-size buffers, so the CPU only needs to copy the inputs and replay the graph. Types
and target words, whose numbers vary between batches, are padded to the size of the buffers (the
capacity). This does not change the results. If a batch does not fit, a new graph with larger
buffers is captured.

With several processes, no graph is captured, because the gradients are averaged during the step. If
ranks captured new graphs in different steps, the order of communication would differ.
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

# Buffers are larger than needed, so that most later batches fit. Their sizes are multiples of
# _BLOCK.
_GROWTH, _BLOCK = 1.08, 128


class FastStep:
    """A fast implementation of `PlainStep` for a GPU.

    Args:
        bilm: The model, on a CUDA device. Its LSTM parameters become views of stacked tensors.
        head: The LM head, on the same device.
        chars: Character ids of all types. They are copied to the device.
        config: The batch size and objective. `rows` is the number of rows of this process.
        optimizer: The settings of the optimizer.
        dtype: The dtype of matrix products.
        cuda_graphs: Capture the step in a CUDA graph, unless there are several processes.
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
        cuda_graphs: bool = True,
        group: Group = SINGLE_PROCESS,
    ) -> None:
        assert isinstance(bilm.encoder, CharacterEncoder)
        self.bilm, self.head, self.config = bilm, head, config
        self.encoder: CharacterEncoder = bilm.encoder
        self.device, self.dtype = head.weight.device, dtype
        self.group = group
        self.cuda_graphs = cuda_graphs and self.device.type == "cuda" and group.world_size == 1
        self.chars = torch.from_numpy(np.asarray(chars).astype(np.int16)).to(self.device)
        lstm, rows, steps = bilm.config.lstm, config.rows, config.steps
        self.wave = Wavefront(
            lstm, rows, steps, dropout=config.dropout, dtype=dtype, device=self.device
        )
        self.weights = StackedWeights.from_bilm(bilm)
        # LSTM gradients are computed in `dtype`, but sums over ranks require more precision.
        gradient_dtype = dtype if group.world_size == 1 else torch.float32
        self.d_weights = StackedWeights.zeros(lstm, self.device, gradient_dtype)
        self.optimizer = self._make_optimizer(optimizer)
        # Zero at the start of each step: the optimizer clears the rows that the last step used.
        self.head_gradients = {
            name: torch.zeros_like(parameter.data) for name, parameter in head.named_parameters()
        }
        self.cell = torch.zeros(2 * lstm.n_layers, rows, lstm.dim, device=self.device)
        self.hidden = self.cell.new_zeros(2 * lstm.n_layers, rows, lstm.projection_dim, dtype=dtype)
        self.negatives = Negatives(config, len(head.bias), self.device)
        self.result = torch.zeros(3, device=self.device)
        #: The maximum number of types for each number of columns. Key 0 holds the maximum number of
        #: distinct target words.
        self.capacity: dict[int, int] = {0: 0}
        self.frozen = False  # whether only the head is trained
        self._run: Callable[[], None] = self._compute
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
        """The LSTM states of the rows, in the layout of the reference implementation."""
        return LstmState(*map(_split_directions, (self.cell, self.hidden.float())))

    @state.setter
    def state(self, state: LstmState) -> None:
        self.cell.copy_(state.cell.transpose(0, 1).flatten(0, 1))
        self.hidden.copy_(state.hidden.transpose(0, 1).flatten(0, 1))
        # The state is set when a checkpoint is loaded. A captured graph would use old weights.
        self._reset_graph()

    def moments(self) -> dict[str, Tensor]:
        """Return views of the optimizer's moments, by kind of moment and parameter name."""
        moments: dict[str, Tensor] = {}
        for kind, tensors in self.optimizer.moments.items():
            stacked = StackedWeights(*(tensors[name] for name in StackedWeights._fields))
            views = stacked.by_parameter()
            views |= {n: t for n, t in tensors.items() if n not in StackedWeights._fields}
            moments |= {f"{kind}.bilm.{name}": tensor for name, tensor in views.items()}
        return moments | self.optimizer.head_moments()

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

    def _compute(self, *, captured: bool = False) -> None:
        """Compute a step on the device, with the inputs and outputs in buffers.

        Args:
            captured: Whether this call is captured in a CUDA graph.
        """
        wave = self.wave
        # In a graph, FusedAdamW updates the copies of the weights at the end of each step.
        if not (captured and isinstance(self.optimizer, FusedAdamW)):
            wave.load_weights(self.weights)
        wave.load_state(self.cell, self.hidden)
        x_types = encode_types(EncoderWeights.of(self.encoder, self.dtype), self._groups())
        top = wave.forward(x_types.detach(), self.index)
        negatives, losses, d_tops = self.negatives, [], []
        n_words = len(self.head.bias)
        for direction in (0, 1):
            sample = Sample(negatives.words[direction], negatives.time[direction], n_words)
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
        words = [self.target_words, *negatives.words]
        self.group.average([*gradients, *losses], self.head_gradients, words)
        norm = self.optimizer.step(self.rate, gradients, self.head_gradients, words, self.n_targets)
        for state, new_state in zip((self.cell, self.hidden), wave.state(), strict=True):
            state.copy_(new_state)
        self.result.copy_(torch.stack([*losses, norm]))

    def _gradients(self, x_types: Tensor, d_out: Tensor) -> list[Tensor]:
        """Return the gradients of the biLM, given the gradients of its top outputs."""
        d_types = self.wave.backward(d_out, self.index, len(x_types), self.d_weights)
        parameters = list(self.encoder.parameters())
        gradients = torch.autograd.grad(x_types, parameters, d_types.to(self.dtype))
        return [*(g.contiguous() for g in gradients), *self.d_weights]

    def _groups(self) -> list[Tensor]:
        """Return the character ids of the types in the buffer, grouped by number of columns."""
        columns = [c for c in sorted(self.capacity) if c > 0]
        groups = torch.split(self.types, [self.capacity[c] for c in columns])
        return [self.chars[group][:, :c] for group, c in zip(groups, columns, strict=True)]

    # ----------------------------------------------------------------------------------- buffers

    def _fits(self, batch: Batch) -> bool:
        fits = [self.capacity.get(columns, 0) >= count for columns, count in batch.groups]
        return all(fits) and len(self.target_words) >= len(batch.words)

    def _grow(self, batch: Batch) -> None:
        for columns, count in [*batch.groups, (0, len(batch.words))]:
            if self.capacity.get(columns, 0) < count:
                self.capacity[columns] = -(-int(count * _GROWTH) // _BLOCK) * _BLOCK
        # There cannot be more distinct words than there are in the vocabulary.
        self.capacity[0] = min(self.capacity[0], len(self.head.bias))
        self.set_capacity(self.capacity)

    def set_capacity(self, capacity: Mapping[int, int]) -> None:
        """Allocate buffers for the inputs (see `capacity`)."""
        self.capacity = dict(capacity)
        n_types = sum(n for columns, n in capacity.items() if columns > 0)
        shape = (2, self.config.steps, self.config.rows)
        self.staging = Staging(
            {
                "types": ((n_types,), torch.int64),
                "target_words": ((capacity[0],), torch.int64),
                "n_targets": ((), torch.int64),
                "index": (shape, torch.int64),
                "targets": (shape, torch.int64),
                "starts": (shape, torch.uint8),
                "seed": ((1,), torch.int64),
                "rate": ((), torch.float32),
            },
            self.device,
        )
        on_device = self.staging.on_device
        self.types, self.rate = on_device["types"], on_device["rate"]
        self.target_words, self.n_targets = on_device["target_words"], on_device["n_targets"]
        self.index, self.targets = on_device["index"], on_device["targets"]
        self.wave.starts, self.wave.seed = on_device["starts"], on_device["seed"]
        self._reset_graph()

    def _reset_graph(self) -> None:
        """Capture a new graph in the next step, because weights, buffers or `frozen` changed."""
        self._run = self._capture if self.cuda_graphs else self._compute

    def _load(self, batch: Batch, number: int, rate: float) -> None:
        """Copy the inputs of a step to the buffers, padded to their capacity."""
        on_host = self.staging.next()
        types = on_host["types"]
        positions = np.empty(len(batch.types), dtype=np.int64)  # of each type in the buffer
        counts = dict(batch.groups)
        start = source = 0
        for columns in (c for c in sorted(self.capacity) if c > 0):
            n = counts.get(columns, 0)
            end = start + self.capacity[columns]
            types[start : start + n] = batch.types[source : source + n]
            positions[source : source + n] = np.arange(start, start + n)
            # Pad with a short word. The index does not refer to the padding.
            types[start + n : end] = batch.types[0]
            start, source = end, source + n
        np.take(positions, batch.index, out=on_host["index"])
        on_host["targets"][...] = batch.targets
        on_host["target_words"][:] = np.resize(batch.words, len(self.target_words))
        on_host["n_targets"][...] = len(batch.words)
        on_host["starts"][...] = batch.starts
        # The rank is added to the upper 32 bits, so that dropout masks differ between ranks.
        on_host["seed"][0] = self.config.seed * 1_000_003 + number + (self.group.rank << 32)
        on_host["rate"][...] = rate
        self.staging.send()

    def _capture(self) -> None:
        """Run a step without a graph, then capture a graph for the next steps."""
        self._compute()
        torch.cuda.synchronize()
        snapshot = [t.clone() for t in self._mutable_tensors()]
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            self._compute()  # warm up the allocator and cuBLAS on this stream
            stream.synchronize()
            with torch.cuda.graph(graph, stream=stream):
                self._compute(captured=True)
        torch.cuda.current_stream().wait_stream(stream)
        for tensor, saved in zip(self._mutable_tensors(), snapshot, strict=True):
            tensor.copy_(saved)
        self.wave.load_weights(self.weights)
        self._run = graph.replay

    def _mutable_tensors(self) -> list[Tensor]:
        """Return all tensors that a step changes. They are restored after a graph is captured."""
        moments = (*self.optimizer.moments.values(), *self.optimizer.row_moments.values())
        tensors = [*self.optimizer.tensors.values(), *self.optimizer.head.values()]
        tensors += [t for moment in moments for t in moment.values()]
        return [*tensors, self.optimizer.count, self.cell, self.hidden, self.result]


def _split_directions(stacked: Tensor) -> Tensor:
    """Convert a tensor with alternating directions, (2L, B, n), to the shape (2, L, B, n)."""
    return stacked.view(-1, 2, *stacked.shape[1:]).transpose(0, 1)
