"""What the frozen biLM gives for a data set: computed once, kept on disk, read many times.

    CACHE/KEY/layers.npy     h_{k,j} of all tokens in turn, (N, L + 1, 2D), mapped into memory
    CACHE/KEY/about.json     its shape, and what it was made from

KEY is a digest of the model's numbers, its precision, the state, the storage and the tokens, so
that a changed model or text never meets old vectors. The folder is bounded: what was not used for
longest makes room. A set that is larger than the bound is computed again whenever it is needed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.atomic import output_error, replacing
from elmokit.embed.fingerprint import fingerprint
from elmokit.embed.model import ElmoModel, StatePolicy
from elmokit.errors import ConfigError
from elmokit.sources.download import cache_dir
from elmokit.telling import Tell, TellProgress, silent

LAYERS = "layers.npy"
ABOUT = "about.json"
GIB = 1 << 30

# On a GPU the layers of a set stay there if they take no more than this share of what is free.
_SHARE_OF_DEVICE = 0.25
_TOLD_EVERY = 512
_ROWS_AT_ONCE = 1 << 15

Texts = Sequence[Sequence[str]]


class Layers(Protocol):
    """The layers of a list of texts."""

    def padded(self, numbers: Sequence[int]) -> Tensor:
        """Return h_{k,j} of some texts, (L + 1, B, T, 2D) in float32; zero in the padding."""


class StoredLayers:
    """Layers that were computed before, in memory, in a mapped file or on a GPU.

    Args:
        values: h_{k,j} of all tokens in turn, (N, L + 1, 2D).
        lengths: Tokens in each text.
        device: Where they are wanted.
        resident: Keep them there; None: if it is a GPU that has room for them.
    """

    def __init__(
        self,
        values: NDArray[Any],
        lengths: Sequence[int],
        device: torch.device,
        *,
        resident: bool | None = None,
    ) -> None:
        self._starts = np.cumsum([0, *lengths])[:-1].astype(np.int64)
        self._lengths = np.array(lengths, dtype=np.int64)
        self._device = device
        self._values = values
        self._there: Tensor | None = None
        if resident is None:
            resident = device.type == "cuda" and values.nbytes < _SHARE_OF_DEVICE * _free(device)
        if resident:
            # The last row is zero: what the padding points at.
            shape = (len(values) + 1, *values.shape[1:])
            there = torch.zeros(shape, dtype=_dtype(values), device=device)
            for first in range(0, len(values), _ROWS_AT_ONCE):
                rows = np.array(values[first : first + _ROWS_AT_ONCE])
                there[first : first + len(rows)] = torch.from_numpy(rows).to(device)
            self._there = there

    @property
    def resident(self) -> bool:
        """Whether they are kept on the device as a whole."""
        return self._there is not None

    def padded(self, numbers: Sequence[int]) -> Tensor:
        """Return h_{k,j} of some texts, (L + 1, B, T, 2D) in float32; zero in the padding."""
        starts, lengths = self._starts[numbers], self._lengths[numbers]
        places = np.arange(max(1, int(lengths.max(initial=0))))
        if self._there is not None:
            index = np.where(places < lengths[:, None], starts[:, None] + places, len(self._values))
            found = self._there[torch.from_numpy(index).to(self._device)]  # (B, T, L + 1, 2D)
        else:
            shape = (len(numbers), len(places), *self._values.shape[1:])
            table = np.zeros(shape, dtype=self._values.dtype)
            for row, (start, length) in enumerate(zip(starts, lengths, strict=True)):
                table[row, :length] = self._values[start : start + length]
            found = torch.from_numpy(table).to(self._device)
        return found.permute(2, 0, 1, 3).float()


class SharedLayers:
    """Layers of texts of which some are the same, such as the passage of many questions.

    Args:
        layers: Of the distinct texts.
        index: For each text the number of its like there.
    """

    def __init__(self, layers: Layers, index: Sequence[int]) -> None:
        self._layers = layers
        self._index = index

    def padded(self, numbers: Sequence[int]) -> Tensor:
        """Return h_{k,j} of some texts, (L + 1, B, T, 2D) in float32; zero in the padding."""
        return self._layers.padded([self._index[number] for number in numbers])


class LiveLayers:
    """Layers that are computed when they are asked for, rounded as stored ones are."""

    def __init__(
        self, elmo: ElmoModel, texts: Texts, device: torch.device, *, state: str, storage: str
    ) -> None:
        self._elmo = elmo
        self._texts = texts
        self._device = device
        self._state = cast(StatePolicy, state)
        self._storage = storage

    def padded(self, numbers: Sequence[int]) -> Tensor:
        """Return h_{k,j} of some texts, (L + 1, B, T, 2D) in float32; zero in the padding."""
        places: dict[tuple[str, ...], int] = {}  # what several texts share is read once
        index = [places.setdefault(tuple(self._texts[n]), len(places)) for n in numbers]
        arrays, _ = self._elmo.compute(list(places), self._state)
        found = [_stored(array, self._storage) for array in arrays]
        config = self._elmo.config
        longest = max([1, *(array.shape[1] for array in found)])
        table = np.zeros((config.n_layers, len(index), longest, config.output_dim), np.float32)
        for row, place in enumerate(index):
            table[:, row, : found[place].shape[1]] = found[place]
        return torch.from_numpy(table).to(self._device)


class LayerCache:
    """The folder of layers, within a bound.

    Args:
        folder: Where; None: beside the fetched models, see `ELMOKIT_HOME`.
        max_bytes: Bound on the size of all it holds; 0 keeps nothing.
        tell: Called with lines for the user.
        progress: Told how many tokens are done.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        max_bytes: int = 8 * GIB,
        tell: Tell = silent,
        progress: TellProgress = silent,
    ) -> None:
        self.folder = cache_dir() / "layers" if folder is None else Path(folder)
        self.max_bytes = max_bytes
        self._tell = tell
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
        """Return the layers of some texts, from the folder if they are there."""
        places: dict[tuple[str, ...], int] = {}
        index = [places.setdefault(tuple(text), len(places)) for text in texts]
        layers = self._of_distinct(elmo, list(places), device, state, storage)
        return layers if len(places) == len(texts) else SharedLayers(layers, index)

    def _of_distinct(
        self, elmo: ElmoModel, texts: Texts, device: torch.device, state: str, storage: str
    ) -> Layers:
        lengths = [len(text) for text in texts]
        shape = (sum(lengths), elmo.config.n_layers, elmo.config.output_dim)
        need = int(np.prod(shape)) * np.dtype(storage).itemsize
        if need > self.max_bytes:
            if self.max_bytes:
                self._tell(
                    f"The layers of {shape[0]:,} tokens take {need / GIB:.2f} GB, more than the "
                    f"cache may hold ({self.max_bytes / GIB:g} GB): they are computed on the fly, "
                    "in every epoch. A larger --cache-gb makes training faster."
                )
            return LiveLayers(elmo, texts, device, state=state, storage=storage)
        path = self.folder / _key(elmo, texts, state, storage)
        values = self._open(path, shape, storage)
        if values is None:
            with _locked(path):  # another process may be computing the same
                values = self._open(path, shape, storage)
                if values is None:
                    for left in self.folder.glob(f".{path.name}.*"):  # by a process that died
                        shutil.rmtree(left, ignore_errors=True)
                    self._make_room(need)
                    self._compute(path, elmo, texts, shape, state, storage)
                    values = self._open(path, shape, storage)
        if values is None:
            raise ConfigError(f"The cache {self.folder} does not keep what is written to it.")
        return StoredLayers(values, lengths, device)

    def _open(self, path: Path, shape: tuple[int, ...], storage: str) -> NDArray[Any] | None:
        """Return what is kept; None if it is not there or damaged."""
        try:
            json.loads((path / ABOUT).read_text("utf-8"))
            if 0 in shape:
                return np.zeros(shape, dtype=storage)
            values = np.load(path / LAYERS, mmap_mode="r", allow_pickle=False)
            os.utime(path)  # used just now
        except (OSError, ValueError, EOFError):
            return None
        fits = values.shape == shape and values.dtype == np.dtype(storage)
        return cast("NDArray[Any]", values) if fits else None

    def _make_room(self, need: int) -> None:
        """Remove what was not used for longest; a process that has it open keeps it."""
        held = [p for p in self.folder.iterdir() if p.is_dir() and (p / ABOUT).is_file()]
        sizes = {p: sum(f.stat().st_size for f in p.iterdir()) for p in held}
        held.sort(key=lambda p: p.stat().st_mtime)
        while held and sum(sizes[p] for p in held) + need > self.max_bytes:
            shutil.rmtree(held.pop(0), ignore_errors=True)

    def _compute(
        self,
        path: Path,
        elmo: ElmoModel,
        texts: Texts,
        shape: tuple[int, ...],
        state: str,
        storage: str,
    ) -> None:
        about = {"shape": shape, "storage": storage, "state": state, "model": elmo.source}
        with replacing(path, directory=True) as folder:
            (folder / ABOUT).write_text(json.dumps(about) + "\n", "utf-8")
            if 0 in shape:
                return
            values = np.lib.format.open_memmap(
                folder / LAYERS, mode="w+", dtype=np.dtype(storage), shape=shape
            )
            done = 0
            for number, vectors in enumerate(elmo.stream(texts, cast(StatePolicy, state))):
                end = done + len(vectors)
                values[done:end] = _stored(vectors.layers, storage).transpose(1, 0, 2)
                done = end
                if number % _TOLD_EVERY == 0 or done == shape[0]:
                    self._progress("ELMo layers", done, shape[0])
            values.flush()


def text_digest(texts: Texts) -> str:
    """Return a digest of tokenised texts."""
    digest = hashlib.blake2b(digest_size=16)
    for text in texts:
        joined = "\0".join(text).encode("utf-8", "surrogatepass")
        digest.update(b"%d %d\n" % (len(text), len(joined)))
        digest.update(joined)
    return digest.hexdigest()


def _key(elmo: ElmoModel, texts: Texts, state: str, storage: str) -> str:
    parts = [fingerprint(elmo, state), elmo.precision, state, storage, text_digest(texts)]
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


def _stored(layers: NDArray[np.float32], storage: str) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        short = layers.astype(np.dtype(storage))
    if not np.isfinite(short).all():
        raise ConfigError(
            "The biLM gives numbers that float16 cannot hold. Keep its layers as float32: "
            "--set elmo.storage=float32"
        )
    return short


def _dtype(values: NDArray[Any]) -> torch.dtype:
    return torch.float16 if values.dtype == np.float16 else torch.float32


def _free(device: torch.device) -> int:
    return int(torch.cuda.mem_get_info(device)[0])


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let one process at a time work on `path`; where there are no file locks, all may."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.with_suffix(".lock").open("w")
    except OSError as error:
        raise output_error(path, error) from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
