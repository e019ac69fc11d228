"""`elmo wic`: is a word used in the same sense in two sentences?"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from elmokit.cli.options import (
    AnyModel,
    Device,
    Quiet,
    State,
    StateName,
    StaticTable,
    TextAsJson,
    Weights,
)


def wic(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="Pairs of MCL-WiC: NAME.data, in JSON.", show_default=False
        ),
    ],
    gold: Annotated[
        Path | None,
        typer.Option(help="The answers. Nothing: NAME.gold beside FILE.", show_default=False),
    ] = None,
    model: AnyModel = None,
    weights: Weights = None,
    state: State = StateName.RESET,
    static: StaticTable = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the bootstrap of the intervals.")] = 0,
    device: Device = "auto",
    as_json: TextAsJson = False,
    quiet: Quiet = False,
) -> None:
    """Tell whether words have the same sense in two sentences, by cosine.

    Layer by layer: the same sense if the cosine of the two tokens is above a
    threshold, which is chosen on one half of the lemmas and tested on the
    other, then the other way round. Beside it, what the words alone tell: the
    same form or not and, with --static, the static vectors of the two forms
    and the mean of those of each sentence.
    """
    from tqdm import tqdm

    from elmokit.analysis.evidence import json_values
    from elmokit.analysis.static import load_static
    from elmokit.analysis.wic import measure_wic, read_wic
    from elmokit.embed.model import load

    pairs = read_wic(data, gold)
    table = None if static is None else load_static(static)
    elmo = load(model, weights, device)
    shown = not quiet and sys.stderr.isatty()
    with tqdm(total=len(pairs), unit=" pairs", disable=not shown) as bar:
        report = measure_wic(
            elmo,
            pairs,
            static=table,
            state=state.value,
            seed=seed,
            on_pairs=lambda done: bar.update(done - bar.n),
        )
    if as_json:
        typer.echo(json.dumps(json_values(report), ensure_ascii=False))
    else:
        typer.echo(str(report))
    fits = ", ".join(f"{n:,} {fit}" for fit, n in report.fits.items())
    typer.echo(
        f"{report.pairs:,} pairs of {report.lemmas:,} lemmas, {len(report.left_out):,} left out "
        f"for want of a token; words in our tokens: {fits}",
        err=True,
    )
