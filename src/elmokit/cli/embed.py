"""`elmo embed`: write the vectors of text files to one file or a directory of Parquet shards."""

from __future__ import annotations

import dataclasses
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from elmokit.cli.options import (
    Device,
    EmbeddingModel,
    Gamma,
    Layer,
    Mix,
    Overwrite,
    Precision,
    Quiet,
    Resume,
    SummaryAsJson,
    TokenizedLines,
    Weights,
    output_option,
    read_mix,
    usage_errors,
)
from elmokit.cli.output import INTERRUPTED, finished_work, log, log_summary, print_json
from elmokit.errors import ElmoError
from elmokit.progress import plural

if TYPE_CHECKING:
    from elmokit.bulk.executors import Workers
    from elmokit.bulk.ray_engine import RayCluster
    from elmokit.bulk.settings import Summary


def embed(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILES",
            help="UTF-8 text files with one sentence per line, optionally compressed (.gz, .xz, "
            ".bz2, .zst); '-' reads standard input. An empty line counts as a sentence without "
            "tokens, so line 8 is always sentence 7. Parquet files, with one sentence per row, and "
            "URLs such as s3://bucket/file also work.",
        ),
    ],
    output: Annotated[
        str,
        output_option(
            "File to write. The suffix selects the format: .h5 (the layout of AllenNLP's elmo "
            "command), .npz, .safetensors, or .parquet (one row per token). Without a suffix: a "
            "directory of Parquet shards."
        ),
    ],
    model: EmbeddingModel = None,
    weights: Weights = None,
    tokenized: TokenizedLines = False,
    split: Annotated[
        bool,
        typer.Option(
            "--split",
            help="Lines are paragraphs: split them into sentences. Empty lines are ignored. If "
            "lines break in mid-sentence, first join the lines of each paragraph.",
        ),
    ] = False,
    layer: Layer = "all",
    mix: Mix = None,
    gamma: Gamma = 1.0,
    state: Annotated[
        Literal["reset", "warm", "carry"],
        typer.Option(
            help="Initial LSTM state of each sentence. reset: zero, so that vectors depend only on "
            "the sentence. warm: the state stored with the model. carry: the final state of the "
            "previous sentence, as in bilm-tf and AllenNLP."
        ),
    ] = "reset",
    rows: Annotated[
        int,
        typer.Option(
            help="With --state carry: number of parallel streams. Sentence i starts with the final "
            "state of sentence i - ROWS, like row i % ROWS of bilm-tf's batches."
        ),
    ] = 1,
    dtype: Annotated[
        Literal["float32", "float16"],
        typer.Option(
            help="Data type of the vectors. float16 halves the size and keeps about three "
            "significant digits."
        ),
    ] = "float32",
    device: Device = "auto",
    precision: Precision = "exact",
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of worker processes, each with its own copy of the model. The output is "
            "byte-identical for any number of workers. Default: 1; on Ray, one per GPU or per two "
            "CPU cores.",
        ),
    ] = None,
    devices: Annotated[
        str | None,
        typer.Option(
            metavar="0,1,...",
            help="Run one worker on each of these devices: GPU indices, or cpu,cpu,...",
        ),
    ] = None,
    engine: Annotated[
        Literal["local", "ray"],
        typer.Option(
            help="Where to compute a directory of shards. local: on this machine. ray: on a Ray "
            "cluster (pip install 'elmokit[ray]') whose machines can all access the model and the "
            "directory. Both write the same rows."
        ),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(
            help="With --engine ray: address of the cluster. Default: start one on this machine "
            "for this run."
        ),
    ] = None,
    column: Annotated[str, typer.Option(help="Text column of Parquet inputs.")] = "text",
    chunk_bytes: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Approximate bytes of text per chunk. --resume continues after the last finished "
            "chunk, and each shard contains one chunk. Default: 262144.",
        ),
    ] = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    skip_bad: Annotated[
        bool,
        typer.Option(
            "--skip-bad",
            help="Skip and count lines that are not valid UTF-8; this shifts the numbers of later "
            "sentences.",
        ),
    ] = False,
    as_json: SummaryAsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compute the vectors of all tokens in text files.

    The text is embedded in chunks: memory usage does not grow with the text, and
    you can resume an interrupted run with --resume. Writing a single file
    temporarily needs twice its size on disk; a directory of shards does not.

    To read the output in Python, use elmokit.open_vectors.
    """
    _check_engine(engine, devices, address, output)
    from elmokit.bulk.run import embed_corpus
    from elmokit.bulk.settings import CHUNK_BYTES, EmbedSettings
    from elmokit.cli.progress import TokenBar

    with usage_errors():
        settings = EmbedSettings(
            layer=layer,
            mix=read_mix(mix, [layer]),
            gamma=gamma,
            dtype=dtype,
            state=state,
            rows=rows,
            tokenized=tokenized,
            split=split,
            chunk_bytes=chunk_bytes or CHUNK_BYTES,
        )
    backend: Workers | RayCluster
    if engine == "ray":
        from elmokit.bulk.ray_engine import RayCluster

        backend = RayCluster(model, weights, precision, device, workers, address)
    else:
        from elmokit.bulk.executors import Workers, choose_devices

        chosen = choose_devices(workers, devices, device, model)
        backend = Workers(chosen, model, weights, precision)
    bar = TokenBar(shown=not quiet)
    try:
        with bar:
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
        log(f"Interrupted. {_finished(output) or 'No chunk was finished.'}")
        raise typer.Exit(INTERRUPTED) from None
    except ElmoError:
        if bar.started and (finished := _finished(output)):
            log(f"note: {finished}")
        raise
    _print_summary(summary, as_json=as_json)


def _check_engine(engine: str, devices: str | None, address: str | None, output: str) -> None:
    if engine == "local" and address is not None:
        raise typer.BadParameter("requires --engine ray.", param_hint="--address")
    if engine == "ray" and devices is not None:
        raise typer.BadParameter(
            "not supported with --engine ray. Use --workers and --device.", param_hint="--devices"
        )
    is_file = PurePath(output).suffix and "://" not in output and not output.endswith("/")
    if engine == "ray" and is_file:
        raise typer.BadParameter(
            f"'{output}' is a file, but --engine ray writes a directory of shards. Use a path "
            "without a suffix.",
            param_hint="--output",
        )


def _finished(output: str) -> str:
    """Describe what an interrupted run has finished; "" if nothing."""
    from elmokit.bulk.output import kept_sentences

    sentences = kept_sentences(output)
    return finished_work(sentences, "sentence") if sentences else ""


def _print_summary(summary: Summary, *, as_json: bool) -> None:
    if as_json:
        print_json({**dataclasses.asdict(summary), "output": str(summary.output)})
    facts = [plural(summary.sentences, "sentence"), plural(summary.tokens, "token")]
    if summary.tokens_per_second:
        facts.append(f"{summary.tokens_per_second:,.0f} tokens/s")
    if summary.bottleneck:
        facts.append(f"bottleneck: {summary.bottleneck}")
    if summary.resumed_sentences:
        facts.append(f"{plural(summary.resumed_sentences, 'sentence')} from an earlier run")
    facts.append(plural(summary.cut_tokens, "truncated token"))
    if summary.skipped_lines:
        facts.append(plural(summary.skipped_lines, "skipped line"))
    log_summary(summary.output, facts)
