"""`elmo index`: the vectors of a text on disk, to be searched by `elmo neighbors`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmokit.cli.options import (
    LAYER_CHOICES,
    AnyModel,
    Device,
    Mix,
    Overwrite,
    Precision,
    PrecisionName,
    Quiet,
    Resume,
    SkipBad,
    SplitLines,
    State,
    StateName,
    SummaryAsJson,
    TokenizedLines,
    Weights,
    not_stdout,
    read_mix,
)
from elmokit.cli.progress import TokenBar
from elmokit.cli.signals import INTERRUPTED
from elmokit.progress import plural

if TYPE_CHECKING:
    from elmokit.search.build import IndexSettings


def index(
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="The folder of the index.",
            callback=not_stdout,
            show_default=False,
        ),
    ],
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILES",
            help="The text, read as by `elmo embed`: UTF-8, also .gz, .xz, .bz2, .zst; '-' is "
            "standard input; a line is a sentence. Not needed to add --ann to an existing index.",
            show_default=False,
        ),
    ] = None,
    model: AnyModel = None,
    weights: Weights = None,
    layer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LAYER",
            help=f"What to store: {LAYER_CHOICES[0].lower()}{LAYER_CHOICES[1:]}; repeat for "
            "several. What can be made of stored layers needs no space of its own. Default: all.",
            show_default=False,
        ),
    ] = None,
    mix: Mix = None,
    tokenized: TokenizedLines = False,
    split: SplitLines = False,
    state: State = StateName.RESET,
    ann: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LAYER",
            help="Also build an approximate index for this stored layer, for many millions of "
            "tokens; repeat for several. Its recall is measured and reported.",
            show_default=False,
        ),
    ] = None,
    recall: Annotated[
        float,
        typer.Option(
            min=0.01, max=1.0, help="With --ann: share of the 10 nearest tokens to be found."
        ),
    ] = 0.95,
    resume: Resume = False,
    overwrite: Overwrite = False,
    append: Annotated[
        bool,
        typer.Option(
            "--append", help="Add the text to an existing index of the same model and settings."
        ),
    ] = False,
    skip_bad: SkipBad = False,
    device: Device = "auto",
    precision: Precision = PrecisionName.EXACT,
    as_json: SummaryAsJson = False,
    quiet: Quiet = False,
    part_tokens: Annotated[int | None, typer.Option(hidden=True, min=1)] = None,
) -> None:
    """Store the vectors of every token of a text, to be searched by `elmo neighbors`.

    The folder holds the vectors of the chosen layers, the sentences with their
    files and lines, and which model was used. Memory does not grow with the
    text, and an interrupted run continues with --resume. Needs
    pip install 'elmokit[search]'.

    Then: elmo neighbors FOLDER --query 'He will [play] in the final .'
    """
    mixed = read_mix(mix, layer)
    if not files and not ann:
        raise typer.BadParameter(
            "give a text, or --ann to add to an existing index.", param_hint="FILES"
        )
    from elmokit.bulk.settings import PART_TOKENS
    from elmokit.search.build import IndexSettings

    summary: dict[str, Any] = {}
    if files:
        settings = IndexSettings(
            layer=tuple(layer or ["all"]),
            mix=mixed,
            state=state.value,
            tokenized=tokenized,
            split=split,
            part_tokens=part_tokens or PART_TOKENS,
        )
        how = {"resume": resume, "overwrite": overwrite, "append": append}
        loading = (model, weights, device, precision.value)
        with TokenBar(shown=not quiet) as bar:
            summary = _build(loading, files, output, settings, how, skip_bad, bar)
    if ann:
        summary["ann"] = _add_ann(output, ann, recall, quiet=quiet)
    if as_json:
        typer.echo(json.dumps(summary, ensure_ascii=False))


def _build(
    loading: Any,
    files: list[str],
    output: Path,
    settings: IndexSettings,
    how: dict[str, bool],
    skip_bad: bool,
    bar: TokenBar,
) -> dict[str, Any]:
    from elmokit.bulk.input import check_inputs
    from elmokit.embed.model import load
    from elmokit.search.build import build_index, check_index_output, kept_tokens

    check_index_output(output, **how)
    check_inputs(files)  # before a model is fetched for a name that was mistyped
    try:
        done = build_index(
            load(*loading), files, output, settings, skip_bad=skip_bad, on_progress=bar, **how
        )
    except KeyboardInterrupt:
        typer.echo(
            f"Interrupted: {kept_tokens(output):,} tokens are finished and kept. Continue with the "
            "same command and --resume, or discard them with --overwrite.",
            err=True,
        )
        raise typer.Exit(INTERRUPTED) from None
    parts = [
        plural(done.tokens, "token"),
        plural(done.sentences, "sentence"),
        plural(done.words, "word"),
        f"{done.n_bytes / 1e6:,.1f} MB",
        f"{done.tokens_per_second:,.0f} tokens/s",
    ]
    if done.resumed_tokens:
        parts.append(f"{done.resumed_tokens:,} tokens of an earlier run")
    if done.skipped_lines:
        parts.append(f"{plural(done.skipped_lines, 'line')} skipped")
    typer.echo(f"{done.output}: {', '.join(parts)}", err=True)
    return {**dataclasses.asdict(done), "output": str(done.output)}


def _add_ann(folder: Path, layer: list[str], recall: float, *, quiet: bool) -> dict[str, Any]:
    from elmokit.search.approximate import add_ann
    from elmokit.search.index import TokenIndex

    index = TokenIndex.open(folder)
    # A stored mix is meant with its weights.
    choices = index.parse(layer, index.meta.stored.get("mix") if "mix" in layer else None)
    if not quiet:
        typer.echo(f"Building an approximate index of {index.tokens:,} tokens ...", err=True)
    ann = add_ann(index, choices, recall=recall).meta.ann
    for choice in choices:
        about = ann[choice.label]
        typer.echo(
            f"{folder}: {choice.label}: {about['probes']} of {about['cells']} cells searched, "
            f"recall of the 10 nearest {about['recall_at_10']:.3f} over {about['queries']} tokens",
            err=True,
        )
    return {choice.label: ann[choice.label] for choice in choices}
