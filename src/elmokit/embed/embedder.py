"""`Embedder`: the base class of all embedding models, independent of the backend.

`ElmoModel` computes with torch, `OnnxModel` with onnxruntime; this module needs neither.

By default, the vectors of a sentence depend only on the sentence and the model. `state` selects the
initial state of the LSTMs:

    "reset"   every sentence starts from zero (the default)
    "warm"    every sentence starts from a state stored with the model, as in the middle of a text
    "carry"   the sentences of a call are one text: each starts from the final state of the
              previous one, as in bilm-tf and AllenNLP
"""

from __future__ import annotations

import threading
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from elmokit.config import BiLMConfig
from elmokit.embed import fork, sentence
from elmokit.embed.batching import batches_by_length, windows
from elmokit.embed.cosine import unit
from elmokit.embed.layer_choice import Layer, LayerChoice
from elmokit.embed.token_cache import TokenCache
from elmokit.embed.token_ids import TokenIds
from elmokit.embed.tokenized import (
    Tokenized,
    check_sentences,
    cut_tokens,
    longest_token,
    tokens_of,
)
from elmokit.embed.vectors import FloatArray, SentenceVectors
from elmokit.errors import ConfigError, DataError, ElmoWarning, nearest
from elmokit.model.chars import BEGIN_SENTENCE, END_SENTENCE, char_ids_table
from elmokit.model.lexicon import Lexicon
from elmokit.model.packing import Packing
from elmokit.progress import plural
from elmokit.text.vocab import UNKNOWN, Vocabulary

StatePolicy = Literal["reset", "warm", "carry"]
STATES: tuple[str, ...] = ("reset", "warm", "carry")

#: A state as numpy arrays, as stored on disk and sent between processes: cell and hidden.
StateArrays = Mapping[str, FloatArray]
#: An LSTM state with one row per text: a named tuple of `cell` and `hidden`, in torch or numpy.
State = TypeVar("State", bound=tuple[Any, ...])


class Batch(NamedTuple):
    """The tokens of a batch that have vectors, sentence by sentence.

    Attributes:
        members: The index of each sentence of the batch in the block.
        lengths: The number of tokens in each sentence.
        sources: The position of each token in packed order.
        places: The position of each token in the block.
    """

    members: NDArray[np.int64]
    lengths: NDArray[np.int64]
    sources: NDArray[np.int64]
    places: NDArray[np.int64]


class Pending(Protocol):
    """The vectors of a block of sentences, perhaps still being computed; see `PendingVectors`."""

    def put(self, layers: Any, batch: Batch) -> None: ...

    def finish(self) -> None: ...

    def array(self) -> FloatArray: ...

    @property
    def is_finite(self) -> bool: ...


class Embedder(ABC):
    """An embedding model.

    Attributes:
        config: The shape of the biLM.
        vocabulary: The words of the LM head (or of a word-input model), if the model has them.
        warm: The state that `state="warm"` starts from, if the model has one.
        metadata: Other entries of config.json, such as the name and training details.
        source: Where the model was loaded from.
        batch_tokens: Maximum tokens per batch; reduce it if you run out of memory.
        batch_sentences: Maximum sentences per batch.
        precision: "exact" or "fast".
        cache: The token cache.
        window_tokens: Tokens of a stream that are sorted by length and kept in memory together.
        lock: Held while vectors are computed, because threads that share a model share its token
            cache and buffers.
    """

    config: BiLMConfig
    vocabulary: Vocabulary | None
    warm: Any
    metadata: dict[str, Any]
    source: str
    batch_tokens: int
    batch_sentences: int
    precision: str
    cache: TokenCache[Any]
    window_tokens: int
    # Number of blocks computed while the vectors of an earlier block are copied to the host.
    _ahead: int = 0

    def __init__(self) -> None:
        self.lock = threading.RLock()
        fork.register(self)

    def after_fork(self) -> None:  # noqa: B027  # most models need nothing
        """Recreate resources that do not work in a forked child process."""

    # --------------------------------------------------------------------- implemented by a backend

    @property
    @abstractmethod
    def lexicon(self) -> Lexicon | None:
        """The words and characters of a model that encodes tokens with a lexicon."""

    @property
    @abstractmethod
    def computes(self) -> str:
        """The engine and kind of device: results are bit-identical only if these are equal."""

    @abstractmethod
    def weights(self) -> Iterator[tuple[str, NDArray[Any]]]:
        """Yield all arrays that determine the layers, sorted by name."""

    @abstractmethod
    def state_arrays(self, state: Any) -> StateArrays:
        """Return a state as numpy arrays."""

    @abstractmethod
    def state_from(self, arrays: StateArrays) -> Any:
        """Convert the output of `state_arrays` back to a state."""

    def _computing(self) -> AbstractContextManager[Any]:
        """Return a context manager to enter while vectors are computed."""
        return self.lock

    @abstractmethod
    def _allocate(self, shape: tuple[int, int, int], dtype: str, check: bool) -> Pending:
        """Allocate the vectors of a block."""

    @abstractmethod
    def _run(
        self, table: Any, ids: NDArray[np.int64], packing: Packing, start: Any
    ) -> tuple[Any, Any]:
        """Start one batch.

        Args:
            table: x of distinct words, (V, D), from `cache`.
            ids: The rows of the table to read, in packed order.
            packing: The packing.
            start: The initial state; None is the zero state.

        Returns:
            h_{k,j} in packed order, shape (L + 1, n, 2D), and the state after the last tokens.
        """

    @abstractmethod
    def _zeros(self, rows: int) -> Any:
        """Return a zero state."""

    # ------------------------------------------------------------------------------- embedding

    @overload
    def embed(  # type: ignore[overload-overlap]  # a str is a Sequence[str], but comes first
        self, sentences: str, state: StatePolicy = ..., *, rows: int = ...
    ) -> SentenceVectors: ...

    @overload
    def embed(
        self,
        sentences: Sequence[str] | Sequence[Sequence[str]],
        state: StatePolicy = ...,
        *,
        rows: int = ...,
    ) -> list[SentenceVectors]: ...

    def embed(
        self,
        sentences: str | Sequence[str] | Sequence[Sequence[str]],
        state: StatePolicy = "reset",
        *,
        rows: int = 1,
    ) -> SentenceVectors | list[SentenceVectors]:
        """Compute the vectors of sentences.

        Args:
            sentences: A list of sentences. A string is one sentence and is tokenized; it is not
                split into sentences (use `elmokit.split_sentences`). A list of tokens is used
                as is. Note that `["The", "cat"]` is two sentences of one word each; one sentence of
                two tokens is `[["The", "cat"]]`. A single string returns a single result.
            state: The initial state of each sentence: "reset", "warm" or "carry".
            rows: With `state="carry"`, the number of texts that are read in parallel: sentence i
                continues from sentence i - rows, like row i % rows of bilm-tf's batches.

        Returns:
            One `SentenceVectors` per sentence, in input order.
        """
        if isinstance(sentences, str):
            return self.embed([sentences], state, rows=rows)[0]
        check_sentences(sentences)
        given = [tokens_of(sentence, i) for i, sentence in enumerate(sentences)]
        self._warn_cut(cut_tokens(self.config, [tokens for tokens, _ in given]))
        return list(self._embed_blocks(self._blocks(given), state, rows))

    def stream(
        self,
        sentences: Iterable[str] | Iterable[Sequence[str]],
        state: StatePolicy = "reset",
        *,
        rows: int = 1,
    ) -> Iterator[SentenceVectors]:
        """Embed any number of sentences lazily, a few thousand tokens at a time; see `embed`."""
        check_sentences(sentences)
        cut: list[str] = []
        given = (tokens_of(sentence, i) for i, sentence in enumerate(sentences))
        blocks = windows(given, self.window_tokens)
        for vectors in self._embed_blocks(blocks, state, rows):
            cut += cut_tokens(self.config, [vectors.tokens])
            yield vectors
        self._warn_cut(cut)

    def encode(
        self,
        texts: str | Iterable[str] | Iterable[Sequence[str]],
        *,
        layer: Layer = "average",
        pooling: str = "mean",
        mix: Sequence[float] | None = None,
        gamma: float = 1.0,
        batch_size: int | None = None,
        show_progress_bar: bool = False,
        normalize_embeddings: bool = False,
        convert_to_tensor: bool = False,
    ) -> Any:
        """Compute one vector per text, as `SentenceTransformer.encode` does.

        Args:
            texts: One string, or a list. A string is split into sentences and tokens; a list of
                tokens is treated as one sentence. Every sentence starts from the zero state.
            layer: The vector of a token, by default the average of all layers; see
                `elmokit.embed.layer_choice`. "all" is not supported.
            pooling: "mean" or "max" over all tokens of a text, or its "first" token.
            mix: With layer "mix", the weights s, one per layer.
            gamma: With layer "mix", the scale.
            batch_size: Maximum sentences per batch. Default: the model's `batch_sentences`. It
                affects only speed and memory.
            show_progress_bar: Show a progress bar on standard error.
            normalize_embeddings: Scale every vector to length 1.
            convert_to_tensor: Return a torch tensor instead of a numpy array.

        Returns:
            Shape (N, D), or (D,) for one string; zeros for a text without tokens.
        """
        one = isinstance(texts, str)
        given = [texts] if isinstance(texts, str) else texts
        sentence.check_texts(given)
        choice = LayerChoice.parse(layer, self.config.n_layers, mix, gamma, allow_all=False)
        with self._batches_of(batch_size):
            vectors: Any = sentence.encode(
                self, given, choice, pooling, dim=self.config.output_dim, progress=show_progress_bar
            )
        if normalize_embeddings:
            vectors = unit(vectors)
        if convert_to_tensor:
            import torch

            vectors = torch.from_numpy(vectors)
        return vectors[0] if one else vectors

    def similarity(self, a: Any, b: Any) -> FloatArray:
        """Return the cosine similarity of every vector in `a` to every vector in `b`, (N, M).

        Args:
            a: Vectors from `encode`, (N, D) or (D,); or texts, which are encoded first.
            b: Same as `a`.
        """
        return sentence.similarity(self._encoded(a), self._encoded(b))

    def _encoded(self, given: Any) -> FloatArray:
        texts = isinstance(given, str) or (
            isinstance(given, Sequence) and all(isinstance(one, str) for one in given)
        )
        return self.encode(given) if texts else np.asarray(given, dtype=np.float32)

    @contextmanager
    def _batches_of(self, size: int | None) -> Iterator[None]:
        """Temporarily limit the sentences per batch; other threads wait."""
        if size is None:
            yield
            return
        if size < 1:
            raise ConfigError(f"Invalid batch_size {size}: expected an integer of at least 1.")
        with self.lock:
            before, self.batch_sentences = self.batch_sentences, size
            try:
                yield
            finally:
                self.batch_sentences = before

    def compute(
        self, sentences: Sequence[Sequence[str]], state: StatePolicy = "reset"
    ) -> list[FloatArray]:
        """Compute the layers of tokenized sentences, without checks or warnings.

        Returns:
            One array (L + 1, T, 2D) per sentence.
        """
        blocks = self._blocks([(list(tokens), None) for tokens in sentences])
        return [vectors.layers for vectors in self._embed_blocks(blocks, state, 1)]

    def _blocks(self, sentences: Sequence[Tokenized]) -> Iterable[Sequence[Tokenized]]:
        """Divide sentences into blocks, so that a GPU computes one while another is copied."""
        return windows(sentences, self.window_tokens) if self._ahead else [sentences]

    def _embed_blocks(
        self, blocks: Iterable[Sequence[Tokenized]], state: StatePolicy, rows: int
    ) -> Iterator[SentenceVectors]:
        """Compute blocks in order; on a GPU, copy one block while computing the next ones."""
        copying: deque[Future[list[SentenceVectors]]] = deque()
        last: tuple[Sequence[Tokenized], TokenIds, Pending] | None = None
        carried = None
        with ThreadPoolExecutor(1) as copier:
            for block in blocks:
                tokens = TokenIds.of([words for words, _ in block])
                # On a CPU the vectors are available at once and copied to their final arrays.
                own = None if self._ahead else _SentenceArrays(len(block), self._empty)
                pending, carried = self.compute_block(
                    tokens, state, rows=rows, carried=carried, pending=own
                )
                if own is not None:
                    yield from _sentence_vectors(block, tokens, own)
                    continue
                if last is not None:
                    copying.append(copier.submit(_sentence_vectors, *last))
                last = block, tokens, pending
                if len(copying) > self._ahead:
                    yield from copying.popleft().result()
            for future in copying:
                yield from future.result()
        if last is not None:
            yield from _sentence_vectors(*last)

    def compute_block(
        self,
        tokens: TokenIds,
        state: StatePolicy = "reset",
        *,
        rows: int = 1,
        carried: Any = None,
        choose: Callable[[Any], Any] | None = None,
        dtype: str = "float32",
        cached: bool = True,
        check: bool = False,
        pending: Pending | None = None,
    ) -> tuple[Pending, Any]:
        """Start computing the vectors of sentences; all other methods use this one.

        Args:
            tokens: The sentences.
            state: The initial state of each sentence.
            rows: See `embed`.
            carried: With `state="carry"`, the state returned by the previous call.
            choose: Selects from the layers: (L + 1, n, 2D) -> (K, n, W), in torch or numpy.
                Default: all layers.
            dtype: "float32" or "float16".
            cached: Use the token cache. Without it, results are bit-identical regardless of what
                was computed before.
            check: Check whether all values are finite.
            pending: Where to store the vectors. Default: one array.

        Returns:
            The vectors of all tokens in order, (K, N, W), and with `state="carry"` the state at
            the end.
        """
        if not isinstance(rows, int) or rows < 1 or (rows > 1 and state != "carry"):
            raise ConfigError(
                f"rows should be an integer of at least 1, and more than 1 only with "
                f"state='carry'; got rows={rows!r} with state={state!r}."
            )
        with self._computing():
            start = None if state == "carry" else self.start(state)
            words = list(tokens.words)
            words += [word for word in (BEGIN_SENTENCE, END_SENTENCE) if word not in words]
            if pending is None:
                k, _, width = (choose(self._empty) if choose else self._empty).shape
                pending = self._allocate((k, len(tokens.ids), width), dtype, check)
            block = _Block(
                tokens,
                tokens.starts,
                self.cache.vectors(words) if cached else self.cache.encode(words),
                (words.index(BEGIN_SENTENCE), words.index(END_SENTENCE)),
                choose,
                pending,
            )
            if state == "carry":
                carried = self._read_carried(block, rows, carried)
            else:
                carried = None
                present = tokens.lengths.nonzero()[0]
                lengths = tokens.lengths[present]
                for batch in batches_by_length(lengths, self.batch_tokens, self.batch_sentences):
                    initial = None if start is None else _rows(start, [0] * len(batch))
                    self._read_batch(block, present[batch], initial)
            pending.finish()
        return pending, carried

    def _read_carried(self, block: _Block, rows: int, carried: Any) -> Any:
        """Read sentences `rows` at a time; return the state that the next one continues from."""
        carried = self._zeros(rows) if carried is None else _rows(carried, list(range(rows)))
        count = len(block.tokens.lengths)
        for first in range(0, count, rows):
            members = np.arange(first, min(first + rows, count))
            if block.tokens.lengths[members].any():
                after = self._read_batch(block, members, _rows(carried, slice(len(members))))
                # A smaller last group leaves the other rows unchanged.
                for part, new in zip(carried, after, strict=True):
                    part[:, :, : len(members)] = new
        return _rows(carried, [(row + count) % rows for row in range(rows)])

    def _read_batch(self, block: _Block, members: NDArray[np.int64], start: Any) -> Any:
        """Read some sentences of a block, with their boundaries, and store their vectors."""
        lengths = block.tokens.lengths[members]
        packing = Packing.of(lengths + 2 * (lengths > 0))
        rows = np.arange(len(members)).repeat(lengths)
        steps = np.arange(len(rows)) - (lengths.cumsum() - lengths)[rows]
        places = block.starts[members][rows] + steps
        sources = packing.place(rows, steps + 1)
        ids = np.where(packing.steps == 0, *block.boundaries)
        ids[sources] = block.tokens.ids[places]
        layers, after = self._run(block.table, ids, packing, start)
        chosen = layers if block.choose is None else block.choose(layers)
        block.pending.put(chosen, Batch(members, lengths, sources, places))
        return after

    def _warn_cut(self, cut: list[str]) -> None:
        if cut:
            warnings.warn(
                f"Truncated {plural(len(cut), 'token')} to {longest_token(self.config)}; the first "
                f"is '{cut[0][:60]}'.",
                ElmoWarning,
                stacklevel=3,
            )

    def start(self, state: str) -> Any:
        """Return the initial state of sentences as one row; None is the zero state."""
        if state == "reset":
            return None
        if state != "warm":
            raise ConfigError(
                f"Invalid state '{state}'.{nearest(state, STATES)} Expected one of: "
                f"{', '.join(STATES)}."
            )
        if self.warm is None:
            raise ConfigError(
                f"The model {self.source} has no warm state. Create one from in-domain text "
                "with: elmo warm MODEL TEXT. Or use state='reset'."
            )
        return self.warm

    @cached_property
    def _empty(self) -> FloatArray:
        """The layers of a sentence without tokens."""
        return np.zeros((self.config.n_layers, 0, self.config.output_dim), dtype=np.float32)

    def _spell(self, tokens: Sequence[str]) -> NDArray[np.int64]:
        """Return the ids that the token encoder reads."""
        if self.config.char_cnn is not None:
            return char_ids_table(tokens, self.config.char_cnn.max_characters_per_token)
        if self.lexicon is not None:
            return self.lexicon.spell(tokens)
        if self.vocabulary is None:
            raise ConfigError(
                f"The model {self.source} reads words, not characters, and has no vocabulary. "
                "Put its vocab.txt in the same directory as the weights."
            )
        for token in tokens:
            if token not in self.vocabulary and UNKNOWN not in self.vocabulary:
                raise DataError(
                    f"The word '{token}' is not in the model's vocabulary, which has no {UNKNOWN}."
                )
        return np.array([self.vocabulary.index(token) + 1 for token in tokens], dtype=np.int64)


class _Block(NamedTuple):
    """A block that is being computed."""

    tokens: TokenIds
    starts: NDArray[np.int64]
    table: Any
    boundaries: tuple[int, int]
    choose: Callable[[Any], Any] | None
    pending: Pending


def _rows(state: State, rows: slice | list[int]) -> State:
    """Return some rows of a state; a list of rows makes a copy."""
    return type(state)(*(part[:, :, rows] for part in state))


# For this many sentences or fewer, copying is faster than starting threads.
_COPIED_AT_ONCE = 128
_COPY_THREADS = 8


class _SentenceArrays:
    """The `Pending` implementation for CPUs: one array per sentence."""

    def __init__(self, n: int, empty: FloatArray) -> None:
        self.arrays = [empty] * n

    def put(self, layers: Any, batch: Batch) -> None:
        values = np.asarray(layers)
        begin = 0
        for number, length in zip(batch.members.tolist(), batch.lengths.tolist(), strict=True):
            end = begin + length
            self.arrays[number] = values.take(batch.sources[begin:end], axis=1)
            begin = end

    def finish(self) -> None: ...

    def array(self) -> FloatArray:
        return np.concatenate(self.arrays, axis=1)

    @property
    def is_finite(self) -> bool:
        return True


def _sentence_vectors(
    sentences: Sequence[Tokenized], tokens: TokenIds, pending: Pending
) -> list[SentenceVectors]:
    """Return the vectors of each sentence, each in its own array."""
    if isinstance(pending, _SentenceArrays):
        arrays = pending.arrays
    else:
        layers, ends = pending.array(), np.cumsum(tokens.lengths).tolist()
        bounds = zip([0, *ends], ends, strict=False)
        arrays = _copies([layers[:, begin:end] for begin, end in bounds])
    return [
        SentenceVectors(words, offsets, array)
        for (words, offsets), array in zip(sentences, arrays, strict=True)
    ]


def _copies(arrays: list[FloatArray]) -> list[FloatArray]:
    """Copy the vectors of each sentence, so that keeping one does not keep the whole block."""
    if len(arrays) <= _COPIED_AT_ONCE:
        return [array.copy() for array in arrays]
    parts = [arrays[i : i + _COPIED_AT_ONCE] for i in range(0, len(arrays), _COPIED_AT_ONCE)]
    with ThreadPoolExecutor(_COPY_THREADS) as pool:  # numpy releases the GIL
        return [copy for part in pool.map(_copies, parts) for copy in part]
