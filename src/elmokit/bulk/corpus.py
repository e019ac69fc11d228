"""Embed a corpus of any size: in bounded memory, and without loss when it is interrupted.

The sentences are cut into parts of a fixed number of tokens. Each part is computed, written beside
and renamed (see bulk_work.py), by this process or by several others (see workers.py); at the end
the parts become the one output file. Where a part begins and ends depends on the input alone, so a
run that was killed and resumed gives the same bytes as one that was not, and many processes give
the same bytes as one. While it runs, twice the size of the output is needed on the disk.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from elmokit.bulk.crew import hands_of
from elmokit.bulk.files.formats import check_package, check_space, format_of, open_vectors
from elmokit.bulk.files.part import PartFile
from elmokit.bulk.input import Corpus, Mark, Place, Sentence, check_inputs
from elmokit.bulk.jobs import Hands
from elmokit.bulk.part import PartJob, state_after
from elmokit.bulk.settings import EmbedSettings, Progress, Summary
from elmokit.bulk.work import WorkDirectory, has_unfinished_run, work_path
from elmokit.bulk.workers import Workers
from elmokit.embed.batching import windows
from elmokit.embed.embedder import Embedder, StateArrays
from elmokit.embed.tokenised import longest_token
from elmokit.errors import ConfigError, DataError, ElmoError, ElmoWarning, OutputError, output_error
from elmokit.storage.lock import check_not_in_use


def embed_corpus(
    model: Embedder[Any] | Workers,
    inputs: Sequence[str | Path],
    out: str | Path,
    settings: EmbedSettings | None = None,
    *,
    resume: bool = False,
    overwrite: bool = False,
    skip_bad: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> Summary:
    """Embed text files into one vector file.

    Args:
        model: The model, in torch or ONNX; or processes that each load it and share the work. Their
            number may change when a run is resumed.
        inputs: Text files, also packed ones; "-" is standard input.
        out: The file to write; its suffix chooses the format (see `elmokit.bulk.files`).
        settings: Which vectors.
        resume: Go on with an interrupted run, if there is one. The model, the settings and the text
            must be the same; standard input must be given again from its beginning.
        overwrite: Replace the file `out`; without `resume` also throw an interrupted run away.
        skip_bad: Leave out and count lines that are not UTF-8, instead of raising.
        on_progress: Called at the start and after each part.

    Raises:
        OutputError: The output is there already, or cannot be written.
        DataError: A line is bad, or the text is not that of the run to be resumed.
        ConfigError: The model or the settings do not fit, or are not those of that run.
        ElmoError: A worker has died; what was finished is kept.
    """
    settings = settings or EmbedSettings()
    check_output(Path(out), resume=resume, overwrite=overwrite)
    check_inputs(inputs)
    with hands_of(model, settings) as hands:
        run = _Run(hands, inputs, Path(out), settings, skip_bad=skip_bad)
        return _embed(run, resume=resume, overwrite=overwrite, on_progress=on_progress)


def _embed(
    run: _Run,
    *,
    resume: bool,
    overwrite: bool,
    on_progress: Callable[[Progress], None] | None,
) -> Summary:
    total_bytes = run.look_ahead(needed=resume and run.out.exists() and not overwrite)
    started = time.monotonic()
    if resume and run.is_finished():
        return run.summary_of_finished()
    if run.out.exists() and not overwrite:
        raise _in_the_way(run.out)
    work = run.begin(resume=resume)
    resumed = list(work.parts)
    try:
        run.embed(work, lambda: _report(on_progress, work, total_bytes))
        run.assemble(work)
    finally:
        run.hands.close()
        if work.parts:
            work.remove_unfinished()
            work.release()
        else:  # nothing worth keeping
            work.discard()
    run.warn_of_losses(work.parts)
    return run.summary(work.parts, resumed, time.monotonic() - started)


def check_output(out: Path, *, resume: bool = False, overwrite: bool = False) -> None:
    """Raise if `out` cannot be written, before anything is loaded or computed."""
    format_of(out)
    check_package("safetensors", "Embedding into a file (a folder of shards needs pyarrow instead)")
    if out.is_dir():
        raise OutputError(f"{out} is a directory, expected the name of a file to write.")
    if out.exists() and not (resume or overwrite):
        raise _in_the_way(out)
    if has_unfinished_run(out) and not (resume or overwrite):
        check_not_in_use(work_path(out))
        raise OutputError(
            f"An interrupted run left its finished parts in {work_path(out)}. "
            "Go on with it by --resume, or throw it away by --overwrite."
        )
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out.parent):
            pass
    except OSError as error:
        raise output_error(out, error) from error


def kept_sentences(out: Path) -> int:
    """Count the sentences that an interrupted run to `out` has finished."""
    parts = sorted(work_path(out).glob("part-*.safetensors"))
    return sum(PartFile.open(part).sentences for part in parts)


class _Read(NamedTuple):
    """A sentence, and the digest of the text up to the end of its line."""

    sentence: Sentence
    digest: str


class _Run:
    """One call of `embed_corpus`: what does not change while it goes on."""

    def __init__(
        self,
        hands: Hands,
        inputs: Sequence[str | Path],
        out: Path,
        settings: EmbedSettings,
        *,
        skip_bad: bool,
    ) -> None:
        if settings.state == "carry" and not hands.in_order:
            raise ConfigError(
                "With state='carry' each sentence goes on where the one before it ended, so one "
                "process has to read them all: leave out --workers and --devices."
            )
        self.hands = hands
        self.config = hands.facts.config
        self.manifest = hands.facts.manifest
        self.out = out
        self.settings = settings
        self.skip_bad = skip_bad
        self.layout = settings.layout(self.config)
        self.corpus = self._corpus(inputs)
        self.digest: str | None = None  # of the whole input, if it was read ahead
        self.carried: StateArrays | None = None

    def _corpus(self, inputs: Sequence[str | Path]) -> Corpus:
        tokenized, split = self.settings.tokenized, self.settings.split
        return Corpus(inputs, tokenized=tokenized, split=split, skip_bad=self.skip_bad)

    def look_ahead(self, *, needed: bool) -> int | None:
        """Read the whole input once, so that a bad line in it is found before hours of work.

        Args:
            needed: Read it even if it cannot be read again.

        Returns:
            Its size in bytes; None if it was not read.
        """
        if not (self.corpus.is_rereadable or needed):
            return None
        ahead = self._corpus(self.corpus.inputs)
        ahead.read_all()
        self.digest = ahead.digest
        return ahead.n_bytes

    # ----------------------------------------------------------- a run that had come to its end

    def is_finished(self) -> bool:
        """Tell whether the output is there and is what this run would make."""
        about = self._about_output()
        finished = about.get("run") == self.manifest and about.get("digest") == self.digest
        return finished and self.digest is not None

    def summary_of_finished(self) -> Summary:
        """Clean up after a run that was killed after its very last step."""
        left = WorkDirectory.resume(self.out, self.manifest)
        if left is not None:
            left.discard()
        counts = self._about_output()["counts"]
        return Summary(
            self.out,
            **counts,
            resumed_sentences=counts["sentences"],
            seconds=0,
            tokens_per_second=0,
        )

    def _about_output(self) -> dict[str, Any]:
        try:
            with open_vectors(self.out) as stored:
                return stored.about
        except ElmoError:  # not there, or something else
            return {}

    # -------------------------------------------------------------------------------- the work

    def begin(self, *, resume: bool) -> WorkDirectory:
        """Open the work directory, with what is finished in it."""
        work = WorkDirectory.resume(self.out, self.manifest) if resume else None
        if work is not None:
            return work
        if resume:
            warnings.warn(
                f"There is no interrupted run to resume for {self.out}; this one starts at the "
                "beginning.",
                ElmoWarning,
                stacklevel=3,
            )
        return WorkDirectory.create(self.out, self.manifest)

    def embed(self, work: WorkDirectory, report: Callable[[], None]) -> None:
        """Compute all parts that are not there yet."""
        report()
        for done in self.hands.do(self._jobs(work)):
            self.carried = done.carried
            work.note(done.number)
            report()

    def _jobs(self, work: WorkDirectory) -> Iterator[PartJob]:
        finished = work.unbroken
        marks = [Mark(Place(*p.record["place"]), p.record["digest"]) for p in finished]
        if finished and self.settings.state == "carry":
            self.carried = state_after(finished[-1])
        # How far the text was read is asked for with each sentence: what comes after the last one
        # (empty lines) is no part of it.
        corpus = self.corpus
        read = ((s.tokens, _Read(s, corpus.digest)) for s in corpus.sentences(marks))
        number = len(finished)
        for window in windows(read, self.settings.part_tokens, multiple_of=self.settings.rows):
            before = work.numbered.get(number - 1)
            if before is not None and not before.record["full"]:
                raise DataError(
                    "The input has grown since the interrupted run came to its end. Give the same "
                    "text to resume, or start anew with --overwrite."
                )
            job = self._job(number, [r.sentence for _, r in window], window[-1][1].digest)
            if number not in work.numbered:
                yield job
            else:  # after a gap that several processes have left
                self._check_there(work.numbered[number], job)
            number += 1
        if work.numbered and number <= max(work.numbered):
            raise DataError(
                f"The input ends before part {max(work.numbered)}, which the interrupted run has "
                "embedded. Give the same text to resume, or start anew with --overwrite."
            )

    def _job(self, number: int, sentences: list[Sentence], digest: str) -> PartJob:
        settings = self.settings
        size = sum(len(sentence.tokens) + 2 for sentence in sentences)
        record = {
            "place": sentences[-1].place,
            "digest": digest,
            "n_bytes": self.corpus.n_bytes,
            "full": size >= settings.part_tokens and len(sentences) % settings.rows == 0,
        }
        return PartJob(number, sentences, record, settings, self.out, self.carried)

    def _check_there(self, part: PartFile, job: PartJob) -> None:
        place = job.record["place"]
        if part.record["digest"] != job.record["digest"] or tuple(part.record["place"]) != place:
            raise DataError(
                f"The input up to line {place.line} of {self.corpus.inputs[place.file]} is not "
                "what the interrupted run has embedded. Give the same text to resume, or start "
                "anew with --overwrite."
            )
        if self.settings.state == "carry":
            self.carried = state_after(part)

    # ----------------------------------------------------------------------------------- the end

    def assemble(self, work: WorkDirectory) -> None:
        """Make the output file of the parts."""
        check_space(self.out, work.parts, self.layout)
        about = {
            "run": self.manifest,
            "inputs": self.corpus.inputs,
            "digest": self.corpus.digest,
            "counts": self._counts(work.parts),
        }
        write = format_of(self.out).write
        work.finish(lambda path: write(path, work.parts, self.layout, about))

    def _counts(self, parts: Sequence[PartFile]) -> dict[str, int]:
        return {
            "sentences": sum(part.sentences for part in parts),
            "tokens": sum(part.tokens for part in parts),
            "cut_tokens": sum(part.record["cut"] for part in parts),
            "skipped_lines": self.corpus.skipped,
        }

    def warn_of_losses(self, parts: Sequence[PartFile]) -> None:
        """Say once what was not read: ends of long tokens, bad lines."""
        counts = self._counts(parts)
        if counts["cut_tokens"]:
            warnings.warn(
                f"{counts['cut_tokens']:,} tokens are longer than "
                f"{longest_token(self.config)}; only their beginning was read.",
                ElmoWarning,
                stacklevel=3,
            )
        if self.corpus.skipped:
            warnings.warn(
                f"{self.corpus.skipped:,} lines were left out, the first being "
                f"{self.corpus.first_skipped}",
                ElmoWarning,
                stacklevel=3,
            )

    def summary(
        self, parts: Sequence[PartFile], resumed: Sequence[PartFile], seconds: float
    ) -> Summary:
        """Sum up."""
        counts = self._counts(parts)
        new_tokens = counts["tokens"] - sum(part.tokens for part in resumed)
        return Summary(
            self.out,
            **counts,
            resumed_sentences=sum(part.sentences for part in resumed),
            seconds=round(seconds, 3),
            tokens_per_second=round(new_tokens / max(seconds, 1e-9), 1),
        )


def _report(
    on_progress: Callable[[Progress], None] | None, work: WorkDirectory, total: int | None
) -> None:
    if on_progress is not None:
        finished = work.unbroken
        n_bytes = finished[-1].record["n_bytes"] if finished else 0
        on_progress(Progress(sum(part.tokens for part in work.parts), n_bytes, total))


def _in_the_way(out: Path) -> OutputError:
    return OutputError(
        f"{out} is there already. Choose another name, or replace it by --overwrite."
    )
