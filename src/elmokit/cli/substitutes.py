"""`elmo substitutes`: list the words that the language models predict at a position."""

from __future__ import annotations

from typing import Annotated

import typer

from elmokit.cli import options as opt
from elmokit.cli.output import print_result


def substitutes(
    sentence: str,
    model: opt.HeadModel = None,
    k: Annotated[int, typer.Option("--k", "-k", min=1)] = 10,
    state: opt.State = "reset",
    specials: Annotated[bool, typer.Option("--specials")] = False,
    device: opt.Device = "auto",
    as_json: opt.LinesAsJson = False,
) -> None:
    """List the words predicted at a position in a sentence.

    Prints three lists of words with their probabilities. forward: given the words on the left.
    backward: given the words on the right. combined: given both, with probabilities proportional to
    p_forward * p_backward / p_unigram, where p_unigram is log-uniform over the ranks of the
    vocabulary. The bracketed word itself is ignored.

    Args:
        sentence: Sentence with one word in brackets, for example 'I [read] the book .', or '-' to
            read one sentence per line from standard input.
        k: Number of words per list.
        specials: Also list <S>, </S> and <UNK>.
    """
    from elmokit.embed.loading import load
    from elmokit.text.lines import STDIN, read_lines

    sentences = [sentence]
    if sentence == STDIN:
        sentences = [line.text for line in read_lines([STDIN]) if line.text.strip()]
    elmo = load(model, device=device, backend="torch")
    for marked in sentences:
        result = elmo.substitutes(marked, k, state=state, specials=specials)
        print_result(result.to_dict(), result, as_json=as_json)
