"""The layers of datasets, cached on disk and shared by processes, or computed on demand.

    CACHE/KEY.npy            h_{k,j} of all tokens in order, (N, L + 1, 2D), memory-mapped
    CACHE/.KEY.npy.*.tmp     the same file while it is being computed
    CACHE/KEY.lock           the lock of the process that computes the file

KEY is a digest of the model's weights, its precision, the state, the data type and the tokens, so
that vectors of another model or text are never used. The total size is limited: before a new file
is computed, the least recently used files are removed if necessary. Layers that do not fit into the
cache are computed whenever they are needed. Unfinished files do not count toward the limit, so
several processes that compute layers at the same time may exceed it until the next file is added.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.embed.fingerprint import fingerprint
from elmokit.embed.model import ElmoModel, StatePolicy
from elmokit.embed.vectors import SentenceVectors
from elmokit.errors import ConfigError, output_error
from elmokit.progress import LogFn, ProgressFn, no_log, plural
from elmokit.sources.download import cache_dir
from elmokit.storage.atomic import replace_file
from elmokit.storage.fingerprint import fingerprint_texts
from elmokit.storage.lock import file_lock

GIB = 1 << 30

Texts = Sequence[Sequence[str]]

# Layers are copied to a GPU if they need less than this fraction of its free memory.
_MAX_GPU_FRACTION = 0.25
_ROWS_AT_ONCE = 1 << 15  # tokens to copy to a GPU at once
_REPORT_EVERY = 512  # sentences
# The directory may also contain unrelated files. Only files with these names are removed.
_FINISHED = re.compile(r"[0-9a-f]{32}\.npy")
_UNFINISHED = re.compile(r"\.([0-9a-f]{32})\.npy\.[0-9a-f]{8}\.tmp")


class StoredLayers:
    """Precomputed layers, in memory, in a memory-mapped file or on a GPU.

    Args:
        values: h_{k,j} of all tokens of the distinct texts in order, (N, L + 1, 2D).
        lengths: Number of tokens of each distinct text.
        device: The device of the results.
        index: The index of each text among the distinct texts. Default: all texts are distinct.
        resident: Whether to keep all layers on the device. Default: only on a GPU with enough free
            memory.
    """

    def __init__(
        self,
        values: NDArray[Any],
        lengths: Sequence[int],
        device: torch.device,
        *,
        index: Sequence[int] | None = None,
        resident: bool | None = None,
    ) -> None:
        selection = slice(None) if index is None else np.array(index, dtype=np.int64)
        self._starts = np.cumsum([0, *lengths])[:-1].astype(np.int64)[selection]
        self._lengths = np.array(lengths, dtype=np.int64)[selection]
        self._device = device
        self._values = values
        self._on_device: Tensor | None = None
        if resident is None and device.type == "cuda":
            resident = values.nbytes < _MAX_GPU_FRACTION * torch.cuda.mem_get_info(device)[0]
        if resident:
            # The last row is zero, for padding.
            shape = (len(values) + 1, *values.shape[1:])
            dtype = torch.float16 if values.dtype == np.float16 else torch.float32
            tensor = torch.zeros(shape, dtype=dtype, device=device)
            for first in range(0, len(values), _ROWS_AT_ONCE):
                rows = np.array(values[first : first + _ROWS_AT_ONCE])
                tensor[first : first + len(rows)] = torch.from_numpy(rows).to(device)
            self._on_device = tensor

    def padded(self, indices: Sequence[int]) -> Tensor:
        """Return the layers of the texts with these indices, padded with zeros, in float32.

        Shape:
            indices (B,) -> (L + 1, B, T, 2D)
        """
        starts, lengths = self._starts[indices], self._lengths[indices]
        steps = np.arange(max(1, int(lengths.max(initial=0))))
        if self._on_device is not None:
            rows = np.where(steps < lengths[:, None], starts[:, None] + steps, len(self._values))
            layers = self._on_device[torch.from_numpy(rows).to(self._device)]  # (B, T, L + 1, 2D)
        else:
            shape = (len(indices), len(steps), *self._values.shape[1:])
            table = np.zeros(shape, dtype=self._values.dtype)
            for row, (start, length) in enumerate(zip(starts, lengths, strict=True)):
                table[row, :length] = self._values[start : start + length]
            layers = torch.from_numpy(table).to(self._device)
        return layers.permute(2, 0, 1, 3).float()


@dataclass(frozen=True)
class LiveLayers:
    """Layers that are computed on demand, and rounded like stored layers.

    Attributes:
        elmo: The model.
        texts: The tokenized texts.
        device: The device of the results.
        state: The initial state of each text, "reset" or "warm".
        storage: The data type of the layers, "float32" or "float16".
    """

    elmo: ElmoModel
    texts: Texts
    device: torch.device
    state: str
    storage: str

    def padded(self, indices: Sequence[int]) -> Tensor:
        """Return the layers of the texts with these indices; see `StoredLayers.padded`."""
        texts, index = _find_distinct([self.texts[i] for i in indices])
        arrays = self.elmo.compute(texts, cast(StatePolicy, self.state))
        values = _to_storage(np.concatenate(arrays, axis=1), self.storage).transpose(1, 0, 2)
        lengths = [len(text) for text in texts]
        stored = StoredLayers(values, lengths, self.device, index=index, resident=False)
        return stored.padded(range(len(indices)))


Layers = StoredLayers | LiveLayers


class LayerCache:
    """A directory of layers with a size limit.

    Args:
        folder: The directory. Default: `layers` in the cache directory (see `ELMOKIT_HOME`).
        max_bytes: Maximum total size; 0 disables the cache.
        log: Callback for messages.
        progress: Callback for the number of finished tokens.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        max_bytes: int = 8 * GIB,
        log: LogFn = no_log,
        progress: ProgressFn = no_log,
    ) -> None:
        self.folder = cache_dir() / "layers" if folder is None else Path(folder)
        self.max_bytes = max_bytes
        self._log = log
        self._progress = progress

    def layers(
        self,
        elmo: ElmoModel,
        texts: Texts,
        device: torch.device,
        *,
        state: str = "reset",
        storage: str = "float16",
    ) -> Layers:
        """Return the layers of texts, cached if they fit into the cache, otherwise live."""
        distinct, index = _find_distinct(texts)
        values = self.get_array(elmo, distinct, state=state, storage=storage)
        if values is None:
            return LiveLayers(elmo, texts, device, state=state, storage=storage)
        return StoredLayers(values, [len(text) for text in distinct], device, index=index)

    def get_array(
        self, elmo: ElmoModel, texts: Texts, *, state: str = "reset", storage: str = "float16"
    ) -> NDArray[Any] | None:
        """Return the layers of all tokens of the texts in order, shape (N, L + 1, 2D).

        The array is memory-mapped. Returns None if it does not fit into the cache.
        """
        shape = (sum(map(len, texts)), elmo.config.n_layers, elmo.config.output_dim)
        n_bytes = int(np.prod(shape)) * np.dtype(storage).itemsize
        if not n_bytes:
            return np.zeros(shape, dtype=storage)
        if n_bytes > self.max_bytes:
            if self.max_bytes:
                self._log(
                    f"The layers of {plural(shape[0], 'token')} need {n_bytes / GIB:.2f} GB, more "
                    f"than the maximum size of the cache ({self.max_bytes / GIB:g} GB), and are "
                    "computed again in every epoch. Increase --cache-gb for faster training."
                )
            return None
        parts = [fingerprint(elmo, state), elmo.precision, state, storage, json.dumps(texts)]
        path = self.folder / f"{fingerprint_texts(parts)}.npy"
        values = _open(path, shape, storage)
        if values is not None:
            return values
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with file_lock(path.with_suffix(".lock")):
                values = _open(path, shape, storage)  # another process may have computed it
                if values is None:
                    self._free_space(path.stem, n_bytes)
                    with replace_file(path) as temporary:
                        vectors = elmo.stream(texts, cast(StatePolicy, state))
                        self._write(temporary, shape, storage, vectors)
                    values = _open(path, shape, storage)
        except OSError as error:
            raise output_error(path, error) from error
        return values

    def _write(
        self, path: Path, shape: tuple[int, ...], storage: str, vectors: Iterable[SentenceVectors]
    ) -> None:
        header = {"descr": np.dtype(storage).str, "fortran_order": False, "shape": shape}
        with path.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            n_done = 0
            for number, sentence in enumerate(vectors):
                file.write(_to_storage(sentence.layers, storage).transpose(1, 0, 2).tobytes())
                n_done += len(sentence)
                if number % _REPORT_EVERY == 0 or n_done == shape[0]:
                    self._progress("ELMo layers", n_done, shape[0])

    def _free_space(self, key: str, n_bytes: int) -> None:
        """Remove abandoned files and, if necessary, the least recently used files.

        Processes that have opened a file can still read it.
        """
        finished: list[tuple[float, int, Path]] = []
        for path in self.folder.iterdir():
            unfinished = _UNFINISHED.fullmatch(path.name)
            with contextlib.suppress(FileNotFoundError):  # another process may remove or rename it
                if unfinished and (unfinished[1] == key or _is_abandoned(path, unfinished[1])):
                    path.unlink()
                elif _FINISHED.fullmatch(path.name):
                    status = path.stat()
                    finished.append((status.st_mtime, status.st_size, path))
        excess = n_bytes + sum(size for _, size, _ in finished) - self.max_bytes
        for _, size, path in sorted(finished):
            if excess > 0:
                path.unlink(missing_ok=True)
                excess -= size


def _open(path: Path, shape: tuple[int, ...], storage: str) -> NDArray[Any] | None:
    """Open a cached array. Returns None if it does not exist or is damaged."""
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
        os.utime(path)  # the time of the last use
    except Exception:  # np.load raises many types of errors for damaged files
        return None
    is_valid = values.shape == shape and values.dtype == np.dtype(storage)
    return cast("NDArray[Any]", values) if is_valid else None


def _find_distinct(texts: Iterable[Sequence[str]]) -> tuple[list[tuple[str, ...]], list[int]]:
    """Return the distinct texts, and the index of each text among them."""
    indices: dict[tuple[str, ...], int] = {}
    index = [indices.setdefault(tuple(text), len(indices)) for text in texts]
    return list(indices), index


def _to_storage(layers: NDArray[np.float32], storage: str) -> NDArray[Any]:
    """Convert layers to the data type in which they are stored."""
    with np.errstate(over="ignore"):
        rounded = layers.astype(storage)
    if not np.isfinite(rounded).all():
        raise ConfigError(
            "The layers contain values that are too large for float16. Store them as float32: "
            "--set elmo.storage=float32"
        )
    return rounded


def _is_abandoned(path: Path, key: str) -> bool:
    """Return whether the process that was computing a file has ended. If unknown, return False."""
    try:
        with file_lock(path.with_name(f"{key}.lock"), timeout=0) as is_acquired:
            return is_acquired
    except OSError:
        return False
