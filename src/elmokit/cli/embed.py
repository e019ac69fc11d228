"""`elmo embed`: write the vectors of text files to one file or a directory of Parquet shards."""

from __future__ import annotations

import dataclasses
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from elmokit.cli import options as opt
from elmokit.cli.output import INTERRUPTED, finished_work, log, log_summary, print_json, resumed
from elmokit.cli.progress import TokenBar
from elmokit.errors import ElmoError
from elmokit.progress import plural

if TYPE_CHECKING:
    from elmokit.bulk.executors import Workers
    from elmokit.bulk.ray_engine import RayCluster


def embed(
    files: Annotated[
        list[str],
        typer.Argument(
            help=f"{opt.SENTENCES} Also Parquet files, with one sentence per row, and URLs such as "
            "s3://bucket/file.",
        ),
    ],
    output: Annotated[
        str,
        opt.output_option(
            "File to write. The suffix selects the format: .h5 (the layout of AllenNLP's elmo "
            "command), .npz, .safetensors, or .parquet (one row per token). Without a suffix: a "
            "directory of Parquet shards."
        ),
    ],
    model: Annotated[str | None, typer.Option(help=opt.EMBEDDING_MODELS)] = None,
    weights: opt.Weights = None,
    tokenized: opt.Tokenized = False,
    split: opt.SplitLines = False,
    layer: opt.Layer = "all",
    mix: opt.Mix = None,
    gamma: Annotated[
        float, typer.Option(help="With --layer mix: scale of the weighted sum.")
    ] = 1.0,
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
    device: opt.Device = "auto",
    precision: opt.Precision = "exact",
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of worker processes, each with its own copy of the model. The output is "
            "byte-identical for any number of workers. Default: 1; on Ray, one per GPU or per two "
            "CPU cores.",
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
        int,
        typer.Option(help="Approximate bytes of text per chunk, the unit of work and of resuming."),
    ] = 2**18,
    resume: opt.Resume = False,
    overwrite: opt.OverwriteRun = False,
    skip_bad: opt.SkipBad = False,
    as_json: opt.SummaryAsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """Compute the vectors of all tokens in text files.

    Text is processed in chunks, so memory usage does not grow with the text. An empty line counts
    as a sentence without tokens: line 8 is always sentence 7. To read the output in Python, use
    elmokit.open_vectors.

    An interrupted run can be resumed with --resume; standard input must then provide the same text
    from its beginning. Writing a single file temporarily needs twice its size on disk; a directory
    of shards does not.
    """
    _check_engine(engine, address, output)
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
    backend: Workers | RayCluster
    if engine == "ray":
        from elmokit.bulk.ray_engine import RayCluster

        backend = RayCluster(model, weights, precision, device, workers, address)
    else:
        from elmokit.bulk.executors import Workers, choose_devices

        backend = Workers(choose_devices(workers, device, model), model, weights, precision)
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
    if as_json:
        print_json({**dataclasses.asdict(summary), "output": str(summary.output)})
    log_summary(
        summary.output,
        plural(summary.sentences, "sentence"),
        plural(summary.tokens, "token"),
        f"{summary.tokens_per_second:,.0f} tokens/s" if summary.tokens_per_second else "",
        f"bottleneck: {summary.bottleneck}" if summary.bottleneck else "",
        resumed(summary.resumed_sentences, "sentence"),
    )


def _check_engine(engine: str, address: str | None, output: str) -> None:
    if engine == "local" and address is not None:
        raise typer.BadParameter("requires --engine ray.", param_hint="--address")
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
