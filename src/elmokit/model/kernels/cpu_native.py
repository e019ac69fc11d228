"""LSTM layers and the LM head in int8, computed by a C kernel (int8_lstm.c).

The kernel combines products, gates and cell updates, and computes the same integer sums as
`cpu_linear.Int8Linear`. On first use, it is compiled with the system's C compiler and stored in the
user's cache directory. It is not used without a compiler, or on CPUs without AVX-512 VNNI. The
vectors of a sentence are bit-identical in any batch.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from elmokit.model.bilm import BiLM
from elmokit.model.kernels.cpu_engine import (
    CpuEngine,
    convert_layers,
    run_in_parallel,
    sigmoids_first,
    sigmoids_first_bias,
)
from elmokit.model.lstm import LstmLayer, LstmState
from elmokit.model.packing import Packing
from elmokit.model.quantize import quantize_rows
from elmokit.model.softmax import LMHead
from elmokit.storage.atomic import replace_file
from elmokit.storage.fingerprint import fingerprint_texts

SOURCE = Path(__file__).with_name("int8_lstm.c")

LANES = 16  # float32 values per register
_TILE = 64  # columns per tile
_OPTIONS = ("-O3", "-std=c11", "-shared", "-fPIC")
# Minimum number of sentences per thread, because each thread reads all weights.
_ROWS_PER_THREAD = 8
# Number of rows of the softmax that are computed in one pass over the weights.
_HEAD_ROWS = 384
# The bias of padding columns, which makes their probability zero.
_PADDING_BIAS = -1e30


class NativeError(Exception):
    """The native kernel is not available. The message states the reason."""


class _Layer(ctypes.Structure):
    """The C struct `Layer` of int8_lstm.c."""

    _fields_ = (
        ("h", ctypes.c_int64),
        ("d", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("wx", "wr", "wp", "sx", "sr", "sp", "bias")),
        ("cell_clip", ctypes.c_float),
        ("proj_clip", ctypes.c_float),
    )


def library_path(folder: Path) -> Path:
    """Return the path of the compiled kernel. The name depends on the source and the machine."""
    version = (SOURCE.read_text("utf-8"), str(_OPTIONS), platform.machine(), sys.platform)
    return folder / f"int8_lstm-{fingerprint_texts(version)}.so"


def build(folder: Path) -> Path:
    """Compile the kernel, unless the directory already contains it, and return its path.

    Raises:
        NativeError: No compiler is installed, or compilation fails.
    """
    path = library_path(folder)
    if path.exists():
        return path
    compiler = next(
        (c for c in (os.environ.get("CC"), "cc", "gcc", "clang") if c and shutil.which(c)), None
    )
    if compiler is None:
        raise NativeError("no C compiler is installed")
    with replace_file(path) as temporary:
        process = subprocess.run(
            [compiler, *_OPTIONS, "-o", str(temporary), str(SOURCE), "-lm"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if process.returncode:
            raise NativeError(f"{compiler} failed: {(process.stderr.splitlines() or ['?'])[0]}")
    return path


def open_library(path: Path) -> ctypes.CDLL:
    """Load the compiled kernel.

    Raises:
        NativeError: The kernel cannot be loaded, or the CPU does not support its instructions.
    """
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise NativeError(str(error)) from error
    pointer, int64 = ctypes.c_void_p, ctypes.c_int64
    library.elmo_pack.argtypes = [pointer, int64, int64, pointer]
    library.elmo_pack.restype = None
    library.elmo_lstm_layer.argtypes = [
        *(ctypes.POINTER(_Layer), pointer, pointer, int64, pointer, pointer),
        *(int64, int64, int64, pointer, pointer, ctypes.c_int),
    ]
    library.elmo_log_sum_exp.argtypes = [
        *(pointer, pointer, pointer, int64, int64, pointer, int64, pointer)
    ]
    if not library.elmo_supported():
        raise NativeError("the CPU has no AVX-512 VNNI")
    return library


def supports(bilm: BiLM) -> bool:
    """Return whether the kernel supports the sizes of a biLM, which must be multiples of 16."""
    config = bilm.config.lstm
    return config.dim % LANES == 0 and config.projection_dim % LANES == 0


class NativeLayer:
    """The weights of a layer in the layout of the kernel."""

    def __init__(self, layer: LstmLayer, library: ctypes.CDLL) -> None:
        config = layer.config
        order = _tile_order(config.dim)
        bias = sigmoids_first_bias(layer)[order].contiguous()
        wx, sx = _pack(sigmoids_first(layer.weight_input)[order], library)
        wr, sr = _pack(sigmoids_first(layer.weight_recurrent)[order], library)
        self._tensors = [wx, sx, wr, sr, bias]  # kept alive, because the struct points to them
        wp = sp = None
        if layer.weight_projection is not None:
            wp, sp = _pack(layer.weight_projection.detach(), library)
            self._tensors += [wp, sp]
        infinite = float("inf")
        self.structure = _Layer(
            config.dim,
            config.projection_dim,
            *(None if t is None else t.data_ptr() for t in (wx, wr, wp, sx, sr, sp, bias)),
            infinite if config.cell_clip is None else config.cell_clip,
            infinite if config.proj_clip is None else config.proj_clip,
        )


class NativeHead:
    """The softmax of an LM head in int8.

    The reference implementation is `elmokit.model.softmax.LMHead.losses`.
    """

    def __init__(self, head: LMHead, library: ctypes.CDLL) -> None:
        self._head, self._library = head, library
        self._weight, self._scale = _pack(head.weight.detach(), library)
        padding = len(self._weight) - len(head.bias)
        self._bias = torch.nn.functional.pad(head.bias.detach(), (0, padding), value=_PADDING_BIAS)

    def losses(self, h: Tensor, targets: Tensor) -> Tensor:
        """Return -log p of each target; see `LMHead.losses`."""
        h = h.contiguous()
        log_sums = torch.empty(len(h))
        blocks = list(zip(h.split(_HEAD_ROWS), log_sums.split(_HEAD_ROWS), strict=True))
        threads = max(1, min(torch.get_num_threads(), len(blocks)))

        def run(thread: int) -> None:
            for rows, out in blocks[thread::threads]:
                failed = self._library.elmo_log_sum_exp(
                    *(tensor.data_ptr() for tensor in (self._weight, self._scale, self._bias)),
                    *(*self._weight.shape, rows.data_ptr(), len(rows), out.data_ptr()),
                )
                if failed:
                    raise MemoryError("Not enough memory to compute the int8 softmax.")

        run_in_parallel([partial(run, thread) for thread in range(threads)])
        return (log_sums - self._head.target_logits(h, targets)).double()


def _tile_order(h: int) -> Tensor:
    """Return the order of gate rows in which the four gates of 16 units are adjacent."""
    return torch.arange(4 * h).view(4, h // LANES, LANES).transpose(0, 1).flatten()


def _pack(weight: Tensor, library: ctypes.CDLL) -> tuple[Tensor, Tensor]:
    q, scale = quantize_rows(weight)
    padding = -len(q) % _TILE
    q = torch.nn.functional.pad(q, (0, 0, 0, padding)).contiguous()
    scale = torch.nn.functional.pad(scale, (0, padding)).contiguous()
    packed = torch.empty(q.shape, dtype=torch.uint8)
    library.elmo_pack(q.data_ptr(), *q.shape, packed.data_ptr())
    return packed, scale


class NativeEngine(CpuEngine):
    """A `CpuEngine` that runs the LSTMs in int8 with the native kernel.

    Args:
        bilm: The reference modules. The kernel must support their sizes (see `supports`).
        library: The compiled kernel.
    """

    def __init__(self, bilm: BiLM, library: ctypes.CDLL) -> None:
        super().__init__(bilm)
        self._library = library
        self._directions = convert_layers(bilm, partial(NativeLayer, library=library))

    def _jobs(self, layers: Tensor, packing: Packing, state: LstmState) -> list[Callable[[], None]]:
        d = self.config.lstm.projection_dim
        active = np.array(packing.active, dtype=np.int64)
        positions = (
            np.arange(layers.shape[1], dtype=np.int64),
            np.ascontiguousarray(packing.reversal),
        )
        shards = max(1, min(torch.get_num_threads() // 2, len(packing.order) // _ROWS_PER_THREAD))

        def run(direction: int, shard: int) -> None:
            half = layers[:, :, direction * d : (direction + 1) * d]
            for j, layer in enumerate(self._directions[direction]):
                failed = self._library.elmo_lstm_layer(
                    *(layer.structure, half[j].data_ptr(), half[j + 1].data_ptr(), 2 * d),
                    *(positions[direction].ctypes.data, active.ctypes.data, len(active)),
                    *(shard, shards, state.cell[direction, j].data_ptr()),
                    state.hidden[direction, j].data_ptr(),
                    j > 0 and self.config.lstm.use_skip_connections,
                )
                if failed:
                    raise MemoryError(
                        "Not enough memory to process a batch. Reduce batch_tokens of the model."
                    )

        return [partial(run, direction, shard) for shard in range(shards) for direction in (0, 1)]


def native_engine(bilm: BiLM, folder: Path) -> NativeEngine:
    """Return an int8 engine for a biLM. If necessary, compile the kernel into `folder` first."""
    return NativeEngine(bilm, open_library(build(folder)))
