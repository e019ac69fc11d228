"""`elmo score`: score sentences with the forward and backward language models."""

from __future__ import annotations

from typing import Annotated

import typer

from elmokit.cli import options as opt
from elmokit.cli.output import log_skipped, print_json

# Number of tokens per window. The sentences of a window are scored together, sorted by length.
_WINDOW_TOKENS = 16384


def score(
    files: opt.SentenceFiles,
    model: opt.HeadModel = None,
    tokenized: opt.Tokenized = False,
    split: opt.SplitLines = False,
    skip_bad: opt.SkipBad = False,
    state: opt.State = "reset",
    by_token: Annotated[bool, typer.Option("--tokens")] = False,
    device: opt.Device = "auto",
    precision: opt.Precision = "exact",
    as_json: opt.LinesAsJson = False,
) -> None:
    """Score sentences with the forward and backward language models.

    Prints tab-separated columns for each sentence: perplexity (the geometric mean of both
    directions), forward perplexity, backward perplexity, number of out-of-vocabulary words, and
    the tokens. The forward model scores every token and </S>, and the backward model every token
    and <S>. Out-of-vocabulary words count as <UNK>. Empty lines are scored as sentences without
    tokens, so that input and output lines correspond.

    Sentences are scored independently. For continuous text, use `elmo perplexity`. With the bundled
    model, 1,000 tokens take about 2 s on a CPU core; results are printed every 16,384 tokens.

    Args:
        by_token: Also print the log probability (natural logarithm) of every token.
    """
    from elmokit.bulk.input import read_sentences
    from elmokit.embed.blocks import windows
    from elmokit.embed.loading import load
    from elmokit.text.lines import SkippedLines, check_files

    check_files(files)
    elmo = load(model, device=device, precision=precision, backend="torch")
    skipped = SkippedLines(skip_bad)
    lines = read_sentences(files, tokenized=tokenized, split=split, skipped=skipped)
    sentences = ((s.tokens, s) for s in lines)
    for window in windows(sentences, _WINDOW_TOKENS):
        scores = elmo.score([tokens for tokens, _ in window], state)
        for (_, source), sentence in zip(window, scores, strict=True):
            if as_json:
                location = {"file": source.file, "line": source.line}
                print_json({**location, **sentence.to_dict(by_token=by_token)})
            elif by_token:
                typer.echo(f"{sentence}\n")
            else:
                typer.echo(
                    f"{sentence.perplexity:.2f}\t{sentence.forward_perplexity:.2f}\t"
                    f"{sentence.backward_perplexity:.2f}\t{sum(sentence.unknown)}\t"
                    + " ".join(sentence.tokens)
                )
    log_skipped(skipped.count, skipped.first)
