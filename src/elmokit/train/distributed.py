"""Training in several processes, on one machine or many.

    torchrun --standalone --nproc_per_node=2 -m elmokit.train DATA -o RUN --preset original

Every process ("rank") holds the whole model and reads a fixed share of the rows: `step.rows` is the
total number of rows, and each rank reads one of n equal parts. In each step, gradients are averaged
over the ranks, and every rank applies the same update. DATA and RUN must be directories that all
ranks can access; only rank 0 writes, evaluates and logs.

`DistributedDataParallel` is not used: it hooks into autograd's accumulation, while the fast step
computes most gradients without autograd, and it would send the head's whole gradient. Only the rows
of the head that some rank has used are sent: the negatives, which are the same everywhere because
they depend only on (seed, step, direction), and the union of the target words.

Compared with one process and the same settings:

- The rows, their documents and restarts, the negatives and the schedule are bit-identical.
- Loss, gradient and clipping use the mean over all rows, as in one process, but in a different
  order of summation. Without dropout, in float32, losses agree to about 1e-6.
- Dropout masks differ: each rank draws its own, from (seed, rank).
- A run resumed on the same number of ranks is bit-identical on a CPU, including dropout. On another
  number of ranks, it continues from the same weights, averages, LSTM states and position in the
  text, with new dropout masks on all ranks except the first.
- On GPUs the order of sums in a reduction may vary between runs, so results may differ.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from elmokit.errors import ConfigError, ElmoError
from elmokit.train.batches import Batch

# Other ranks wait while rank 0 evaluates and exports. A rank that died is detected immediately, by
# its closed connection or by torchrun.
_TIMEOUT = timedelta(hours=2)


class RankLostError(ElmoError):
    """Another rank has exited."""


class RanksDifferError(ElmoError):
    """The weights of ranks differ."""


@dataclass(frozen=True)
class Group:
    """The processes of a run; a run in one process is a group of one.

    All methods except `share` and `part` must be called by all ranks in the same order.

    Attributes:
        rank: Number of this process.
        world: Number of processes.
    """

    rank: int = 0
    world: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that writes and logs."""
        return self.rank == 0

    # -------------------------------------------------------------------------------------- rows

    def share(self, rows: int) -> range:
        """Return the rows of this rank."""
        if rows % self.world:
            raise ConfigError(
                f"{rows} rows cannot be shared evenly by {self.world} processes. Set step.rows to "
                f"a multiple of {self.world}, such as {-(-rows // self.world) * self.world}."
            )
        each = rows // self.world
        return range(self.rank * each, (self.rank + 1) * each)

    def part(self, whole: Tensor, dim: int) -> Tensor:
        """Return this rank's share of a tensor over all rows."""
        return whole.chunk(self.world, dim)[self.rank]

    def gather(self, part: Tensor, dim: int) -> Tensor:
        """Concatenate the shares of all ranks, in the order of rows."""
        if self.world == 1:
            return part
        mine = part.contiguous()
        parts = [torch.empty_like(mine) for _ in range(self.world)]
        dist.all_gather(parts, mine)
        return torch.cat(parts, dim)

    # -------------------------------------------------------------------------------------- step

    def union_words(self, batch: Batch, n_words: int) -> Batch:
        """Return the batch with the target words of all ranks."""
        if self.world == 1:
            return batch
        used = torch.zeros(n_words, dtype=torch.uint8)
        used[torch.from_numpy(batch.words)] = 1
        # On the host, where the words are, so that a GPU does not wait.
        dist.all_reduce(used, dist.ReduceOp.MAX)
        return dataclasses.replace(batch, words=np.flatnonzero(used.numpy()))

    @torch.no_grad()
    def average(
        self, tensors: Sequence[Tensor], head: Mapping[str, Tensor], words: Sequence[Tensor]
    ) -> None:
        """Replace tensors by their mean over the ranks, in one reduction.

        Args:
            tensors: Gradients and losses.
            head: Gradients of the head by name, zero except in some rows.
            words: The indices of those rows, the same on all ranks; they may repeat.
        """
        if self.world == 1:
            return
        rows = torch.cat(list(words))
        parts = [*tensors, *(gradient[rows] for gradient in head.values())]
        flat = torch.cat([part.reshape(-1) for part in parts])
        dist.all_reduce(flat)
        flat /= self.world
        sizes = [part.numel() for part in parts]
        means = [
            mean.view(part.shape)
            for mean, part in zip(torch.split(flat, sizes), parts, strict=True)
        ]
        for tensor, mean in zip(tensors, means, strict=False):
            tensor.copy_(mean)
        for gradient, mean in zip(head.values(), means[len(tensors) :], strict=True):
            gradient.index_copy_(0, rows, mean)

    # --------------------------------------------------------------------------------- agreement

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set on any rank."""
        if self.world == 1:
            return flag
        flags = torch.tensor([int(flag)])
        dist.all_reduce(flags, dist.ReduceOp.MAX)
        return bool(flags.item())

    def broadcast(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the JSON values of rank 0 on all ranks."""
        if self.world == 1:
            return values
        encoded = json.dumps(values).encode()
        size = torch.tensor([len(encoded)])
        dist.broadcast(size, 0)
        text = torch.zeros(int(size.item()), dtype=torch.uint8)
        if self.is_first:
            text = torch.frombuffer(bytearray(encoded), dtype=torch.uint8)
        dist.broadcast(text, 0)
        received: dict[str, Any] = json.loads(text.numpy().tobytes())
        return received

    def check_same(self, what: str, tensors: Iterable[Tensor]) -> None:
        """Raise on all ranks if tensors are not bit-identical on all ranks."""
        if self.world == 1:
            return
        digest = hashlib.sha256()
        for tensor in tensors:
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        mine = torch.frombuffer(bytearray(digest.digest()[:8]), dtype=torch.int64)
        digests = self.gather(mine, 0).tolist()
        if len(set(digests)) > 1:
            ranks = [rank for rank, value in enumerate(digests) if value != digests[0]]
            raise RanksDifferError(
                f"The {what} of rank {', '.join(map(str, ranks))} differ from those of rank 0. All "
                "ranks need the same versions of elmokit and torch, the same settings, and access "
                "to the same directories DATA and RUN. Then continue with --resume."
            )


#: A single process.
SINGLE_PROCESS = Group()


@contextmanager
def join(device: torch.device) -> Iterator[tuple[Group, torch.device]]:
    """Join the processes started by torchrun, if any, until the end of the block.

    Args:
        device: The requested device.

    Yields:
        The group, and the device of this rank.
    """
    # Variables of torchrun; Slurm and Kubernetes setups for PyTorch set the same ones.
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1 or "RANK" not in os.environ:
        yield SINGLE_PROCESS, device
        return
    if device.type == "cuda":
        device = _local_gpu(device)
        torch.cuda.set_device(device)
    # Hosts communicate over gloo, so that they do not wait for a GPU.
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=_TIMEOUT)
    group = Group(dist.get_rank(), dist.get_world_size())
    try:
        yield group, device
        # If a rank exits early, torchrun ends the others, which may still be writing.
        group.any(False)
    except RuntimeError as error:
        if "gloo" not in str(error):
            raise
        raise RankLostError(
            f"Rank {group.rank} lost another rank ({error}). See the output of that rank for the "
            "reason; --resume continues from the last checkpoint, with any number of ranks."
        ) from error
    finally:
        dist.destroy_process_group()


def _local_gpu(device: torch.device) -> torch.device:
    """Return the GPU of this rank on its machine."""
    local_rank, n_gpus = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if device.index is not None:
        raise ConfigError(
            f"Several processes cannot share the GPU '{device}': use --device cuda, so that each "
            "process uses its own. CUDA_VISIBLE_DEVICES selects GPUs."
        )
    if local_rank >= n_gpus:
        raise ConfigError(
            f"Process {local_rank} has no GPU: this machine has {n_gpus}. Start at most {n_gpus} "
            "processes with --nproc_per_node, or use --device cpu."
        )
    return torch.device("cuda", local_rank)
