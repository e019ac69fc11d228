"""`elmo embed`: write the vectors of text files to one file or a directory of Parquet shards."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import typer

from elmokit.cli import embed_options as own
from elmokit.cli.options import (
    Device,
    EmbeddingModel,
    Gamma,
    Layer,
    Mix,
    Overwrite,
    Precision,
    PrecisionName,
    Quiet,
    Resume,
    SummaryAsJson,
    TokenizedLines,
    Weights,
    read_mix,
    usage_errors,
)
from elmokit.cli.signals import INTERRUPTED
from elmokit.errors import ElmoError
from elmokit.progress import plural

if TYPE_CHECKING:
    from elmokit.bulk.executors import Workers
    from elmokit.bulk.ray_engine import RayCluster
    from elmokit.bulk.settings import Summary


def embed(
    files: own.Files,
    output: own.Output,
    model: EmbeddingModel = None,
    weights: Weights = None,
    tokenized: TokenizedLines = False,
    split: own.Split = False,
    layer: Layer = "all",
    mix: Mix = None,
    gamma: Gamma = 1.0,
    state: own.StateChoice = own.State.RESET,
    rows: own.Rows = 1,
    dtype: own.NumberType = own.Numbers.FLOAT32,
    device: Device = "auto",
    precision: Precision = PrecisionName.EXACT,
    workers: own.NWorkers = None,
    devices: own.Devices = None,
    engine: own.EngineChoice = own.Engine.LOCAL,
    address: own.Address = None,
    column: own.TextColumn = "text",
    chunk_bytes: own.ChunkBytes = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    skip_bad: own.SkipBad = False,
    as_json: SummaryAsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compute the vectors of all tokens in text files.

    The text is embedded in chunks: memory does not grow with the text, and you
    can resume an interrupted run with --resume. While a single file is written,
    it needs twice its size on disk; a directory of shards does not.

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
            dtype=dtype.value,
            state=state.value,
            rows=rows,
            tokenized=tokenized,
            split=split,
            chunk_bytes=chunk_bytes or CHUNK_BYTES,
        )
    backend: Workers | RayCluster
    if engine is own.Engine.RAY:
        from elmokit.bulk.ray_engine import RayCluster

        backend = RayCluster(model, weights, precision.value, device, workers, address)
    else:
        from elmokit.bulk.executors import Workers, choose_devices

        chosen = choose_devices(workers, devices, device, model)
        backend = Workers(chosen, model, weights, precision.value)
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
        typer.echo(f"Interrupted. {_kept(output) or 'No chunk was finished.'}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except ElmoError:
        if bar.started and (kept := _kept(output)):
            typer.echo(f"note: {kept}", err=True)
        raise
    _print_summary(summary, as_json=as_json)


def _check_engine(
    engine: own.Engine, devices: str | None, address: str | None, output: str
) -> None:
    if engine is own.Engine.LOCAL:
        if address is not None:
            raise typer.BadParameter("requires --engine ray.", param_hint="--address")
        return
    if devices is not None:
        raise typer.BadParameter(
            "not supported with --engine ray. Use --workers and --device.",
            param_hint="--devices",
        )
    from pathlib import PurePath

    if PurePath(output).suffix and "://" not in output and not output.endswith("/"):
        raise typer.BadParameter(
            f"'{output}' is a file, but --engine ray writes a directory of shards. Give a path "
            "without a suffix.",
            param_hint="--output",
        )


def _kept(output: str) -> str:
    """Return what an interrupted run has finished and how to resume it; "" if nothing."""
    from elmokit.bulk.output import kept_sentences

    sentences = kept_sentences(output)
    if not sentences:
        return ""
    return (
        f"{plural(sentences, 'sentence')} finished and saved. Resume with the same command and "
        "--resume, or discard them with --overwrite."
    )


def _print_summary(summary: Summary, *, as_json: bool) -> None:
    if as_json:
        values = {**dataclasses.asdict(summary), "output": str(summary.output)}
        typer.echo(json.dumps(values, ensure_ascii=False))
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
    typer.echo(f"{summary.output}: {', '.join(facts)}", err=True)
