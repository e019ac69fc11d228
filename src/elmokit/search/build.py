"""Build a token index in bounded memory; an interrupted build can be resumed.

The text is embedded in chunks, as by `elmo embed` (elmokit/bulk). Each chunk is appended to the
tables, and `unfinished.json` then records their new versions. A resumed build continues with these
versions and gives the same index as an uninterrupted one. At the end, `unfinished.json` is renamed
to `index.json`, which makes the latest versions visible (see files.py).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import numpy as np

from elmokit.bulk.executors import InProcessExecutor
from elmokit.bulk.formats.block import Block
from elmokit.bulk.formats.layout import Layout
from elmokit.bulk.formats.reading import GetMetadata
from elmokit.bulk.input import check_documents
from elmokit.bulk.run import Run, total_counts
from elmokit.bulk.settings import EmbedSettings, Summary
from elmokit.bulk.store import Manifest, OnFinished, Output, Records, Times, check_same_settings
from elmokit.embed.layer_choice import LayerChoice
from elmokit.embed.model import ElmoModel
from elmokit.errors import DataError, OutputError, join_names, output_error
from elmokit.progress import Progress, no_log
from elmokit.search.files import (
    INDEX_FILES,
    MANIFEST,
    TABLES,
    UNFINISHED,
    IndexMeta,
    column_name,
    database_errors,
    import_lance,
    publish,
    table_path,
    vector_column,
)
from elmokit.search.index import folder_bytes, used_layers
from elmokit.search.neighbors import sentence_hash
from elmokit.storage.lock import run_lock
from elmokit.text.lines import STDIN

#: Approximate bytes of text per chunk: about 13,000 tokens. With the original model, the vectors of
#: these tokens in all layers take 160 MB.
CHUNK_BYTES = 2**16


@dataclass(frozen=True)
class IndexSettings:
    """The settings of an index.

    Attributes:
        layer: The layers to store, as in `LayerChoice.parse_all`. Combinations of stored layers
            can also be searched, and take no extra space.
        mix: With layer "mix", the weights s, one per layer.
        state: Initial LSTM state of each sentence.
        tokenized: Whether the text is already tokenized, with tokens separated by whitespace.
        split: Whether to split lines into sentences. Otherwise, each line is a sentence.
        chunk_bytes: Approximate size of a chunk of text in bytes. An interrupted build resumes at
            the first unfinished chunk.
    """

    layer: tuple[str, ...] = ("all",)
    mix: tuple[float, ...] | None = None
    state: Literal["reset", "warm"] = "reset"
    tokenized: bool = False
    split: bool = False
    chunk_bytes: int = CHUNK_BYTES


@dataclass(frozen=True, kw_only=True)
class IndexSummary(Summary):
    """The result of a build. `tokens` and `sentences` are those of the whole index.

    Attributes:
        words: Distinct words in the index.
        n_bytes: Size of the index on disk.
        resumed_tokens: Tokens from an interrupted run, or from the index that was extended.
    """

    words: int
    n_bytes: int
    resumed_tokens: int


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
    on_progress: Callable[[Progress], None] = no_log,
) -> IndexSummary:
    """Write the vectors of all tokens of a text to an index.

    Args:
        model: The model.
        inputs: Text files (optionally compressed) and Parquet files; "-" is standard input.
        out: The directory of the index.
        settings: Which vectors to store.
        resume: Continue an interrupted run, if there is one. The model, the settings and the text
            must be the same.
        overwrite: Replace an existing index; without `resume`, also discard an interrupted run.
        append: Add the text to an existing index. The model and the settings must be the same.
        skip_bad: Skip and count lines that are not valid UTF-8 instead of raising an error.
        on_progress: Called at the start and after each chunk.

    Raises:
        OutputError: The directory contains files that do not belong to an index, is in use, or
            cannot be written.
        DataError: A line is invalid, the text has no tokens, or it differs from the text of the
            interrupted run.
        ConfigError: The model or the settings differ from those of the index or the interrupted
            run.
    """
    out, settings = Path(out), settings or IndexSettings()
    options = {"resume": resume, "overwrite": overwrite, "append": append}
    check_index_output(out, **options)
    documents = tuple(str(name) for name in inputs)
    check_documents(documents)
    embed_settings = EmbedSettings(
        state=settings.state,
        tokenized=settings.tokenized,
        split=settings.split,
        chunk_bytes=settings.chunk_bytes,
    )
    # A single thread writes, so that the tokens of the index are in text order.
    executor = InProcessExecutor(model, embed_settings, writers=1)
    output = IndexOutput(out, model, settings, **options)
    run = Run(executor, documents, output, embed_settings, "text", skip_bad)
    summary = run.embed(on_progress)
    meta = output.meta
    counts = {"tokens": meta.tokens, "sentences": meta.sentences, "words": meta.words}
    values = {**vars(summary), **counts, "resumed_tokens": output.resumed_tokens}
    return IndexSummary(**values, n_bytes=folder_bytes(out))


def check_index_output(
    out: Path, *, resume: bool = False, overwrite: bool = False, append: bool = False
) -> None:
    """Raise an error if an index cannot be built at `out`, before a model is loaded."""
    import_lance()
    if append and overwrite:
        raise OutputError("append and overwrite cannot be combined. Use one of them.")
    if out.is_file():
        raise OutputError(
            f"{out} is a file: expected an index directory or a path that does not exist."
        )
    if out.is_dir() and any(entry.name not in INDEX_FILES for entry in out.iterdir()):
        raise OutputError(
            f"{out} contains files that do not belong to an index. Choose another path."
        )
    if append:
        IndexMeta.read(out)
    elif (out / MANIFEST).exists() and not (resume or overwrite):
        raise _already_exists(out)
    if (out / UNFINISHED).exists() and not (resume or overwrite):
        raise OutputError(
            f"{out} contains an unfinished index. If the run was interrupted, continue it with "
            "--resume, or discard it with --overwrite."
        )


def _already_exists(out: Path) -> OutputError:
    return OutputError(
        f"The index {out} already exists. Choose another name, extend the index with --append, "
        "or replace it with --overwrite."
    )


def count_finished_tokens(out: Path) -> int:
    """Return the number of tokens that an interrupted run has written to `out`."""
    return IndexMeta.read(out, UNFINISHED).tokens if (out / UNFINISHED).exists() else 0


class IndexOutput(Output):
    """An index that is being built.

    Args:
        path: The directory of the index.
        model: The model.
        settings: Which vectors to store.
        append: Whether to add the text to an existing index.
        flags: The arguments `resume` and `overwrite` of `Output`.

    Attributes:
        meta: The manifest, which describes the current content of the tables.
        resumed_tokens: Number of tokens in the tables at the start of the run.
    """

    with_texts = True
    meta: IndexMeta

    def __init__(
        self, path: Path, model: ElmoModel, settings: IndexSettings, *, append: bool, **flags: bool
    ) -> None:
        super().__init__(path, **flags)
        self._lance = import_lance()
        self._model = model
        self._settings = settings
        self._append = append
        self.resumed_tokens = self._tokens_before = 0
        self._words: dict[str, int] = {}

    def prepare(self, layout: Layout, documents: tuple[str, ...]) -> dict[str, Any]:
        """Return the stored layers; see `Output`."""
        super().prepare(layout, documents)
        mix = None if self._settings.mix is None else list(self._settings.mix)
        return {"layer": list(self._settings.layer), "mix": mix}

    def final_counts(self, manifest: Manifest, digest: Callable[[], str]) -> dict[str, int] | None:
        """Return the counts of the index if the same build has already finished; see `Output`."""
        if self.overwrite or not self.resume or not (self.path / MANIFEST).exists():
            return None
        meta = IndexMeta.read(self.path)
        if (meta.run, bool(meta.digests)) != (manifest, self._append):
            return None
        if meta.text_digest != digest():
            return None
        self.meta, self.resumed_tokens = meta, meta.tokens
        return total_counts(meta.records)

    @contextmanager
    def open_run(self, manifest: Manifest) -> Iterator[bool]:
        """Lock the index and open its tables; see `Output`."""
        with run_lock(self.path):
            # Another process may have built the index since the first check.
            options = {"resume": self.resume, "overwrite": self.overwrite}
            check_index_output(self.path, **options, append=self._append)
            if (self.path / MANIFEST).exists() and not (self.overwrite or self._append):
                raise _already_exists(self.path)
            is_resumed = self.resume and (self.path / UNFINISHED).exists()
            try:
                self._start(manifest, is_resumed)
                yield is_resumed
            except OSError as error:
                raise output_error(self.path, error) from error
            finally:
                if not any((self.path / name).exists() for name in (MANIFEST, UNFINISHED)):
                    for name in TABLES:  # the run ended before the first chunk was finished
                        shutil.rmtree(table_path(self.path, name), ignore_errors=True)

    def _start(self, manifest: Manifest, is_resumed: bool) -> None:
        """Determine the content of the tables, and undo changes that were not recorded."""
        run, inputs, model = dict(manifest), list(self.documents), self._model
        choices = LayerChoice.parse_all(
            self._settings.layer, model.config.n_layers, self._settings.mix
        )
        layers = {choice.number for choice in choices} - {None}
        self.meta = IndexMeta(
            model=run["model"],
            source=str(model.source or "memory"),
            state=self._settings.state,
            stored={  # combinations of stored layers are computed when they are searched
                choice.label: list(choice.weights)
                for choice in choices
                if choice.number is not None or not set(used_layers(choice)) <= layers
            },
            n_layers=model.config.n_layers,
            dim=model.config.output_dim,
            inputs=inputs,
            run=run,
        )
        if self._append:
            base = IndexMeta.read(self.path)
            check_same_settings(f"The index {self.path} cannot be extended", base.run, run)
            digests = [*base.digests, base.text_digest]
            self.meta = replace(
                base, inputs=base.inputs + inputs, digests=digests, records=[], text_digest=""
            )
        self._tokens_before = self.meta.tokens
        if is_resumed:
            unfinished = IndexMeta.read(self.path, UNFINISHED)
            check_same_settings(
                f"The interrupted run in {self.path} cannot be resumed",
                {**unfinished.run, "append": bool(unfinished.digests)},
                {**run, "append": self._append},
            )
            self.meta = unfinished
        self.resumed_tokens = self.meta.tokens
        words: list[str] = []
        with database_errors(self.path):
            for name, version in self.meta.versions.items():
                table = self._lance.dataset(table_path(self.path, name), version=version)
                if table.latest_version != version:
                    table.restore()
                if name == "words":
                    words = table.to_table(columns=["word"]).column("word").to_pylist()
        self._words = {word: word_id for word_id, word in enumerate(words)}

    def records(self) -> Records:
        """Return the records of the finished chunks; see `Output`."""
        return {record["chunk"]: record for record in self.meta.records}

    def write(self, block: Block) -> int:
        """Append the tokens of a chunk to the tables, then record the chunk; see `Output`."""
        versions = dict(self.meta.versions)
        tables = self._make_rows(block)
        for name, table in tables.items():
            if len(table):
                written = self._lance.write_dataset(
                    table,
                    table_path(self.path, name),
                    mode="append" if name in versions else "overwrite",
                )
                versions[name] = written.version
        meta = self.meta
        self.meta = replace(
            meta,
            tokens=meta.tokens + block.tokens,
            sentences=meta.sentences + int(np.count_nonzero(block.read("lengths"))),
            words=len(self._words),
            versions=versions,
            records=[*meta.records, dict(block.record)],
        )
        if versions:  # before the first token, no table exists
            self.meta.write(self.path / UNFINISHED)
        return sum(table.nbytes for table in tables.values())

    @contextmanager
    def assemble(
        self, metadata: GetMetadata, times: Times, records: Records
    ) -> Iterator[OnFinished]:
        """Make the new versions of the tables visible at the end; see `Output`."""
        yield lambda _: None
        if self.meta.tokens == self._tokens_before:
            names = ["standard input" if name == STDIN else name for name in self.documents]
            raise DataError(
                f"Found no tokens in {join_names(names)}: expected at least one nonempty line."
            )
        tables = {name: self._lance.dataset(table_path(self.path, name)) for name in TABLES}
        if self.meta.ann:  # add the new tokens to the approximate indexes
            tables["tokens"].optimize.optimize_indices()
        versions = {name: table.version for name, table in tables.items()}
        self.meta = replace(self.meta, versions=versions, text_digest=metadata()["digest"])
        self.meta.write(self.path / UNFINISHED)
        publish(self.path)
        for table in tables.values():
            table.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)

    def _make_rows(self, block: Block) -> dict[str, Any]:
        """Return the rows of a chunk: one Arrow table for each table of the index."""
        import pyarrow as pa

        arrays = block.arrays
        ids, layers = arrays["ids"], arrays["vectors"]
        is_nonempty = arrays["lengths"] > 0
        lengths, locations = arrays["lengths"][is_nonempty], arrays["places"][is_nonempty]
        starts = np.cumsum(lengths) - lengths
        words, n_known = block.words(), len(self._words)
        word_ids = np.array([self._words.setdefault(w, len(self._words)) for w in words], np.int32)
        new = np.flatnonzero(word_ids >= n_known)
        first_uses = np.unique(ids, return_index=True)[1]
        sentences = [
            [words[i] for i in ids[start : start + length].tolist()]
            for start, length in zip(starts, lengths, strict=True)
        ]
        texts = [t for t, has_tokens in zip(block.texts(), is_nonempty, strict=True) if has_tokens]
        hashes = np.array([sentence_hash(tokens) for tokens in sentences], dtype=np.int64)
        n_earlier_files = len(self.meta.inputs) - len(self.documents)
        sentence_ids = self.meta.sentences + np.arange(len(lengths))
        offsets = np.zeros(len(lengths), dtype=np.int64)
        start = end = pa.nulls(len(ids), pa.int32())
        if block.has_spans:
            start, end = (pa.array(column, pa.int32()) for column in arrays["spans"].T)
            # Spans are relative to the line. A sentence may begin before its first token.
            indents = [max(t.find(s[0]), 0) for t, s in zip(texts, sentences, strict=True)]
            offsets = arrays["spans"][starts, 0] - np.array(indents, dtype=np.int64)
        token_columns = {
            "token": pa.array(self.meta.tokens + np.arange(len(ids))),
            "word": pa.array(word_ids[ids]),
            "sentence": pa.array(np.repeat(sentence_ids, lengths)),
            "sentence_hash": pa.array(np.repeat(hashes, lengths)),
            "position": pa.array(np.arange(len(ids)) - np.repeat(starts, lengths), pa.int32()),
            "start": start,
            "end": end,
        }
        word_columns = {"word": pa.array([words[i] for i in new], pa.string())}
        sentence_columns = {
            "file": pa.array(n_earlier_files + locations[:, 0], pa.int32()),
            "line": pa.array(locations[:, 1]),
            "offset": pa.array(offsets),
            "text": pa.array(texts, pa.string()),
            "words": pa.ListArray.from_arrays(
                pa.array([*starts, len(ids)], pa.int32()), pa.array(word_ids[ids])
            ),
        }
        for choice in self.meta.choices:
            if choice.number == 0:
                vectors = choice.apply(layers[:, first_uses[new]])
                word_columns[column_name(choice)] = vector_column(vectors)
            else:
                token_columns[column_name(choice)] = vector_column(choice.apply(layers))
        columns = (token_columns, word_columns, sentence_columns)
        return dict(zip(TABLES, map(pa.table, columns), strict=True))
