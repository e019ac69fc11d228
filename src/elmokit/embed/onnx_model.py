"""`OnnxModel`, which embeds sentences with onnxruntime instead of torch.

It has the same methods for embedding as `ElmoModel` (see `embedder.py`). The graphs use padded
batches, but padding does not change the vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from elmokit.embed.blocks import StateArrays
from elmokit.embed.embedder import Embedder
from elmokit.embed.loading import onnx_threads
from elmokit.embed.token_cache import MAX_BYTES, TokenCache
from elmokit.embed.vectors import FloatArray
from elmokit.errors import ConfigError, WeightsError, optional_imports
from elmokit.model.packing import Packing
from elmokit.model.trimming import trimmed_blocks
from elmokit.sources.onnxdir import BILM, ENCODER, OnnxParts

# Number of words per block of the token encoder.
_ROWS = 32


class ArrayState(NamedTuple):
    """An LSTM state: cell (2, L, B, H) and hidden (2, L, B, D)."""

    cell: FloatArray
    hidden: FloatArray


class OnnxModel(Embedder):
    """A loaded ONNX model with its vocabulary and metadata.

    Attributes:
        config: The architecture of the biLM.
        vocabulary: The words of a word-input model.
        warm: The initial state for `state="warm"`, if the model has one.
        metadata: Other entries of config.json. The entry `onnx` contains the rounding error.
        source: Where the model was loaded from.
        batch_tokens: Maximum number of tokens per batch. Reduce it if you run out of memory.
        batch_sentences: Maximum number of sentences per batch.
        precision: "exact" (converted to float32) or "fast" (converted to int8).
        cache: The token cache.
    """

    # Larger batches would be slower, because they would contain more padding, and would need more
    # memory, because the graph computes W_x x for all tokens of a batch at once.
    batch_tokens = 512
    batch_sentences = 32
    device = "cpu"

    def __init__(self, parts: OnnxParts, *, device: str = "auto", precision: str = "exact") -> None:
        check_device(device)
        super().__init__(parts.config, parts, "fast" if parts.storage == "int8" else "exact")
        self.warm = None if parts.warm is None else ArrayState(*parts.warm)
        self.lexicon = parts.lexicon
        if precision not in ("exact", self.precision):
            expected = " or ".join(f"'{name}'" for name in sorted({"exact", self.precision}))
            raise ConfigError(
                f"Invalid precision '{precision}' for {parts.source}, which was converted to "
                f"{parts.storage}: expected {expected}. For 'fast', convert the model with: elmo "
                "convert MODEL OUT --to onnx --storage int8"
            )
        self.parts = parts
        self._open_sessions(onnx_threads())
        import onnxruntime

        self.engine_name = f"onnxruntime {onnxruntime.__version__} on {self.device}"
        dim = self.config.lstm.projection_dim
        self.cache = TokenCache(
            self._encode_tokens,
            lambda rows: np.empty((rows, dim), dtype=np.float32),
            self.lock,
            MAX_BYTES // (4 * dim),
        )

    def _open_sessions(self, threads: int | None) -> None:
        h, d = self.config.lstm.dim, self.config.lstm.projection_dim
        self._encoder = _session(self.parts.encoder, threads, {"ids": None})
        sizes = {"x": d, "lengths": None, "cell": h, "hidden": d}
        self._bilm = _session(self.parts.bilm, threads, sizes)

    def after_fork(self) -> None:
        """Open the graphs again, because their threads exist only in the parent process."""
        _parent_sessions.extend([self._encoder, self._bilm])
        self._open_sessions(threads=1)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle only the graphs. A copy has its own lock, cache and sessions."""
        return OnnxModel, (self.parts,)

    def _encode_tokens(self, tokens: Sequence[str]) -> FloatArray:
        """Return x_k of distinct tokens, shape (n, D).

        Blocks have fixed shapes, so that the vector of a token does not depend on other tokens.
        """
        ids = self._encoder_ids(tokens)
        if ids.ndim == 1:
            return self._run_encoder(ids)
        cnn = self.config.char_cnn or self.config.lexicon
        assert cnn is not None
        out = np.empty((len(ids), self.config.lstm.projection_dim), dtype=np.float32)
        # With a lexicon, the first column contains the ids of words.
        width = cnn.max_width + (self.lexicon is not None)
        pad = None if self.lexicon is None else self.lexicon.pad
        for block, trimmed in trimmed_blocks(ids, width, _ROWS, pad=pad):
            out[block] = self._run_encoder(trimmed)[: len(block)]
        return out

    def _run_encoder(self, ids: NDArray[np.int64]) -> FloatArray:
        with _onnx_errors(f"The encoder of {self.parts.source} cannot be run"):
            x: FloatArray = self._encoder.run(["x"], {"ids": np.ascontiguousarray(ids)})[0]
            return x

    # ----------------------------------------------------------------------- backend implementation

    def weights(self) -> Iterator[tuple[str, NDArray[Any]]]:
        """Yield the bytes of both graph files, which contain all weights."""
        for name, graph in ((BILM, self.parts.bilm), (ENCODER, self.parts.encoder)):
            if isinstance(graph, bytes):
                yield name, np.frombuffer(graph, dtype=np.uint8)
            else:
                yield name, np.memmap(graph, dtype=np.uint8, mode="r")

    def state_arrays(self, state: ArrayState) -> StateArrays:
        """Return a state as NumPy arrays."""
        return state._asdict()

    def state_from(self, arrays: StateArrays) -> ArrayState:
        """Convert the output of `state_arrays` back to a state."""
        return ArrayState(**arrays)

    def _run(
        self,
        table: FloatArray,
        ids: NDArray[np.int64],
        packing: Packing,
        initial: ArrayState | None,
    ) -> tuple[FloatArray, ArrayState]:
        rows, steps = packing.rows, packing.steps
        padded = np.zeros((len(packing.lengths), len(packing.active)), dtype=np.int64)
        padded[rows, steps] = ids
        initial = self._zero_state(len(padded)) if initial is None else initial
        inputs = {"x": table[padded], "lengths": packing.lengths, **initial._asdict()}
        with _onnx_errors(f"The biLM of {self.parts.source} cannot be run"):
            layers, *final = self._bilm.run(["layers", "next_cell", "next_hidden"], inputs)
            return layers[:, rows, steps], ArrayState(*final)

    def _zero_state(self, rows: int) -> ArrayState:
        lstm = self.config.lstm
        sizes = (lstm.dim, lstm.projection_dim)
        return ArrayState(*(np.zeros((2, lstm.n_layers, rows, n), np.float32) for n in sizes))

    # ------------------------------------------------------------------------------ unsupported

    def score(self, *_: Any, **__: Any) -> NoReturn:
        """Raise an error, because ONNX models have no LM head."""
        raise ConfigError(
            f"The ONNX model {self.source} has no LM head, which score and "
            "substitutes need. Load the torch model that it was converted from."
        )

    substitutes = score

    def __repr__(self) -> str:
        return (
            f"<OnnxModel {self.config.n_layers} layers of {self.config.output_dim}, "
            f"{self.precision}, from {self.source or 'memory'}>"
        )


def check_device(name: str) -> None:
    """Raise an error if an ONNX model cannot run on a device."""
    if name not in ("auto", "cpu"):
        raise ConfigError(
            f"Invalid device '{name}' for an ONNX model: expected 'cpu' or 'auto'. To use a GPU, "
            "load the torch model that the ONNX model was converted from."
        )


# In a forked process, the sessions of the parent. They are never destroyed, because their
# destructors would wait for threads that do not exist in the forked process.
_parent_sessions: list[Any] = []


@contextmanager
def _onnx_errors(problem: str) -> Iterator[None]:
    """Convert errors of onnxruntime, which have no common base class, to `WeightsError`."""
    try:
        yield
    except Exception as error:
        import onnxruntime

        reason = str(error).splitlines()[0][:300]
        raise WeightsError(
            f"{problem} by onnxruntime {onnxruntime.__version__} ({reason}). The file may be "
            "damaged, onnxruntime may be too old, or memory may have run out. Convert the model "
            "again, or upgrade onnxruntime."
        ) from error


def _session(graph: Path | bytes, threads: int | None, sizes: dict[str, int | None]) -> Any:
    """Open a graph and check that its inputs match config.json.

    Args:
        graph: The path or the contents of the file.
        threads: Number of threads. If it is None, onnxruntime selects the number.
        sizes: The size of the last axis of each input; None for variable sizes.
    """
    with optional_imports("onnx", "Loading an ONNX model"):
        import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    name = "The graph" if isinstance(graph, bytes) else str(graph)
    model = graph if isinstance(graph, bytes) else str(graph)
    with _onnx_errors(f"{name} cannot be read"):
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    actual = {v.name: v.shape[-1] if sizes.get(v.name) else None for v in session.get_inputs()}
    if actual != sizes:
        raise WeightsError(
            f"{name} does not match config.json: the sizes of its inputs are {actual}; expected "
            f"{sizes}. Convert the model again."
        )
    return session
