"""Both language models in parallel on a CPU, with exact or int8 layers.

The two directions are independent, so that each runs in its own thread with half of the cores. They
need no synchronization, unlike two halves of one product. Layers write directly to the result.

The reference implementation is `elmokit.model.bilm.BiLM`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from elmokit.config import LstmConfig
from elmokit.model.bilm import BiLM
from elmokit.model.kernels.cpu_encoder import cpu_encoder
from elmokit.model.lstm import LstmLayer, LstmState
from elmokit.model.packing import Packing


class CpuLayer(Protocol):
    """One layer of one direction, ready to run."""

    def read(self, x: Tensor, active: list[int], cell: Tensor, hidden: Tensor) -> Tensor:
        """Read a packed batch from left to right; the states are changed in place.

        Shape:
            x (N, D), cell (B, H), hidden (B, D) -> outputs r (N, D), without the skip
        """


class CpuReader:
    """A biLM for inference on a CPU.

    Args:
        bilm: The reference modules, on a CPU.
        make_layer: Creates the kernel of a layer.
    """

    def __init__(self, bilm: BiLM, make_layer: Callable[[LstmLayer], CpuLayer]) -> None:
        self.config = bilm.config
        with torch.no_grad():
            self._encoder = cpu_encoder(bilm.encoder)
            self._directions: list[list[CpuLayer]] = []
            for stack in (bilm.forward_lm, bilm.backward_lm):
                layers = [layer for layer in stack.layers if isinstance(layer, LstmLayer)]
                self._directions.append([make_layer(layer) for layer in layers])

    def encode(self, ids: Tensor) -> Tensor:
        """Return x of distinct tokens.

        Shape:
            ids (n, C) or (n,) -> (n, D)
        """
        return self._encoder(ids)

    def contextualize(
        self,
        x: Tensor,
        packing: Packing,
        state: LstmState | None = None,
        backward_x: Tensor | None = None,
    ) -> tuple[Tensor, LstmState]:
        """Run both language models, as `BiLM.contextualize` does, without gradients."""
        config = self.config.lstm
        inputs = (x, x if backward_x is None else backward_x)
        reversal = torch.from_numpy(packing.reversal)
        last = sorted_state(state, config, packing, x)  # changed in place
        d = config.projection_dim
        layers = x.new_empty(self.config.n_layers, len(x), 2 * d)
        layers[0, :, :d], layers[0, :, d:] = inputs

        def read(direction: int) -> None:
            h = inputs[direction] if direction == 0 else inputs[direction][reversal]
            for j, layer in enumerate(self._directions[direction]):
                cell, hidden = last.cell[direction, j], last.hidden[direction, j]
                r = layer.read(h, packing.active, cell, hidden)
                h = r.add_(h) if j > 0 and config.use_skip_connections else r
                half = layers[j + 1, :, direction * d : (direction + 1) * d]
                half.copy_(h if direction == 0 else h[reversal])

        side_by_side([lambda: read(0), lambda: read(1)])
        return layers, unsorted_state(last, packing)


def sorted_state(
    state: LstmState | None, config: LstmConfig, packing: Packing, like: Tensor
) -> LstmState:
    """Return a copy of a state (None is the zero state) in the order of packed rows."""
    if state is None:
        return LstmState.zeros(config, len(packing.order), like=like)
    return state.select(torch.from_numpy(packing.order))


def unsorted_state(state: LstmState, packing: Packing) -> LstmState:
    """Return a state in the order of the caller's sentences."""
    if len(packing.order) == 1:
        return state
    return state.select(torch.argsort(torch.from_numpy(packing.order)))


def side_by_side(jobs: Sequence[Callable[[], None]]) -> None:
    """Run jobs in parallel, each in a thread with its share of torch's threads.

    The calling thread runs the first job. With one thread they run one after the other.
    """
    cores = torch.get_num_threads()
    inference = torch.is_inference_mode_enabled()
    errors: list[BaseException] = []

    def work(job: Callable[[], None]) -> None:
        try:
            # Both settings are per thread.
            torch.set_num_threads(max(1, cores // len(jobs)))
            with torch.inference_mode(inference), torch.no_grad():
                job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(job,)) for job in jobs[1:] if cores > 1]
    for thread in threads:
        thread.start()
    for job in jobs[:1] if threads else jobs:
        work(job)
    for thread in threads:
        thread.join()
    torch.set_num_threads(cores)
    if errors:
        raise errors[0]


def pieces(active: list[int], tokens: int) -> list[list[int]]:
    """Divide the time steps into pieces of about `tokens` tokens, with at least one step each."""
    result: list[list[int]] = []
    size = tokens
    for n in active:
        if size + n > tokens:
            result.append([])
            size = 0
        result[-1].append(n)
        size += n
    return result
