"""`elmo score`: compute the probability of each sentence under both language models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmokit.cli.options import (
    TEXT_FILES,
    Device,
    HeadModel,
    LinesAsJson,
    Precision,
    SkipBad,
    SplitLines,
    State,
    TokenizedLines,
)
from elmokit.cli.output import log_skipped, print_json

if TYPE_CHECKING:
    from elmokit.embed.scoring import SentenceScore

# Tokens to sort by length and score together before the first sentence is printed.
_WINDOW_TOKENS = 16384


def score(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILES",
            help=f"{TEXT_FILES} Each line is a sentence. For an empty line only the sentence "
            "boundaries are scored, so that input and output lines correspond.",
        ),
    ],
    model: HeadModel = None,
    tokenized: TokenizedLines = False,
    split: SplitLines = False,
    state: State = "reset",
    by_token: Annotated[
        bool,
        typer.Option(
            "--tokens",
            help="Also print log p of every token and sentence boundary, forward and backward.",
        ),
    ] = False,
    skip_bad: SkipBad = False,
    precision: Precision = "exact",
    device: Device = "auto",
    as_json: LinesAsJson = False,
) -> None:
    """Score sentences with both language models.

    Prints tab-separated columns for each sentence: perplexity (the geometric
    mean of both directions), forward perplexity, backward perplexity, number of
    unknown words, tokens. Each direction scores every token plus its sentence
    boundary, </S> or <S>. Out-of-vocabulary words count as <UNK>. Logarithms
    are natural.

    Sentences are scored independently. For continuous text, use elmo perplexity.
    """
    from elmokit.bulk.input import Corpus, check_inputs
    from elmokit.embed.batching import windows
    from elmokit.embed.model import load

    corpus = Corpus(files, tokenized=tokenized, split=split, skip_bad=skip_bad)
    check_inputs(files)
    elmo = load(model, device=device, precision=precision)
    sentences = ((sentence.tokens, sentence.place) for sentence in corpus.sentences())
    for window in windows(sentences, _WINDOW_TOKENS):
        scores = elmo.score([tokens for tokens, _ in window], state)
        for (_, place), sentence in zip(window, scores, strict=True):
            where = {"file": corpus.inputs[place.file], "line": place.line}
            show(sentence, where, by_token=by_token, as_json=as_json)
    log_skipped(corpus.skipped, corpus.first_skipped)


def show(sentence: SentenceScore, where: dict[str, Any], *, by_token: bool, as_json: bool) -> None:
    """Print the scores of a sentence."""
    if as_json:
        print_json({**where, **sentence.to_dict(by_token=by_token)})
    elif by_token:
        typer.echo(f"{sentence}\n")
    else:
        figures = (sentence.perplexity, sentence.forward_perplexity, sentence.backward_perplexity)
        columns = [*(f"{figure:.2f}" for figure in figures), str(sum(sentence.unknown))]
        typer.echo("\t".join([*columns, " ".join(sentence.tokens)]))
