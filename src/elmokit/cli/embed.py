"""`elmo embed`: the vectors of text files, in one file or in a folder of Parquet shards."""

from __future__ import annotations

import typer

from elmokit.cli import embed_options as own
from elmokit.cli import embed_run as work
from elmokit.cli.embed_told import NOTHING, kept, tell
from elmokit.cli.options import (
    Device,
    EmbeddingModel,
    Gamma,
    Layer,
    Mix,
    Precision,
    PrecisionName,
    Quiet,
    SummaryAsJson,
    TokenizedLines,
    Weights,
    read_mix,
    usage_errors,
)
from elmokit.cli.signals import INTERRUPTED
from elmokit.errors import ElmoError


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
    shard_bytes: own.ShardBytes = None,
    resume: own.Resume = False,
    overwrite: own.Overwrite = False,
    skip_bad: own.SkipBad = False,
    as_json: SummaryAsJson = False,
    quiet: Quiet = False,
    part_tokens: own.PartTokens = None,
) -> None:
    """Compute the vectors of every token of text files.

    Work goes to a folder beside the output and becomes one file at the end:
    memory does not grow with the text, and an interrupted run goes on with
    --resume. Until then twice the size of the output is needed on the disk
    (for a folder of shards, nothing but the shards).

    In Python elmokit.open_vectors reads the file, or the folder of shards,
    sentence by sentence.
    """
    crew = work.Crew(engine, workers, devices, address)
    work.check_crew(crew, output)
    from elmokit.bulk.settings import PART_TOKENS, EmbedSettings
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
            part_tokens=PART_TOKENS if part_tokens is None else part_tokens,
        )
    work.check_paths(files, output, settings, resume=resume, overwrite=overwrite)
    loading = work.Loading(model, weights, precision.value, device)
    bar = TokenBar(shown=not quiet)
    try:
        with bar:
            summary = work.run(
                crew,
                loading,
                files,
                output,
                settings,
                column=column,
                shard_bytes=shard_bytes,
                resume=resume,
                overwrite=overwrite,
                skip_bad=skip_bad,
                on_progress=bar,
            )
    except KeyboardInterrupt:
        typer.echo(f"interrupted: {kept(output)}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except ElmoError:
        if bar.started and (left := kept(output)) != NOTHING:
            typer.echo(f"note: {left}", err=True)
        raise
    tell(summary, as_json=as_json)
