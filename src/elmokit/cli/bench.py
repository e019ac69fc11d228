"""`elmo bench`: measure speed on this machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from elmokit.cli import options as opt
from elmokit.cli.app import App
from elmokit.cli.output import log, print_json, print_table
from elmokit.errors import ConfigError
from elmokit.progress import plural

app = App(help="Measure speed on this machine.")


def _parse_sizes(option: str, text: str) -> tuple[int, ...]:
    """Parse positive integers separated by commas."""
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch("[1-9][0-9]{0,8}", part) for part in parts):
        raise ConfigError(
            f"Invalid value for {option}: '{text}'. Expected integers >= 1, separated by commas, "
            "such as 1,32,64."
        )
    return tuple(map(int, parts))


@app.command("train")
def train(
    preset: opt.Preset = "original",
    settings: opt.Settings = None,
    rows: str = "128,512,1024,2048",
    data: str | None = None,
    vocabulary: Annotated[int, typer.Option(min=1000)] = 150_000,
    rounds: Annotated[int, typer.Option(min=1)] = 40,
    device: opt.Device = "auto",
    as_json: opt.AsJson = False,
) -> None:
    """Measure the speed and memory usage of training steps.

    Args:
        rows: Batch sizes, separated by commas.
        data: Directory written by `elmo prepare`. Default: random text.
        vocabulary: Vocabulary size of random text.
        rounds: Number of steps to measure, rounded down to a multiple of 4 (at least 4).
    """
    import torch

    from elmokit.data.corpus import Corpus
    from elmokit.device import choose_device
    from elmokit.settings import with_settings
    from elmokit.train.bench import BenchmarkText, measure
    from elmokit.train.config import run_preset

    with opt.usage_errors():
        sizes = _parse_sizes("--rows", rows)
        changes = ([f"step.rows={size}", *(settings or [])] for size in sizes)
        configs = [with_settings(run_preset(preset), change) for change in changes]
    torch_device = choose_device(device)
    text = BenchmarkText(None if data is None else Corpus.open(data), vocabulary)
    speeds = [measure(config, text, torch_device, rounds=rounds) for config in configs]
    report = {
        "preset": preset,
        "vocabulary": text.n_words,
        "device": torch.cuda.get_device_name(torch_device)
        if torch_device.type == "cuda"
        else "CPU",
        "torch": torch.__version__,
        "speeds": speeds,
    }
    if as_json:
        print_json(report, indent=2)
        return
    typer.echo(f"{preset} on {report['device']}, vocabulary {text.n_words:,}\n")
    columns = ("rows", "steps", "tokens_per_second", "milliseconds", "distinct", "memory_gib")
    print_table(speeds, columns)


@app.command("embed")
def embed(
    model: opt.Model = None,
    weights: opt.Weights = None,
    preset: str | None = None,
    batch: str = "1,32,64,128",
    threads: str = "",
    text: str | None = None,
    tokens: int = 20_000,
    rounds: int = 5,
    device: opt.Device = "auto",
    precision: str = "",
    as_json: opt.AsJson = False,
) -> None:
    """Measure the throughput, latency, load time and memory usage of embedding.

    Measurements of all combinations of precision and number of threads are interleaved and use the
    same sentences. The results are medians.

    Args:
        preset: Measure a model of this size (toy, small, medium or original) with random weights,
            instead of --model.
        batch: Batch sizes in sentences, separated by commas.
        threads: Numbers of CPU threads, separated by commas. Default: chosen by PyTorch.
        text: Text file with one paragraph per line. Default: examples/corpus.txt in a clone of the
            repository, random words otherwise.
        tokens: Number of tokens to embed for each batch size. The same number is embedded before
            the measurements to fill the token cache.
        rounds: Number of measurements per configuration.
        precision: Precisions to measure, separated by commas. Default: all that the model supports
            on this machine.
    """
    from dataclasses import replace

    from elmokit.embed.bench import BenchSettings, measure
    from elmokit.settings import with_settings

    values: dict[str, object] = {"tokens": tokens, "rounds": rounds}
    with opt.usage_errors():
        settings = replace(
            with_settings(BenchSettings(), opt.as_settings(values)),
            model=model,
            weights=weights,
            preset=preset,
            batches=_parse_sizes("--batch", batch),
            threads=_parse_sizes("--threads", threads) if threads else (),
            precisions=tuple(name.strip() for name in precision.split(",") if name),
            device=device,
            text=text,
        )
    report = measure(settings, log)
    if as_json:
        print_json(report, indent=2)
    else:
        _show(report)


@app.command("pipeline")
def pipeline(
    text: str,
    directory: Annotated[Path, typer.Argument(exists=True, file_okay=False)],
    model: opt.Model = None,
    weights: opt.Weights = None,
    workers: Annotated[int, typer.Option(min=1)] = 1,
    device: opt.Device = "auto",
    precision: opt.Precision = "exact",
    as_json: opt.AsJson = False,
) -> None:
    """Measure the throughput of `elmo embed` from text to Parquet and HDF5 files.

    Args:
        text: Text file with one sentence per line.
        directory: Directory for temporary output files, on the disk to measure.
        workers: Number of worker processes.
    """
    from elmokit.bulk.bench import measure
    from elmokit.bulk.executors import Workers

    backend = Workers(model, weights, precision, device, workers)
    report = measure(backend, text, directory, log)
    if as_json:
        print_json(report, indent=2)
        return
    rates = ("tokens_per_second", "sustained_tokens_per_second", "mb_per_second", "bottleneck")
    print_table(report["outputs"], ("output", "tokens", "seconds", *rates))
    typer.echo(f"\nfsynced writes to {directory}: {report['disk_mb_per_second']:,} MB/s")


def _show(report: dict[str, Any]) -> None:
    model, machine, text = report["model"], report["machine"], report["text"]
    typer.echo(
        f"{model['name']}: {model['shape']}, {model['parameters']:,} parameters\n"
        f"{machine['device']}, {plural(machine['cores'], 'core')}, "
        f"torch {machine['versions']['torch']}\n"
        f"text: {text['name']}, {text['tokens_per_sentence']} tokens per sentence"
    )
    rates = ("tokens_per_second", "known_tokens_per_second", "hit_rate", "seconds")
    loads = ("load_s", "first_vector_ms", "sentence_ms")
    for name, columns in (("cells", ("batch", *rates)), ("loads", loads)):
        typer.echo()
        print_table(report[name], ("precision", "threads", *columns))
    typer.echo(f"\npeak memory: {report['peak_gib']} GiB")
    for note in report["notes"]:
        typer.echo(f"\nNote: {note}")
