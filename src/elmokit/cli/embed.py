"""`elmo embed`: write the vectors of text files to one file or a directory of Parquet shards."""

from __future__ import annotations

import dataclasses
from pathlib import PurePath
from typing import Annotated, Literal

import typer

from elmokit.cli import options as opt
from elmokit.cli.output import (
    INTERRUPTED,
    format_resumed_work,
    format_saved_work,
    log,
    log_summary,
    print_json,
)
from elmokit.cli.progress import token_bar
from elmokit.errors import ElmoError
from elmokit.progress import plural


def embed(
    files: opt.SentenceFiles,
    output: Annotated[str, opt.OUTPUT],
    model: opt.Model = None,
    weights: opt.Weights = None,
    tokenized: opt.Tokenized = False,
    split: opt.SplitLines = False,
    layer: opt.Layer = "all",
    mix: opt.Mix = None,
    gamma: float = 1.0,
    state: Literal["reset", "warm", "carry"] = "reset",
    rows: int = 1,
    dtype: Literal["float32", "float16"] = "float32",
    device: opt.Device = "auto",
    precision: opt.Precision = "exact",
    workers: Annotated[int | None, typer.Option(min=1)] = None,
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
    column: str = "text",
    chunk_bytes: int = 2**18,
    resume: opt.Resume = False,
    overwrite: opt.Overwrite = False,
    skip_bad: opt.SkipBad = False,
    as_json: opt.SummaryAsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """Compute vectors for all tokens in text files.

    The text is processed in chunks, so memory usage does not depend on its size. Without --split,
    empty lines count as sentences without tokens, so that sentence i is always line i + 1. To read
    the output in Python, use elmokit.open_vectors.

    Use --resume to continue an interrupted run. If the text comes from standard input, provide it
    again from the beginning. Writing a single output file temporarily requires twice its size
    on disk; writing a directory of shards does not.

    Args:
        files: Parquet files (one sentence per row) and URLs such as s3://bucket/file are also
            supported.
        output: Output file. The file extension determines the format: .h5 (in AllenNLP's layout),
            .npz, .safetensors or .parquet (one row per token). Without an extension: a directory of
            Parquet shards.
        model: ONNX models are also supported and do not require PyTorch.
        gamma: With --layer mix: scale factor.
        state: Initial LSTM state of each sentence. reset: zero, so that vectors depend only on the
            sentence. warm: the state stored with the model. carry: the final state of the previous
            sentence, as in bilm-tf and AllenNLP.
        rows: With --state carry: number of rows in a batch (bilm-tf's batch size).
            Each row is a separate text: sentence i starts from the final state of sentence i -
            ROWS.
        dtype: Data type of the vectors. float16 halves the file size and keeps about three
            significant digits.
        workers: Number of worker processes, each with its own copy of the model. Does not affect
            the output. Default: 1; with Ray, one per GPU or per two CPU cores.
        engine: Where to run. local: on this machine. ray: on a Ray cluster (pip install
            'elmokit[ray]'); the output must be a directory, and all machines must be able to access
            it and the model.
        address: With --engine ray: address of the cluster. Default: start a local cluster.
        column: Text column of Parquet files.
        chunk_bytes: Approximate size of a chunk of text in bytes. An interrupted run resumes at
            the first unfinished chunk.
        overwrite: Without --resume, also discard an interrupted run.
    """
    _check_engine(engine, address, output)
    from elmokit.bulk.executors import Workers
    from elmokit.bulk.ray_engine import RayCluster
    from elmokit.bulk.run import embed_corpus
    from elmokit.bulk.settings import EmbedSettings

    with opt.usage_errors():
        settings = EmbedSettings(
            layer=layer,
            mix=mix,
            gamma=gamma,
            dtype=dtype,
            state=state,
            rows=rows,
            tokenized=tokenized,
            split=split,
            chunk_bytes=chunk_bytes,
        )
    backend = Workers(model, weights, precision, device, workers)
    if engine == "ray":
        backend = RayCluster(model, weights, precision, device, workers, address)
    try:
        with token_bar(enabled=not quiet) as bar:
            summary = embed_corpus(
                backend,
                files,
                output,
                settings,
                column=column,
                resume=resume,
                overwrite=overwrite,
                skip_bad=skip_bad,
                on_progress=bar,
            )
    except KeyboardInterrupt:
        log(f"Interrupted. {_format_finished(output) or 'No chunks were finished.'}")
        raise typer.Exit(INTERRUPTED) from None
    except ElmoError:
        if finished := _format_finished(output):
            log(f"Note: {finished}")
        raise
    if as_json:
        print_json({**dataclasses.asdict(summary), "output": str(summary.output)})
    log_summary(
        summary.output,
        plural(summary.sentences, "sentence"),
        plural(summary.tokens, "token"),
        f"{summary.tokens_per_second:,.0f} tokens/s" if summary.tokens_per_second else "",
        f"bottleneck: {summary.bottleneck}" if summary.tokens_per_second else "",
        format_resumed_work(summary.resumed_sentences, "sentence"),
    )


def _check_engine(engine: str, address: str | None, output: str) -> None:
    if engine == "local" and address is not None:
        raise opt.UsageError("--address requires --engine ray.")
    is_file = PurePath(output).suffix and "://" not in output and not output.endswith("/")
    if engine == "ray" and is_file:
        raise typer.BadParameter(
            f"'{output}' has a file extension, but --engine ray writes a directory of shards. "
            "Use a path without an extension.",
            param_hint="--output",
        )


def _format_finished(output: str) -> str:
    """Return a message about the results of an interrupted run; empty if there are none."""
    from elmokit.bulk.output import count_finished_sentences

    sentences = count_finished_sentences(output)
    return format_saved_work(sentences, "sentence") if sentences else ""
