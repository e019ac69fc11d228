"""`elmo bench`: measure speed on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer

from elmokit.cli.options import AnyModel, AsJson, Device, Weights, as_settings, usage_errors
from elmokit.cli.output import print_json
from elmokit.cli.progress import stderr_logger
from elmokit.cli.run_options import Settings

app = typer.Typer(help="Measure speed on this machine.", no_args_is_help=True)


@app.command("train")
def train(
    preset: Annotated[
        str, typer.Option(help="Model size and settings: toy, small, medium or original.")
    ] = "original",
    rows: Annotated[
        str, typer.Option(help="Batch sizes, separated by commas.")
    ] = "128,512,1024,2048",
    data: Annotated[
        str | None, typer.Option(help="Directory written by `elmo prepare`. Default: random text.")
    ] = None,
    vocabulary: Annotated[
        int, typer.Option(min=1000, help="Vocabulary size of random text.")
    ] = 150_000,
    settings: Settings = None,
    rounds: Annotated[int, typer.Option(min=1, help="Steps to time, a multiple of 4.")] = 40,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Measure complete training steps: tokens/s and memory."""
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
    speeds = [measure(config, text, where, rounds=rounds) for config in configs]
    report = {
        "preset": preset,
        "vocabulary": text.n_words,
        "device": torch.cuda.get_device_name(where) if where.type == "cuda" else "CPU",
        "torch": torch.__version__,
        "speeds": speeds,
    }
    if as_json:
        print_json(report, indent=2)
        return
    typer.echo(f"{preset} on {report['device']}, vocabulary {text.n_words:,}\n")
    columns = ("rows", "steps", "tokens_per_second", "milliseconds", "distinct", "memory_gib")
    typer.echo(_table(speeds, columns))


@app.command("embed")
def embed(
    model: AnyModel = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Model with random weights, instead of --model: toy, small, medium or original."
        ),
    ] = None,
    weights: Weights = None,
    batch: Annotated[
        str, typer.Option(help="Batch sizes in sentences, separated by commas.")
    ] = "1,32,64,128",
    precision: Annotated[
        str,
        typer.Option(help="Precisions, for example exact,fast. Default: all that are available."),
    ] = "",
    threads: Annotated[
        str, typer.Option(help="Numbers of CPU threads, for example 1,2. Default: chosen by torch.")
    ] = "",
    device: Device = "auto",
    text: Annotated[
        str | None,
        typer.Option(
            help="Text file with one paragraph per line. Default: examples/corpus.txt, or random "
            "words if it is not installed."
        ),
    ] = None,
    tokens: Annotated[
        int,
        typer.Option(
            help="Number of tokens to fill the token cache with, and to time per batch size."
        ),
    ] = 20_000,
    rounds: Annotated[int, typer.Option(help="Number of measurements per setting.")] = 5,
    lengths: Annotated[
        str,
        typer.Option(
            metavar="N,N,...",
            help="Instead of batch sizes, measure texts with these numbers of tokens, for example "
            "1000,10000,100000,1000000, and one very long sentence. Shows how time and memory "
            "grow.",
        ),
    ] = "",
    long_sentence: Annotated[
        int, typer.Option("--long", help="With --lengths: number of tokens of the long sentence.")
    ] = 10_000,
    disk: Annotated[
        str | None,
        typer.Option(
            metavar="DIRECTORY",
            help="Instead of batch sizes, measure `elmo embed` from --text to Parquet and HDF5 "
            "files in this directory, which are removed again.",
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="With --disk: number of processes, as for `elmo embed`.")
    ] = 1,
    as_json: AsJson = False,
) -> None:
    """Measure embedding: throughput, latency, load time and memory.

    Each combination of precision and threads runs in a separate process. They
    take turns on the same sentences; medians are reported. With --disk, the
    whole way from text to files is measured.
    """
    from dataclasses import replace

    from elmokit.embed.bench import BenchSettings, measure
    from elmokit.settings import with_settings

    if disk is not None:
        if text is None or preset is not None:
            raise typer.BadParameter("--disk needs --text, and a model instead of --preset.")
        _embed_to_disk(disk, text, model, weights, device, precision, workers, as_json=as_json)
        return
    values: dict[str, object] = {
        "batches": f"[{batch}]",
        "threads": f"[{threads}]",
        "lengths": f"[{lengths}]",
        "tokens": tokens,
        "rounds": rounds,
        "long_sentence": long_sentence,
    }
    with usage_errors():
        settings = replace(
            with_settings(BenchSettings(), as_settings(values)),
            model=model,
            weights=weights,
            preset=preset,
            precisions=tuple(name.strip() for name in precision.split(",") if name),
            device=device,
            text=text,
        )
    report = measure(settings, stderr_logger())
    if as_json:
        print_json(report, indent=2)
    else:
        typer.echo(_render(report))


def _embed_to_disk(
    disk: str,
    text: str,
    model: str | None,
    weights: str | None,
    device: str,
    precision: str,
    workers: int,
    *,
    as_json: bool,
) -> None:
    from elmokit.bulk.bench import measure
    from elmokit.bulk.executors import Workers, choose_devices

    devices = choose_devices(workers, None, device, model)
    report = measure(
        Workers(devices, model, weights, precision or "exact"), text, disk, stderr_logger()
    )
    if as_json:
        print_json(report, indent=2)
        return
    rates = ("tokens_per_second", "sustained_tokens_per_second", "mb_per_second", "bottleneck")
    typer.echo(_table(report["outputs"], ("output", "tokens", "seconds", *rates)))
    typer.echo(f"\nfsynced writes to {disk}: {report['disk_mb_per_second']:,} MB/s")


def _render(report: dict[str, Any]) -> str:
    model, machine, text = report["model"], report["machine"], report["text"]
    parts = [
        f"{model['name']}: {model['shape']}, {model['parameters']:,} parameters\n"
        f"{machine['device']}, {machine['cores']} cores, torch {machine['versions']['torch']}\n"
        f"text: {text['name']}, {text['tokens_per_sentence']} tokens per sentence"
    ]
    loads = ("load_s", "first_vector_ms", "sentence_ms", "sentence_p99_ms", "loaded_gib")
    rates = ("tokens_per_second", "known_tokens_per_second", "hit_rate", "seconds", "peak_gib")
    for name, columns in (
        ("cells", ("batch", *rates)),
        ("lengths", ("tokens", *rates)),
        ("long_sentence", ("tokens", "ms_per_token", "short_tokens", "short_ms_per_token")),
        ("loads", (*loads, "peak_gib")),
    ):
        if report.get(name):
            parts.append(_table(report[name], ("precision", "threads", *columns)))
    return "\n\n".join([*parts, *(f"note: {note}" for note in report["notes"])])


def _table(rows: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> str:
    """Format a table of the columns that the rows have."""
    rows = list(rows)
    names = [name for name in columns if name in rows[0]]
    cells = [[name.replace("_", " ") for name in names]]
    cells += [[_format(row[name]) for name in names] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(value.rjust(width) for value, width in zip(line, widths, strict=True))
        for line in cells
    )


def _format(value: Any) -> str:
    if value is None:
        return "auto"
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
