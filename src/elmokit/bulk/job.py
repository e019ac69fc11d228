"""Process one chunk of a corpus: tokenize it, embed it and write the vectors.

In a worker, these steps run sequentially. In a single process, they are the stages of a
pipeline (executors.py). The output of a chunk depends only on its text, the model and the settings:
batches never span chunks, and the token cache is not used.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from elmokit import __version__
from elmokit.bulk.formats.block import Array, make_block
from elmokit.bulk.input import Chunk, Passage
from elmokit.bulk.settings import EmbedSettings
from elmokit.bulk.store import Output, Record, Times
from elmokit.config import BiLMConfig
from elmokit.embed.blocks import PendingVectors, StateArrays, TokenIds
from elmokit.embed.embedder import Embedder
from elmokit.embed.fingerprint import fingerprint
from elmokit.embed.tokenized import truncated_tokens
from elmokit.errors import DataError
from elmokit.text.sentences import tokenize_line
from elmokit.text.tokenize import token_starts

#: Maximum number of tokens in a sentence.
MAX_SENTENCE_TOKENS = 2**16

STAGES = ("read", "tokenize", "compute", "write")


@contextmanager
def timed(times: Times, stage: str) -> Iterator[None]:
    """Add the duration of a `with` block to the time of a stage."""
    started = time.perf_counter()
    try:
        yield
    finally:
        times[stage] = times.get(stage, 0.0) + time.perf_counter() - started


class ModelInfo(NamedTuple):
    """The description of a model that workers send to the main process.

    Attributes:
        config: The architecture of the biLM.
        manifest: Everything that determines the output, except the text, as JSON values.
        engine: The name of the engine, including its device type.
    """

    config: BiLMConfig
    manifest: dict[str, Any]
    engine: str


def describe(model: Embedder, settings: EmbedSettings) -> ModelInfo:
    """Check that a model supports the settings, and describe it."""
    settings.layout(model.config)
    if settings.state != "carry":
        model.initial_state(settings.state)
    manifest = {
        "elmokit": __version__,
        "model": fingerprint(model, settings.state),
        "batch_tokens": model.batch_tokens,
        "batch_sentences": model.batch_sentences,
        "precision": model.precision,
        **settings.to_dict(),
    }
    return ModelInfo(model.config, json.loads(json.dumps(manifest)), model.engine_name)


@dataclass
class TokenizedChunk:
    """A tokenized chunk.

    Attributes:
        record: The description of the input that is stored with the chunk.
        tokens: The tokens of all sentences.
        positions: The arrays `places` and, for untokenized input, `spans`; see block.py.
        texts: The original sentences, if the format stores them.
        times: The time that each stage has spent on the chunk.
    """

    record: Record
    tokens: TokenIds
    positions: dict[str, Array]
    texts: list[str] | None
    times: Times


@dataclass
class ComputedChunk:
    """A chunk whose vectors are being computed.

    Attributes:
        chunk: The tokenized chunk.
        pending: The vectors, which a GPU may still be computing.
        n_truncated: Number of truncated tokens.
        carried: With state="carry", the final state of the chunk.
    """

    chunk: TokenizedChunk
    pending: PendingVectors
    n_truncated: int
    carried: StateArrays | None


class FinishedChunk(NamedTuple):
    """The record of a written chunk, the time of each stage, and the number of bytes written."""

    record: Record
    times: Times
    n_bytes: int


@dataclass(frozen=True)
class ChunkJob:
    """The steps that process each chunk of a corpus. Can be sent to worker processes.

    Attributes:
        documents: The paths or URLs of all documents.
        settings: Which vectors to compute.
        output: The destination of the chunks.
    """

    documents: tuple[str, ...]
    settings: EmbedSettings
    output: Output

    def run(self, model: Embedder, chunk: Chunk) -> FinishedChunk:
        """Tokenize, embed and write a chunk."""
        return self.write(model, self.compute(model, self.tokenize(chunk)))

    def tokenize(self, chunk: Chunk) -> TokenizedChunk:
        """Split a chunk into sentences and tokens."""
        times: Times = {}
        options = {"tokenized": self.settings.tokenized, "split": self.settings.split}
        with timed(times, "tokenize"):
            tokens: list[str] = []
            starts: list[int] = []
            lengths: list[int] = []
            places: list[tuple[int, int, int]] = []
            texts: list[str] = []
            for passage in chunk.passages:
                sentences = tokenize_line(passage.text, **options)
                for number, (begin, text, sentence) in enumerate(sentences, passage.sentence):
                    if len(sentence) > MAX_SENTENCE_TOKENS:
                        raise self._length_error(passage, len(sentence))
                    if not self.settings.tokenized:
                        offset = passage.offset + begin
                        starts += [offset + start for start in token_starts(text, sentence)]
                    tokens += sentence
                    lengths.append(len(sentence))
                    places.append((passage.document, passage.line, number))
                    if self.output.with_texts:
                        texts.append(text.strip())
            ids = TokenIds.from_tokens(tokens, np.array(lengths, dtype=np.int64))
            positions = {"places": np.array(places, dtype=np.int64).reshape(-1, 3)}
            if not self.settings.tokenized:
                begins = np.array(starts, dtype=np.int64)
                word_lengths = np.array([len(word) for word in ids.words], dtype=np.int64)
                positions["spans"] = np.stack([begins, begins + word_lengths[ids.ids]], axis=1)
            counts = np.unique(positions["places"][:, 0], return_counts=True)
            record = {
                "chunk": chunk.number,
                "is_last": chunk.is_last,
                "documents": np.stack(counts, axis=1).tolist(),  # [document, sentences] pairs
                "skipped_lines": chunk.skipped_lines,
                "first_skipped": chunk.first_skipped,
                "n_bytes": chunk.n_bytes,
                "digest": chunk.digest,
            }
        return TokenizedChunk(
            record, ids, positions, texts if self.output.with_texts else None, times
        )

    def _length_error(self, passage: Passage, length: int) -> DataError:
        hint = "" if self.settings.split else " If lines are paragraphs, use --split."
        return DataError(
            f"{self.documents[passage.document]}, line {passage.line}: a sentence has {length:,} "
            f"tokens; the maximum is {MAX_SENTENCE_TOKENS:,}.{hint}"
        )

    def compute(
        self, model: Embedder, chunk: TokenizedChunk, carried: StateArrays | None = None
    ) -> ComputedChunk:
        """Start computing the vectors of a chunk.

        Args:
            model: The model.
            chunk: The chunk.
            carried: With state="carry", the final state of the previous chunk.
        """
        settings = self.settings
        with timed(chunk.times, "compute"):
            truncated = set(truncated_tokens(model.config, [chunk.tokens.words]))
            truncated_ids = [i for i, word in enumerate(chunk.tokens.words) if word in truncated]
            pending, final_state = model.compute_block(
                chunk.tokens,
                settings.state,
                rows=settings.rows,
                carried=None if carried is None else model.state_from(carried),
                select=settings.layout(model.config).select,
                dtype=settings.dtype,
                cached=False,
            )
            n_truncated = int(np.isin(chunk.tokens.ids, truncated_ids).sum())
            carried = None if final_state is None else model.state_arrays(final_state)
            return ComputedChunk(chunk, pending, n_truncated, carried)

    def write(self, model: Embedder, computed: ComputedChunk) -> FinishedChunk:
        """Wait for the vectors of a chunk and write them."""
        chunk = computed.chunk
        vectors = computed.pending.array()
        with timed(chunk.times, "write"):
            if not computed.pending.is_finite:
                self.settings.layout(model.config).check_finite(vectors, chunk.tokens)
            states = {f"state.{name}": array for name, array in (computed.carried or {}).items()}
            record = {**chunk.record, "truncated_tokens": computed.n_truncated}
            arrays = {"vectors": vectors, **chunk.positions, **states}
            block = make_block(chunk.tokens, arrays, chunk.texts, record)
            n_bytes = self.output.write(block)
        return FinishedChunk(dict(block.record), chunk.times, n_bytes)
