"""`ElmoModel`, which embeds sentences with torch.

See `embedder.py` for `embed` and its argument `state`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.device import choose_device, to_device
from elmokit.embed import scoring
from elmokit.embed.blocks import Batch, PendingVectors, StateArrays, TokenIds
from elmokit.embed.embedder import STATES, Embedder, StatePolicy
from elmokit.embed.precision import engine_for, exact_products
from elmokit.embed.scoring import SentenceScore
from elmokit.embed.substitutes import Substitutes, substitutes_at
from elmokit.embed.token_cache import MAX_BYTES, TokenCache
from elmokit.embed.tokenized import as_tokens, check_sentences, truncated_tokens
from elmokit.embed.vectors import FloatArray
from elmokit.errors import ConfigError
from elmokit.model.lstm import LstmState
from elmokit.model.packing import Packing
from elmokit.model.scoring import Head, Scorer
from elmokit.progress import plural
from elmokit.sources.modeldir import ModelParts
from elmokit.text.marked import MarkedWord

__all__ = ["STATES", "ElmoModel", "StatePolicy"]

_BLOCK = 4096  # words that are encoded at once


class ElmoModel(Embedder):
    """A loaded model: the biLM with its vocabulary, head and metadata.

    Attributes:
        bilm: The frozen network, a `torch.nn.Module`.
        config: The architecture of the biLM.
        vocabulary: The words of the LM head (or of a word-input model), if the model has them.
        head: The LM head, if the model has one.
        warm: The initial state for `state="warm"`, if the model has one.
        metadata: Other entries of config.json, such as the name and training details.
        source: Where the model was loaded from.
        batch_tokens: Maximum number of tokens per batch. Reduce it if you run out of memory.
        batch_sentences: Maximum number of sentences per batch.
        precision: "exact" or "fast".
        engine: The fastest implementation of `bilm` for the device and the precision.
        cache: The token cache.
    """

    # On a CPU, these batches are large enough for full speed on two cores, and small enough for a
    # laptop: the largest temporary tensor of the original model takes half a gigabyte.
    batch_tokens = 4096
    batch_sentences = 128

    def __init__(
        self,
        parts: ModelParts,
        *,
        device: str | torch.device = "auto",
        precision: str = "exact",
    ) -> None:
        super().__init__(parts.bilm.config, parts, precision)
        self.parts = parts
        self.device = choose_device(device)
        self.bilm = parts.bilm.to(self.device).eval().requires_grad_(False)
        self.head = None if parts.head is None else parts.head.to(self.device).eval()
        if parts.warm is not None:
            self.warm = LstmState(*(tensor.to(self.device) for tensor in parts.warm))
        self.lexicon = self.bilm.lexicon
        if self.device.type == "cuda":
            self.batch_tokens = 32768
            self.batch_sentences = 2048
            self.window_tokens = self._block_tokens = 65536
            self._copies_in_background = True
        self.engine = engine_for(self.bilm, precision)
        self.engine_name = f"{type(self.engine).__name__} on {self.device.type}"
        self._scorer: Scorer | None = None
        dim, weight = self.config.lstm.projection_dim, next(self.bilm.parameters())
        self.cache = TokenCache(
            lambda tokens: self.engine.encode(torch.from_numpy(self._encoder_ids(tokens))),
            lambda rows: weight.new_empty(rows, dim),
            self.lock,
            MAX_BYTES // (dim * weight.element_size()),
            lambda rows: to_device(rows, self.device),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle only the weights. A copy has its own lock, cache and engine."""
        create = partial(ElmoModel, device=str(self.device), precision=self.precision)
        return create, (self.parts,)

    # ----------------------------------------------------------------------- backend implementation

    def weights(self) -> Iterator[tuple[str, NDArray[Any]]]:
        """Yield the parameters and buffers of the biLM, sorted by name."""
        for name, tensor in sorted(self.bilm.state_dict().items()):
            yield name, tensor.detach().cpu().contiguous().numpy()

    def state_arrays(self, state: LstmState) -> StateArrays:
        """Return a state as NumPy arrays."""
        return {name: values.cpu().numpy() for name, values in state._asdict().items()}

    def state_from(self, arrays: StateArrays) -> LstmState:
        """Convert the output of `state_arrays` back to a state."""
        tensors = {name: torch.from_numpy(array).to(self.device) for name, array in arrays.items()}
        return LstmState(**tensors)

    def _zero_state(self, rows: int) -> LstmState:
        return LstmState.zeros(self.config.lstm, rows, like=next(self.bilm.parameters()))

    @contextmanager
    def _inference_context(self) -> Iterator[None]:
        with self.lock, torch.inference_mode(), exact_products(self.device):
            yield

    def _allocate(self, shape: tuple[int, int, int], dtype: str) -> PendingTensor:
        return PendingTensor(shape, dtype, self.device)

    def _run(
        self, table: Tensor, ids: NDArray[np.int64], packing: Packing, initial: LstmState | None
    ) -> tuple[Tensor, LstmState]:
        return self.engine.contextualize(table[to_device(ids, self.device)], packing, initial)

    def contextualize(self, tokens: Sequence[str], initial: LstmState | None = None) -> Tensor:
        """Compute the layers of one sentence, without adding boundaries to it.

        Args:
            tokens: The tokens, including the boundaries.
            initial: The initial state. Default: the zero state.

        Returns:
            h_{k,j}, shape (L + 1, T, 2D).
        """
        token_ids = TokenIds.of([tokens])
        with self._inference_context():
            table = self.cache.vectors(token_ids.words)
            ids = token_ids.ids.astype(np.int64)
            return self._run(table, ids, Packing.of(token_ids.lengths), initial)[0]

    def encode_words(self, words: Sequence[str]) -> FloatArray:
        """Return x_k of distinct words, shape (n, D); h_{k,0} is x_k twice."""
        blocks = (words[first : first + _BLOCK] for first in range(0, len(words), _BLOCK))
        with self._inference_context():
            vectors = [self.cache.vectors(block).cpu().numpy() for block in blocks]
        return np.concatenate(vectors).astype(np.float32)

    # -------------------------------------------------------------------------- language models

    def scorer(self) -> Scorer:
        """Return an object that computes the losses of both language models.

        Raises:
            ConfigError: The model has no head.
        """
        if self._scorer is None:
            lm_head, _ = scoring.language_model(self)
            head: Head = lm_head
            if self.precision == "fast" and self.device.type == "cpu":
                from elmokit.embed.fast import fast_head

                head = fast_head(lm_head)
            self._scorer = Scorer(self.engine, self.config.lstm, head, self.device)
        return self._scorer

    @overload
    def score(self, sentences: str, state: str = ...) -> SentenceScore: ...  # type: ignore[overload-overlap]

    @overload
    def score(
        self, sentences: Sequence[str] | Sequence[Sequence[str]], state: str = ...
    ) -> list[SentenceScore]: ...

    def score(
        self, sentences: str | Sequence[str] | Sequence[Sequence[str]], state: str = "reset"
    ) -> SentenceScore | list[SentenceScore]:
        """Return the log-probability of each token under both language models, and the perplexity.

        Args:
            sentences: As for `embed`: a list of strings or of lists of tokens, or a single string.
            state: The initial state of each sentence, "reset" or "warm".

        Returns:
            One `SentenceScore` per sentence, or a single `SentenceScore` for a single string.
        """
        if isinstance(sentences, str):
            return self.score([sentences], state)[0]
        check_sentences(sentences)
        tokens = [as_tokens(sentence, i)[0] for i, sentence in enumerate(sentences)]
        self._warn_truncated(truncated_tokens(self.config, tokens), stacklevel=4)
        return scoring.score(self, tokens, state)

    def substitutes(
        self,
        sentence: str | Sequence[str],
        k: int = 10,
        *,
        position: int | None = None,
        state: str = "reset",
        specials: bool = False,
    ) -> Substitutes:
        """Return the words that the language models predict at a position.

        Args:
            sentence: A string with one word in brackets, such as "I [read] the book .", or a list
                of tokens. The prediction does not depend on the word itself.
            k: Number of words per list.
            position: The position of the word, counted from 0, if `sentence` is a list of tokens.
            state: The initial state of the language models, "reset" or "warm".
            specials: Include `<S>`, `</S>` and `<UNK>`.
        """
        marked = MarkedWord.parse(sentence, position)
        [result] = substitutes_at(
            self, marked.tokens, [marked.position], k, state=state, specials=specials
        )
        return result

    # ----------------------------------------------------------------------------------- search

    def neighbors(
        self, query: str | MarkedWord | int, index: Any, k: int = 10, **options: Any
    ) -> Any:
        """Find the tokens nearest to a query; see `elmokit.search.index.TokenIndex.neighbors`.

        Args:
            query: A string with a word in brackets, such as "She [plays] the violin .", a
                `MarkedWord`, or the ID of a token in the index.
            index: An index that `elmo index` built with this model, opened with `TokenIndex.open`.
            k: Number of neighbors per layer.
            options: Other arguments of `TokenIndex.neighbors`: layer, mix, filter, min_count, ann.
        """
        if not hasattr(index, "neighbors"):
            raise ConfigError(
                f"Invalid index of type {type(index).__name__}: expected an index, opened with "
                "TokenIndex.open. To search a list of sentences, use "
                "elmokit.search.neighbors.neighbors."
            )
        return index.neighbors([query], self, k=k, **options)[0]

    def __repr__(self) -> str:
        return (
            f"<ElmoModel {self.config.n_layers} layers of {self.config.output_dim}, "
            f"{self.parts.n_parameters:,} parameters, on {self.device}, "
            f"from {self.source or 'memory'}>"
        )

    def _repr_html_(self) -> str:
        """Show a card in a notebook."""
        from elmokit import html
        from elmokit.sources.card import architecture_rows, training_rows

        words = "none" if self.vocabulary is None else plural(len(self.vocabulary), "word")
        rows = [
            *architecture_rows(self.config),
            ("parameters", f"{self.parts.n_parameters:,}"),
            ("vocabulary", words),
            ("LM head", "yes" if self.head is not None else "none"),
            ("warm state", "yes" if self.warm is not None else "none"),
            *training_rows(self.metadata),
            ("runs on", f"{self.device}, precision {self.precision}"),
        ]
        name = self.metadata.get("name") or self.source or "memory"
        return html.card(f"ElmoModel {name}", rows)


class PendingTensor(PendingVectors):
    """The vectors of a block of sentences, stored in a tensor.

    A GPU copies the tensor to the host while it computes the next block.

    Args:
        shape: The shape, (K, N, W).
        dtype: "float32" or "float16".
        device: The device that computes the vectors.
    """

    def __init__(self, shape: tuple[int, int, int], dtype: str, device: torch.device) -> None:
        self._values = torch.empty(shape, dtype=getattr(torch, dtype), device=device)
        self._range = torch.zeros(2)  # the smallest and the largest value, or NaN
        self._copied: torch.cuda.Event | None = None

    def put(self, layers: Tensor, batch: Batch) -> None:
        """Store the vectors of a batch, (K, n, W) in packed order."""
        values, device = self._values, self._values.device
        vectors = layers.index_select(1, to_device(batch.sources, device))
        values.index_copy_(1, to_device(batch.targets, device), vectors.to(values.dtype))

    def finish(self) -> None:
        """Start copying the vectors to the host, after the last batch."""
        if self._values.numel():
            self._range = torch.stack(torch.aminmax(self._values))
        if self._values.device.type == "cuda":
            self._values = _to_host(self._values)
            self._range = _to_host(self._range)
            self._copied = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            self._copied.record()

    def array(self) -> FloatArray:
        """Wait for the vectors and return them."""
        if self._copied is not None:
            self._copied.synchronize()
        array: FloatArray = self._values.numpy()
        return array

    @property
    def is_finite(self) -> bool:
        """Whether all values are finite in their data type."""
        return bool(self._range.isfinite().all())


def _to_host(values: Tensor) -> Tensor:
    """Start a copy to pinned memory, which the GPU fills while the host continues."""
    pinned = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    return pinned.copy_(values, non_blocking=True)
