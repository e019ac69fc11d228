"""`elmo bench`: how fast this machine is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elmokit.cli.options import Device

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
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Time whole training steps, from character ids to changed weights."""
    import json

    import torch

    from elmokit.data.corpus import Corpus
    from elmokit.embed.precision import choose_device
    from elmokit.train.bench import Text, measure
    from elmokit.train.config import run_preset, with_settings

    where = choose_device(device)
    text = Text(None if data is None else Corpus.open(data), vocabulary)
    name = torch.cuda.get_device_name(where) if where.type == "cuda" else "CPU"
    typer.echo(f"{preset} on {name}, vocabulary {text.n_words:,}", err=True)
    found = []
    for size in (int(part) for part in rows.split(",")):
        config = with_settings(run_preset(preset), [f"step.rows={size}", *(settings or [])])
        speed = measure(config, text, where, rounds=max(4, rounds - rounds % 4))
        found.append(speed.to_dict())
        typer.echo(
            f"  {size:5} x {speed.steps}: {speed.tokens_per_second:12,.0f} tokens/s  "
            f"{speed.milliseconds:8.2f} ms  {speed.distinct:6,.0f} distinct words  "
            f"{speed.memory_gib:6.1f} GiB  {speed.share_of_peak:4.0%} of the bf16 peak",
            err=True,
        )
    if as_json:
        report = {"preset": preset, "device": name, "torch": torch.__version__, "speeds": found}
        typer.echo(json.dumps(report, indent=2))
