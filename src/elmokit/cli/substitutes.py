"""`elmo substitutes`: which words the two language models expect in a place."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from elmokit.cli.options import Device, HeadModel, State, StateName


def substitutes(
    sentence: Annotated[
        str,
        typer.Argument(
            help="A sentence with one word in brackets: 'I [read] the book .' With '-', one such "
            "sentence per line of standard input.",
            show_default=False,
        ),
    ],
    model: HeadModel = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Words per list.")] = 10,
    state: State = StateName.RESET,
    specials: Annotated[
        bool, typer.Option("--specials", help="List <S>, </S> and <UNK>, too.")
    ] = False,
    device: Device = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per sentence instead of text.")
    ] = False,
) -> None:
    """List the words that both language models expect in a place of a sentence.

    forward: after the words to the left. backward: before the words to the
    right. combined: proportional to p_forward * p_backward / p_unigram, where
    the unigram is the log-uniform law over the ranks of the vocabulary. The
    word in brackets itself is not looked at.
    """
    from elmokit.embed.model import load
    from elmokit.text.lines import STDIN, read_lines

    sentences = [sentence]
    if sentence == STDIN:
        sentences = [line.text for line in read_lines([STDIN]) if line.text.strip()]
    elmo = load(model, device=device)
    for marked in sentences:
        found = elmo.substitutes(marked, k, state=state.value, specials=specials)
        typer.echo(json.dumps(found.to_dict(), ensure_ascii=False) if as_json else str(found))
