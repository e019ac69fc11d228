"""Embed a corpus of any size with bounded memory. Interrupted runs can be resumed.

The text is read once and divided into chunks (input.py). Each chunk is tokenized, embedded and
written (job.py) by an executor (executors.py). Finished chunks are never embedded again, and chunk
boundaries depend only on the text and the settings. The output, which is a single file or a
directory of shards (output.py), is therefore byte-identical for resumed and uninterrupted runs, and
for any number of processes.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmokit.bulk.executors import Executor, WorkerExecutor, Workers, make_executor
from elmokit.bulk.input import Chunk, check_documents, read_chunks
from elmokit.bulk.job import STAGES, ChunkJob, FinishedChunk, timed
from elmokit.bulk.output import make_output
from elmokit.bulk.settings import EmbedSettings, Summary
from elmokit.bulk.store import Output, Record, Records, Times
from elmokit.embed.embedder import Embedder
from elmokit.embed.tokenized import format_token_limit
from elmokit.errors import ConfigError, DataError, warn
from elmokit.progress import Progress, no_log, plural
from elmokit.text.lines import STDIN, text_size

_COUNTS = ("sentences", "tokens", "truncated_tokens", "skipped_lines")


def embed_corpus(
    model: Embedder | Workers,
    inputs: Sequence[str | Path],
    out: str | Path,
    settings: EmbedSettings | None = None,
    *,
    column: str = "text",
    resume: bool = False,
    overwrite: bool = False,
    skip_bad: bool = False,
    on_progress: Callable[[Progress], None] = no_log,
) -> Summary:
    """Embed text files into one vector file or a directory of Parquet shards.

    Args:
        model: A loaded model (PyTorch or ONNX), or workers that load it: `Workers` or
            `RayCluster`. You can resume a run with a different number of workers.
        inputs: Paths or URLs of text files (optionally compressed) and Parquet files; "-" is
            standard input.
        out: The file to write. The extension determines the format (see `elmokit.bulk.formats`).
            A name without an extension is a directory of shards.
        settings: Which vectors to compute.
        column: The text column of Parquet files.
        resume: Continue an interrupted run, if there is one, with the same model, settings and
            text. If the text is standard input, provide it again from the beginning.
        overwrite: Replace an existing output. Without `resume`, also discard an interrupted run.
        skip_bad: Skip and count lines that are not valid UTF-8 instead of raising an error.
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
    output = make_output(out, resume=resume, overwrite=overwrite)
    output.check(documents, settings)
    check_documents(documents)
    with make_executor(model, settings) as executor:
        run = Run(executor, documents, output, settings, column, skip_bad)
        return run.embed(on_progress)


@dataclass
class Run:
    """A run of `embed_corpus` or `build_index`.

    Attributes:
        executor: Computes and writes the chunks.
        documents: The paths or URLs of all documents (text files), checked by `check_documents`.
        output: The output, which the caller has checked.
        settings: Which vectors to compute.
        column: The text column of Parquet files.
        skip_bad: Skip and count lines that are not valid UTF-8 instead of raising an error.
    """

    executor: Executor
    documents: tuple[str, ...]
    output: Output
    settings: EmbedSettings
    column: str
    skip_bad: bool

    def __post_init__(self) -> None:
        if self.settings.state == "carry" and isinstance(self.executor, WorkerExecutor):
            raise ConfigError(
                "state='carry' requires a single process, because each sentence starts from the "
                "final state of the previous one. Pass a loaded model instead of workers (on the "
                "command line: omit --workers and --engine)."
            )
        info = self.executor.info
        layout = self.settings.layout(info.config)
        self._manifest = {**info.manifest, **self.output.prepare(layout, self.documents)}
        self._records: Records = {}
        self._times: Times = dict.fromkeys(STAGES, 0.0)
        self._digest = hashlib.blake2b(digest_size=16)
        self._size = text_size(self.documents)
        self._tokens = self._n_bytes = self._written_bytes = 0

    def embed(self, on_progress: Callable[[Progress], None]) -> Summary:
        """Embed and write all unfinished chunks, and return a summary."""
        out = self.output
        if counts := out.final_counts(self._manifest, self._input_digest):
            return self._summary(counts, counts, 0.0)
        with out.open_run(self._manifest) as is_resumed:
            if out.resume and not is_resumed:
                warn(f"No interrupted run found for {out.path}; starting a new one.", stacklevel=4)
            self._records = out.records()
            resumed = total_counts(self._records.values())
            self._tokens = resumed["tokens"]
            self._n_bytes = sum(int(record["n_bytes"]) for record in self._records.values())
            started = time.monotonic()
            job = ChunkJob(self.documents, self.settings, out)
            unfinished = self._unfinished_chunks(dict(self._records))
            with (
                out.assemble(self._description, self._times, self._records) as on_finished,
                closing(unfinished),
                closing(self.executor.run(job, unfinished)) as chunks,
            ):
                on_progress(self._progress())
                for chunk in chunks:
                    self._add(chunk)
                    on_finished(int(chunk.record["chunk"]))
                    on_progress(self._progress())
        self._warn_about_invalid_input()
        return self._summary(
            total_counts(self._records.values()), resumed, time.monotonic() - started
        )

    # ------------------------------------------------------------------------------------- input

    def _read(self) -> Iterator[Chunk]:
        return read_chunks(
            self.documents, self.settings, column=self.column, skip_bad=self.skip_bad
        )

    def _input_digest(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for chunk in self._read():
            digest.update(chunk.digest.encode())
        return digest.hexdigest()

    def _unfinished_chunks(self, finished: Records) -> Generator[Chunk, None, None]:
        """Read the text and yield the chunks that are not finished.

        Raises:
            DataError: The text differs from that of the interrupted run.
        """
        source = self._read()
        number = -1
        while True:
            with timed(self._times, "read"):
                chunk = next(source, None)
                if chunk is None:
                    break
                number, digest = chunk.number, chunk.digest
            self._digest.update(digest.encode())
            if number not in finished:
                yield chunk
            elif finished[number]["digest"] != digest:
                extent = " is empty: it"
                if chunk.passages:
                    document, line = chunk.passages[-1][:2]
                    name = self.documents[document]
                    extent = f" up to line {line} of {'standard input' if name == STDIN else name}"
                raise DataError(
                    f"The input{extent} differs from the text of the interrupted run. Use the same "
                    "text to resume, or start again with --overwrite."
                )
        if finished and max(finished) > number:
            raise DataError(
                f"The input is shorter than the text of the interrupted run: it ends before chunk "
                f"{max(finished)}. Use the same text to resume, or start again with --overwrite."
            )

    # ----------------------------------------------------------------------------------- results

    def _description(self) -> dict[str, Any]:
        return {
            "run": self._manifest,
            "inputs": list(self.documents),
            "digest": self._digest.hexdigest(),
            "counts": total_counts(self._records.values()),
        }

    def _add(self, chunk: FinishedChunk) -> None:
        self._records[int(chunk.record["chunk"])] = chunk.record
        self._tokens += int(chunk.record["tokens"])
        self._n_bytes += int(chunk.record["n_bytes"])
        self._written_bytes += chunk.n_bytes
        for stage, seconds in chunk.times.items():
            self._times[stage] += seconds

    def _progress(self) -> Progress:
        return Progress(self._tokens, self._n_bytes, self._size, _bottleneck(self._stages()))

    def _stages(self) -> dict[str, float]:
        parallel = self.executor.parallel
        return {name: round(t / parallel.get(name, 1), 3) for name, t in self._times.items()}

    def _warn_about_invalid_input(self) -> None:
        """Warn about truncated tokens and skipped lines."""
        counts = total_counts(self._records.values())
        if counts["truncated_tokens"]:
            limit = format_token_limit(self.executor.info.config)
            truncated = plural(counts["truncated_tokens"], "token")
            warn(f"Truncated {truncated} to {limit}.", stacklevel=5)
        if counts["skipped_lines"]:
            records = (self._records[number] for number in sorted(self._records))
            first = next(r["first_skipped"] for r in records if r["first_skipped"])
            skipped = plural(counts["skipped_lines"], "line")
            separator = ": " if counts["skipped_lines"] == 1 else "; the first is "
            warn(f"Skipped {skipped}{separator}{first}", stacklevel=5)

    def _summary(self, counts: dict[str, int], resumed: dict[str, int], seconds: float) -> Summary:
        stages = self._stages()
        return Summary(
            self.output.path,
            **counts,
            resumed_sentences=resumed["sentences"],
            seconds=round(seconds, 3),
            tokens_per_second=round((counts["tokens"] - resumed["tokens"]) / max(seconds, 1e-9), 1),
            written_bytes=self._written_bytes,
            stages=stages,
            bottleneck=_bottleneck(stages),
        )


def total_counts(records: Collection[Record]) -> dict[str, int]:
    """Return the total of each count over all records."""
    return {name: sum(int(record[name]) for record in records) for name in _COUNTS}


def _bottleneck(stages: dict[str, float]) -> str:
    return max(stages, key=lambda name: stages[name]) if any(stages.values()) else ""
