"""Embed a corpus into a folder of Parquet shards: on this machine, or on many (ray_engine.py).

One row per token:

document              the document, as it was named
line                  number of the line (of the row, in a Parquet file), from 1
sentence              number of the sentence in its line, from 0
token_index           number of the token in its sentence, from 0
token                 the token
start, end            where it stood in the line; null for tokenised input
vector                2D numbers; or for all layers `layer_0`, `layer_1`, ...

A chunk of a document becomes a shard (see documents.py), computed in parts that each start with an
empty cache: a shard's rows depend on the chunk, the model and the settings alone, to the bit.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elmokit.bulk.crew import hands_of
from elmokit.bulk.documents import CHUNK_BYTES, Chunk, check_documents, cut_chunks, known_size
from elmokit.bulk.files.layout import Layout
from elmokit.bulk.files.parquet import check_available, columns_of, vector_fields, writer_options
from elmokit.bulk.jobs import Hands
from elmokit.bulk.part import compute_part
from elmokit.bulk.settings import EmbedSettings, Progress, Summary
from elmokit.bulk.shard_folder import EMPTY, RECORD, SHARDS, ShardFolder
from elmokit.bulk.workers import Workers
from elmokit.embed.batching import windows
from elmokit.embed.embedder import Embedder
from elmokit.embed.tokenised import longest_token
from elmokit.errors import ConfigError, DataError, ElmoError, ElmoWarning

if TYPE_CHECKING:
    from elmokit.bulk.ray_engine import RayCluster, RayHands

Record = dict[str, Any]


@dataclass(frozen=True)
class ShardPlan:
    """What is to be made of a corpus; it can be sent anywhere.

    Attributes:
        documents: Text files and Parquet files, by path or address.
        out: The folder.
        settings: Which vectors.
        chunk_bytes: Bytes of text in a shard, about.
        column: The column of the text in a Parquet file.
        skip_bad: Leave out lines that are not UTF-8.
        finished: The digests of the shards that are there.
    """

    documents: tuple[str, ...]
    out: str
    settings: EmbedSettings
    chunk_bytes: int = CHUNK_BYTES
    column: str = "text"
    skip_bad: bool = False
    finished: Mapping[str, str] = field(default_factory=dict)

    def missing(self, document: int) -> Iterator[Chunk]:
        """Read a document and give the chunks whose shards are not there.

        Raises:
            DataError: The document has changed since shards of it were made.
        """
        chunks = cut_chunks(
            document,
            self.documents[document],
            chunk_bytes=self.chunk_bytes,
            column=self.column,
            skip_bad=self.skip_bad,
        )
        for chunk in chunks:
            if chunk.name not in self.finished:
                yield chunk
            elif self.finished[chunk.name] != chunk.digest:
                raise DataError(
                    f"{self.documents[document]} is not what the shard {chunk.name} was made of. "
                    "Give the same text to resume, or start anew with --overwrite."
                )


@dataclass(frozen=True)
class ShardJob:
    """A shard that is to be computed."""

    plan: ShardPlan
    chunk: Chunk

    def run(self, model: Embedder[Any]) -> Record:
        """Compute and write it, and return its record."""
        return write_shard(model, self.plan, self.chunk, ShardFolder(self.plan.out))


def write_shard(model: Embedder[Any], plan: ShardPlan, chunk: Chunk, folder: ShardFolder) -> Record:
    """Compute a shard and write it into its folder."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    settings = plan.settings
    layout = settings.layout(model.config)
    name = plan.documents[chunk.document]
    schema = _schema(layout)
    counts = {"sentences": 0, "tokens": 0, "cut_tokens": 0}
    empty: list[int] = []
    found = chunk.sentences(tokenized=settings.tokenized, split=settings.split)
    with folder.writing(chunk.name) as file:
        writer = pq.ParquetWriter(file, schema, **writer_options(schema.names, layout))
        for window in windows(((s.tokens, s) for s in found), settings.part_tokens):
            sentences = [sentence for _, sentence in window]
            part, cut, _ = compute_part(model, sentences, settings)
            without = np.flatnonzero(part.read("lengths") == 0)
            empty += (counts["sentences"] + without).tolist()
            counts["sentences"] += part.sentences
            counts["tokens"] += part.tokens
            counts["cut_tokens"] += cut
            if part.tokens:
                columns = columns_of(part, 0, layout)
                in_line = np.array([s.place.sentence for s in sentences], dtype=np.int32)
                columns["sentence"] = np.repeat(in_line, part.read("lengths"))
                columns["document"] = pa.array([name] * part.tokens, pa.string())
                table = pa.table({n: columns[n] for n in schema.names}, schema=schema)
                writer.write_table(table, row_group_size=part.tokens)
        record = {
            "shard": chunk.name,
            "document": chunk.document,
            "chunk": chunk.number,
            "is_last": chunk.is_last,
            **counts,
            "skipped_lines": chunk.skipped,
            "n_bytes": chunk.n_bytes,
            "digest": chunk.digest,
        }
        notes = {RECORD: record, EMPTY: empty}
        writer.add_key_value_metadata({k.decode(): json.dumps(v) for k, v in notes.items()})
        writer.close()
    return record


def _schema(layout: Layout) -> Any:
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("document", pa.string(), nullable=False),
            pa.field("line", pa.int64(), nullable=False),
            pa.field("sentence", pa.int32(), nullable=False),
            pa.field("token_index", pa.int32(), nullable=False),
            pa.field("token", pa.string(), nullable=False),
            pa.field("start", pa.int64()),
            pa.field("end", pa.int64()),
            *vector_fields(layout),
        ]
    )


# --------------------------------------------------------------------------------------- a run


def embed_shards(
    model: Embedder[Any] | Workers | RayCluster,
    documents: Sequence[str | Path],
    out: str | Path,
    settings: EmbedSettings | None = None,
    *,
    chunk_bytes: int = CHUNK_BYTES,
    column: str = "text",
    resume: bool = False,
    overwrite: bool = False,
    skip_bad: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> Summary:
    """Embed documents into a folder of Parquet shards.

    Args:
        model: The model, in torch or ONNX; or processes that each load it; or a Ray cluster whose
            workers do. The rows are the same, to the bit, on machines that compute alike.
        documents: Text files (also packed ones) and Parquet files, by path or address.
        out: The folder.
        settings: Which vectors; the state is not carried.
        chunk_bytes: Bytes of text in a shard, about.
        column: The column of the text in a Parquet file.
        resume: Go on with an interrupted run; what is finished is not computed again.
        overwrite: Without `resume`, throw away the shards that are there.
        skip_bad: Leave out and count lines that are not UTF-8, instead of raising.
        on_progress: Called at the start and after each shard.

    Raises:
        OutputError: Something is in the way, or cannot be written.
        DataError: A document cannot be read, or is not that of the run to be resumed.
        ConfigError: The model or the settings do not fit, or are not those of that run.
        ElmoError: A worker has died; what was finished is kept.
    """
    settings = settings or EmbedSettings()
    check_available()
    check_state(settings)
    names = tuple(str(name) for name in documents)
    check_documents(names)
    plan = ShardPlan(names, str(out), settings, chunk_bytes, column, skip_bad)
    folder = ShardFolder(plan.out)
    folder.check(resume=resume, overwrite=overwrite)
    started = time.monotonic()
    with _engine(model, plan) as hands:
        layout = settings.layout(hands.facts.config)  # refuses what does not fit
        about = {
            **hands.facts.manifest,
            "n_layers": layout.n_layers,
            "dim": layout.dim,
            "documents": list(names),
            "chunk_bytes": chunk_bytes,
            "column": column,
            "skip_bad": skip_bad,
        }
        goes_on = folder.begin(about, resume=resume, overwrite=overwrite)
        if resume and not goes_on:
            warnings.warn(
                f"There is no interrupted run to resume in {out}; this one starts at the "
                "beginning.",
                ElmoWarning,
                stacklevel=2,
            )
        try:
            records = folder.records()
            resumed = sum(record["sentences"] for record in records.values())
            old_tokens = sum(record["tokens"] for record in records.values())
            _make(hands, plan, records, on_progress)
            folder.remove_unfinished()
            folder.write_json(SHARDS, {"shards": check_complete(names, records.values())})
        finally:
            hands.close()
            folder.release()
        cut_at = longest_token(hands.facts.config)
    counts = {
        name: sum(record[name] for record in records.values())
        for name in ("sentences", "tokens", "cut_tokens", "skipped_lines")
    }
    _warn_of_losses(counts, cut_at)
    seconds = time.monotonic() - started
    return Summary(
        Path(out),
        **counts,
        resumed_sentences=resumed,
        seconds=round(seconds, 3),
        tokens_per_second=round((counts["tokens"] - old_tokens) / max(seconds, 1e-9), 1),
    )


def check_state(settings: EmbedSettings) -> None:
    """Raise if the state is to be carried."""
    if settings.state == "carry":
        raise ConfigError(
            "Shards are computed by themselves and in any order, so no state can be carried from "
            "one to the next: use state='reset' or 'warm', or write one file such as vectors.h5."
        )


def _engine(
    model: Embedder[Any] | Workers | RayCluster, plan: ShardPlan
) -> AbstractContextManager[Hands | RayHands]:
    from elmokit.bulk.ray_engine import RayCluster

    if isinstance(model, RayCluster):
        return model.at_work(plan.settings)
    return hands_of(model, plan.settings)


def _make(
    hands: Hands | RayHands,
    plan: ShardPlan,
    records: dict[str, Record],
    on_progress: Callable[[Progress], None] | None,
) -> None:
    """Make the shards that are not there yet."""
    from elmokit.bulk.ray_engine import RayHands

    finished = {name: str(record["digest"]) for name, record in records.items()}
    left = replace(plan, finished=finished)
    made: Iterable[Record]
    if isinstance(hands, RayHands):  # its workers read the documents, too
        made = hands.make(left)
    else:
        chunks = (chunk for d in range(len(plan.documents)) for chunk in left.missing(d))
        made = hands.do(ShardJob(plan, chunk) for chunk in chunks)
    done = Progress(
        sum(record["tokens"] for record in records.values()),
        sum(record["n_bytes"] for record in records.values()),
        known_size(plan.documents),
    )
    report = on_progress or (lambda _: None)
    report(done)
    for record in made:
        records[record["shard"]] = record
        tokens, n_bytes = done.tokens + record["tokens"], done.n_bytes + record["n_bytes"]
        report(done := done._replace(tokens=tokens, n_bytes=n_bytes))


def check_complete(documents: Sequence[str], records: Iterable[Record]) -> list[Record]:
    """Return the records in order; raise if a shard is missing or is there that should not be."""
    chunks: dict[int, dict[int, Record]] = {d: {} for d in range(len(documents))}
    for record in records:
        chunks[record["document"]][record["chunk"]] = record
    for document, own in chunks.items():
        lasts = [number for number, record in own.items() if record["is_last"]]
        if sorted(own) != list(range(len(own))) or lasts != [len(own) - 1]:
            raise ElmoError(
                f"The shards of {documents[document]} are not complete: found the chunks "
                f"{sorted(own)}, of which {lasts} say that they are the last. Go on with --resume, "
                "or start anew with --overwrite if the document has changed."
            )
    return [chunks[d][number] for d in chunks for number in sorted(chunks[d])]


def _warn_of_losses(counts: Mapping[str, int], longest: str) -> None:
    if counts["cut_tokens"]:
        warnings.warn(
            f"{counts['cut_tokens']:,} tokens are longer than {longest}; only their beginning was "
            "read.",
            ElmoWarning,
            stacklevel=3,
        )
    if counts["skipped_lines"]:
        warnings.warn(
            f"{counts['skipped_lines']:,} lines were left out.", ElmoWarning, stacklevel=3
        )
