"""A model in ONNX, ready to turn sentences into vectors without torch.

It embeds as `ElmoModel` does (`embedder.py`). A batch is padded, as graphs of ONNX want it; padding
changes no vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from elmokit.embed.embedder import Embedder, StateArrays
from elmokit.embed.threads import onnx_threads
from elmokit.embed.token_table import DEFAULT_BYTES, TokenTable
from elmokit.embed.vectors import FloatArray
from elmokit.errors import ConfigError, WeightsError, optional_imports
from elmokit.model.lexicon import Lexicon
from elmokit.model.packing import Packing
from elmokit.model.trimming import trimmed_blocks
from elmokit.sources.onnxdir import BILM, ENCODER, OnnxParts

# Small batches of neighbors in length: padding costs more than larger products gain, and W_x x of
# all tokens of a batch is held at once.
_BATCH_TOKENS = 512
_BATCH_SENTENCES = 32
_WINDOW_TOKENS = 16384
# Words that are encoded together, in blocks of fixed shapes.
_ROWS = 32


class ArrayState(NamedTuple):
    """Where texts stand: cell (2, L, B, H) and hidden (2, L, B, D)."""

    cell: FloatArray
    hidden: FloatArray

    def expand(self, rows: int) -> ArrayState:
        """Repeat a state of one row."""
        return ArrayState(*(np.repeat(part, rows, axis=2) for part in self))


class OnnxModel(Embedder[ArrayState]):
    """A loaded model in ONNX with what came along.

    Attributes:
        config: Its shape.
        vocabulary: The words of a model that reads words.
        warm: The state that `state="warm"` starts from, if the model has one.
        metadata: What else `config.json` tells; under `onnx` what rounding costs.
        source: Where the model was loaded from.
        batch_tokens: Tokens that run together at most; lower it where memory is short.
        batch_sentences: Sentences that run together at most.
        precision: "exact" (float32) or "fast" (int8), as the folder was written.
        cache: x_k of the tokens seen so far, within a bound.
    """

    def __init__(self, parts: OnnxParts, *, device: str = "auto", precision: str = "exact") -> None:
        check_device(device)
        super().__init__()
        self.config = parts.config
        self.vocabulary = parts.vocabulary
        self.warm = None if parts.warm is None else ArrayState(*parts.warm)
        self.metadata = parts.metadata
        self.source = parts.source
        self.batch_tokens = _BATCH_TOKENS
        self.batch_sentences = _BATCH_SENTENCES
        self.device = "cpu"
        self.precision = "fast" if parts.storage == "int8" else "exact"
        if precision not in ("exact", self.precision):
            raise ConfigError(
                f"The folder {parts.source} holds {parts.storage}, and precision='{precision}' was "
                "asked for. For 'fast' convert the model with --to onnx --storage int8."
            )
        self._lexicon = parts.lexicon
        self._parts = parts
        self._open_sessions(onnx_threads())
        self.cache = _ArrayTable(self)

    def _open_sessions(self, threads: int | None) -> None:
        lstm = self.config.lstm
        states = {"cell": lstm.dim, "hidden": lstm.projection_dim}
        self._encoder = _session(self._parts.encoder, threads, {"ids"}, {})
        self._bilm = _session(
            self._parts.bilm,
            threads,
            {"x", "lengths", "cell", "hidden"},
            {"x": lstm.projection_dim, **states},
        )

    def after_fork(self) -> None:
        """Open the graphs again: their threads stayed in the parent process."""
        _abandoned.extend([self._encoder, self._bilm])
        self._open_sessions(threads=1)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle the graphs; the copy has its own lock, cache and sessions."""
        return _rebuild, (self._parts, self.precision)

    @property
    def lexicon(self) -> Lexicon | None:
        """The words and characters of a model that reads by a lexicon."""
        return self._lexicon

    def encode_tokens(self, tokens: Sequence[str]) -> FloatArray:
        """Return x of distinct tokens, shape (n, D).

        In blocks of fixed shapes, so that no token's x depends on those beside it.
        """
        ids = self._spell(tokens)
        if ids.ndim == 1:
            return self._x(ids)
        cnn = self.config.char_cnn or self.config.lexicon
        assert cnn is not None
        out = np.empty((len(ids), self.config.lstm.projection_dim), dtype=np.float32)
        # The word's own id takes a column of those of a lexicon.
        width = cnn.max_width + (self.lexicon is not None)
        pad = None if self.lexicon is None else self.lexicon.pad
        for block, trimmed in trimmed_blocks(ids, width, _ROWS, pad=pad):
            out[block] = self._x(trimmed)[: len(block)]
        return out

    def _x(self, ids: NDArray[np.int64]) -> FloatArray:
        x: FloatArray = self._encoder.run(["x"], {"ids": np.ascontiguousarray(ids)})[0]
        return x

    # ----------------------------------------------------------------------- what embedding needs

    @property
    def computes(self) -> str:
        """What computes, and on what kind of device."""
        import onnxruntime

        return f"onnxruntime {onnxruntime.__version__} on {self.device}"

    def weights(self) -> Iterator[tuple[str, NDArray[Any]]]:
        """Yield the two graphs, which hold all numbers, as the bytes of their files."""
        for name, graph in ((BILM, self._parts.bilm), (ENCODER, self._parts.encoder)):
            if isinstance(graph, bytes):
                yield name, np.frombuffer(graph, dtype=np.uint8)
            else:
                yield name, np.memmap(graph, dtype=np.uint8, mode="r")

    def state_arrays(self, state: ArrayState) -> StateArrays:
        """Return a state as numpy."""
        return state._asdict()

    def state_from(self, arrays: StateArrays) -> ArrayState:
        """Undo `state_arrays`."""
        return ArrayState(**arrays)

    @property
    def _window_tokens(self) -> int:
        return _WINDOW_TOKENS

    def _allocate(self, shape: tuple[int, int, int], dtype: str, check: bool) -> _Vectors:
        return _Vectors(shape, dtype)

    def _run(
        self, table: FloatArray, ids: NDArray[np.int64], packing: Packing, start: ArrayState | None
    ) -> tuple[FloatArray, ArrayState]:
        rows, steps = packing.rows, packing.steps
        numbers = np.zeros((len(packing.lengths), len(packing.active)), dtype=np.int64)
        numbers[rows, steps] = ids
        start = self._zeros(len(numbers)) if start is None else start
        fed = {"x": table[numbers], "lengths": packing.lengths, **start._asdict()}
        layers, *after = self._bilm.run(["layers", "next_cell", "next_hidden"], fed)
        return layers[:, rows, steps], ArrayState(*after)

    def _zeros(self, rows: int) -> ArrayState:
        lstm = self.config.lstm
        sizes = (lstm.dim, lstm.projection_dim)
        return ArrayState(*(np.zeros((2, lstm.n_layers, rows, n), np.float32) for n in sizes))

    def _select(self, state: ArrayState, rows: NDArray[np.int64]) -> ArrayState:
        return ArrayState(*(part[:, :, rows] for part in state))

    def _joined(self, first: ArrayState, state: ArrayState) -> ArrayState:
        rows = first.cell.shape[2]
        pairs = zip(first, state, strict=True)
        return ArrayState(*(np.concatenate([a, b[:, :, rows:]], axis=2) for a, b in pairs))

    # ------------------------------------------------------------------------- what is not there

    def score(self, *_: Any, **__: Any) -> NoReturn:
        """Raise: there is no language-model head in ONNX."""
        raise ConfigError(_no_head(self.source, "score"))

    def substitutes(self, *_: Any, **__: Any) -> NoReturn:
        """Raise: there is no language-model head in ONNX."""
        raise ConfigError(_no_head(self.source, "substitutes"))

    def __repr__(self) -> str:
        return (
            f"<OnnxModel {self.config.n_layers} layers of {self.config.output_dim}, "
            f"{self.precision}, from {self.source or 'memory'}>"
        )


def check_device(name: str) -> None:
    """Raise if a model in ONNX is asked to run on anything but the CPU."""
    if name not in ("auto", "cpu"):
        raise ConfigError(
            f"A model in ONNX runs on the CPU, and device '{name}' was asked for. Use 'cpu', or "
            "the torch model that it was made from."
        )


class _Vectors:
    """The vectors of a block, as `PendingVectors` of torch; they are there at once."""

    def __init__(self, shape: tuple[int, int, int], dtype: str) -> None:
        self._values = np.empty(shape, dtype)

    def put(
        self, layers: FloatArray, sources: NDArray[np.int64], places: NDArray[np.int64]
    ) -> None:
        with np.errstate(over="ignore"):
            self._values[:, places] = layers[:, sources]

    def finish(self) -> None: ...

    def array(self) -> FloatArray:
        return self._values

    @property
    def is_finite(self) -> bool:
        return bool(np.isfinite(self._values).all())


class _ArrayTable(TokenTable[FloatArray]):
    """The vectors of tokens that the runtime has computed."""

    def __init__(self, model: OnnxModel) -> None:
        self._model = model
        self._dim = model.config.lstm.projection_dim
        super().__init__(DEFAULT_BYTES // (4 * self._dim), model.lock)

    def _empty(self, rows: int) -> FloatArray:
        return np.empty((rows, self._dim), dtype=np.float32)

    def encode(self, tokens: Sequence[str]) -> FloatArray:
        return self._model.encode_tokens(tokens)


# Sessions of the parent in a forked child: destroying one would wait for threads that do not exist.
_abandoned: list[Any] = []


def _rebuild(parts: OnnxParts, precision: str) -> OnnxModel:
    return OnnxModel(parts, precision=precision)


def _session(
    graph: Path | bytes, threads: int | None, inputs: set[str], last_axes: dict[str, int]
) -> Any:
    """Open a graph and check that its inputs and sizes are those of config.json."""
    with optional_imports("onnx", "A model in ONNX"):
        import onnxruntime
    options = onnxruntime.SessionOptions()
    if threads is not None:
        options.intra_op_num_threads = threads
    where = "the graph" if isinstance(graph, bytes) else str(graph)
    try:
        session = onnxruntime.InferenceSession(
            graph if isinstance(graph, bytes) else str(graph),
            options,
            providers=["CPUExecutionProvider"],
        )
    except Exception as error:  # what the runtime raises has no common base
        first = str(error).splitlines()[0][:300]
        raise WeightsError(
            f"{where} cannot be read by onnxruntime {onnxruntime.__version__}: {first} "
            "The file is damaged or the runtime too old; convert the model again, or upgrade it."
        ) from error
    found = {value.name: value.shape for value in session.get_inputs()}
    if set(found) != inputs:
        raise WeightsError(
            f"{where} takes {', '.join(sorted(found))}; expected {', '.join(sorted(inputs))}. "
            "It was not made by `elmo convert --to onnx`."
        )
    for name, size in last_axes.items():
        if found[name][-1] != size:
            raise WeightsError(
                f"{where}: '{name}' has {found[name]}, and config.json tells of {size}. The two "
                "are not of the same model."
            )
    return session


def _no_head(source: str, what: str) -> str:
    return (
        f"{what} needs the language-model head, which a folder of ONNX ({source}) has not. Load "
        "the torch model that it was made from."
    )
