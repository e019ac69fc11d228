"""The layers of many tokens on disk, computed once: float16, mapped into memory as it is used.

Half precision keeps 11 bits of each number, which no probe notices, and a million tokens of three
layers of 512 numbers fit into 3 GB of disk. In memory are a few thousand tokens at a time.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Literal

import numpy as np
from numpy.lib import format as npy

from elmokit.analysis.linear import HalfArray
from elmokit.analysis.spaces import Space
from elmokit.embed.fingerprint import fingerprint
from elmokit.embed.model import ElmoModel
from elmokit.errors import OutputError, output_error
from elmokit.storage.atomic import replace_file
from elmokit.storage.fingerprint import fingerprint_texts

_BYTES = 2
_BLOCK = 8192
Progress = Callable[[int], None]


class VectorStore:
    """The layers of tokens, in the order of the sentences.

    Attributes:
        folder: Where they lie.
        layers: h_{k,j}, shape (L + 1, N, 2D).
    """

    def __init__(self, path: Path) -> None:
        self.folder = path.parent
        self._name = path.stem
        self.layers: HalfArray = np.load(path, mmap_mode="r", allow_pickle=False)

    def space(self, space: Space) -> HalfArray:
        """Return one vector per token, shape (N, D); what is not there as a layer is written."""
        if (j := space.layer) is not None:
            layer: HalfArray = self.layers[j]
            return layer
        path = self.folder / f"{self._name}-{space.name}.npy"
        n = self.layers.shape[1]
        dim = space.of(np.zeros((len(self.layers), 1, self.layers.shape[2]), np.float32)).shape[1]
        if not path.is_file():
            _check_room(path, _BYTES * n * dim)
            with replace_file(path) as temporary, temporary.open("wb") as file:
                _header(file, (n, dim))
                for first in range(0, n, _BLOCK):
                    block = self.layers[:, first : first + _BLOCK].astype(np.float32)
                    file.write(space.of(block).astype(np.float16).tobytes())
        written: HalfArray = np.load(path, mmap_mode="r", allow_pickle=False)
        return written


def store_vectors(
    model: ElmoModel,
    sentences: Sequence[Sequence[str]],
    folder: str | Path,
    *,
    state: Literal["reset", "warm"] = "reset",
    on_tokens: Progress | None = None,
) -> VectorStore:
    """Compute the layers of sentences, or open them if the folder has them from an earlier time.

    Args:
        model: The model.
        sentences: Lists of tokens.
        folder: Where to; the file is named after a digest of all that the vectors depend on.
        state: What each sentence starts from.
        on_tokens: Called with the number of tokens computed so far.
    """
    path = Path(folder) / f"vectors-{digest(model, sentences, state)}.npy"
    if not path.is_file():
        tokens = sum(map(len, sentences))
        shape = (model.config.n_layers, tokens, model.config.output_dim)
        _check_room(path, _BYTES * int(np.prod(shape)))
        with replace_file(path) as temporary, temporary.open("wb") as file:
            start = _header(file, shape)
            for done, block in _blocks(model, sentences, state):
                for j, layer in enumerate(block):
                    file.seek(start + _BYTES * shape[2] * (j * tokens + done))
                    file.write(layer.tobytes())
                if on_tokens is not None:
                    on_tokens(done + block.shape[1])
    elif on_tokens is not None:
        on_tokens(sum(map(len, sentences)))
    return VectorStore(path)


def _blocks(
    model: ElmoModel, sentences: Sequence[Sequence[str]], state: Literal["reset", "warm"]
) -> Iterator[tuple[int, HalfArray]]:
    """Yield the layers of some thousand tokens at a time, and how many came before them."""
    done, size = 0, 0
    held: list[HalfArray] = []
    for vectors in model.stream(sentences, state):
        held.append(vectors.layers.astype(np.float16))
        size += len(vectors)
        if size >= _BLOCK:
            yield done, np.concatenate(held, axis=1)
            done, size, held = done + size, 0, []
    if held:
        yield done, np.concatenate(held, axis=1)


def _header(file: IO[bytes], shape: tuple[int, ...]) -> int:
    """Write the head of a .npy file; return its length."""
    npy.write_array_header_2_0(file, {"descr": "<f2", "fortran_order": False, "shape": shape})
    return file.tell()


def _check_room(path: Path, needed: int) -> None:
    """Say before an hour of work that its result will not fit."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(path.parent).free
    except OSError as error:
        raise output_error(path, error) from error
    if free < needed:
        raise OutputError(
            f"The vectors need {needed / 1e9:.1f} GB in {path.parent}, which has {free / 1e9:.1f} "
            "GB left. Name a folder on a larger disk with --cache."
        )


def digest(model: ElmoModel, sentences: Sequence[Sequence[str]], state: str) -> str:
    """Return a name for the vectors of sentences: all that they depend on."""
    texts = ("\0".join(sentence) for sentence in sentences)
    parts = (fingerprint(model, state), model.precision, model.device.type, state, *texts)
    return fingerprint_texts(parts)
