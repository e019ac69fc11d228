"""`elmo score`: how probable both language models find each sentence."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmokit.cli.options import (
    Device,
    HeadModel,
    Precision,
    PrecisionName,
    SkipBad,
    SplitLines,
    State,
    StateName,
    TokenizedLines,
)
from elmokit.progress import plural

if TYPE_CHECKING:
    from elmokit.embed.scoring import SentenceScore

# Tokens that are sorted by length and scored together before any is printed.
_WINDOW_TOKENS = 16384


def score(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILES",
            help="Text files in UTF-8, also .gz, .xz, .bz2, .zst; '-' is standard input. A line is "
            "a sentence; of an empty one only the sentence ends are scored, so that the lines of "
            "input and output agree.",
            show_default=False,
        ),
    ],
    model: HeadModel = None,
    tokenized: TokenizedLines = False,
    split: SplitLines = False,
    state: State = StateName.RESET,
    by_token: Annotated[
        bool,
        typer.Option(
            "--tokens",
            help="Also give log p of every token, forward and backward, and of the sentence ends.",
        ),
    ] = False,
    skip_bad: SkipBad = False,
    precision: Precision = PrecisionName.EXACT,
    device: Device = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per sentence and line.")
    ] = False,
) -> None:
    """Score sentences with the forward and the backward language model.

    Prints for each sentence, separated by tabs: its perplexity (the geometric
    mean of both directions), forward, backward, unknown words, the tokens.
    Each direction is asked for every token and for the end it comes to, </S> or
    <S>; words that are not in the vocabulary count as <UNK>. Logarithms are
    natural.

    Every sentence stands for itself. For a running text there is
    elmo perplexity.
    """
    from elmokit.bulk.input import Corpus, check_inputs
    from elmokit.embed.batching import windows
    from elmokit.embed.model import load

    corpus = Corpus(files, tokenized=tokenized, split=split, skip_bad=skip_bad)
    check_inputs(files)
    elmo = load(model, device=device, precision=precision.value)
    given = ((sentence.tokens, sentence.place) for sentence in corpus.sentences())
    for window in windows(given, _WINDOW_TOKENS):
        scores = elmo.score([tokens for tokens, _ in window], state.value)
        for (_, place), found in zip(window, scores, strict=True):
            where = {"file": corpus.inputs[place.file], "line": place.line}
            show(found, where, by_token=by_token, as_json=as_json)
    if corpus.skipped:
        told = f"{plural(corpus.skipped, 'line')} skipped, first {corpus.first_skipped}"
        typer.echo(told, err=True)


def show(found: SentenceScore, where: dict[str, Any], *, by_token: bool, as_json: bool) -> None:
    """Print the scores of a sentence."""
    if as_json:
        values = {**where, **found.to_dict(by_token=by_token)}
        typer.echo(json.dumps(values, ensure_ascii=False))
    elif by_token:
        typer.echo(f"{found}\n")
    else:
        figures = (found.perplexity, found.forward_perplexity, found.backward_perplexity)
        columns = [*(f"{figure:.2f}" for figure in figures), str(sum(found.unknown))]
        typer.echo("\t".join([*columns, " ".join(found.tokens)]))
