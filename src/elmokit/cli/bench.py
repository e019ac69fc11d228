"""`elmo bench`: how fast this machine is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elmokit.cli.options import AnyModel, AsJson, Device, Weights, usage_errors

app = typer.Typer(help="Measure speed on this machine.", no_args_is_help=True)


@app.callback()
def _bench() -> None:
    """Measure speed on this machine."""


@app.command("train")
def train(
    preset: Annotated[str, typer.Option(help="toy, small, medium or original.")] = "original",
    rows: Annotated[
        str, typer.Option(help="Batch sizes to try, separated by commas.")
    ] = "128,512,1024,2048",
    data: Annotated[
        Path | None, typer.Option(help="A prepared corpus; without it, made-up text.")
    ] = None,
    vocabulary: Annotated[int, typer.Option(help="Words of the made-up vocabulary.")] = 150_000,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="As for `elmo train`.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Steps to time, a multiple of 4.")] = 40,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Time whole training steps, from character ids to changed weights."""
    import json

    import torch

    from elmokit.data.corpus import Corpus
    from elmokit.device import choose_device
    from elmokit.settings import with_settings
    from elmokit.train.bench import Text, measure
    from elmokit.train.config import run_preset

    with usage_errors():
        changes = ([f"step.rows={size}", *(settings or [])] for size in rows.split(","))
        configs = [with_settings(run_preset(preset), change) for change in changes]
    where = choose_device(device)
    text = Text(None if data is None else Corpus.open(data), vocabulary)
    name = torch.cuda.get_device_name(where) if where.type == "cuda" else "CPU"
    typer.echo(f"{preset} on {name}, vocabulary {text.n_words:,}", err=True)
    found = []
    for config in configs:
        speed = measure(config, text, where, rounds=max(4, rounds - rounds % 4))
        found.append(speed.to_dict())
        typer.echo(
            f"  {config.step.rows:5} x {speed.steps}: {speed.tokens_per_second:12,.0f} tokens/s  "
            f"{speed.milliseconds:8.2f} ms  {speed.distinct:6,.0f} distinct words  "
            f"{speed.memory_gib:6.1f} GiB  {speed.share_of_peak:4.0%} of the bf16 peak",
            err=True,
        )
    if as_json:
        report = {"preset": preset, "device": name, "torch": torch.__version__, "speeds": found}
        typer.echo(json.dumps(report, indent=2))


@app.command("embed")
def embed(
    model: AnyModel = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Instead of a model, a shape with random weights: toy, small, medium or original.",
            show_default=False,
        ),
    ] = None,
    weights: Weights = None,
    batch: Annotated[
        str, typer.Option(help="Sentences per call, separated by commas.")
    ] = "1,32,64,128",
    precision: Annotated[
        str | None,
        typer.Option(
            help="Such as exact,fast. Nothing: all that this model can have here.",
            show_default=False,
        ),
    ] = None,
    threads: Annotated[
        str | None,
        typer.Option(help="CPU threads, such as 1,2. Nothing: torch's own choice."),
    ] = None,
    device: Device = "auto",
    text: Annotated[
        Path | None,
        typer.Option(
            help="A text file, a paragraph per line. Nothing: examples/corpus.txt where it is "
            "there, else made-up words.",
            show_default=False,
        ),
    ] = None,
    tokens: Annotated[
        int,
        typer.Option(
            min=1,
            help="Tokens that fill the cache first, and tokens per batch size that are then timed.",
        ),
    ] = 20_000,
    rounds: Annotated[int, typer.Option(min=1, help="Times that each cell is measured.")] = 5,
    loads: Annotated[
        int, typer.Option(min=1, help="Fresh processes that loading is measured in.")
    ] = 3,
    lengths: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,...",
            help="Instead of the cells: runs of so many tokens each, such as "
            "1000,10000,100000,1000000, and one very long sentence. Shows that time grows "
            "linearly and memory does not.",
            show_default=False,
        ),
    ] = None,
    long_sentence: Annotated[
        int, typer.Option("--long", min=1, help="With --lengths: tokens of the long sentence.")
    ] = 10_000,
    as_json: AsJson = False,
) -> None:
    """Time embedding: tokens/s, the first vector, loading, memory.

    Every precision and number of threads has its own process. They are timed
    in turn on the same sentences, and medians are reported.
    """
    if model is not None and preset is not None:
        raise typer.BadParameter("a model and a preset exclude each other.", param_hint="--preset")
    batches, runs = _numbers(batch, "--batch"), _numbers(lengths, "--lengths")
    cores = _numbers(threads, "--threads")
    if not batches:
        raise typer.BadParameter("at least one batch size is needed.", param_hint="--batch")
    import json

    from elmokit.embed.bench.report import BenchSettings
    from elmokit.embed.bench.run import measure
    from elmokit.embed.bench.table import render

    report = measure(
        BenchSettings(
            model=model,
            weights=weights,
            preset=preset,
            batches=batches,
            precisions=tuple(name.strip() for name in (precision or "").split(",") if name),
            threads=cores,
            device=device,
            tokens=tokens,
            rounds=rounds,
            loads=loads,
            text=text,
            lengths=runs,
            long_sentence=long_sentence,
        ),
        lambda line: typer.echo(line, err=True),
    )
    typer.echo(json.dumps(report.to_dict(), indent=2) if as_json else render(report))


def _numbers(values: str | None, option: str) -> tuple[int, ...]:
    """Read a list of positive numbers such as 1,32,64."""
    try:
        found = tuple(int(part) for part in values.split(",")) if values else ()
    except ValueError:
        found = (0,)
    if any(number < 1 for number in found):
        raise typer.BadParameter(
            f"'{values}' is not a list of numbers of at least 1, such as 1,32,64.",
            param_hint=option,
        )
    return found
