"""Embed a corpus of any size in bounded memory; interrupted runs can be resumed.

The text is read once and divided into chunks (chunks.py). Each chunk is tokenized, computed and
written (job.py) by an executor (executors.py). Finished chunks are never computed again, and chunk
boundaries depend only on the text: a resumed run produces the same bytes as an uninterrupted one,
and many processes the same bytes as one. The output is one file or a directory of shards
(output.py).
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmokit.bulk.chunks import Chunk, check_documents, known_size, read_chunks
from elmokit.bulk.executors import Executor, Workers, make_executor
from elmokit.bulk.job import STAGES, ChunkJob, Done, Times, timed
from elmokit.bulk.output import FileOutput, FolderOutput, make_output
from elmokit.bulk.settings import EmbedSettings, Summary
from elmokit.bulk.store import Record
from elmokit.embed.embedder import Embedder
from elmokit.embed.tokenized import longest_token
from elmokit.errors import ConfigError, DataError, ElmoWarning
from elmokit.progress import Progress, plural

if TYPE_CHECKING:
    from elmokit.bulk.ray_engine import RayCluster

_COUNTED = ("sentences", "tokens", "cut_tokens", "skipped_lines")


def embed_corpus(
    model: Embedder | Workers | RayCluster,
    inputs: Sequence[str | Path],
    out: str | Path,
    settings: EmbedSettings | None = None,
    *,
    column: str = "text",
    resume: bool = False,
    overwrite: bool = False,
    skip_bad: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> Summary:
    """Embed documents into one vector file or a directory of Parquet shards.

    Args:
        model: The model, in torch or ONNX; or processes or a Ray cluster that load it. The output
            is the same on machines with the same arithmetic, and you can resume a run with a
            different number of workers.
        inputs: Paths or URLs of text files (also compressed) and Parquet files; "-" is standard
            input.
        out: The file to write; its suffix selects the format (see `elmokit.bulk.formats`). A name
            without a suffix is a directory of shards.
        settings: Which vectors.
        column: The text column of Parquet files.
        resume: Continue an interrupted run, if there is one. The model, the settings and the text
            must be the same; standard input must start from the beginning.
        overwrite: Replace the output; without `resume` also discard an interrupted run.
        skip_bad: Skip and count lines that are not UTF-8, instead of raising.
        on_progress: Called at the start and after each chunk.

    Raises:
        OutputError: The output exists, is in use, or cannot be written.
        DataError: A line is invalid, or the text differs from that of the interrupted run. Finished
            chunks are kept.
        ConfigError: The settings are invalid for the model, or the model or the settings differ
            from those of the interrupted run.
        ElmoError: A worker died. Finished chunks are kept.
    """
    settings = settings or EmbedSettings()
    documents = tuple(str(name) for name in inputs)
    output = make_output(out)
    output.check(documents, settings, resume=resume, overwrite=overwrite)
    check_documents(documents)
    with make_executor(model, settings) as executor:
        run = _Run(executor, documents, output, settings, column, skip_bad)
        return run.embed(on_progress or (lambda _: None), resume=resume, overwrite=overwrite)


class _Run:
    """One call of `embed_corpus`."""

    def __init__(
        self,
        executor: Executor,
        documents: tuple[str, ...],
        output: FileOutput | FolderOutput,
        settings: EmbedSettings,
        column: str,
        skip_bad: bool,
    ) -> None:
        if settings.state == "carry" and not executor.in_order:
            raise ConfigError(
                "state='carry' requires a single process, because each sentence starts from the "
                "final state of the previous one. Do not use --workers or --engine ray."
            )
        self.executor = executor
        self.documents = documents
        self.output = output
        self.settings = settings
        self.layout = settings.layout(executor.info.config)
        self.manifest = {**executor.info.manifest, **output.manifest(self.layout, documents)}
        self.records: dict[int, Record] = {}
        self.times: Times = dict.fromkeys(STAGES, 0.0)
        self._column = column
        self._skip_bad = skip_bad
        self._digest = hashlib.blake2b(digest_size=16)
        self._size = known_size(documents)
        self._tokens = self._n_bytes = self._written = 0

    # --------------------------------------------------------------------------------- the work

    def embed(
        self, report: Callable[[Progress], None], *, resume: bool, overwrite: bool
    ) -> Summary:
        """Compute everything that is not finished yet."""
        out = self.output
        if out.path.exists() and isinstance(out, FileOutput):
            if resume and (counts := out.finished(self.manifest, self._digest_of_input)):
                return self._nothing_to_do(counts)
            if not overwrite:
                raise out.already_exists_error()
        with out.store.open_run(self.manifest, resume=resume) as is_resumed:
            if resume and not is_resumed:
                warnings.warn(
                    f"There is no interrupted run for {out.path}; starting from the beginning.",
                    ElmoWarning,
                    stacklevel=4,
                )
            self.records = out.store.records()
            resumed = self._counts()
            self._tokens = resumed["tokens"]
            self._n_bytes = sum(int(record["n_bytes"]) for record in self.records.values())
            started = time.monotonic()
            with out.assembling(self.layout, self._about, self.times, self.records) as finished:
                report(self._progress())
                for done in self._run_jobs():
                    number = int(done.record["chunk"])
                    self._count(done)
                    finished(number)
                    report(self._progress())
        self._warn_of_losses()
        return self._summary(resumed, time.monotonic() - started)

    def _run_jobs(self) -> Iterator[Done]:
        job = ChunkJob(self.documents, self.settings, self.output.store, self.output.with_texts)
        n_chunks = None if self._size is None else self._size // self.settings.chunk_bytes
        chunks = self._missing_chunks(dict(self.records))
        with closing(chunks), closing(self.executor.run(job, chunks, n_chunks)) as jobs:
            yield from jobs

    def _read(self) -> Iterator[Chunk]:
        return read_chunks(
            self.documents, self.settings, column=self._column, skip_bad=self._skip_bad
        )

    def _missing_chunks(self, finished: dict[int, Record]) -> Generator[Chunk, None, None]:
        """Read the text and yield the chunks that are not finished.

        Raises:
            DataError: The text has changed since chunks of it were embedded.
        """
        source = self._read()
        number = -1
        while True:
            with timed(self.times, "read"):
                chunk = next(source, None)
                if chunk is None:
                    break
                number = chunk.number
                self._digest.update(chunk.digest.encode())
                is_missing = number not in finished
                if not is_missing and finished[number]["digest"] != chunk.digest:
                    raise self._changed(chunk)
            if is_missing:
                yield chunk
        if finished and max(finished) > number:
            raise DataError(
                f"The input is shorter than the text of the interrupted run: it ends before chunk "
                f"{max(finished)}. Use the same text to resume, or start again with --overwrite."
            )

    def _changed(self, chunk: Chunk) -> DataError:
        place = chunk.passages[-1] if chunk.passages else None
        name = self.documents[place.document if place else 0]
        return DataError(
            f"The input up to line {place.line if place else 0} of "
            f"{'standard input' if name == '-' else name} differs from the text of the interrupted "
            "run. Use the same text to resume, or start again with --overwrite."
        )

    # ---------------------------------------------------------------------------------- the end

    def _digest_of_input(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for chunk in self._read():
            digest.update(chunk.digest.encode())
        return digest.hexdigest()

    def _nothing_to_do(self, counts: dict[str, Any]) -> Summary:
        """Clean up after a run that was killed after it had written its output."""
        if Path(self.output.store.place).exists():
            with self.output.store.open_run(self.manifest, resume=False):
                pass
        return Summary(
            self.output.path,
            **counts,
            resumed_sentences=counts["sentences"],
            seconds=0,
            tokens_per_second=0,
        )

    def _about(self) -> dict[str, Any]:
        return {
            "run": self.manifest,
            "inputs": list(self.documents),
            "digest": self._digest.hexdigest(),
            "counts": self._counts(),
        }

    def _counts(self) -> dict[str, Any]:
        records = self.records.values()
        return {name: sum(int(record[name]) for record in records) for name in _COUNTED}

    def _count(self, done: Done) -> None:
        self.records[int(done.record["chunk"])] = done.record
        self._tokens += int(done.record["tokens"])
        self._n_bytes += int(done.record["n_bytes"])
        self._written += done.n_bytes
        for stage, seconds in done.times.items():
            self.times[stage] += seconds

    def _progress(self) -> Progress:
        return Progress(self._tokens, self._n_bytes, self._size, self._bottleneck())

    def _stages(self) -> dict[str, float]:
        parallel = self.executor.parallel
        return {name: round(t / parallel.get(name, 1), 3) for name, t in self.times.items()}

    def _bottleneck(self) -> str:
        stages = self._stages()
        return max(stages, key=lambda name: stages[name]) if any(stages.values()) else ""

    def _warn_of_losses(self) -> None:
        """Warn about truncated tokens and skipped lines."""
        counts = self._counts()
        if counts["cut_tokens"]:
            longest = longest_token(self.executor.info.config)
            warnings.warn(
                f"Truncated {plural(counts['cut_tokens'], 'token')} to {longest}.",
                ElmoWarning,
                stacklevel=4,
            )
        if counts["skipped_lines"]:
            records = (self.records[number] for number in sorted(self.records))
            first = next(r["first_skipped"] for r in records if r["first_skipped"])
            warnings.warn(
                f"Skipped {plural(counts['skipped_lines'], 'line')}; the first is {first}",
                ElmoWarning,
                stacklevel=4,
            )

    def _summary(self, resumed: dict[str, int], seconds: float) -> Summary:
        counts = self._counts()
        new_tokens = counts["tokens"] - resumed["tokens"]
        return Summary(
            self.output.path,
            **counts,
            resumed_sentences=resumed["sentences"],
            seconds=round(seconds, 3),
            tokens_per_second=round(new_tokens / max(seconds, 1e-9), 1),
            written_bytes=self._written,
            stages=self._stages(),
            bottleneck=self._bottleneck(),
        )
