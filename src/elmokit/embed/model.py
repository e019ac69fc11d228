"""The object users hold: a biLM ready to turn sentences into vectors.

`embed` is what most people need. By default the vectors of a sentence depend on nothing but the
sentence and the model; what the LSTMs start from is said by `state`:

    "reset"   every sentence starts from zero (the default)
    "warm"    every sentence starts from one stored state of the model, as if in mid-text
    "carry"   the sentences of one call are one text: each starts where the last one ended, as
              bilm-tf and AllenNLP always do
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, overload

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit.config import BiLMConfig
from elmokit.embed.batching import batches_by_length, windows
from elmokit.embed.precision import check_precision, choose_device, exact
from elmokit.embed.token_cache import TokenCache
from elmokit.embed.vectors import FloatArray, SentenceVectors
from elmokit.errors import ConfigError, DataError, ElmoWarning, nearest
from elmokit.model.chars import BEGIN_SENTENCE, END_SENTENCE, char_ids_table, is_truncated
from elmokit.model.lstm import LstmState
from elmokit.model.packing import Packing
from elmokit.sources.modeldir import ModelParts
from elmokit.sources.resolve import load_parts
from elmokit.text.tokenize import tokenize
from elmokit.text.vocab import UNKNOWN

StatePolicy = Literal["reset", "warm", "carry"]
STATES: tuple[str, ...] = ("reset", "warm", "carry")

# Tokens that run together. Enough for full speed on two cores, small enough for a laptop: the
# largest temporary of the original-size model is about half a gigabyte.
_BATCH_TOKENS = 4096
# Tokens of a stream that are sorted by length and held together before any is given out.
_WINDOW_TOKENS = 16384


def load(
    path: str | Path | None = None,
    weights: str | Path | None = None,
    device: str | torch.device = "auto",
    precision: str = "exact",
) -> ElmoModel:
    """Load a model.

    Args:
        path: A model directory, a zip or an `options.json` of AllenNLP or bilm-tf, or a name such
            as `allennlp:original`. Nothing means the model that comes with the package.
        weights: The HDF5 file, if `path` is an `options.json`.
        device: "auto" (a GPU if there is one), "cpu", "cuda", "cuda:1", ...
        precision: "exact": float32, equal to the original systems.
    """
    check_precision(precision)
    return ElmoModel(load_parts(path, weights), device=device)


class ElmoModel:
    """A loaded biLM with what came along.

    Attributes:
        bilm: The network, frozen, a `torch.nn.Module`.
        config: Its shape.
        vocabulary: The words of the LM head (or of a word-input model), if the model has them.
        head: The LM head, if the model has one.
        warm: The state that `state="warm"` starts from, if the model has one.
        metadata: What else the model directory tells: its name, how it was trained.
        source: Where the model was loaded from.
        batch_tokens: Tokens that run together; lower it where memory is short.
        cache: x_k of the tokens seen so far, within a bound.
    """

    def __init__(self, parts: ModelParts, *, device: str | torch.device = "auto") -> None:
        self.device = choose_device(device)
        self.bilm = parts.bilm.to(self.device).eval().requires_grad_(False)
        self.config: BiLMConfig = self.bilm.config
        self.vocabulary = parts.vocabulary
        self.head = None if parts.head is None else parts.head.to(self.device).eval()
        self.warm = parts.warm
        self.metadata = parts.metadata
        self.source = parts.source
        self.batch_tokens = _BATCH_TOKENS
        self.cache = TokenCache(self.bilm, self._spell)

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
            sentences: A list. A string in it is one sentence and is tokenised (never split further:
                `elmokit.split_sentences` does that); a list of tokens is taken as it is. One bare
                string gives one result instead of a list.
            state: What each sentence starts from, see above.
            rows: With `state="carry"`, the number of texts that are read side by side: sentence i
                goes on where sentence i - rows ended, as row i % rows of bilm-tf's batches does.

        Returns:
            `SentenceVectors` in the order of the input, one per sentence.
        """
        if isinstance(sentences, str):
            return self.embed([sentences], state, rows=rows)[0]
        tokenised = [_tokenised(sentence, i) for i, sentence in enumerate(sentences)]
        tokens = [words for words, _ in tokenised]
        self._warn_truncated(tokens)
        layers, _ = self.compute(tokens, state, rows=rows)
        return [
            SentenceVectors(words, offsets, h)
            for (words, offsets), h in zip(tokenised, layers, strict=True)
        ]

    def stream(
        self,
        sentences: Iterable[str] | Iterable[Sequence[str]],
        state: StatePolicy = "reset",
        *,
        rows: int = 1,
    ) -> Iterator[SentenceVectors]:
        """Do as `embed`, over any number of sentences, holding only a few thousand tokens."""
        carried: LstmState | None = None
        tokenised = (_tokenised(sentence, i) for i, sentence in enumerate(sentences))
        for window in windows(tokenised, _WINDOW_TOKENS, multiple_of=rows):
            tokens = [words for words, _ in window]
            self._warn_truncated(tokens)
            layers, carried = self.compute(tokens, state, rows=rows, carried=carried)
            for (words, offsets), h in zip(window, layers, strict=True):
                yield SentenceVectors(words, offsets, h)

    def compute(
        self,
        sentences: Sequence[Sequence[str]],
        state: StatePolicy = "reset",
        *,
        rows: int = 1,
        carried: LstmState | None = None,
    ) -> tuple[list[FloatArray], LstmState | None]:
        """Compute the layers of tokenised sentences: what `embed` and the vector files stand on.

        A sentence without tokens gives (L + 1, 0, 2D) and leaves a carried state as it was.

        Args:
            sentences: Lists of tokens.
            state: What each sentence starts from.
            rows: See `embed`.
            carried: With `state="carry"`, the state an earlier call returned, to go on from.

        Returns:
            One array (L + 1, T, 2D) per sentence, and with `state="carry"` the state at the end.
        """
        if state == "carry":
            return self._compute_carried(sentences, rows, carried)
        start = self._start(state)
        lengths = [len(sentence) for sentence in sentences]
        results: list[FloatArray] = [self._empty()] * len(sentences)
        for batch in batches_by_length(lengths, self.batch_tokens):
            members = [i for i in batch if lengths[i]]
            if not members:
                continue
            initial = None if start is None else start.expand(len(members))
            layers, _ = self._run([sentences[i] for i in members], initial)
            for i, h in zip(members, layers, strict=True):
                results[i] = h
        return results, None

    def _compute_carried(
        self, sentences: Sequence[Sequence[str]], rows: int, carried: LstmState | None
    ) -> tuple[list[FloatArray], LstmState]:
        if rows < 1:
            raise ConfigError(f"rows should be at least 1, found {rows}.")
        if carried is None:
            weight = next(self.bilm.parameters())
            carried = LstmState.zeros(self.config.lstm, rows, like=weight)
        results: list[FloatArray] = []
        for first in range(0, len(sentences), rows):
            group = sentences[first : first + rows]
            used = torch.arange(len(group), device=self.device)
            layers, after = self._run(group, carried.select(used))
            results += layers
            # A last, smaller group leaves the other rows as they were.
            carried = LstmState(
                torch.cat([after.cell, carried.cell[:, :, len(group) :]], dim=2),
                torch.cat([after.hidden, carried.hidden[:, :, len(group) :]], dim=2),
            )
        return results, carried

    def _run(
        self, sentences: Sequence[Sequence[str]], start: LstmState | None
    ) -> tuple[list[FloatArray], LstmState]:
        """Run one batch: each distinct token is encoded once, then the biLM reads all sentences."""
        places: dict[str, int] = {}
        read = [
            [places.setdefault(t, len(places)) for t in (BEGIN_SENTENCE, *words, END_SENTENCE)]
            if words
            else []
            for words in sentences
        ]
        packing = Packing.of([len(row) for row in read])
        flat = np.array([place for row in read for place in row], dtype=np.int64)
        # Packed order -> sentence order and back: tokens sorted by sentence, then by step.
        in_order = np.lexsort((packing.steps, packing.rows))
        packed = np.empty_like(flat)
        packed[in_order] = flat
        with torch.inference_mode(), exact(self.device):
            x_types = self.cache.vectors(list(places))
            x = x_types[torch.from_numpy(packed).to(self.device)]
            layers, state = self.bilm.contextualize(x, packing, start)
            found = layers.cpu().numpy()
        results: list[FloatArray] = []
        end = 0
        for row in read:
            begin, end = end, end + len(row)
            results.append(found[:, in_order[begin + 1 : end - 1]] if row else self._empty())
        return results, state

    def _start(self, state: str) -> LstmState | None:
        if state == "reset":
            return None
        if state != "warm":
            raise ConfigError(
                f"No state '{state}'.{nearest(state, STATES)} There are: {', '.join(STATES)}."
            )
        if self.warm is None:
            raise ConfigError(
                f"The model {self.source} has no warm state. Make one from a text it should feel "
                "at home in with: elmo warm MODEL TEXT. Or use state='reset'."
            )
        return LstmState(*(part.to(self.device) for part in self.warm))

    def _empty(self) -> FloatArray:
        return np.zeros((self.config.n_layers, 0, self.config.output_dim), dtype=np.float32)

    # ---------------------------------------------------------------------------------- tokens

    def _spell(self, tokens: Sequence[str]) -> NDArray[np.int64]:
        """Give the ids that the token encoder reads."""
        if self.config.char_cnn is not None:
            return char_ids_table(tokens, self.config.char_cnn.max_characters_per_token)
        if self.vocabulary is None:
            raise ConfigError(
                f"The model {self.source} reads words, not characters, and came without its "
                "vocabulary. Put its vocab.txt beside the weights."
            )
        for token in tokens:
            if token not in self.vocabulary and UNKNOWN not in self.vocabulary:
                raise DataError(
                    f"The word '{token}' is not in the model's vocabulary, which has no {UNKNOWN}."
                )
        return np.array([self.vocabulary.index(token) + 1 for token in tokens], dtype=np.int64)

    def _warn_truncated(self, sentences: Iterable[Sequence[str]]) -> None:
        if (cnn := self.config.char_cnn) is None:
            return
        limit = cnn.max_characters_per_token
        cut = [token for words in sentences for token in words if is_truncated(token, limit)]
        if cut:
            warnings.warn(
                f"{len(cut)} tokens are longer than {limit - 2} bytes and only their beginning "
                f"was read, the first being '{cut[0][:60]}'.",
                ElmoWarning,
                stacklevel=3,
            )

    def __repr__(self) -> str:
        n = sum(p.numel() for p in self.bilm.parameters())
        return (
            f"<ElmoModel {self.config.n_layers} layers of {self.config.output_dim}, "
            f"{n:,} parameters, on {self.device}, from {self.source or 'memory'}>"
        )


def _tokenised(sentence: object, index: int) -> tuple[list[str], list[tuple[int, int]] | None]:
    """Return the tokens of one sentence as the user gave it, and their offsets in a string."""
    if isinstance(sentence, str):
        tokens = tokenize(sentence)
        return [t.text for t in tokens], [(t.start, t.end) for t in tokens]
    if isinstance(sentence, bytes) or not isinstance(sentence, Iterable):
        raise DataError(
            f"Sentence {index} is a {type(sentence).__name__}; expected a string or a list of "
            "tokens."
        )
    words = list(sentence)
    for k, word in enumerate(words):
        if not isinstance(word, str):
            raise DataError(
                f"Token {k} of sentence {index} is a {type(word).__name__}; expected a string."
            )
    return words, None
