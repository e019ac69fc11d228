"""`Embedder`, the base class of all embedding models, which is independent of the backend.

`ElmoModel` uses torch, and `OnnxModel` uses onnxruntime. This module needs neither of them.

By default, the vectors of a sentence depend only on the sentence and the model. `state` selects the
initial state of the LSTMs:

    "reset"   every sentence starts from zero (the default)
    "warm"    every sentence starts from a state that is stored with the model, as if the sentence
              were in the middle of a text
    "carry"   the sentences of a call are one text, and every sentence starts from the final state
              of the previous sentence, as in bilm-tf and AllenNLP
"""

from __future__ import annotations

import sys
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from elmokit.config import BiLMConfig
from elmokit.embed import fork
from elmokit.embed.blocks import (
    Batch,
    PendingVectors,
    StateArrays,
    TokenIds,
    batches_by_length,
    compute_in_order,
    copy_block,
    select_rows,
    split_by_sentence,
    windows,
)
from elmokit.embed.layer_choice import Layer, LayerChoice
from elmokit.embed.token_cache import TokenCache
from elmokit.embed.tokenized import (
    TokenizedSentence,
    as_tokens,
    check_sentences,
    check_texts,
    split_text,
    truncated_tokens,
    truncation_warning,
)
from elmokit.embed.vectors import FloatArray, SentenceVectors, normalize, similarity
from elmokit.errors import ConfigError, check_choice, warn
from elmokit.model.chars import BEGIN_SENTENCE, END_SENTENCE
from elmokit.model.lexicon import Lexicon, encoder_ids
from elmokit.model.packing import Packing
from elmokit.text.vocab import Vocabulary

if TYPE_CHECKING:
    from elmokit.sources.modeldir import ModelParts
    from elmokit.sources.onnxdir import OnnxParts

StatePolicy = Literal["reset", "warm", "carry"]
STATES: tuple[str, ...] = ("reset", "warm", "carry")

#: How `encode` combines the vectors of the tokens of a text.
POOLINGS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "mean": lambda tokens: tokens.mean(axis=0),
    "max": lambda tokens: tokens.max(axis=0),
    "first": lambda tokens: tokens[0],
}


class Embedder(ABC):
    """An embedding model.

    Args:
        config: The architecture of the biLM.
        parts: The loaded files of the model.
        precision: "exact" or "fast".

    Attributes:
        config: The architecture of the biLM.
        lexicon: The words and characters of a model that encodes tokens with a lexicon.
        vocabulary: The words of the LM head (or of a word-input model), if the model has them.
        warm: The initial state for `state="warm"`, if the model has one.
        metadata: Other entries of config.json, such as the name and training details.
        source: Where the model was loaded from.
        batch_tokens: Maximum number of tokens per batch. Reduce it if you run out of memory.
        batch_sentences: Maximum number of sentences per batch.
        precision: "exact" or "fast".
        cache: The token cache.
        window_tokens: Approximate number of tokens in a window. The sentences of each window are
            sorted by length before they are batched.
        engine_name: The name of the engine and the device type. Results are bit-identical only for
            the same engine and device type.
        lock: A lock that is held while vectors are computed, because all threads that use a model
            share its token cache and buffers.
    """

    lexicon: Lexicon | None
    warm: Any = None
    engine_name: str
    batch_tokens: int
    batch_sentences: int
    window_tokens: int = 16384
    cache: TokenCache
    # Whether blocks are computed while the vectors of earlier blocks are copied to the host.
    _copies_in_background = False
    # Tokens per block if all vectors are kept in memory.
    _block_tokens = sys.maxsize

    def __init__(self, config: BiLMConfig, parts: ModelParts | OnnxParts, precision: str) -> None:
        self.config = config
        self.vocabulary: Vocabulary | None = parts.vocabulary
        self.metadata: dict[str, Any] = parts.metadata
        self.source: str = parts.source
        self.precision = precision
        self.lock = threading.RLock()
        fork.models.add(self)

    def after_fork(self) -> None:  # noqa: B027  # optional hook
        """Recreate resources that do not work in a forked child process."""

    # --------------------------------------------------------------------- implemented by a backend

    @abstractmethod
    def weights(self) -> Iterator[tuple[str, NDArray[Any]]]:
        """Yield the names and values of all arrays that determine the layers, sorted by name."""

    @abstractmethod
    def state_arrays(self, state: Any) -> StateArrays:
        """Return a state as NumPy arrays."""

    @abstractmethod
    def state_from(self, arrays: StateArrays) -> Any:
        """Convert the output of `state_arrays` back to a state."""

    def _inference_context(self) -> AbstractContextManager[Any]:
        """Return a context manager that is active while vectors are computed."""
        return self.lock

    def _allocate(self, shape: tuple[int, int, int], dtype: str) -> PendingVectors:
        """Allocate memory for the vectors of a block."""
        return PendingVectors(shape, dtype)

    @abstractmethod
    def _run(
        self, table: Any, ids: NDArray[np.int64], packing: Packing, initial: Any
    ) -> tuple[Any, Any]:
        """Compute the layers of one batch. On a GPU, do not wait for the result.

        Args:
            table: x_k of distinct words, (V, D), from `cache`.
            ids: The row of each token in the table, in packed order.
            packing: The packing of the batch.
            initial: The initial state. None is the zero state.

        Returns:
            h_{k,j} in packed order, shape (L + 1, n, 2D), and the final state of each sentence.
        """

    @abstractmethod
    def _zero_state(self, rows: int) -> Any:
        """Return a zero state."""

    # ------------------------------------------------------------------------------- embedding

    @overload
    def embed(  # type: ignore[overload-overlap]  # a str is also a Sequence[str]
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
            sentences: A list of sentences, or a single string. A string is tokenized, but not split
                into sentences (use `elmokit.split_sentences`). A list of tokens is used unchanged.
                Note that `["The", "cat"]` is two sentences of one word each, while
                `[["The", "cat"]]` is one sentence of two tokens.
            state: The initial state of each sentence: "reset", "warm" or "carry".
            rows: With `state="carry"`, the number of rows in a batch, that is, the batch size of
                bilm-tf. Each row is a separate text: sentence `i` starts from the final state
                of sentence `i - rows`.

        Returns:
            One `SentenceVectors` per sentence, in input order, or a single `SentenceVectors` for a
            string.
        """
        if isinstance(sentences, str):
            return self.embed([sentences], state, rows=rows)[0]
        return list(self._embed_checked(sentences, state, rows, self._block_tokens))

    def stream(
        self,
        sentences: Iterable[str] | Iterable[Sequence[str]],
        state: StatePolicy = "reset",
        *,
        rows: int = 1,
    ) -> Iterator[SentenceVectors]:
        """Embed any number of sentences, about `window_tokens` tokens at a time; see `embed`."""
        yield from self._embed_checked(sentences, state, rows, self.window_tokens)

    def _embed_checked(
        self,
        sentences: Iterable[str] | Iterable[Sequence[str]],
        state: StatePolicy,
        rows: int,
        block_tokens: int,
    ) -> Iterator[SentenceVectors]:
        """Check, tokenize and embed sentences, and warn about truncated tokens at the end."""
        check_sentences(sentences)
        truncated: list[str] = []

        def blocks() -> Iterator[list[TokenizedSentence]]:
            tokenized = (as_tokens(sentence, i) for i, sentence in enumerate(sentences))
            for block in windows(tokenized, block_tokens):
                truncated.extend(truncated_tokens(self.config, [tokens for tokens, _ in block]))
                yield block

        yield from self._embed_blocks(blocks(), state, rows)
        self._warn_truncated(truncated)

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
            texts: A string, or a list of texts, each of which is a string or a list of tokens.
                Strings are split into sentences and tokenized. A list of tokens is a single
                sentence. Every sentence starts from the zero state.
            layer: Any layer choice except "all"; see `elmokit.embed.layer_choice`. Default: the
                average of all layers.
            pooling: "mean" or "max" over all tokens of a text, or "first" for its first token.
            mix: With layer "mix", the weights s, one per layer.
            gamma: With layer "mix", the scale.
            batch_size: Accepted for compatibility with sentence-transformers, but ignored. To limit
                the size of batches, use the attributes `batch_tokens` and `batch_sentences`.
            show_progress_bar: Show a progress bar on standard error.
            normalize_embeddings: Scale all vectors to length 1.
            convert_to_tensor: Return a tensor instead of a NumPy array.

        Returns:
            The vectors, shape (N, W), or (W,) for a single string. W is 2 * D, or (L + 1) * 2 * D
            for layer "concat". Texts without tokens have zero vectors.
        """
        from tqdm import tqdm

        is_single = isinstance(texts, str)
        texts = [texts] if isinstance(texts, str) else texts
        check_texts(texts)
        check_choice("pooling", pooling, POOLINGS)
        choice = LayerChoice.parse(layer, self.config.n_layers, mix, gamma, allow_all=False)
        split = [split_text(text, i) for i, text in enumerate(texts)]
        encoded: Any = np.zeros((len(split), choice.dim(self.config.output_dim)), np.float32)
        vectors = self.stream(chain.from_iterable(split))
        progress = tqdm(split, desc="encode", unit="text", disable=not show_progress_bar)
        for i, sentences in enumerate(progress):
            layers = [next(vectors).layers for _ in sentences]
            tokens = [choice.apply(h) for h in layers if h.shape[1]]
            if tokens:
                encoded[i] = POOLINGS[pooling](np.concatenate(tokens))
        next(vectors, None)  # at its end, the stream warns about truncated tokens
        if normalize_embeddings:
            encoded = normalize(encoded)
        if convert_to_tensor:
            import torch

            encoded = torch.from_numpy(encoded)
        return encoded[0] if is_single else encoded

    def similarity(self, a: Any, b: Any) -> FloatArray:
        """Return the cosine similarity of each vector of `a` to each vector of `b`, shape (N, M).

        Args:
            a: Vectors from `encode`, (N, W) or (W,), or texts, which are encoded first.
            b: Same as `a`.
        """
        return similarity(self._as_vectors(a), self._as_vectors(b))

    def _as_vectors(self, values: Any) -> FloatArray:
        are_texts = isinstance(values, str) or (
            isinstance(values, Sequence) and all(isinstance(value, str) for value in values)
        )
        return self.encode(values) if are_texts else np.asarray(values, dtype=np.float32)

    def compute(
        self, sentences: Sequence[Sequence[str]], state: StatePolicy = "reset"
    ) -> list[FloatArray]:
        """Compute the layers of tokenized sentences, without checks or warnings.

        Returns:
            One array of shape (L + 1, T, 2D) per sentence.
        """
        blocks = windows(((list(tokens), None) for tokens in sentences), self._block_tokens)
        return [vectors.layers for vectors in self._embed_blocks(blocks, state, 1)]

    def _embed_blocks(
        self, blocks: Iterable[Sequence[TokenizedSentence]], state: StatePolicy, rows: int
    ) -> Iterator[SentenceVectors]:
        """Compute blocks in order and yield the vectors of their sentences."""
        if self._copies_in_background:
            yield from self._embed_and_copy(blocks, state, rows)
            return
        carried = None
        for block in blocks:
            arrays = [self._empty_layers] * len(block)

            def put(layers: Any, batch: Batch, arrays: list[FloatArray] = arrays) -> None:
                new = split_by_sentence(np.asarray(layers), batch.sources, batch.lengths)
                for number, array in zip(batch.sentences.tolist(), new, strict=True):
                    arrays[number] = array

            tokens = TokenIds.of([words for words, _ in block])
            with self._inference_context():
                carried = self._compute_layers(tokens, state, rows, carried, put)
            for (words, offsets), array in zip(block, arrays, strict=True):
                yield SentenceVectors(words, offsets, array)

    def _embed_and_copy(
        self, blocks: Iterable[Sequence[TokenizedSentence]], state: StatePolicy, rows: int
    ) -> Iterator[SentenceVectors]:
        """Copy the vectors of each block in a separate thread while the next one is computed."""
        futures: deque[Future[list[SentenceVectors]]] = deque()
        carried = None
        with ThreadPoolExecutor(1) as pool:
            for block in blocks:
                tokens = TokenIds.of([words for words, _ in block])
                pending, carried = self.compute_block(tokens, state, rows=rows, carried=carried)
                futures.append(pool.submit(copy_block, block, tokens, pending))
                if len(futures) > 2:
                    yield from futures.popleft().result()
            for future in futures:
                yield from future.result()

    def compute_block(
        self,
        tokens: TokenIds,
        state: StatePolicy = "reset",
        *,
        rows: int = 1,
        carried: Any = None,
        select: Callable[[Any], Any] = lambda layers: layers,
        dtype: str = "float32",
        cached: bool = True,
    ) -> tuple[PendingVectors, Any]:
        """Start computing the vectors of a block of sentences.

        Args:
            tokens: The tokens of all sentences.
            state: The initial state of each sentence.
            rows: See `embed`.
            carried: With `state="carry"`, the state that the previous call returned.
            select: Selects or combines the layers of a batch: (L + 1, n, 2D) -> (K, n, W). Default:
                all layers.
            dtype: "float32" or "float16".
            cached: Whether to use the token cache. Without the cache, results do not depend on
                earlier calls, not even in the last bit.

        Returns:
            The vectors of all tokens in order, (K, N, W), and, with `state="carry"`, the final
            state.
        """
        with self._inference_context():
            k, _, width = select(self._empty_layers).shape
            pending = self._allocate((k, len(tokens.ids), width), dtype)

            def put(layers: Any, batch: Batch) -> None:
                pending.put(select(layers), batch)

            carried = self._compute_layers(tokens, state, rows, carried, put, cached=cached)
            pending.finish()
        return pending, carried

    def _compute_layers(
        self,
        tokens: TokenIds,
        state: StatePolicy,
        rows: int,
        carried: Any,
        put: Callable[[Any, Batch], None],
        *,
        cached: bool = True,
    ) -> Any:
        """Compute the layers of sentences in batches. With `state="carry"`, return the final state.

        Calls `put` with the layers of each batch, (L + 1, n, 2D), in packed order. See
        `compute_block` for the other arguments.
        """
        if not isinstance(rows, int) or rows < 1 or (rows > 1 and state != "carry"):
            raise ConfigError(
                f"Invalid rows={rows!r} with state={state!r}: expected 1 or, with state='carry', "
                "an integer of at least 1."
            )
        words = list(tokens.words)
        words += [word for word in (BEGIN_SENTENCE, END_SENTENCE) if word not in words]
        boundaries = words.index(BEGIN_SENTENCE), words.index(END_SENTENCE)
        starts = tokens.starts
        initial = None if state == "carry" else self.initial_state(state)
        table = self.cache.vectors(words) if cached else self.cache.encode(words)

        def compute_batch(sentences: NDArray[np.int64], initial: Any) -> Any:
            lengths = tokens.lengths[sentences]
            packing = Packing.of(lengths + 2 * (lengths > 0))
            row = np.arange(len(sentences)).repeat(lengths)
            step = np.arange(len(row)) - (lengths.cumsum() - lengths)[row]
            sources = packing.positions(row, step + 1)
            targets = starts[sentences][row] + step
            ids = np.where(packing.steps == 0, *boundaries)
            ids[sources] = tokens.ids[targets]
            layers, final = self._run(table, ids, packing, initial)
            put(layers, Batch(sentences, lengths, sources, targets))
            return final

        if state == "carry":
            carried = self._zero_state(rows) if carried is None else carried
            return compute_in_order(compute_batch, tokens.lengths, rows, carried)
        nonempty = tokens.lengths.nonzero()[0]
        lengths = tokens.lengths[nonempty]
        for batch in batches_by_length(lengths, self.batch_tokens, self.batch_sentences):
            initial_rows = None if initial is None else select_rows(initial, [0] * len(batch))
            compute_batch(nonempty[batch], initial_rows)
        return None

    def _warn_truncated(self, tokens: list[str], stacklevel: int = 5) -> None:
        if tokens:
            warn(truncation_warning(self.config, tokens), stacklevel)

    def initial_state(self, state: str) -> Any:
        """Return the initial state of a sentence as a single row, or None for the zero state."""
        if state == "reset":
            return None
        if state == "carry":
            raise ConfigError(
                "Invalid state 'carry': expected 'reset' or 'warm', because each sentence is "
                "processed independently. For continuous text, use: elmo perplexity --state carry"
            )
        check_choice("state", state, STATES)
        if self.warm is None:
            raise ConfigError(
                f"{self.source or 'This model'} has no warm state. Create one from in-domain text "
                "with: elmo warm MODEL TEXT. Or use state='reset'."
            )
        return self.warm

    @cached_property
    def _empty_layers(self) -> FloatArray:
        """The layers of a sentence without tokens."""
        return np.zeros((self.config.n_layers, 0, self.config.output_dim), dtype=np.float32)

    def _encoder_ids(self, tokens: Sequence[str]) -> NDArray[np.int64]:
        """Return the ids that the token encoder reads."""
        word_index = None if self.vocabulary is None else self.vocabulary.index
        return encoder_ids(tokens, self.config, self.lexicon, word_index)
