"""`elmo index`: build an index of token vectors for `elmo neighbors`."""

from __future__ import annotations

import dataclasses
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
    Quiet,
    Resume,
    SkipBad,
    SplitLines,
    State,
    SummaryAsJson,
    TokenizedLines,
    Weights,
    output_option,
    read_mix,
)
from elmokit.cli.output import INTERRUPTED, finished_work, log, log_summary, print_json
from elmokit.cli.progress import TokenBar, stderr_logger
from elmokit.progress import LogFn, plural

if TYPE_CHECKING:
    from elmokit.search.build import IndexSummary


def index(
    output: Annotated[Path, output_option("Directory of the index.")],
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
    state: State = "reset",
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
    precision: Precision = "exact",
    as_json: SummaryAsJson = False,
    quiet: Quiet = False,
    chunk_bytes: Annotated[int | None, typer.Option(hidden=True, min=1)] = None,
) -> None:
    """Build an index of token vectors for `elmo neighbors`.

    The index contains the vectors of the selected layers, the sentences with
    their files and line numbers, and a description of the model. Memory usage does not
    grow with the text, and you can resume an interrupted run with --resume.
    Requires pip install 'elmokit[search]'.

    To search it: elmo neighbors DIR --query 'He will [play] in the final .'
    """
    weights_of_mix = read_mix(mix, layer)
    if not files and not ann:
        raise typer.BadParameter(
            "required, unless you add --ann to an existing index.", param_hint="FILES"
        )
    from elmokit.bulk.input import check_inputs
    from elmokit.embed.model import load
    from elmokit.search.build import (
        CHUNK_BYTES,
        IndexSettings,
        build_index,
        check_index_output,
        kept_tokens,
    )

    summary: dict[str, Any] = {}
    if files:
        settings = IndexSettings(
            layer=tuple(layer or ["all"]),
            mix=weights_of_mix,
            state=state,
            tokenized=tokenized,
            split=split,
            chunk_bytes=chunk_bytes or CHUNK_BYTES,
        )
        how = {"resume": resume, "overwrite": overwrite, "append": append}
        check_index_output(output, **how)
        check_inputs(files)  # before the model is loaded
        try:
            with TokenBar(shown=not quiet) as bar:
                elmo = load(model, weights, device, precision)
                options = {**how, "skip_bad": skip_bad}
                done = build_index(elmo, files, output, settings, on_progress=bar, **options)
        except KeyboardInterrupt:
            log(f"Interrupted. {finished_work(kept_tokens(output), 'token')}")
            raise typer.Exit(INTERRUPTED) from None
        _log_summary(done)
        summary = {**dataclasses.asdict(done), "output": str(done.output)}
    if ann:
        summary["ann"] = _add_ann(output, ann, recall, stderr_logger(shown=not quiet))
    if as_json:
        print_json(summary)


def _log_summary(done: IndexSummary) -> None:
    facts = [
        plural(done.tokens, "token"),
        plural(done.sentences, "sentence"),
        plural(done.words, "word"),
        f"{done.n_bytes / 1e6:,.1f} MB",
        f"{done.tokens_per_second:,.0f} tokens/s",
    ]
    if done.resumed_tokens:
        facts.append(f"{plural(done.resumed_tokens, 'token')} from an earlier run")
    if done.skipped_lines:
        facts.append(plural(done.skipped_lines, "skipped line"))
    log_summary(done.output, facts)


def _add_ann(directory: Path, layer: list[str], recall: float, progress: LogFn) -> dict[str, Any]:
    from elmokit.search.approximate import add_ann
    from elmokit.search.index import TokenIndex

    index = TokenIndex.open(directory)
    # A stored mix is used with its stored weights.
    choices = index.parse(layer, index.meta.stored.get("mix") if "mix" in layer else None)
    progress(f"Building an approximate index of {index.tokens:,} tokens ...")
    ann = add_ann(index, choices, recall=recall).meta.ann
    for choice in choices:
        about = ann[choice.label]
        log(
            f"{directory}: {choice.label}: searches {about['probes']} of {about['cells']} cells, "
            f"recall@10 {about['recall_at_10']:.3f} (measured with {about['queries']} tokens)"
        )
    return {choice.label: ann[choice.label] for choice in choices}
