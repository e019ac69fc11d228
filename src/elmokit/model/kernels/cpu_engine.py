"""Run both language models in parallel on a CPU, with torch, in float32 or int8.

The two directions are independent, so each runs in its own thread with half of the cores. Unlike
parallel matrix products, this requires no synchronization. Layers write directly to the result.

In int8, x_k and r_{k-1} are quantized to 8 bits, and the input of the projection to 16 bits (see
`quantize.py` for the reason). Biases, gates and states are in float32.

The reference implementation is `elmokit.model.bilm.BiLM`; in float32, only the order of
summation differs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from elmokit.model.bilm import BiLM
from elmokit.model.charcnn import CharacterEncoder
from elmokit.model.engine import PlainEngine
from elmokit.model.kernels.cpu_encoder import CpuEncoder
from elmokit.model.kernels.cpu_linear import Int8Linear, PackedLinear
from elmokit.model.lstm import FORGET_BIAS, LstmLayer, LstmStack, LstmState
from elmokit.model.packing import Packing, step_chunks

# Maximum number of tokens for which W_x x is computed at once. The products of more tokens would
# not fit into the CPU caches, and above 32 MiB, the allocator would request new pages from the
# operating system every time.
_TOKENS_AT_ONCE = 256

Layer = TypeVar("Layer")


class CpuEngine(ABC):
    """An `Engine` for CPUs.

    Args:
        bilm: The reference modules, on a CPU.
    """

    def __init__(self, bilm: BiLM) -> None:
        self.config = bilm.config
        self.encode: Callable[[Tensor], Tensor] = PlainEngine(bilm).encode
        if isinstance(bilm.encoder, CharacterEncoder):
            with torch.no_grad():
                self.encode = CpuEncoder(bilm.encoder)

    def contextualize(
        self,
        x: Tensor,
        packing: Packing,
        state: LstmState | None = None,
        backward_x: Tensor | None = None,
    ) -> tuple[Tensor, LstmState]:
        """Compute the layers, as `BiLM.contextualize` does, without gradients."""
        d = self.config.lstm.projection_dim
        order = torch.from_numpy(packing.order)
        if state is None:
            state = LstmState.zeros(self.config.lstm, len(order), like=x)
        else:
            state = state.select(order)
        layers = x.new_empty(self.config.n_layers, len(x), 2 * d)
        layers[0, :, :d] = x
        layers[0, :, d:] = x if backward_x is None else backward_x
        run_in_parallel(self._jobs(layers, packing, state))
        return layers, state if len(order) == 1 else state.select(torch.argsort(order))

    @abstractmethod
    def _jobs(self, layers: Tensor, packing: Packing, state: LstmState) -> list[Callable[[], None]]:
        """Return jobs that process a packed batch and can run in parallel.

        Args:
            layers: The output. Only layer 0 is set. The jobs write the other layers.
            packing: The packing of the batch.
            state: The initial state, in packed order. The jobs update it in place.
        """


class TorchEngine(CpuEngine):
    """A `CpuEngine` that computes matrix products with torch.

    Args:
        bilm: The reference modules, on a CPU.
        int8: Compute the products of the LSTMs in int8 instead of float32.
    """

    def __init__(self, bilm: BiLM, *, int8: bool = False) -> None:
        super().__init__(bilm)
        self.is_int8 = int8
        self._directions = convert_layers(bilm, partial(_TorchLayer, int8=int8))

    def _jobs(self, layers: Tensor, packing: Packing, state: LstmState) -> list[Callable[[], None]]:
        d = self.config.lstm.projection_dim
        reversal = torch.from_numpy(packing.reversal)

        def run(direction: int) -> None:
            order = reversal if direction == 1 else slice(None)
            half = layers[:, :, direction * d : (direction + 1) * d]
            h = half[0, order].contiguous()
            for j, layer in enumerate(self._directions[direction]):
                r = layer(h, packing.active, state.cell[direction, j], state.hidden[direction, j])
                h = r.add_(h) if j > 0 and self.config.lstm.use_skip_connections else r
                half[j + 1] = h[order]

        return [partial(run, direction) for direction in (0, 1)]


def convert_layers(bilm: BiLM, convert: Callable[[LstmLayer], Layer]) -> list[list[Layer]]:
    """Convert the LSTM layers of both directions, in parallel."""
    converted: list[list[Layer]] = [[], []]

    def run(stack: LstmStack, result: list[Layer]) -> None:
        result += [convert(layer) for layer in stack.layers if isinstance(layer, LstmLayer)]

    stacks = (bilm.forward_lm, bilm.backward_lm)
    run_in_parallel([partial(run, *pair) for pair in zip(stacks, converted, strict=True)])
    return converted


class _TorchLayer:
    """One LSTM layer of one direction."""

    def __init__(self, layer: LstmLayer, *, int8: bool) -> None:
        linear = Int8Linear if int8 else PackedLinear
        self.config = layer.config
        self._input = linear(sigmoids_first(layer.weight_input), sigmoids_first_bias(layer))
        self._recurrent = linear(sigmoids_first(layer.weight_recurrent))
        self._projection: Int8Linear | PackedLinear | None = None
        if (weight := layer.weight_projection) is not None:
            self._projection = Int8Linear(weight, wide=True) if int8 else PackedLinear(weight)

    def __call__(self, x: Tensor, active: list[int], cell: Tensor, hidden: Tensor) -> Tensor:
        """Process a packed batch from left to right, and update the states in place.

        Shape:
            x (N, D), cell (B, H), hidden (B, D) -> outputs r (N, D), without the skip connection
        """
        out = torch.empty_like(x)
        start = 0
        for steps in step_chunks(active, _TOKENS_AT_ONCE):
            gates_x = self._input(x[start : start + sum(steps)])  # (tokens, 4H)
            for n, step_x in zip(steps, torch.split(gates_x, steps), strict=True):
                gates = self._recurrent(hidden[:n], step_x)
                h = _update_cells(gates, cell[:n], self.config.cell_clip)
                if self._projection is not None:
                    h = self._projection(h)
                    if self.config.proj_clip is not None:
                        h.clamp_(-self.config.proj_clip, self.config.proj_clip)
                out[start : start + n] = h
                hidden[:n] = h
                start += n
        return out


def _update_cells(gates: Tensor, cell: Tensor, clip: float | None) -> Tensor:
    """Update the cells in place, and return sigmoid(o) * tanh(c).

    Shape:
        gates (n, 4H) in the order i, f + 1, o, j (overwritten), cell (n, H) -> (n, H)
    """
    size = cell.shape[1]
    gates[:, : 3 * size].sigmoid_()
    i, f, o, j = gates.chunk(4, dim=1)
    cell.mul_(f).addcmul_(i, j.tanh_())
    if clip is not None:
        cell.clamp_(-clip, clip)
    return torch.tanh(cell).mul_(o)


def sigmoids_first(weight: Tensor) -> Tensor:
    """Reorder rows i, j, f, o to i, f, o, j, so that the three sigmoids are adjacent."""
    i, j, f, o = weight.detach().chunk(4, dim=0)
    return torch.cat([i, f, o, j])


def sigmoids_first_bias(layer: LstmLayer) -> Tensor:
    """Return the bias in the order of `sigmoids_first`, including the forget gate's constant."""
    i, j, f, o = layer.bias.detach().chunk(4, dim=0)
    return torch.cat([i, f + FORGET_BIAS, o, j])


def run_in_parallel(jobs: Sequence[Callable[[], None]]) -> None:
    """Run jobs in parallel, each in a thread with an equal share of torch's threads.

    The calling thread runs the first job. If torch uses only one thread, the calling thread runs
    all jobs.
    """
    n_threads = torch.get_num_threads()
    inference = torch.is_inference_mode_enabled()

    def run(job: Callable[[], None]) -> None:
        # The number of torch threads and inference mode are per-thread settings.
        torch.set_num_threads(max(1, n_threads // len(jobs)))
        with torch.inference_mode(inference), torch.no_grad():
            job()

    with ThreadPoolExecutor(len(jobs)) as pool:
        futures = [pool.submit(run, job) for job in jobs[1:] if n_threads > 1]
        try:
            for job in jobs[:1] if futures else jobs:
                run(job)
        finally:
            torch.set_num_threads(n_threads)
    for future in futures:
        future.result()
