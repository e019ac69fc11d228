"""The layers of data sets on disk: computed once, read many times, by many processes at once.

    CACHE/KEY/layers.npy     h_{k,j} of all tokens in turn, (N, L + 1, 2D), mapped into memory
    CACHE/KEY/about.json     its shape, and what it was made from
    CACHE/.KEY.*.tmp/        the same while it is computed; of full size from the beginning
    CACHE/KEY.lock           held by the process that computes, and there as long as it does
    CACHE/room.lock          held by the process that makes room or takes it

KEY is a digest of the model's numbers, its precision, the state, the storage and the tokens, so
that a changed model or text never meets old vectors. The folder is bounded: what was not used for
longest makes room, what is being computed stays. A set for which there is no room is computed
again whenever it is needed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit.embed.fingerprint import fingerprint
from elmokit.embed.layers import (
    Layers,
    LiveLayers,
    SharedLayers,
    StoredLayers,
    Texts,
    as_stored,
)
from elmokit.embed.model import ElmoModel, StatePolicy
from elmokit.errors import ConfigError, output_error
from elmokit.sources.download import cache_dir
from elmokit.storage.atomic import replace_directory
from elmokit.storage.fingerprint import fingerprint_texts
from elmokit.storage.lock import file_lock
from elmokit.storage.manifest import read_json, write_json
from elmokit.telling import Tell, TellProgress, silent

LAYERS = "layers.npy"
ABOUT = "about.json"
GIB = 1 << 30

_TOLD_EVERY = 512
# The folder is the user's, who may keep other things in it: only what has our names is touched.
_KEY = re.compile(r"[0-9a-f]{32}")
_UNDER_WAY = re.compile(r"\.([0-9a-f]{32})\.([0-9a-f]{8}\.tmp|elmokit-old)")


class _NoRoomError(Exception):
    """What other processes are computing fills the cache."""


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
        # Absolute, as the temporary directories of `replace_directory` are.
        self.folder = (cache_dir() / "layers" if folder is None else Path(folder)).resolve()
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
        distinct = list(places)
        values = self.table(elmo, distinct, state=state, storage=storage)
        layers: Layers
        if values is None:
            layers = LiveLayers(elmo, distinct, device, state=state, storage=storage)
        else:
            layers = StoredLayers(values, [len(text) for text in distinct], device)
        return layers if len(places) == len(texts) else SharedLayers(layers, index)

    def table(
        self, elmo: ElmoModel, texts: Texts, *, state: str = "reset", storage: str = "float16"
    ) -> NDArray[Any] | None:
        """Return the layers of all tokens of some texts in order, shape (N, L + 1, 2D).

        The array is mapped from a file of the folder. None if the folder has no space for it.
        """
        tokens = sum(len(text) for text in texts)
        shape = (tokens, elmo.config.n_layers, elmo.config.output_dim)
        need = int(np.prod(shape)) * np.dtype(storage).itemsize
        if need > self.max_bytes:
            if self.max_bytes:
                self._tell_of_live(tokens, need, "more than the cache may hold")
            return None
        path = self.folder / _key(elmo, texts, state, storage)
        values = self._open(path, shape, storage)
        if values is None:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                with file_lock(_lock_of(path)) as alone:
                    values = self._open(path, shape, storage)  # another process made it meanwhile
                    if values is None:
                        made_from = (elmo, texts, state)
                        values = self._computed(path, shape, storage, *made_from, alone=alone)
            except _NoRoomError:
                why = "more than the cache has beside those that other processes compute"
                self._tell_of_live(tokens, need, why)
                return None
            except OSError as error:
                raise output_error(path, error) from error
        return values

    def _tell_of_live(self, tokens: int, need: int, why: str) -> None:
        self._tell(
            f"The layers of {tokens:,} tokens take {need / GIB:.2f} GB, {why} "
            f"({self.max_bytes / GIB:g} GB): they are computed on the fly, in every epoch. "
            "A larger --cache-gb makes training faster."
        )

    def _open(self, path: Path, shape: tuple[int, ...], storage: str) -> NDArray[Any] | None:
        """Return what is kept; None if it is not there or damaged."""
        try:
            read_json(path / ABOUT)
            if 0 in shape:
                return np.zeros(shape, dtype=storage)
            values = np.load(path / LAYERS, mmap_mode="r", allow_pickle=False)
            os.utime(path)  # used just now
        except (ConfigError, OSError, ValueError, EOFError):
            return None
        fits = values.shape == shape and values.dtype == np.dtype(storage)
        return cast("NDArray[Any]", values) if fits else None

    def _computed(
        self,
        path: Path,
        shape: tuple[int, ...],
        storage: str,
        elmo: ElmoModel,
        texts: Texts,
        state: str,
        *,
        alone: bool,
    ) -> NDArray[Any]:
        about = {"shape": shape, "storage": storage, "state": state, "model": elmo.source}
        room = _lock_of(self.folder / "room")
        with contextlib.ExitStack() as ending:
            with replace_directory(path) as folder:
                write_json(folder / ABOUT, about)
                if 0 in shape:
                    return np.zeros(shape, dtype=storage)
                with file_lock(room):
                    need = int(np.prod(shape)) * np.dtype(storage).itemsize
                    self._make_room(folder, need, alone=alone)
                    values = _promised(folder / LAYERS, shape, storage)
                self._fill(values, elmo, texts, state, storage)
                # Who counts finds it under one of its names, and who makes room lets us open it.
                ending.enter_context(file_lock(room))
            opened = self._open(path, shape, storage)
        if opened is None:
            raise ConfigError(f"The cache {self.folder} does not keep what is written to it.")
        return opened

    def _fill(
        self, values: NDArray[Any], elmo: ElmoModel, texts: Texts, state: str, storage: str
    ) -> None:
        done, tokens = 0, len(values)
        for number, vectors in enumerate(elmo.stream(texts, cast(StatePolicy, state))):
            end = done + len(vectors)
            values[done:end] = as_stored(vectors.layers, storage).transpose(1, 0, 2)
            done = end
            if number % _TOLD_EVERY == 0 or done == tokens:
                self._progress("ELMo layers", done, tokens)
        cast("np.memmap[Any, Any]", values).flush()

    def _make_room(self, own: Path, need: int, *, alone: bool) -> None:
        """Remove what was not used for longest; a process that has it open keeps it."""
        room = self.max_bytes - need
        finished: dict[Path, tuple[float, int]] = {}
        for folder in [path for path in self.folder.iterdir() if path.is_dir()]:
            if folder == own:
                continue
            if under_way := _UNDER_WAY.fullmatch(folder.name):
                key = under_way.group(1)
                ours = alone and own.name.startswith(f".{key}.")
                if ours or _is_abandoned(_lock_of(self.folder / key)):
                    shutil.rmtree(folder, ignore_errors=True)
                else:
                    room -= _bytes_in(folder)
            elif _KEY.fullmatch(folder.name) and (folder / ABOUT).is_file():
                with contextlib.suppress(FileNotFoundError):  # removed by its owner meanwhile
                    finished[folder] = (folder.stat().st_mtime, _bytes_in(folder))
        if room < 0:
            raise _NoRoomError
        held = sum(size for _, size in finished.values())
        for folder, (_, size) in sorted(finished.items(), key=lambda item: item[1]):
            if held <= room:
                break
            shutil.rmtree(folder, ignore_errors=True)
            held -= size


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
    return fingerprint_texts(parts)


def _bytes_in(folder: Path) -> int:
    total = 0
    with contextlib.suppress(FileNotFoundError):
        for file in folder.iterdir():
            total += file.stat().st_size
    return total


def _lock_of(path: Path) -> Path:
    return path.with_suffix(".lock")


def _is_abandoned(lock: Path) -> bool:
    """Tell whether the process that computed under a lock has died; False if that is unknown."""
    try:
        with file_lock(lock, timeout=0) as held:
            return held
    except OSError:
        return False


def _promised(path: Path, shape: tuple[int, ...], storage: str) -> NDArray[Any]:
    """Make a file for layers that has its whole size on the disk, whoever else writes there."""
    values = np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(storage), shape=shape)
    if hasattr(os, "posix_fallocate"):
        try:
            with path.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise  # the others are of file systems that cannot promise
    return values
