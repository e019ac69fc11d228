"""Make a token index of a text: in bounded memory, and without loss when it is interrupted.

The text is cut into parts of some thousand tokens. What a part adds goes to the end of the arrays
of the index, and a journal notes that it is there (see index_growing.py); a run that was killed
goes on after the last part that was noted, and gives the same bytes as one that was not. Nothing is
copied at the end: the folder that has grown is renamed.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from elmokit import __version__
from elmokit.bulk.input import Corpus, Mark, Place, Sentence, check_inputs
from elmokit.bulk.settings import PART_TOKENS, Progress
from elmokit.bulk.work import (
    WorkDirectory,
    has_unfinished_run,
    work_path,
)
from elmokit.embed.batching import windows
from elmokit.embed.fingerprint import fingerprint
from elmokit.embed.model import ElmoModel
from elmokit.embed.spaces import choose_spaces, unit
from elmokit.embed.tokenised import cut_tokens
from elmokit.embed.vectors import FloatArray
from elmokit.errors import DataError, ElmoWarning, OutputError, output_error
from elmokit.search.index_files import (
    IndexMeta,
    Numbers,
    columns,
    is_index,
    layers_of,
    pairs_of,
    rounded,
    slug,
    to_store,
)
from elmokit.search.index_growing import Done, Growing
from elmokit.storage.lock import check_not_in_use

_REPLACED = "replaced"


@dataclass(frozen=True)
class IndexSettings:
    """What decides an index, besides the model and the text.

    Attributes:
        layers: The spaces to store, named as for `choose_spaces`. Every mix of layers that are
            stored can be searched and takes no room of its own.
        mix: The weights of "mix".
        numbers: "float16", or "int8" with a scale for each vector: half the room.
        state: What each sentence starts from.
        tokenized: Tokens are what whitespace separates; else lines are tokenised.
        split: Lines are paragraphs whose sentences are found; else a line is a sentence.
        part_tokens: Tokens in a part, about.
    """

    layers: tuple[str, ...] = ("all",)
    mix: tuple[float, ...] | None = None
    numbers: Numbers = "float16"
    state: Literal["reset", "warm"] = "reset"
    tokenized: bool = False
    split: bool = False
    part_tokens: int = PART_TOKENS


@dataclass(frozen=True)
class IndexSummary:
    """What was done.

    Attributes:
        output: The folder.
        tokens: Tokens in the index.
        sentences: Sentences in it.
        words: Different words in it.
        n_bytes: Its size on the disk.
        resumed_tokens: How many of the tokens an interrupted run had finished.
        cut_tokens: Tokens too long for the model, of which only the beginning was read.
        skipped_lines: Bad lines left out.
        seconds: Time taken by this run.
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
    skip_bad: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> IndexSummary:
    """Write the vectors of all tokens of a text into an index.

    Args:
        model: The model.
        inputs: Text files, also packed ones; "-" is standard input.
        out: The folder to make.
        settings: Which vectors.
        resume: Go on with an interrupted run, if there is one. The model, the settings and the text
            must be the same.
        overwrite: Replace an index that is there; without `resume` also throw an interrupted run
            away.
        skip_bad: Leave out and count lines that are not UTF-8, instead of raising.
        on_progress: Called at the start and after each part.

    Raises:
        OutputError: Something is in the way, or cannot be written.
        DataError: A line is bad, the text has no tokens, or it is not that of the interrupted run.
        ConfigError: The model or the settings do not fit, or are not those of that run.
    """
    run = _Run(model, inputs, Path(out), settings or IndexSettings(), skip_bad=skip_bad)
    check_index_output(run.out, resume=resume, overwrite=overwrite)
    total_bytes = run.look_ahead()
    started = time.monotonic()
    if resume and not overwrite and (finished := run.finished()) is not None:
        return finished
    if run.out.exists() and is_index(run.out) and not overwrite:
        raise _in_the_way(run.out)
    work = (WorkDirectory.resume(run.out, run.manifest) if resume else None) or (
        WorkDirectory.create(run.out, run.manifest)
    )
    growing = Growing(work.path, run.columns)
    resumed = growing.done.tokens
    try:
        run.embed(growing, lambda: _report(on_progress, growing.done, total_bytes))
        work.finish(lambda folder: run.finish(growing, folder, work.path))
    except OSError as error:
        raise output_error(run.out, error) from error
    finally:
        growing.close()
        if growing.done.tokens:
            work.release()
        else:  # nothing worth keeping
            work.discard()
    return run.summary(growing.done, resumed, time.monotonic() - started)


def check_index_output(out: Path, *, resume: bool = False, overwrite: bool = False) -> None:
    """Raise if an index cannot be made at `out`, before anything is loaded or computed."""
    if out.is_file():
        raise OutputError(f"{out} is a file, expected the name of a folder to make.")
    if out.is_dir() and any(out.iterdir()) and not is_index(out):
        raise OutputError(
            f"{out} is a folder with other things in it. Name one that is not there yet."
        )
    if is_index(out) and not (resume or overwrite):
        raise _in_the_way(out)
    if has_unfinished_run(out) and not (resume or overwrite):
        check_not_in_use(work_path(out))
        raise OutputError(
            f"An interrupted run left what it had finished in {work_path(out)}. "
            "Go on with it by --resume, or throw it away by --overwrite."
        )


def kept_tokens(out: Path) -> int:
    """Count the tokens that an interrupted run to `out` has finished."""
    return Done.read(work_path(out)).tokens


def _in_the_way(out: Path) -> OutputError:
    return OutputError(
        f"{out} is there already. Choose another name, or replace it by --overwrite."
    )


class _Read(NamedTuple):
    """A sentence, and what was read up to the end of its line."""

    sentence: Sentence
    digest: str
    n_bytes: int


class _Run:
    """One call of `build_index`: what does not change while it goes on."""

    def __init__(
        self,
        model: ElmoModel,
        inputs: Sequence[str | Path],
        out: Path,
        settings: IndexSettings,
        *,
        skip_bad: bool,
    ) -> None:
        self.model = model
        self.out = out
        self.settings = settings
        config = model.config
        self.stored = to_store(choose_spaces(settings.layers, config.n_layers, settings.mix))
        self.layers = layers_of(self.stored)
        self.columns = columns(self.stored, config.output_dim, settings.numbers)
        self.corpus = self._corpus(inputs, skip_bad)
        check_inputs(inputs)
        self.digest: str | None = None
        values = {
            "elmokit": __version__,
            "model": fingerprint(model, settings.state),
            "batch_tokens": model.batch_tokens,
            "precision": model.precision,
            **dataclasses.asdict(settings),
        }
        self.manifest: dict[str, Any] = json.loads(json.dumps(values))

    def _corpus(self, inputs: Sequence[str | Path], skip_bad: bool) -> Corpus:
        tokenized, split = self.settings.tokenized, self.settings.split
        return Corpus(inputs, tokenized=tokenized, split=split, skip_bad=skip_bad)

    def look_ahead(self) -> int | None:
        """Read the whole text once, if it can be read again: a bad line is found before the work.

        Returns:
            Its size in bytes; None if it was not read.
        """
        if not self.corpus.is_rereadable:
            return None
        ahead = self._corpus(self.corpus.inputs, self.corpus.skip_bad)
        ahead.read_all()
        self.digest = ahead.digest
        return ahead.n_bytes

    def finished(self) -> IndexSummary | None:
        """Return the summary of an index that is there and is what this run would make."""
        if not is_index(self.out):
            return None
        meta = IndexMeta.read(self.out)
        if meta.run != self.manifest or meta.digest != self.digest:
            return None
        if (left := WorkDirectory.resume(self.out, self.manifest)) is not None:
            left.discard()  # of a run that was killed after its very last step
        done = Done(tokens=meta.tokens, rows={"ends": meta.sentences, "spelling_ends": meta.words})
        return self.summary(done, meta.tokens, 0.0)

    # -------------------------------------------------------------------------------- the work

    def embed(self, growing: Growing, report: Callable[[], None]) -> None:
        """Compute all parts that are not there yet."""
        done = growing.done
        marks = [Mark(Place(*done.place), done.digest)] if done.tokens else []
        report()
        # How far the text was read is asked for with each sentence: what comes after the last one
        # (empty lines) is no part of it.
        corpus = self.corpus
        sentences = (
            (s.tokens, _Read(s, corpus.digest, corpus.n_bytes))
            for s in corpus.sentences(marks)
            if s.tokens
        )
        for window in windows(sentences, self.settings.part_tokens):
            if not growing.done.full:
                raise DataError(
                    "The input has grown since the interrupted run came to its end. Give the same "
                    "text to resume, or start anew with --overwrite."
                )
            self._embed_part(growing, [read for _, read in window])
            report()
        if not growing.done.tokens:
            names = ", ".join(self.corpus.inputs)
            raise DataError(f"There is not one token in {names}: an index needs text.")

    def _embed_part(self, growing: Growing, read: list[_Read]) -> None:
        sentences = [r.sentence for r in read]
        # What a cache remembers would depend on what was read before, and so would the last bits.
        self.model.cache.clear()
        tokens = [s.tokens for s in sentences]
        found, _ = self.model.compute(tokens, self.settings.state)
        layers: FloatArray = np.concatenate(found, axis=1)  # (L + 1, n, 2D)
        add = {name: array.append for name, array in growing.arrays.items()}
        first_seen = growing.add_words([t for words in tokens for t in words])
        for space in self.stored:
            own = layers[:, first_seen] if space.layer == 0 else layers
            vectors, scales = rounded(unit(space.of(own)), self.settings.numbers)
            add[f"vectors-{slug(space.name)}"](vectors)
            add[f"scales-{slug(space.name)}"](scales)
        if "products" in add:
            pairs = [np.einsum("nd,nd->n", layers[i], layers[j]) for i, j in pairs_of(self.layers)]
            add["products"](np.stack(pairs, axis=1))
        growing.add_sentences(sentences)
        before = growing.done
        growing.commit(
            before._replace(
                tokens=before.tokens + layers.shape[1],
                cut_tokens=before.cut_tokens + len(cut_tokens(self.model.config, tokens)),
                n_bytes=read[-1].n_bytes,
                place=sentences[-1].place,
                digest=read[-1].digest,
                full=sum(len(words) + 2 for words in tokens) >= self.settings.part_tokens,
            )
        )

    def finish(self, growing: Growing, folder: Path, work: Path) -> None:
        """Make the folder an index, and put aside what stands in its place."""
        rows = {name: array.rows for name, array in growing.arrays.items()}
        for array in growing.arrays.values():
            array.finish()
        IndexMeta(
            model=self.manifest["model"],
            source=str(self.model.source or "memory"),
            precision=self.model.precision,
            state=self.settings.state,
            numbers=self.settings.numbers,
            stored={space.name: list(space.weights) for space in self.stored},
            n_layers=self.model.config.n_layers,
            dim=self.model.config.output_dim,
            tokens=growing.done.tokens,
            sentences=rows["ends"],
            words=rows["spelling_ends"],
            inputs=self.corpus.inputs,
            digest=self.corpus.digest,
            run=self.manifest,
        ).write(folder)
        if self.out.exists():
            shutil.rmtree(work / _REPLACED, ignore_errors=True)
            self.out.rename(work / _REPLACED)

    def summary(self, done: Done, resumed: int, seconds: float) -> IndexSummary:
        """Sum up, and say once what was not read."""
        if done.cut_tokens or self.corpus.skipped:
            warnings.warn(
                f"{done.cut_tokens:,} tokens are too long and only their beginning was read; "
                f"{self.corpus.skipped:,} lines were left out. {self.corpus.first_skipped}".strip(),
                ElmoWarning,
                stacklevel=3,
            )
        speed = (done.tokens - resumed) / max(seconds, 1e-9)
        return IndexSummary(
            self.out,
            tokens=done.tokens,
            sentences=done.rows["ends"],
            words=done.rows["spelling_ends"],
            n_bytes=sum(file.stat().st_size for file in self.out.iterdir()),
            resumed_tokens=resumed,
            cut_tokens=done.cut_tokens,
            skipped_lines=self.corpus.skipped,
            seconds=round(seconds, 3),
            tokens_per_second=round(speed, 1),
        )


def _report(on_progress: Callable[[Progress], None] | None, done: Done, total: int | None) -> None:
    if on_progress is not None:
        on_progress(Progress(done.tokens, done.n_bytes, total))
