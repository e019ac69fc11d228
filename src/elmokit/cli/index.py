"""`elmo index`: build an index of token vectors for `elmo neighbors`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from elmokit.cli import options as opt
from elmokit.cli.output import (
    INTERRUPTED,
    format_resumed_work,
    format_saved_work,
    log,
    log_summary,
    print_json,
)
from elmokit.cli.progress import token_bar
from elmokit.progress import plural


def index(
    output: opt.Output,
    files: Annotated[list[str] | None, typer.Argument(help=opt.SENTENCES)] = None,
    model: opt.Model = None,
    weights: opt.Weights = None,
    layer: opt.Layers = None,
    mix: opt.Mix = None,
    tokenized: opt.Tokenized = False,
    split: opt.SplitLines = False,
    skip_bad: opt.SkipBad = False,
    state: opt.State = "reset",
    ann: Annotated[list[str] | None, typer.Option(metavar="LAYER")] = None,
    recall: Annotated[float, typer.Option(min=0.01, max=1)] = 0.95,
    append: Annotated[bool, typer.Option("--append")] = False,
    resume: opt.Resume = False,
    overwrite: opt.Overwrite = False,
    device: opt.Device = "auto",
    precision: opt.Precision = "exact",
    as_json: opt.SummaryAsJson = False,
    quiet: opt.Quiet = False,
    chunk_bytes: Annotated[int, typer.Option(hidden=True)] = 2**16,
) -> None:
    """Build an index of token vectors for `elmo neighbors`.

    The index contains the vectors of the selected layers, the sentences with their files and line
    numbers, and a description of the model. Layers that can be computed from other stored layers
    need no extra space. Memory usage does not depend on the size of the text. Requires the
    search extra: pip install 'elmokit[search]'.

    Example query: elmo neighbors DIR --query 'He will [play] in the final .'

    Args:
        output: Index directory.
        files: Not required if you only add an approximate index (--ann) to an existing index.
        layer: Default: all.
        ann: Also build an approximate index of this layer, for faster search in many
            millions of tokens. Its recall is measured and reported. Can be repeated.
        recall: With --ann: target recall@10.
        append: Add the text to an existing index with the same model and settings.
        overwrite: Without --resume, also discard an interrupted run.
    """
    opt.check_layers(layer, mix)
    if not files and not ann:
        raise opt.UsageError(
            "Missing argument 'FILES'. It is required unless you add an approximate index (--ann) "
            "to an existing index."
        )
    from elmokit.bulk.input import check_documents
    from elmokit.embed.loading import load
    from elmokit.search.build import (
        IndexSettings,
        build_index,
        check_index_output,
        count_finished_tokens,
    )

    summary: dict[str, Any] = {}
    if files:
        settings = IndexSettings(
            layer=tuple(layer or ["all"]),
            mix=mix,
            state=state,
            tokenized=tokenized,
            split=split,
            chunk_bytes=chunk_bytes,
        )
        flags = {"resume": resume, "overwrite": overwrite, "append": append}
        check_index_output(output, **flags)
        check_documents(files)  # before the model is loaded
        try:
            with token_bar(enabled=not quiet) as bar:
                elmo = load(model, weights, device, precision, "torch")
                options = {**flags, "skip_bad": skip_bad}
                result = build_index(elmo, files, output, settings, on_progress=bar, **options)
        except KeyboardInterrupt:
            log(f"Interrupted. {format_saved_work(count_finished_tokens(output), 'token')}")
            raise typer.Exit(INTERRUPTED) from None
        log_summary(
            result.output,
            plural(result.sentences, "sentence"),
            plural(result.tokens, "token"),
            plural(result.words, "distinct word"),
            f"{result.n_bytes / 1e6:,.1f} MB",
            f"{result.tokens_per_second:,.0f} tokens/s",
            format_resumed_work(result.resumed_tokens, "token"),
        )
        summary = {**dataclasses.asdict(result), "output": str(result.output)}
    if ann:
        summary["ann"] = _add_ann(output, ann, recall)
    if as_json:
        print_json(summary)


def _add_ann(directory: Path, layer: list[str], recall: float) -> dict[str, Any]:
    from elmokit.search.approximate import add_ann
    from elmokit.search.index import TokenIndex

    index = TokenIndex.open(directory)
    # If the index stores a mix, the weights of the mix are fixed.
    choices = index.parse_layers(layer, index.meta.stored.get("mix") if "mix" in layer else None)
    names = ", ".join(choice.label for choice in choices)
    log(f"Building an approximate index of {names}. This can take several minutes.")
    ann = add_ann(index, choices, recall=recall).meta.ann
    for choice in choices:
        info = ann[choice.label]
        log(
            f"{directory}: added an approximate index of {choice.label}. Each query searches "
            f"{info['probes']:,} of {plural(info['partitions'], 'partition')} (recall@10 "
            f"{info['recall_at_10']:.3f}, measured with {plural(info['queries'], 'token')})."
        )
    return {choice.label: ann[choice.label] for choice in choices}
