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
- On GPUs the order of sums in a reduction may vary between runs, so that results may differ.
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

# The others wait for rank 0 to evaluate and export; a rank that died is noticed at once anyway, by
# the closed connection or by torchrun.
_PATIENCE = timedelta(hours=2)


class RankLostError(ElmoError):
    """Another rank is gone."""


class RanksDifferError(ElmoError):
    """Ranks that should hold the same do not."""


@dataclass(frozen=True)
class Group:
    """The processes of a run as one of them sees them; a run in one process is a group of one.

    Everything here but `share` and `part` must be called by all ranks, at the same place.

    Attributes:
        rank: Number of this process.
        world: How many there are.
    """

    rank: int = 0
    world: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the rank that writes and speaks."""
        return self.rank == 0

    # -------------------------------------------------------------------------------------- rows

    def share(self, rows: int) -> range:
        """Return which of all rows this rank reads."""
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
        """Join the shares of all ranks, in the order of rows."""
        if self.world == 1:
            return part
        mine = part.contiguous()
        parts = [torch.empty_like(mine) for _ in range(self.world)]
        dist.all_gather(parts, mine)
        return torch.cat(parts, dim)

    # -------------------------------------------------------------------------------------- step

    def with_words_of_all(self, batch: Batch, n_words: int) -> Batch:
        """Return the batch with the words that should be said on any rank."""
        if self.world == 1:
            return batch
        said = torch.zeros(n_words, dtype=torch.uint8)
        said[torch.from_numpy(batch.words)] = 1
        # On the host, where the words are: a GPU goes on with its work meanwhile.
        dist.all_reduce(said, dist.ReduceOp.MAX)
        return dataclasses.replace(batch, words=np.flatnonzero(said.numpy()))

    @torch.no_grad()
    def average(
        self, tensors: Sequence[Tensor], head: Mapping[str, Tensor], words: Sequence[Tensor]
    ) -> None:
        """Put the mean over the ranks in the place of some tensors, in one reduction.

        Args:
            tensors: Gradients and losses.
            head: Gradients of the head by name, zero but in some rows.
            words: Those rows, the same on all ranks; repetitions are harmless.
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
        """Tell whether the flag is set on some rank; waits for all of them."""
        if self.world == 1:
            return flag
        flags = torch.tensor([int(flag)])
        dist.all_reduce(flags, dist.ReduceOp.MAX)
        return bool(flags.item())

    def from_first(self, values: dict[str, Any]) -> dict[str, Any]:
        """Give all ranks the plain values that rank 0 has; those of the others do not count."""
        if self.world == 1:
            return values
        written = json.dumps(values).encode()
        size = torch.tensor([len(written)])
        dist.broadcast(size, 0)
        text = torch.zeros(int(size.item()), dtype=torch.uint8)
        if self.first:
            text = torch.frombuffer(bytearray(written), dtype=torch.uint8)
        dist.broadcast(text, 0)
        read: dict[str, Any] = json.loads(text.numpy().tobytes())
        return read

    def check_same(self, what: str, tensors: Iterable[Tensor]) -> None:
        """Raise on all ranks if tensors are not the same to the bit on all of them."""
        if self.world == 1:
            return
        digest = hashlib.sha256()
        for tensor in tensors:
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        mine = torch.frombuffer(bytearray(digest.digest()[:8]), dtype=torch.int64)
        found = self.gather(mine, 0).tolist()
        if len(set(found)) > 1:
            ranks = [rank for rank, value in enumerate(found) if value != found[0]]
            raise RanksDifferError(
                f"The {what} of rank {', '.join(map(str, ranks))} is not that of rank 0. All ranks "
                "need the same version of elmokit and torch, the same settings, and folders DATA "
                "and RUN that all of them see. Then go on with --resume."
            )


#: One process on its own.
ALONE = Group()


@contextmanager
def join(device: torch.device) -> Iterator[tuple[Group, torch.device]]:
    """Join the processes that torchrun has started, if it has, until the end of the block.

    Args:
        device: What the user asked for.

    Yields:
        The group, and the device of this rank.
    """
    # torchrun's variables; Slurm or Kubernetes set-ups for PyTorch give the same.
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1 or "RANK" not in os.environ:
        yield ALONE, device
        return
    if device.type == "cuda":
        device = _own_gpu(device)
        torch.cuda.set_device(device)
    # Decisions are made by the hosts over gloo, so that no GPU is waited for.
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=_PATIENCE)
    group = Group(dist.get_rank(), dist.get_world_size())
    try:
        yield group, device
        # A rank that leaves early makes torchrun end the others, which may still be writing.
        group.any(False)
    except RuntimeError as error:
        if "gloo" not in str(error):
            raise
        raise RankLostError(
            f"Rank {group.rank} lost another rank ({error}). What that one said tells why; "
            "--resume goes on from the last checkpoint, on any number of ranks."
        ) from error
    finally:
        dist.destroy_process_group()


def _own_gpu(device: torch.device) -> torch.device:
    """Return the GPU of this rank among those of its machine."""
    local, here = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if device.index is not None:
        raise ConfigError(
            f"Several processes cannot share the one GPU '{device}': use --device cuda, and each "
            "takes its own. CUDA_VISIBLE_DEVICES says which ones there are."
        )
    if local >= here:
        raise ConfigError(
            f"Process {local} of this machine has no GPU: there are {here}. Start at most as many "
            "with --nproc_per_node, or use --device cpu."
        )
    return torch.device("cuda", local)
