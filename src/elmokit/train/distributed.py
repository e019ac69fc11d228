"""Data-parallel training in several processes, on one or more machines.

    torchrun --standalone --nproc_per_node=2 -m elmokit.train DATA -o RUN --preset original

Each process ("rank") has a copy of the model and reads an equal share of the `step.rows` rows. In
each step, the gradients are averaged over all ranks, and each rank applies the same update. All
ranks must have access to the directories DATA and RUN. Only rank 0 writes, evaluates and logs.

`DistributedDataParallel` is not used, because it relies on autograd hooks, while `FastStep`
computes most gradients without autograd. In addition, `DistributedDataParallel` would send the
entire gradient of the head. Here, only the rows that at least one rank has used are sent: the
negatives, which are the same on all ranks because they depend only on (seed, step, direction), and
the target words of all ranks.

Compared to a single process with the same settings:

- The documents and restarts of each row, the negatives and the schedule are identical.
- Losses, gradients and clipping also use the mean over all rows, but the order of summation is
  different. In float32 without dropout, losses agree to within about 1e-6.
- Dropout masks are different. They depend on the seed and the rank.

On a CPU, a run that is resumed with the same number of ranks is bit-identical to an uninterrupted
run, including dropout. With a different number of ranks, it continues from the same weights,
optimizer moments, LSTM states and position in the text, but all ranks except the first draw new
dropout masks. On GPUs, the order of summation can vary between runs, so results can differ
slightly.
"""

from __future__ import annotations

import dataclasses
import hashlib
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
from elmokit.progress import plural
from elmokit.train.batches import Batch

# Long, because other ranks wait while rank 0 evaluates and exports. If a rank exits, the closed
# connection or torchrun stops the others before the timeout.
_TIMEOUT = timedelta(hours=2)


@dataclass(frozen=True)
class Group:
    """The processes of a run.

    Except for `local_rows` and `local_slice`, all ranks must call the same methods in the same
    order.

    Attributes:
        rank: Index of this process.
        world_size: Number of processes.
    """

    rank: int = 0
    world_size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that writes and logs."""
        return self.rank == 0

    # -------------------------------------------------------------------------------------- rows

    def local_rows(self, rows: int) -> range:
        """Return the indices of the rows of this rank."""
        if rows % self.world_size:
            multiple = -(-rows // self.world_size) * self.world_size
            raise ConfigError(
                f"{rows} rows cannot be divided evenly among {self.world_size} processes. Set "
                f"step.rows to a multiple of {self.world_size}, for example {multiple}."
            )
        n = rows // self.world_size
        return range(self.rank * n, (self.rank + 1) * n)

    def local_slice(self, tensor: Tensor, dim: int) -> Tensor:
        """Return the rows of this rank from a tensor of all rows."""
        return tensor.chunk(self.world_size, dim)[self.rank]

    def gather(self, tensor: Tensor, dim: int) -> Tensor:
        """Concatenate the tensors of all ranks, in row order."""
        if self.world_size == 1:
            return tensor
        tensor = tensor.contiguous()
        gathered = [torch.empty_like(tensor) for _ in range(self.world_size)]
        dist.all_gather(gathered, tensor)
        return torch.cat(gathered, dim)

    # -------------------------------------------------------------------------------------- step

    def union_words(self, batch: Batch, n_words: int) -> Batch:
        """Return the batch with `words` replaced by the target words of all ranks."""
        if self.world_size == 1:
            return batch
        is_used = torch.zeros(n_words, dtype=torch.uint8)
        is_used[torch.from_numpy(batch.words)] = 1
        # The words are on the CPU. Reducing them there does not wait for the GPU.
        dist.all_reduce(is_used, dist.ReduceOp.MAX)
        return dataclasses.replace(batch, words=np.flatnonzero(is_used.numpy()))

    @torch.no_grad()
    def average(
        self, tensors: Sequence[Tensor], head: Mapping[str, Tensor], words: Sequence[Tensor]
    ) -> None:
        """Replace tensors with their means over all ranks, in a single reduction.

        Args:
            tensors: Gradients and losses.
            head: Gradients of the head, by name. All rows except those in `words` are zero.
            words: Indices of rows of the head, the same on all ranks. They may contain duplicates.
        """
        if self.world_size == 1:
            return
        rows = torch.cat(list(words))
        values = [*tensors, *(gradient[rows] for gradient in head.values())]
        flat = torch.cat([value.reshape(-1) for value in values])
        dist.all_reduce(flat)
        flat /= self.world_size
        sizes = [value.numel() for value in values]
        means = [
            mean.view(value.shape)
            for mean, value in zip(torch.split(flat, sizes), values, strict=True)
        ]
        for tensor, mean in zip(tensors, means, strict=False):
            tensor.copy_(mean)
        for gradient, mean in zip(head.values(), means[len(tensors) :], strict=True):
            gradient.index_copy_(0, rows, mean)

    # -------------------------------------------------------------------------------------- host

    def any(self, flag: bool) -> bool:
        """Return whether `flag` is True on any rank."""
        if self.world_size == 1:
            return flag
        flags = torch.tensor([int(flag)])
        dist.all_reduce(flags, dist.ReduceOp.MAX)
        return bool(flags.item())

    def broadcast(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the values of rank 0 on all ranks."""
        shared = [values]
        if self.world_size > 1:
            dist.broadcast_object_list(shared)
        return shared[0]

    def check_identical(self, description: str, tensors: Iterable[Tensor]) -> None:
        """Raise an error on all ranks unless the tensors of all ranks are bit-identical."""
        if self.world_size == 1:
            return
        digest = hashlib.sha256()
        for tensor in tensors:
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        local_digest = torch.frombuffer(bytearray(digest.digest()[:8]), dtype=torch.int64)
        digests = self.gather(local_digest, 0).tolist()
        if len(set(digests)) > 1:
            ranks = [rank for rank, value in enumerate(digests) if value != digests[0]]
            noun = "rank" if len(ranks) == 1 else "ranks"
            raise ElmoError(
                f"The {description} of {noun} {', '.join(map(str, ranks))} differ from those of "
                "rank 0. All ranks must use the same versions of elmokit and torch, and the same "
                "settings, DATA and RUN. Fix the differences, then continue with --resume."
            )


#: The group of a run with a single process.
SINGLE_PROCESS = Group()


@contextmanager
def join(device: torch.device) -> Iterator[tuple[Group, torch.device]]:
    """Connect the processes started by torchrun, if any, for the duration of a `with` block.

    Args:
        device: The requested device.

    Yields:
        The group, and the device of this rank.
    """
    # Launchers for Slurm and Kubernetes set the same variables as torchrun.
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if world_size == 1 or "RANK" not in os.environ:
        yield SINGLE_PROCESS, device
        return
    if device.type == "cuda":
        device = _local_gpu(device)
        torch.cuda.set_device(device)
    # CPU tensors are sent with gloo, which does not wait for the GPU.
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=_TIMEOUT)
    group = Group(dist.get_rank(), dist.get_world_size())
    try:
        yield group, device
        group.any(False)  # wait for all ranks, because torchrun stops the others when one exits
    except RuntimeError as error:
        if "gloo" not in str(error):
            raise
        raise ElmoError(
            f"Rank {group.rank} lost the connection to another rank ({error}). Check the output of "
            "that rank. To continue from the last checkpoint, use --resume."
        ) from error
    finally:
        dist.destroy_process_group()


def _local_gpu(device: torch.device) -> torch.device:
    """Return the GPU of this rank on its machine."""
    local_rank, n_gpus = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if device.index is not None:
        raise ConfigError(
            f"Several processes cannot share the GPU '{device}'. Use --device cuda, which assigns "
            "a GPU to each process. To select GPUs, set CUDA_VISIBLE_DEVICES."
        )
    if local_rank >= n_gpus:
        advice = f"Reduce --nproc_per_node to at most {n_gpus}, or use" if n_gpus else "Use"
        raise ConfigError(
            f"There is no GPU for process {local_rank}: this machine has {plural(n_gpus, 'GPU')}. "
            f"{advice} --device cpu."
        )
    return torch.device("cuda", local_rank)
