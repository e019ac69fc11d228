"""`elmo index`: the vectors of a text on disk, to be searched by `elmo neighbors`."""

from __future__ import annotations

import dataclasses
import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmokit.cli.options import (
    AnyModel,
    Device,
    Mix,
    Precision,
    PrecisionName,
    Quiet,
    SkipBad,
    SplitLines,
    State,
    StateName,
    SummaryAsJson,
    TokenizedLines,
    Weights,
    weights_of_mix,
)
from elmokit.cli.signals import INTERRUPTED

if TYPE_CHECKING:
    from elmokit.search.index_build import IndexSettings, IndexSummary


class Numbers(StrEnum):
    """How vectors are stored."""

    FLOAT16 = "float16"
    INT8 = "int8"


def index(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The folder to make.", show_default=False)
    ],
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILES",
            help="The text, read as `elmo embed` reads it: UTF-8, also .gz, .xz, .bz2, .zst; '-' "
            "is standard input; a line is a sentence. Nothing: the index is there, and --ann adds "
            "to it.",
            show_default=False,
        ),
    ] = None,
    model: AnyModel = None,
    weights: Weights = None,
    layer: Annotated[
        list[str] | None,
        typer.Option(
            help="What to store: 0, 1, ..., top, average, mix or all; repeat for several. Mixes of "
            "layers that are stored need no room of their own. Nothing: all layers.",
            show_default=False,
        ),
    ] = None,
    mix: Mix = None,
    dtype: Annotated[
        Numbers,
        typer.Option(help="int8 takes half the space of float16, with a scale for each vector."),
    ] = Numbers.FLOAT16,
    tokenized: TokenizedLines = False,
    split: SplitLines = False,
    state: State = StateName.RESET,
    ann: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LAYER",
            help="Also make a faiss index for this layer (as for --layer), to search many millions "
            "of tokens approximately; repeat for several. Its recall is measured and told. Needs "
            "pip install 'elmokit\\[search]'.",
            show_default=False,
        ),
    ] = None,
    recall: Annotated[
        float,
        typer.Option(
            min=0.01, max=1.0, help="With --ann: share of the 10 nearest tokens to be found."
        ),
    ] = 0.95,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on with an interrupted run: nothing that was finished is computed again. "
            "Repeat the command as it was.",
        ),
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Replace an index that is there. Without --resume, also throw away what an "
            "interrupted run has finished.",
        ),
    ] = False,
    skip_bad: SkipBad = False,
    device: Device = "auto",
    precision: Precision = PrecisionName.EXACT,
    as_json: SummaryAsJson = False,
    quiet: Quiet = False,
    part_tokens: Annotated[int | None, typer.Option(hidden=True, min=1)] = None,
) -> None:
    r"""Keep the vectors of every token of a text, to be searched by `elmo neighbors`.

    The folder holds the vectors of the chosen layers, the sentences and where
    they stand, and which model it was. Memory does not grow with the text, and
    an interrupted run goes on with --resume.

    Then: elmo neighbors FOLDER --query 'He will \[play] in the final .'
    """
    mixed = weights_of_mix(mix, [*(layer or ()), *(ann or ())])
    if not files and not ann:
        raise typer.BadParameter("give a text, or --ann to add to an index.", param_hint="FILES")
    told: dict[str, Any] = {}
    if files:
        from elmokit.bulk.settings import PART_TOKENS
        from elmokit.search.index_build import IndexSettings

        settings = IndexSettings(
            layers=tuple(layer or ["all"]),
            mix=mixed,
            numbers=dtype.value,
            state=state.value,
            tokenized=tokenized,
            split=split,
            part_tokens=part_tokens or PART_TOKENS,
        )
        how = {"resume": resume, "overwrite": overwrite, "skip_bad": skip_bad}
        loading = (model, weights, device, precision.value)
        told |= _build(loading, files, output, settings, quiet=quiet, **how)
    if ann:
        told["ann"] = _add_ann(output, ann, mixed, recall, quiet=quiet)
    if as_json:
        typer.echo(json.dumps(told, ensure_ascii=False))


def _build(
    loading: tuple[str | None, str | None, str, str],
    files: list[str],
    output: Path,
    settings: IndexSettings,
    *,
    quiet: bool,
    **how: bool,
) -> dict[str, Any]:
    from elmokit.bulk.input import check_inputs
    from elmokit.cli.progress import TokenBar
    from elmokit.embed.model import load
    from elmokit.search import index_build

    index_build.check_index_output(output, resume=how["resume"], overwrite=how["overwrite"])
    check_inputs(files)  # before a model is fetched for a name that was mistyped
    try:
        with TokenBar(shown=not quiet) as bar:
            elmo = load(*loading)
            done = index_build.build_index(elmo, files, output, settings, on_progress=bar, **how)
    except KeyboardInterrupt:
        kept = index_build.kept_tokens(output)
        typer.echo(
            f"interrupted: {kept:,} tokens are finished and kept; go on with the same command and "
            "--resume (or throw them away with --overwrite).",
            err=True,
        )
        raise typer.Exit(INTERRUPTED) from None
    _tell(done)
    return {**dataclasses.asdict(done), "output": str(done.output)}


def _tell(done: IndexSummary) -> None:
    told = [
        f"{done.tokens:,} tokens",
        f"{done.sentences:,} sentences",
        f"{done.words:,} words",
        f"{done.n_bytes / 1e6:,.1f} MB",
    ]
    if done.tokens > done.resumed_tokens:
        told.append(f"{done.tokens_per_second:,.0f} tokens/s")
    if done.resumed_tokens:
        told.append(f"{done.resumed_tokens:,} tokens of them from before")
    if done.skipped_lines:
        told.append(f"{done.skipped_lines:,} lines skipped")
    typer.echo(f"{done.output}: {', '.join(told)}", err=True)


def _add_ann(
    folder: Path,
    names: list[str],
    mix: tuple[float, ...] | None,
    recall: float,
    *,
    quiet: bool,
) -> dict[str, Any]:
    from elmokit.bulk.settings import Progress
    from elmokit.cli.progress import TokenBar
    from elmokit.embed.spaces import choose_spaces
    from elmokit.search.index import TokenIndex
    from elmokit.search.index_ann import add_ann

    opened = TokenIndex.open(folder)
    spaces = choose_spaces(names, opened.meta.n_layers, mix)
    with TokenBar(shown=not quiet) as bar:
        made = add_ann(
            opened,
            spaces,
            recall=recall,
            on_tokens=lambda tokens: bar(Progress(tokens, tokens, opened.tokens)),
        )
    for name, about in made.items():
        typer.echo(
            f"{folder}: {name}: {about['kind']}, {about['probes']} cells looked into, recall of "
            f"the 10 nearest {about['recall_at_10']:.3f} over {about['queries']} tokens",
            err=True,
        )
    return made
