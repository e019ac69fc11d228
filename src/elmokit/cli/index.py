"""`elmo index`: build an index of token vectors for `elmo neighbors`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmokit.cli.options import (
    LAYER_CHOICES,
    TEXT_FILES,
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
        Path, typer.Option("--output", "-o", help="Directory of the index.", callback=not_stdout)
    ],
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILES",
            help=f"{TEXT_FILES} Each line is a sentence. Not needed to add --ann to an existing "
            "index.",
        ),
    ] = None,
    model: AnyModel = None,
    weights: Weights = None,
    layer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LAYER",
            help=f"{LAYER_CHOICES}. Can be repeated. Choices that can be computed from stored "
            "layers take no extra space. Default: all.",
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
            help="Also build an approximate index of this stored layer, for many millions of "
            "tokens. Can be repeated. The recall is measured and reported.",
        ),
    ] = None,
    recall: Annotated[
        float,
        typer.Option(
            min=0.01, max=1.0, help="With --ann: required recall of the 10 nearest tokens."
        ),
    ] = 0.95,
    resume: Resume = False,
    overwrite: Overwrite = False,
    append: Annotated[
        bool,
        typer.Option(
            "--append", help="Add the text to an existing index with the same model and settings."
        ),
    ] = False,
    skip_bad: SkipBad = False,
    device: Device = "auto",
    precision: Precision = PrecisionName.EXACT,
    as_json: SummaryAsJson = False,
    quiet: Quiet = False,
    part_tokens: Annotated[int | None, typer.Option(hidden=True, min=1)] = None,
) -> None:
    """Build an index of token vectors for `elmo neighbors`.

    The index contains the vectors of the selected layers, the sentences with
    their files and line numbers, and a description of the model. Memory does not
    grow with the text, and you can resume an interrupted run with --resume.
    Requires pip install 'elmokit[search]'.

    To search it: elmo neighbors DIR --query 'He will [play] in the final .'
    """
    mixed = read_mix(mix, layer)
    if not files and not ann:
        raise typer.BadParameter(
            "required, unless you add --ann to an existing index.", param_hint="FILES"
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
    check_inputs(files)  # before the model is loaded
    try:
        done = build_index(
            load(*loading), files, output, settings, skip_bad=skip_bad, on_progress=bar, **how
        )
    except KeyboardInterrupt:
        typer.echo(
            f"Interrupted. {plural(kept_tokens(output), 'token')} finished and saved. Resume with "
            "the same command and --resume, or discard them with --overwrite.",
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
        parts.append(f"{plural(done.resumed_tokens, 'token')} from an earlier run")
    if done.skipped_lines:
        parts.append(plural(done.skipped_lines, "skipped line"))
    typer.echo(f"{done.output}: {', '.join(parts)}", err=True)
    return {**dataclasses.asdict(done), "output": str(done.output)}


def _add_ann(directory: Path, layer: list[str], recall: float, *, quiet: bool) -> dict[str, Any]:
    from elmokit.search.approximate import add_ann
    from elmokit.search.index import TokenIndex

    index = TokenIndex.open(directory)
    # A stored mix is used with its stored weights.
    choices = index.parse(layer, index.meta.stored.get("mix") if "mix" in layer else None)
    if not quiet:
        typer.echo(f"Building an approximate index of {index.tokens:,} tokens ...", err=True)
    ann = add_ann(index, choices, recall=recall).meta.ann
    for choice in choices:
        about = ann[choice.label]
        typer.echo(
            f"{directory}: {choice.label}: searches {about['probes']} of {about['cells']} cells, "
            f"recall@10 {about['recall_at_10']:.3f} (measured with {about['queries']} tokens)",
            err=True,
        )
    return {choice.label: ann[choice.label] for choice in choices}
