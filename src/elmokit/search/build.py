"""Build a token index in bounded memory; an interrupted build continues without loss.

The text is embedded in parts of some thousand tokens. Each part is appended to the tables, then
`unfinished.json` records their new versions. A build that was killed continues with these versions
and gives the same index as one that was not. At the end `unfinished.json` becomes `index.json`,
which makes the last versions visible (see files.py).
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
from typing import Any, Literal

import numpy as np

from elmokit import __version__
from elmokit.bulk.input import Corpus, Mark, Place, Sentence, check_inputs
from elmokit.bulk.settings import PART_TOKENS
from elmokit.embed.batching import windows
from elmokit.embed.fingerprint import fingerprint
from elmokit.embed.layer_choice import LayerChoice
from elmokit.embed.model import ElmoModel
from elmokit.embed.tokenized import cut_tokens
from elmokit.embed.vectors import FloatArray
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
    on_progress: Callable[[Progress], None] = lambda progress: None,
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
    out, settings = Path(out), settings or IndexSettings()
    check_index_output(out, resume=resume, overwrite=overwrite, append=append)
    check_inputs(inputs)
    how = {"tokenized": settings.tokenized, "split": settings.split, "skip_bad": skip_bad}
    corpus, ahead = Corpus(inputs, **how), Corpus(inputs, **how)
    if corpus.is_rereadable:
        ahead.read_all()  # finds invalid lines at the start
    new = _new_meta(model, corpus.inputs, settings)
    started = time.monotonic()
    is_new = not out.exists()
    try:
        with run_lock(out):
            if resume and not overwrite and (done := _finished(out, new, ahead.digest, append)):
                return _summary(out, done, corpus, done.tokens, 0.0)
            # Again: another process may have built it in the meantime.
            check_index_output(out, resume=resume, overwrite=overwrite, append=append)
            if (out / MANIFEST).exists() and not (overwrite or append):
                raise _exists(out)
            writer = IndexWriter(out, _start(out, new, resume, append), len(corpus.inputs))
            resumed = writer.meta.tokens

            def report() -> None:
                meta, total = writer.meta, ahead.n_bytes if corpus.is_rereadable else None
                on_progress(Progress(meta.tokens, meta.n_bytes, total))

            report()
            _embed(model, corpus, settings, writer, report)
            writer.finish(corpus.digest)
    finally:
        if is_new and not any((out / name).exists() for name in (MANIFEST, UNFINISHED)):
            shutil.rmtree(out, ignore_errors=True)  # no part was finished
    return _summary(out, writer.meta, corpus, resumed, time.monotonic() - started)


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


def _new_meta(model: ElmoModel, inputs: list[str], settings: IndexSettings) -> IndexMeta:
    """Return the manifest of an index without tokens."""
    choices = LayerChoice.parse_all(settings.layer, model.config.n_layers, settings.mix)
    layers = {choice.number for choice in choices} - {None}
    run = {
        "elmokit": __version__,
        "model": fingerprint(model, settings.state),
        "batch_tokens": model.batch_tokens,
        "precision": model.precision,
        **dataclasses.asdict(settings),
    }
    return IndexMeta(
        model=run["model"],
        source=str(model.source or "memory"),
        state=settings.state,
        stored={  # what can be made of stored layers is computed when it is searched
            choice.label: list(choice.weights)
            for choice in choices
            if choice.number is not None or not set(used_layers(choice)) <= layers
        },
        n_layers=model.config.n_layers,
        dim=model.config.output_dim,
        inputs=inputs,
        run=json.loads(json.dumps(run)),
    )


def _finished(out: Path, new: IndexMeta, digest: str, append: bool) -> IndexMeta | None:
    """Return the manifest of this very index, if an earlier run has finished it."""
    if not (out / MANIFEST).exists():
        return None
    meta = IndexMeta.read(out)
    same = (meta.run, meta.text_digest, bool(meta.digests)) == (new.run, digest, append)
    return meta if same else None


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
    differ = [
        f"{name} was {before.get(name)!r} and is now {now.get(name)!r}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    ]
    if differ:
        raise ConfigError(
            f"{message}: it was started with different settings ({'; '.join(differ)}). Use the "
            "same settings, or start over with --overwrite."
        )


# ---------------------------------------------------------------------------------------- the work


def _embed(
    model: ElmoModel,
    corpus: Corpus,
    settings: IndexSettings,
    writer: IndexWriter,
    report: Callable[[], None],
) -> None:
    """Compute and add all parts that are not in the tables yet."""
    before = writer.meta
    marks = [Mark(Place(*before.place), before.digest)] if before.digest else []
    # The digest is read with each sentence: empty lines after the last one do not belong to it.
    sentences = (
        (s.tokens, (s, {"digest": corpus.digest, "n_bytes": corpus.n_bytes}))
        for s in corpus.sentences(marks)
        if s.tokens
    )
    for window in windows(sentences, settings.part_tokens):
        part = [sentence for _, (sentence, _) in window]
        tokens = [sentence.tokens for sentence in part]
        # The last bits of vectors may depend on what is in the cache, and so on earlier parts.
        model.cache.clear()
        layers = model.compute(tokens, settings.state)
        _, (last, read) = window[-1]
        cut = writer.meta.cut_tokens + len(cut_tokens(model.config, tokens))
        done = {**read, "place": list(last.place), "cut_tokens": cut}
        writer.add(part, np.concatenate(layers, axis=1), done)
        report()
    if writer.meta.tokens == before.tokens and not marks:
        names = ", ".join(corpus.inputs)
        raise DataError(f"{names} contains no tokens.")


class IndexWriter:
    """The tables of an index that is being built.

    Args:
        folder: The folder of the index.
        meta: What the tables hold at the start; what was appended after that is undone.
        files: Number of input files of this build, the last of `meta.inputs`.

    Attributes:
        meta: What the tables hold now.
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

    def add(self, sentences: Sequence[Sentence], layers: FloatArray, done: dict[str, Any]) -> None:
        """Append the tokens of some sentences and record that.

        Args:
            sentences: The sentences.
            layers: The vectors of all their tokens, shape (L + 1, n, 2D).
            done: What else to record.
        """
        tables = self._rows(sentences, layers)
        versions = dict(self.meta.versions)
        for name in TABLES:
            if len(tables[name]):
                table = self._lance.write_dataset(
                    tables[name],
                    table_path(self.folder, name),
                    mode="append" if name in versions else "overwrite",
                )
                versions[name] = table.version
        done |= {
            "tokens": self.meta.tokens + layers.shape[1],
            "sentences": self.meta.sentences + len(sentences),
            "words": len(self._words),
            "versions": versions,
        }
        self.meta = self.meta.model_copy(update=done)
        self.meta.write(self.folder / UNFINISHED)

    def _rows(self, sentences: Sequence[Sentence], layers: FloatArray) -> dict[str, Any]:
        import pyarrow as pa

        known = len(self._words)
        words = [word for s in sentences for word in s.tokens]
        numbers = [self._words.setdefault(word, len(self._words)) for word in words]
        first_uses = {number: place for place, number in reversed(list(enumerate(numbers)))}
        places = [first_uses[number] for number in range(known, len(self._words))]
        lengths = [len(s.tokens) for s in sentences]
        hashes = np.array([sentence_hash(s.tokens) for s in sentences], dtype=np.int64)
        unknown: list[tuple[int | None, int | None]] = [(None, None)]
        spans = [span for s in sentences for span in s.spans or unknown * len(s.tokens)]
        first, ordinal = self.meta.tokens, self.meta.sentences
        by_token = {
            "token": pa.array(np.arange(first, first + len(words))),
            "word": pa.array(numbers, pa.int32()),
            "sentence": pa.array(np.repeat(ordinal + np.arange(len(sentences)), lengths)),
            "sentence_hash": pa.array(np.repeat(hashes, lengths)),
            "position": pa.array(np.concatenate([np.arange(n) for n in lengths]), pa.int32()),
            "start": pa.array([start for start, _ in spans], pa.int32()),
            "end": pa.array([end for _, end in spans], pa.int32()),
        }
        by_word = {"word": pa.array(list(self._words)[known:], pa.string())}
        by_sentence = {
            "file": pa.array([self._first_file + s.place.file for s in sentences], pa.int32()),
            "line": pa.array([s.place.line for s in sentences], pa.int64()),
            "offset": pa.array([_offset(s) for s in sentences], pa.int64()),
            "text": pa.array([s.text for s in sentences], pa.string()),
            "words": pa.array(
                [[self._words[word] for word in s.tokens] for s in sentences],
                pa.list_(pa.int32()),
            ),
        }
        for choice in self.meta.choices:
            if choice.number == 0:
                by_word[column_name(choice)] = vector_column(choice.apply(layers[:, places]))
            else:
                by_token[column_name(choice)] = vector_column(choice.apply(layers))
        rows = {"tokens": by_token, "words": by_word, "sentences": by_sentence}
        return {name: pa.table(columns) for name, columns in rows.items()}

    def finish(self, digest: str) -> None:
        """Make the new versions of the tables visible and remove the old ones."""
        tables = {name: self._lance.dataset(table_path(self.folder, name)) for name in TABLES}
        if self.meta.ann:  # put the new tokens into the approximate indices
            tables["tokens"].optimize.optimize_indices()
        versions = {name: table.version for name, table in tables.items()}
        self.meta = self.meta.model_copy(update={"versions": versions, "text_digest": digest})
        self.meta.write(self.folder / UNFINISHED)
        publish(self.folder)
        for table in tables.values():
            table.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)


def _offset(sentence: Sentence) -> int:
    """Return where the text of a sentence begins in its line."""
    if sentence.spans is None:
        return 0
    return sentence.spans[0][0] - max(sentence.text.find(sentence.tokens[0]), 0)


def _summary(
    out: Path, meta: IndexMeta, corpus: Corpus, resumed: int, seconds: float
) -> IndexSummary:
    """Return the summary, and warn about what was not read."""
    losses = []
    if meta.cut_tokens:
        losses.append(f"Truncated {plural(meta.cut_tokens, 'token')}.")
    if corpus.skipped:
        count = plural(corpus.skipped, "line")
        losses.append(f"Skipped {count}; the first is {corpus.first_skipped}")
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
        skipped_lines=corpus.skipped,
        seconds=round(seconds, 3),
        tokens_per_second=round((meta.tokens - resumed) / max(seconds, 1e-9), 1),
    )
