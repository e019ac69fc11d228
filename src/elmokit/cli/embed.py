"""`elmo embed`: the vectors of text files, in one file or in a folder of Parquet shards."""

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
    """Compute the vectors of every token of text files.

    The text is embedded in chunks, which are kept until the output is
    complete: memory does not grow with the text, and an interrupted run is
    continued with --resume. Until then one file needs twice its size on the
    disk; a folder of shards does not.

    In Python elmokit.open_vectors reads the file, or the folder of shards,
    sentence by sentence.
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
    who: Workers | RayCluster
    if engine is own.Engine.RAY:
        from elmokit.bulk.ray_engine import RayCluster

        who = RayCluster(model, weights, precision.value, device, workers, address)
    else:
        from elmokit.bulk.executors import Workers, choose_devices

        chosen = choose_devices(workers, devices, device, model)
        who = Workers(chosen, model, weights, precision.value)
    bar = TokenBar(shown=not quiet)
    try:
        with bar:
            summary = embed_corpus(
                who,
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
        typer.echo(f"interrupted: {_kept(output) or 'nothing was finished.'}", err=True)
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
            raise typer.BadParameter("only --engine ray has an address.", param_hint="--address")
        return
    if devices is not None:
        raise typer.BadParameter(
            "a Ray cluster assigns its devices itself: use --workers and --device.",
            param_hint="--devices",
        )
    from pathlib import PurePath

    if PurePath(output).suffix and "://" not in output and not output.endswith("/"):
        raise typer.BadParameter(
            "--engine ray writes a folder of shards: give a name without a suffix.",
            param_hint="--output",
        )


def _kept(output: str) -> str:
    """Say what an interrupted run has left, and how to continue; nothing if there is nothing."""
    from elmokit.bulk.output import kept_sentences

    sentences = kept_sentences(output)
    if not sentences:
        return ""
    return (
        f"{plural(sentences, 'sentence')} finished and kept; continue with the same command and "
        "--resume (or discard them with --overwrite)."
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
        facts.append(f"{plural(summary.resumed_sentences, 'sentence')} of an earlier run")
    facts.append(f"{plural(summary.cut_tokens, 'token')} cut")
    if summary.skipped_lines:
        facts.append(f"{plural(summary.skipped_lines, 'line')} skipped")
    typer.echo(f"{summary.output}: {', '.join(facts)}", err=True)
