"""Build a token index in bounded memory; an interrupted build continues without loss.

The text is embedded in parts of some thousand tokens. Each part is appended to the tables, then
`unfinished.json` records their new versions. A build that was killed continues with these versions
and gives the same index as one that was not. At the end `index.json` names the last versions, which
makes them visible (see files.py).
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from elmokit import __version__
from elmokit.bulk.input import Corpus, Mark, Place, Sentence, check_inputs
from elmokit.bulk.settings import PART_TOKENS, Progress
from elmokit.embed.batching import windows
from elmokit.embed.fingerprint import fingerprint
from elmokit.embed.layer_choice import LayerChoice
from elmokit.embed.model import ElmoModel
from elmokit.embed.tokenised import cut_tokens
from elmokit.embed.vectors import FloatArray
from elmokit.errors import ConfigError, DataError, ElmoWarning, OutputError
from elmokit.search.files import (
    MANIFEST,
    OWN_NAMES,
    TABLES,
    UNFINISHED,
    IndexMeta,
    choices_to_store,
    column_name,
    damaged,
    import_lance,
    table_path,
    vector_column,
)
from elmokit.search.index import folder_bytes
from elmokit.search.neighbors import sentence_hash
from elmokit.storage.lock import check_not_in_use, run_lock
from elmokit.storage.manifest import read_json, write_json


@dataclass(frozen=True)
class IndexSettings:
    """The settings of an index.

    Attributes:
        layer: The layers to store, as for `LayerChoice.parse_all`. What can be made of stored
            layers can be searched and takes no space of its own.
        mix: With layer "mix", its weights.
        state: Initial LSTM state of each sentence.
        tokenized: Tokens are separated by whitespace; otherwise lines are tokenized.
        split: Lines are paragraphs to split into sentences; otherwise a line is a sentence.
        part_tokens: Approximate number of tokens per part.
    """

    layer: tuple[str, ...] = ("all",)
    mix: tuple[float, ...] | None = None
    state: Literal["reset", "warm"] = "reset"
    tokenized: bool = False
    split: bool = False
    part_tokens: int = PART_TOKENS


@dataclass(frozen=True)
class IndexSummary:
    """The result of a build.

    Attributes:
        output: The folder.
        tokens: Tokens in the index.
        sentences: Sentences in it.
        words: Distinct words in it.
        n_bytes: Its size on disk.
        resumed_tokens: Tokens that an interrupted run, or the index that was extended, had already.
        cut_tokens: Tokens too long for the model, of which only the beginning was read.
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
    on_progress: Callable[[Progress], None] | None = None,
) -> IndexSummary:
    """Write the vectors of all tokens of a text to an index.

    Args:
        model: The model.
        inputs: Text files, also compressed ones; "-" is standard input.
        out: The folder of the index.
        settings: Which vectors to store.
        resume: Continue an interrupted run, if there is one. The model, the settings and the text
            must be the same.
        overwrite: Replace an existing index; without `resume`, also discard an interrupted run.
        append: Add the text to an existing index. The model and the settings must be the same.
        skip_bad: Skip and count lines that are not UTF-8, instead of raising.
        on_progress: Called at the start and after each part.

    Raises:
        OutputError: The folder holds something else, is in use, or cannot be written.
        DataError: A line is invalid, the text has no tokens or is not that of the interrupted run.
        ConfigError: The model or the settings are not those of the index or the interrupted run.
    """
    out = Path(out)
    check_index_output(out, resume=resume, overwrite=overwrite, append=append)
    check_inputs(inputs)
    run = _Run(model, inputs, settings or IndexSettings(), skip_bad=skip_bad)
    total_bytes = run.read_ahead()
    started = time.monotonic()
    is_new = not out.exists()
    try:
        with run_lock(out):
            base = IndexMeta.read(out) if append else None
            if resume and not overwrite and run.is_finished(out, append=append):
                return run.close_finished(out)
            # Again: another process may have built it in the meantime.
            check_index_output(out, resume=resume, overwrite=overwrite, append=append)
            if (out / MANIFEST).exists() and not (overwrite or append):
                raise _exists(out)
            writer = IndexWriter(out, run.values, run.stored, base, resume=resume)
            resumed = writer.done.tokens
            run.embed(writer, lambda: _report(on_progress, writer.done, total_bytes))
            meta = writer.finish(run.meta(writer))
    finally:
        if is_new and not any((out / name).exists() for name in (MANIFEST, UNFINISHED)):
            shutil.rmtree(out, ignore_errors=True)  # no part was finished
    return run.summary(out, meta, writer.done.cut_tokens, resumed, time.monotonic() - started)


def check_index_output(
    out: Path, *, resume: bool = False, overwrite: bool = False, append: bool = False
) -> None:
    """Raise if an index cannot be built at `out`, before anything is loaded or computed."""
    import_lance()
    if append and overwrite:
        raise OutputError("An index is either extended (append) or replaced (overwrite), not both.")
    if out.is_file():
        raise OutputError(f"{out} is a file: expected a folder, or a new name.")
    if out.is_dir() and any(entry.name not in OWN_NAMES for entry in out.iterdir()):
        raise OutputError(f"{out} is a folder with other files. Choose a new name.")
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
    return Done.read(out).tokens


# ------------------------------------------------------------------------------------- the writer


class Done(NamedTuple):
    """How far a build has come.

    Attributes:
        run: Everything that the content depends on besides the text.
        tokens: Tokens in the tables.
        sentences: Sentences in them.
        cut_tokens: Tokens of this run that were too long for the model.
        n_bytes: Bytes of the text that were read.
        place: The place of the last sentence.
        digest: Digest of the text up to its line.
        versions: The version of each table.
    """

    run: dict[str, Any] = {}  # noqa: RUF012  # never changed
    tokens: int = 0
    sentences: int = 0
    cut_tokens: int = 0
    n_bytes: int = 0
    place: tuple[int, int, int] = (-1, 0, 0)
    digest: str = ""
    versions: dict[str, int] = {}  # noqa: RUF012

    @classmethod
    def read(cls, folder: Path) -> Done:
        """Read `unfinished.json`; without it nothing is done yet."""
        if not (folder / UNFINISHED).exists():
            return cls()
        hint = "Start again with --overwrite."
        values = read_json(folder / UNFINISHED, error=DataError, hint=hint)
        try:
            return cls(**values)
        except TypeError as error:
            raise DataError(f"{folder / UNFINISHED} is damaged ({error}). {hint}") from error


class IndexWriter:
    """The tables of an index that is being built.

    Args:
        folder: The folder of the index.
        run: Everything that the content depends on besides the text.
        stored: What to store.
        base: The index to extend; None for a new one.
        resume: Continue an interrupted run, if there is one.

    Attributes:
        done: How far the build has come.
        base: The index to extend.
        stored: What to store.
    """

    def __init__(
        self,
        folder: Path,
        run: dict[str, Any],
        stored: Sequence[LayerChoice],
        base: IndexMeta | None,
        *,
        resume: bool,
    ) -> None:
        self.folder = folder
        self.base = base
        self.stored = stored if base is None else base.choices
        self._lance = import_lance()
        self.done = Done(run={**run, "append": base is not None})
        if base is not None:
            _check_same(f"The index {folder} cannot be extended", base.run, run)
            self.done = self.done._replace(
                tokens=base.tokens, sentences=base.sentences, versions=base.versions
            )
        if resume and (folder / UNFINISHED).exists():
            before = Done.read(folder)
            _check_same(
                f"The interrupted run in {folder} cannot be resumed", before.run, self.done.run
            )
            self.done = before
        self._restore()
        self._words = {word: number for number, word in enumerate(self._spellings())}

    def _restore(self) -> None:
        """Undo what was appended after the last recorded versions."""
        for name, version in self.done.versions.items():
            try:
                table = self._lance.dataset(table_path(self.folder, name), version=version)
                if table.latest_version != version:
                    table.restore()
            except (OSError, ValueError) as error:
                raise damaged(self.folder, f"table {name}: {error}") from error

    def _spellings(self) -> list[str]:
        if "words" not in self.done.versions:
            return []
        table = self._lance.dataset(table_path(self.folder, "words"))
        words: list[str] = table.to_table(columns=["word"]).column("word").to_pylist()
        return words

    def add(self, sentences: Sequence[Sentence], layers: FloatArray, done: dict[str, Any]) -> None:
        """Append the tokens of some sentences and record that.

        Args:
            sentences: The sentences.
            layers: The vectors of all their tokens, shape (L + 1, n, 2D).
            done: What else to record.
        """
        tables = {
            **self._tokens_and_words(sentences, layers),
            "sentences": self._sentences(sentences),
        }
        versions = dict(self.done.versions)
        for name in TABLES:
            if len(tables[name]):
                table = self._lance.write_dataset(
                    tables[name],
                    table_path(self.folder, name),
                    mode="append" if name in versions else "overwrite",
                )
                versions[name] = table.version
        self.done = self.done._replace(
            tokens=self.done.tokens + layers.shape[1],
            sentences=self.done.sentences + len(sentences),
            versions=versions,
            **done,
        )
        write_json(self.folder / UNFINISHED, self.done._asdict())

    def _tokens_and_words(
        self, sentences: Sequence[Sentence], layers: FloatArray
    ) -> dict[str, Any]:
        import pyarrow as pa

        words = [word for s in sentences for word in s.tokens]
        known = len(self._words)
        numbers = [self._words.setdefault(word, len(self._words)) for word in words]
        first_uses = {number: place for place, number in reversed(list(enumerate(numbers)))}
        new = list(self._words)[known:]
        places = [first_uses[number] for number in range(known, len(self._words))]
        lengths = [len(s.tokens) for s in sentences]
        hashes = np.array([sentence_hash(s.tokens) for s in sentences], dtype=np.int64)
        unknown: list[tuple[int | None, int | None]] = [(None, None)]
        spans = [span for s in sentences for span in s.spans or unknown * len(s.tokens)]
        first, ordinal = self.done.tokens, self.done.sentences
        rows = {
            "token": pa.array(np.arange(first, first + len(words))),
            "word": pa.array(numbers, pa.int32()),
            "sentence": pa.array(np.repeat(ordinal + np.arange(len(sentences)), lengths)),
            "sentence_hash": pa.array(np.repeat(hashes, lengths)),
            "position": pa.array(np.concatenate([np.arange(n) for n in lengths]), pa.int32()),
            "start": pa.array([start for start, _ in spans], pa.int32()),
            "end": pa.array([end for _, end in spans], pa.int32()),
        }
        by_word: dict[str, Any] = {"word": pa.array(new, pa.string())}
        for choice in self.stored:
            if choice.number == 0:
                by_word[column_name(choice)] = vector_column(choice.apply(layers[:, places]))
            else:
                rows[column_name(choice)] = vector_column(choice.apply(layers))
        return {"tokens": pa.table(rows), "words": pa.table(by_word)}

    def _sentences(self, sentences: Sequence[Sentence]) -> Any:
        import pyarrow as pa

        file = 0 if self.base is None else len(self.base.inputs)
        rows = {
            "file": pa.array([file + s.place.file for s in sentences], pa.int32()),
            "line": pa.array([s.place.line for s in sentences], pa.int64()),
            "offset": pa.array([_offset(s) for s in sentences], pa.int64()),
            "text": pa.array([s.text for s in sentences], pa.string()),
            "words": pa.array(
                [[self._words[word] for word in s.tokens] for s in sentences],
                pa.list_(pa.int32()),
            ),
        }
        return pa.table(rows)

    @property
    def words(self) -> int:
        """Number of distinct words."""
        return len(self._words)

    def finish(self, meta: IndexMeta) -> IndexMeta:
        """Make the new versions of the tables visible and remove the old ones."""
        open_table = self._lance.dataset
        if meta.ann:  # put the new tokens into the approximate indices
            tokens = open_table(table_path(self.folder, "tokens"))
            tokens.optimize.optimize_indices()
            meta = meta.model_copy(update={"versions": {**meta.versions, "tokens": tokens.version}})
        meta.write(self.folder)
        (self.folder / UNFINISHED).unlink(missing_ok=True)
        for name in TABLES:
            table = open_table(table_path(self.folder, name))
            table.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
        return meta


def _offset(sentence: Sentence) -> int:
    """Return where the text of a sentence begins in its line."""
    if sentence.spans is None:
        return 0
    return sentence.spans[0][0] - max(sentence.text.find(sentence.tokens[0]), 0)


def _check_same(message: str, before: dict[str, Any], now: dict[str, Any]) -> None:
    differ = [
        f"{name} was {before.get(name)!r} and is now {now.get(name)!r}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    ]
    if differ:
        raise ConfigError(
            f"{message}: it was started with different settings ({'; '.join(differ)}). Give the "
            "same settings, or start again with --overwrite."
        )


# ---------------------------------------------------------------------------------------- the run


class _Read(NamedTuple):
    """A sentence, and what was read up to the end of its line."""

    sentence: Sentence
    digest: str
    n_bytes: int


class _Run:
    """One call of `build_index`: what does not change while it runs."""

    def __init__(
        self,
        model: ElmoModel,
        inputs: Sequence[str | Path],
        settings: IndexSettings,
        *,
        skip_bad: bool,
    ) -> None:
        self.model = model
        self.settings = settings
        choices = LayerChoice.parse_all(settings.layer, model.config.n_layers, settings.mix)
        self.stored = choices_to_store(choices)
        self.corpus = self._corpus(inputs, skip_bad)
        self.digest: str | None = None
        values = {
            "elmokit": __version__,
            "model": fingerprint(model, settings.state),
            "batch_tokens": model.batch_tokens,
            "precision": model.precision,
            **dataclasses.asdict(settings),
        }
        self.values: dict[str, Any] = json.loads(json.dumps(values))

    def _corpus(self, inputs: Sequence[str | Path], skip_bad: bool) -> Corpus:
        tokenized, split = self.settings.tokenized, self.settings.split
        return Corpus(inputs, tokenized=tokenized, split=split, skip_bad=skip_bad)

    def read_ahead(self) -> int | None:
        """Read the whole text once, if it can be read again: invalid lines are found at the start.

        Returns:
            Its size in bytes; None if it was not read.
        """
        if not self.corpus.is_rereadable:
            return None
        ahead = self._corpus(self.corpus.inputs, self.corpus.skip_bad)
        ahead.read_all()
        self.digest = ahead.digest
        return ahead.n_bytes

    def is_finished(self, out: Path, *, append: bool) -> bool:
        """Tell whether an earlier run has already built this index."""
        if not (out / MANIFEST).exists():
            return False
        meta = IndexMeta.read(out)
        return (
            meta.run == self.values
            and meta.digests[-1] == self.digest
            and append == (len(meta.digests) > 1)
        )

    def close_finished(self, out: Path) -> IndexSummary:
        """Return the summary of an index that an earlier run has finished."""
        (out / UNFINISHED).unlink(missing_ok=True)  # killed between its last two steps
        meta = IndexMeta.read(out)
        return self.summary(out, meta, 0, meta.tokens, 0.0)

    def embed(self, writer: IndexWriter, report: Callable[[], None]) -> None:
        """Compute and add all parts that are not in the tables yet."""
        done = writer.done
        marks = [Mark(Place(*done.place), done.digest)] if done.digest else []
        before = done.tokens
        report()
        # The digest is read with each sentence: empty lines after the last one do not belong to it.
        corpus = self.corpus
        sentences = (
            (s.tokens, _Read(s, corpus.digest, corpus.n_bytes))
            for s in corpus.sentences(marks)
            if s.tokens
        )
        for window in windows(sentences, self.settings.part_tokens):
            self._embed_part(writer, [read for _, read in window])
            report()
        if writer.done.tokens == before and not marks:
            names = ", ".join(self.corpus.inputs)
            raise DataError(f"There are no tokens in {names}: an index needs text.")

    def _embed_part(self, writer: IndexWriter, read: list[_Read]) -> None:
        sentences = [r.sentence for r in read]
        tokens = [s.tokens for s in sentences]
        # The last bits of vectors may depend on what is in the cache, and so on earlier parts.
        self.model.cache.clear()
        layers, _ = self.model.compute(tokens, self.settings.state)
        done = {
            "cut_tokens": writer.done.cut_tokens + len(cut_tokens(self.model.config, tokens)),
            "n_bytes": read[-1].n_bytes,
            "place": sentences[-1].place,
            "digest": read[-1].digest,
        }
        writer.add(sentences, np.concatenate(layers, axis=1), done)

    def meta(self, writer: IndexWriter) -> IndexMeta:
        """Return the manifest of the finished index."""
        base = writer.base
        return IndexMeta(
            model=self.values["model"],
            source=str(self.model.source or "memory"),
            precision=self.model.precision,
            state=self.settings.state,
            stored={choice.label: list(choice.weights) for choice in writer.stored},
            n_layers=self.model.config.n_layers,
            dim=self.model.config.output_dim,
            tokens=writer.done.tokens,
            sentences=writer.done.sentences,
            words=writer.words,
            inputs=[*(base.inputs if base else ()), *self.corpus.inputs],
            digests=[*(base.digests if base else ()), self.corpus.digest],
            run=self.values,
            versions=writer.done.versions,
            ann=base.ann if base else {},
        )

    def summary(
        self, out: Path, meta: IndexMeta, cut: int, resumed: int, seconds: float
    ) -> IndexSummary:
        """Return the summary, and warn about what was not read."""
        if cut or self.corpus.skipped:
            warnings.warn(
                f"{cut:,} tokens are too long and only their beginning was read; "
                f"{self.corpus.skipped:,} lines were skipped. {self.corpus.first_skipped}".strip(),
                ElmoWarning,
                stacklevel=3,
            )
        return IndexSummary(
            out,
            tokens=meta.tokens,
            sentences=meta.sentences,
            words=meta.words,
            n_bytes=folder_bytes(out),
            resumed_tokens=resumed,
            cut_tokens=cut,
            skipped_lines=self.corpus.skipped,
            seconds=round(seconds, 3),
            tokens_per_second=round((meta.tokens - resumed) / max(seconds, 1e-9), 1),
        )


def _report(on_progress: Callable[[Progress], None] | None, done: Done, total: int | None) -> None:
    if on_progress is not None:
        on_progress(Progress(done.tokens, done.n_bytes, total))
