"""The layer cache: layers of datasets on disk, computed once and shared by processes.

    CACHE/KEY.npy            h_{k,j} of all tokens in order, (N, L + 1, 2D), memory-mapped
    CACHE/.KEY.npy.*.tmp     the same while it is computed
    CACHE/KEY.lock           held by the process that computes it

KEY is a digest of the model's weights, its precision, the state, the storage and the tokens, so
that a changed model or text never uses old vectors. The size is limited: the least recently used
files are removed before a new one is computed. Layers that do not fit are computed whenever they
are needed. Files that are being computed are not counted, so processes that compute layers at the
same time may exceed the limit until the next file is added.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit.embed.fingerprint import fingerprint
from elmokit.embed.layers import Layers, LiveLayers, StoredLayers, Texts, as_stored, distinct_texts
from elmokit.embed.model import ElmoModel, StatePolicy
from elmokit.errors import output_error
from elmokit.progress import LogFn, ProgressFn, no_log
from elmokit.sources.download import cache_dir
from elmokit.storage.atomic import replace_file
from elmokit.storage.fingerprint import fingerprint_texts
from elmokit.storage.lock import file_lock

GIB = 1 << 30

_REPORT_EVERY = 512  # sentences
# Users may keep other files in the directory: only files with these names are removed.
_FINISHED = re.compile(r"[0-9a-f]{32}\.npy")
_UNFINISHED = re.compile(r"\.([0-9a-f]{32})\.npy\.[0-9a-f]{8}\.tmp")


class LayerCache:
    """A directory of layers with a size limit.

    Args:
        folder: The directory. Default: `layers` in the cache directory, see `ELMOKIT_HOME`.
        max_bytes: Maximum total size; 0 disables the cache.
        log: Called with lines for the user.
        progress: Called with the number of finished tokens.
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
        """Return the layers of texts, from the cache if possible."""
        distinct, index = distinct_texts(texts)
        values = self.table(elmo, distinct, state=state, storage=storage)
        if values is None:
            return LiveLayers(elmo, texts, device, state=state, storage=storage)
        return StoredLayers(values, [len(text) for text in distinct], device, index=index)

    def table(
        self, elmo: ElmoModel, texts: Texts, *, state: str = "reset", storage: str = "float16"
    ) -> NDArray[Any] | None:
        """Return the layers of all tokens of some texts in order, shape (N, L + 1, 2D).

        The array is memory-mapped. None if it does not fit into the cache.
        """
        shape = (sum(map(len, texts)), elmo.config.n_layers, elmo.config.output_dim)
        need = int(np.prod(shape)) * np.dtype(storage).itemsize
        if not need:
            return np.zeros(shape, dtype=storage)
        if need > self.max_bytes:
            if self.max_bytes:
                self._log(
                    f"The layers of {shape[0]:,} tokens take {need / GIB:.2f} GB, more than the "
                    f"maximum size of the cache ({self.max_bytes / GIB:g} GB). They are computed "
                    "again in every epoch; a larger --cache-gb makes training faster."
                )
            return None
        path = self.folder / f"{_key(elmo, texts, state, storage)}.npy"
        values = _open(path, shape, storage)
        if values is not None:
            return values
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with file_lock(path.with_suffix(".lock")):
                values = _open(path, shape, storage)  # another process may have computed it
                if values is None:
                    self._free_space(path.stem, need)
                    with replace_file(path) as temporary:
                        self._compute(temporary, shape, elmo, texts, state, storage)
                    values = _open(path, shape, storage)
        except OSError as error:
            raise output_error(path, error) from error
        return values

    def _compute(
        self,
        path: Path,
        shape: tuple[int, ...],
        elmo: ElmoModel,
        texts: Texts,
        state: str,
        storage: str,
    ) -> None:
        header = {"descr": np.dtype(storage).str, "fortran_order": False, "shape": shape}
        with path.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            done = 0
            for number, vectors in enumerate(elmo.stream(texts, cast(StatePolicy, state))):
                file.write(as_stored(vectors.layers, storage).transpose(1, 0, 2).tobytes())
                done += len(vectors)
                if number % _REPORT_EVERY == 0 or done == shape[0]:
                    self._progress("ELMo layers", done, shape[0])

    def _free_space(self, key: str, need: int) -> None:
        """Remove the least recently used files; processes that have one open can still read it."""
        finished: list[tuple[float, int, Path]] = []
        for path in self.folder.iterdir():
            unfinished = _UNFINISHED.fullmatch(path.name)
            with contextlib.suppress(FileNotFoundError):  # another process may remove or rename it
                if unfinished and (unfinished[1] == key or _is_abandoned(path, unfinished[1])):
                    path.unlink()
                elif _FINISHED.fullmatch(path.name):
                    status = path.stat()
                    finished.append((status.st_mtime, status.st_size, path))
        excess = need + sum(size for _, size, _ in finished) - self.max_bytes
        for _, size, path in sorted(finished):
            if excess > 0:
                path.unlink(missing_ok=True)
                excess -= size


def _open(path: Path, shape: tuple[int, ...], storage: str) -> NDArray[Any] | None:
    """Open a cached array; None if it is missing or damaged."""
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
        os.utime(path)  # the time of the last use
    except Exception:  # damaged headers raise errors of Python's tokenizer, too
        return None
    fits = values.shape == shape and values.dtype == np.dtype(storage)
    return cast("NDArray[Any]", values) if fits else None


def text_digest(texts: Texts) -> str:
    """Return a digest of tokenized texts."""
    digest = hashlib.blake2b(digest_size=16)
    for text in texts:
        joined = "\0".join(text).encode("utf-8", "surrogatepass")
        digest.update(b"%d %d\n" % (len(text), len(joined)))
        digest.update(joined)
    return digest.hexdigest()


def _key(elmo: ElmoModel, texts: Texts, state: str, storage: str) -> str:
    parts = [fingerprint(elmo, state), elmo.precision, state, storage, text_digest(texts)]
    return fingerprint_texts(parts)


def _is_abandoned(path: Path, key: str) -> bool:
    """Return whether the process that computed a file has died; False if that is unknown."""
    try:
        with file_lock(path.with_name(f"{key}.lock"), timeout=0) as is_held:
            return is_held
    except OSError:
        return False
