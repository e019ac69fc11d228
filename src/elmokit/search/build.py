"""Build a token index in bounded memory; an interrupted build can be resumed.

The text is embedded in chunks, as by `elmo embed` (elmokit/bulk). Each chunk is appended to the
tables, then `unfinished.json` records their new versions. A resumed build continues with these
versions and gives the same index as an uninterrupted one. At the end `unfinished.json` becomes
`index.json`, which makes the last versions visible (see files.py).
"""

from __future__ import annotations

import hashlib
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import numpy as np

from elmokit.bulk.chunks import Chunk, check_documents, known_size, read_chunks
from elmokit.bulk.executors import InProcessExecutor
from elmokit.bulk.formats.block import Block
from elmokit.bulk.formats.columns import Array
from elmokit.bulk.job import ChunkJob
from elmokit.bulk.settings import EmbedSettings
from elmokit.bulk.store import changed_settings
from elmokit.embed.layer_choice import LayerChoice
from elmokit.embed.model import ElmoModel
from elmokit.errors import ConfigError, DataError, ElmoWarning, OutputError
from elmokit.progress import Progress, plural
from elmokit.search.files import (
    MANIFEST,
    OWN_NAMES,
    TABLES,
    UNFINISHED,
    IndexMeta,
    column_name,
    import_lance,
    publish,
    reading,
    table_path,
    vector_column,
)
from elmokit.search.index import folder_bytes, used_layers
from elmokit.search.neighbors import sentence_hash
from elmokit.storage.lock import check_not_in_use, run_lock

#: Approximate bytes of text per chunk: about 13,000 tokens, 160 MB of all layers of the original
#: model.
CHUNK_BYTES = 2**16


@dataclass(frozen=True)
class IndexSettings:
    """The settings of an index.

    Attributes:
        layer: The layers to store, as for `LayerChoice.parse_all`. Choices that can be computed
            from stored layers can be searched and take no extra space.
        mix: With layer "mix", its weights.
        state: Initial LSTM state of each sentence.
        tokenized: Tokens are separated by whitespace; otherwise lines are tokenized.
        split: Lines are paragraphs to split into sentences; otherwise a line is a sentence.
        chunk_bytes: Approximate bytes of text per chunk, the unit of work and of resuming.
    """

    layer: tuple[str, ...] = ("all",)
    mix: tuple[float, ...] | None = None
    state: Literal["reset", "warm"] = "reset"
    tokenized: bool = False
    split: bool = False
    chunk_bytes: int = CHUNK_BYTES

    def embed_settings(self) -> EmbedSettings:
        """Return the settings for computing all layers."""
        return EmbedSettings(
            state=self.state,
            tokenized=self.tokenized,
            split=self.split,
            chunk_bytes=self.chunk_bytes,
        )


@dataclass(frozen=True)
class IndexSummary:
    """The result of a build.

    Attributes:
        output: The directory.
        tokens: Tokens in the index.
        sentences: Sentences in the index.
        words: Distinct words in the index.
        n_bytes: Its size on disk.
        resumed_tokens: Tokens from an interrupted run, or from the index that was extended.
        cut_tokens: Tokens that are too long for the model; only their beginning was read.
        skipped_lines: Invalid lines that were skipped.
        seconds: Duration of this run.
        tokens_per_second: Speed of this run.
    """

    output: Path
    tokens: int
    sentences: int
    words: int
    n_bytes: int
    resumed_tokens: int
    cut_tokens: int
    skipped_lines: int
    seconds: float
    tokens_per_second: float


def build_index(
    model: ElmoModel,
    inputs: Sequence[str | Path],
    out: str | Path,
    settings: IndexSettings | None = None,
    *,
    resume: bool = False,
    overwrite: bool = False,
    append: bool = False,
    skip_bad: bool = False,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> IndexSummary:
    """Write the vectors of all tokens of a text to an index.

    Args:
        model: The model.
        inputs: Text files (also compressed) and Parquet files; "-" is standard input.
        out: The directory of the index.
        settings: Which vectors to store.
        resume: Continue an interrupted run, if there is one. The model, the settings and the text
            must be the same.
        overwrite: Replace an existing index; without `resume`, also discard an interrupted run.
        append: Add the text to an existing index. The model and the settings must be the same.
        skip_bad: Skip and count lines that are not UTF-8, instead of raising.
        on_progress: Called at the start and after each chunk.

    Raises:
        OutputError: The directory contains other files, is in use, or cannot be written.
        DataError: A line is invalid, the text has no tokens or is not that of the interrupted run.
        ConfigError: The model or the settings are not those of the index or the interrupted run.
    """
    out, settings = Path(out), settings or IndexSettings()
    check_index_output(out, resume=resume, overwrite=overwrite, append=append)
    documents = tuple(str(name) for name in inputs)
    check_documents(documents)
    embedding = settings.embed_settings()
    # A single thread writes, so that the tokens of the index are in the order of the text.
    executor = InProcessExecutor(model, embedding, writers=1)
    new = _new_meta(model, documents, settings, executor.info.manifest)
    text = _Text(documents, embedding, skip_bad)
    started = time.monotonic()
    is_new = not out.exists()
    try:
        with run_lock(out):
            if resume and not overwrite and (done := _finished(out, new, text, append)):
                return _summary(out, done, text, done.tokens, 0.0)
            # Again: another process may have built it in the meantime.
            check_index_output(out, resume=resume, overwrite=overwrite, append=append)
            if (out / MANIFEST).exists() and not (overwrite or append):
                raise _exists(out)
            writer = IndexWriter(out, _start(out, new, resume, append), len(documents))
            resumed, total = writer.meta.tokens, known_size(documents)
            job = ChunkJob(documents, embedding, writer, with_texts=True)
            chunks = text.chunks(writer.meta)
            on_progress(Progress(resumed, writer.meta.n_bytes, total))
            with closing(executor.run(job, chunks, None)) as results:
                for _ in results:
                    on_progress(Progress(writer.meta.tokens, writer.meta.n_bytes, total))
            if not writer.meta.versions or writer.meta.tokens == new.tokens:
                raise DataError(f"{', '.join(documents)} contains no tokens.")
            writer.finish()
    finally:
        if is_new and not any((out / name).exists() for name in (MANIFEST, UNFINISHED)):
            shutil.rmtree(out, ignore_errors=True)  # no chunk was finished
    return _summary(out, writer.meta, text, resumed, time.monotonic() - started)


def check_index_output(
    out: Path, *, resume: bool = False, overwrite: bool = False, append: bool = False
) -> None:
    """Raise if an index cannot be built at `out`, before anything is loaded or computed."""
    import_lance()
    if append and overwrite:
        raise OutputError("append and overwrite cannot be combined.")
    if out.is_file():
        raise OutputError(f"{out} is a file: expected the directory of an index or a new name.")
    if out.is_dir() and any(entry.name not in OWN_NAMES for entry in out.iterdir()):
        raise OutputError(f"{out} contains other files. Choose a new name.")
    if append:
        IndexMeta.read(out)
    elif (out / MANIFEST).exists() and not (resume or overwrite):
        raise _exists(out)
    if (out / UNFINISHED).exists() and not (resume or overwrite):
        check_not_in_use(out)
        raise OutputError(
            f"An interrupted run left an unfinished index in {out}. Continue it with --resume, or "
            "discard it with --overwrite."
        )


def _exists(out: Path) -> OutputError:
    return OutputError(
        f"The index {out} already exists. Choose another name, add the text to it with --append, "
        "or replace it with --overwrite."
    )


def kept_tokens(out: Path) -> int:
    """Return how many tokens an interrupted run to `out` has finished."""
    return IndexMeta.read(out, UNFINISHED).tokens if (out / UNFINISHED).exists() else 0


# ------------------------------------------------------------------------------- where a run starts


def _new_meta(
    model: ElmoModel,
    documents: Sequence[str],
    settings: IndexSettings,
    manifest: Mapping[str, Any],
) -> IndexMeta:
    """Return the manifest of an index without tokens."""
    choices = LayerChoice.parse_all(settings.layer, model.config.n_layers, settings.mix)
    layers = {choice.number for choice in choices} - {None}
    mix = None if settings.mix is None else list(settings.mix)
    return IndexMeta(
        model=manifest["model"],
        source=str(model.source or "memory"),
        state=settings.state,
        stored={  # choices that can be computed from stored layers are computed by the search
            choice.label: list(choice.weights)
            for choice in choices
            if choice.number is not None or not set(used_layers(choice)) <= layers
        },
        n_layers=model.config.n_layers,
        dim=model.config.output_dim,
        inputs=list(documents),
        run={**manifest, "layer": list(settings.layer), "mix": mix},
    )


def _finished(out: Path, new: IndexMeta, text: _Text, append: bool) -> IndexMeta | None:
    """Return the manifest of the index, if an earlier run has already finished it."""
    if not (out / MANIFEST).exists():
        return None
    meta = IndexMeta.read(out)
    if (meta.run, bool(meta.digests)) != (new.run, append) or meta.text_digest != text.digest():
        return None
    return meta


def _start(out: Path, new: IndexMeta, resume: bool, append: bool) -> IndexMeta:
    """Return the manifest to start from: a new one, that of an index, or that of a stopped run."""
    if append:
        base = IndexMeta.read(out)
        _check_same(f"The index {out} cannot be extended", base.run, new.run)
        kept = {name: getattr(base, name) for name in _KEPT}
        inputs, digests = [*base.inputs, *new.inputs], [*base.digests, base.text_digest]
        new = new.model_copy(update={**kept, "inputs": inputs, "digests": digests})
    if resume and (out / UNFINISHED).exists():
        before = IndexMeta.read(out, UNFINISHED)
        _check_same(
            f"The interrupted run in {out} cannot be resumed",
            {**before.run, "append": bool(before.digests)},
            {**new.run, "append": append},
        )
        return before
    return new


_KEPT = ("source", "stored", "tokens", "sentences", "words", "versions", "ann")


def _check_same(message: str, before: dict[str, Any], now: dict[str, Any]) -> None:
    if differences := changed_settings(before, now):
        raise ConfigError(
            f"{message}: it was started with different settings ({differences}). Use the same "
            "settings, or start over with --overwrite."
        )


# ---------------------------------------------------------------------------------------- the work


class _Text:
    """The text of a build.

    Attributes:
        skipped: Messages of the invalid lines that were skipped.
    """

    def __init__(self, documents: Sequence[str], settings: EmbedSettings, skip_bad: bool) -> None:
        self._documents, self._settings, self._skip_bad = documents, settings, skip_bad
        self.skipped: list[str] = []

    def _read(self) -> Iterator[Chunk]:
        self.skipped = []
        for chunk in read_chunks(self._documents, self._settings, skip_bad=self._skip_bad):
            self.skipped += chunk.skipped
            yield chunk

    def digest(self) -> str:
        """Return the digest of all chunks."""
        digest = ""
        for chunk in self._read():
            digest = _next_digest(digest, chunk.digest)
        return digest

    def chunks(self, meta: IndexMeta) -> Iterator[Chunk]:
        """Yield the chunks that are not in the tables yet.

        Raises:
            DataError: The text that is in the tables has changed.
        """
        digest = ""
        for chunk in self._read():
            digest = _next_digest(digest, chunk.digest)
            if chunk.number == meta.chunks - 1 and digest != meta.digest:
                raise self._changed(chunk.passages[-1].line if chunk.passages else 0)
            if chunk.number >= meta.chunks:
                yield chunk
        if chunk.number < meta.chunks - 1:
            raise self._changed(0)

    def _changed(self, line: int) -> DataError:
        return DataError(
            f"{', '.join(self._documents)}: the text up to line {line} is not what the interrupted "
            "run embedded. Use the same text to resume, or start over with --overwrite."
        )


def _next_digest(digest: str, chunk: str) -> str:
    """Return the digest of a text and its next chunk, given the digests of both."""
    return hashlib.blake2b((digest + chunk).encode(), digest_size=16).hexdigest()


class IndexWriter:
    """The tables of an index that is being built; a `BlockStore` for `ChunkJob`.

    Args:
        folder: The directory of the index.
        meta: The content of the tables at the start; later versions are undone.
        files: Number of input files of this build, the last of `meta.inputs`.

    Attributes:
        meta: The current content of the tables.
    """

    def __init__(self, folder: Path, meta: IndexMeta, files: int) -> None:
        self.folder = folder
        self.meta = meta
        self._first_file = len(meta.inputs) - files
        self._lance = import_lance()
        spellings: list[str] = []
        with reading(folder):
            for name, version in meta.versions.items():
                table = self._lance.dataset(table_path(folder, name), version=version)
                if table.latest_version != version:
                    table.restore()
                if name == "words":
                    spellings = table.to_table(columns=["word"]).column("word").to_pylist()
        self._words = {word: number for number, word in enumerate(spellings)}

    def write(self, block: Block, arrays: Mapping[str, Array], **_: Any) -> int:
        """Append the tokens of a chunk and record that."""
        versions = dict(self.meta.versions)
        for name, table in self._rows(block, arrays).items():
            if len(table):
                written = self._lance.write_dataset(
                    table,
                    table_path(self.folder, name),
                    mode="append" if name in versions else "overwrite",
                )
                versions[name] = written.version
        record, meta = block.record, self.meta
        self.meta = meta.model_copy(
            update={
                "tokens": meta.tokens + block.tokens,
                "sentences": meta.sentences + int(np.count_nonzero(arrays["lengths"])),
                "words": len(self._words),
                "versions": versions,
                "chunks": meta.chunks + 1,
                "digest": _next_digest(meta.digest, record["digest"]),
                "n_bytes": meta.n_bytes + record["n_bytes"],
                "cut_tokens": meta.cut_tokens + record["cut_tokens"],
            }
        )
        if versions:  # an index without tokens is an error
            self.meta.write(self.folder / UNFINISHED)
        return 0

    def _rows(self, block: Block, arrays: Mapping[str, Array]) -> dict[str, Any]:
        import pyarrow as pa

        ids, layers = arrays["ids"], arrays["vectors"]
        is_used = arrays["lengths"] > 0
        lengths, places = arrays["lengths"][is_used], arrays["places"][is_used]
        starts = np.cumsum(lengths) - lengths
        words, known = block.words(), len(self._words)
        numbers = np.array([self._words.setdefault(w, len(self._words)) for w in words], np.int32)
        new = np.flatnonzero(numbers >= known)
        first_uses = np.unique(ids, return_index=True)[1]
        sentences = [
            [words[i] for i in ids[start : start + length].tolist()]
            for start, length in zip(starts, lengths, strict=True)
        ]
        texts = [text for text, used in zip(block.texts(), is_used, strict=True) if used]
        hashes = np.array([sentence_hash(tokens) for tokens in sentences], dtype=np.int64)
        ordinals = self.meta.sentences + np.arange(len(lengths))
        offsets = np.zeros(len(lengths), dtype=np.int64)
        start = end = pa.nulls(len(ids), pa.int32())
        if block.has_spans:
            start, end = (pa.array(column, pa.int32()) for column in arrays["spans"].T)
            # The text of a sentence is stripped, but may begin with characters of no token.
            before = [max(t.find(s[0]), 0) for t, s in zip(texts, sentences, strict=True)]
            offsets = arrays["spans"][starts, 0] - np.array(before, dtype=np.int64)
        by_token = {
            "token": pa.array(self.meta.tokens + np.arange(len(ids))),
            "word": pa.array(numbers[ids]),
            "sentence": pa.array(np.repeat(ordinals, lengths)),
            "sentence_hash": pa.array(np.repeat(hashes, lengths)),
            "position": pa.array(np.arange(len(ids)) - np.repeat(starts, lengths), pa.int32()),
            "start": start,
            "end": end,
        }
        by_word = {"word": pa.array([words[i] for i in new], pa.string())}
        by_sentence = {
            "file": pa.array(self._first_file + places[:, 0], pa.int32()),
            "line": pa.array(places[:, 1]),
            "offset": pa.array(offsets),
            "text": pa.array(texts, pa.string()),
            "words": pa.ListArray.from_arrays(
                pa.array([*starts, len(ids)], pa.int32()), pa.array(numbers[ids])
            ),
        }
        for choice in self.meta.choices:
            if choice.number == 0:
                vectors = choice.apply(layers[:, first_uses[new]])
                by_word[column_name(choice)] = vector_column(vectors)
            else:
                by_token[column_name(choice)] = vector_column(choice.apply(layers))
        rows = {"tokens": by_token, "words": by_word, "sentences": by_sentence}
        return {name: pa.table(columns) for name, columns in rows.items()}

    def finish(self) -> None:
        """Make the new versions of the tables visible and remove the old ones."""
        tables = {name: self._lance.dataset(table_path(self.folder, name)) for name in TABLES}
        if self.meta.ann:  # add the new tokens to the approximate indices
            tables["tokens"].optimize.optimize_indices()
        versions = {name: table.version for name, table in tables.items()}
        update = {"versions": versions, "text_digest": self.meta.digest}
        self.meta = self.meta.model_copy(update=update)
        self.meta.write(self.folder / UNFINISHED)
        publish(self.folder)
        for table in tables.values():
            table.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)


def _summary(out: Path, meta: IndexMeta, text: _Text, resumed: int, seconds: float) -> IndexSummary:
    """Return the summary, and warn about truncated tokens and skipped lines."""
    losses = []
    if meta.cut_tokens:
        losses.append(f"Truncated {plural(meta.cut_tokens, 'token')}.")
    if text.skipped:
        count = plural(len(text.skipped), "line")
        losses.append(f"Skipped {count}; the first is {text.skipped[0]}")
    if losses:
        warnings.warn(" ".join(losses), ElmoWarning, stacklevel=3)
    return IndexSummary(
        out,
        tokens=meta.tokens,
        sentences=meta.sentences,
        words=meta.words,
        n_bytes=folder_bytes(out),
        resumed_tokens=resumed,
        cut_tokens=meta.cut_tokens,
        skipped_lines=len(text.skipped),
        seconds=round(seconds, 3),
        tokens_per_second=round((meta.tokens - resumed) / max(seconds, 1e-9), 1),
    )
