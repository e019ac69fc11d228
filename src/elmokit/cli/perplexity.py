"""`elmo perplexity`: how surprised both language models are by a text."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.options import (
    Device,
    HeadModel,
    OneSentencePerLine,
    Precision,
    PrecisionName,
    Quiet,
    SkipBad,
    Tokenized,
)
from elmokit.progress import plural

if TYPE_CHECKING:
    from elmokit.embed.model import ElmoModel
    from elmokit.train.text import ScoredSentence


class State(StrEnum):
    """What is measured."""

    CARRY = "carry"
    RESET = "reset"
    WARM = "warm"
    ALL = "all"


StateChoice = Annotated[
    State,
    typer.Option(
        help="What sentences start from. carry: where the one before ended, and zero at the "
        "beginning of a document. reset: zero. warm: the stored state of the model. all: each "
        "of them."
    ),
]


def perplexity(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILES...",
            help="Text files in UTF-8, also .gz, .xz, .bz2, .zst; '-' is standard input. They are "
            "read as `elmo prepare` reads them: a line is a paragraph, and empty lines separate "
            "documents, as the end of a file does.",
            show_default=False,
        ),
    ],
    model: HeadModel = None,
    state: StateChoice = State.CARRY,
    one_sentence_per_line: OneSentencePerLine = False,
    tokenized: Tokenized = False,
    by_sentence: Annotated[
        bool,
        typer.Option(
            "--sentences", help="Also print every sentence, like elmo score, before the figures."
        ),
    ] = False,
    by_token: Annotated[
        bool, typer.Option("--tokens", help="With --sentences: also log p of every token.")
    ] = False,
    skip_bad: SkipBad = False,
    precision: Precision = PrecisionName.EXACT,
    device: Device = "auto",
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print a JSON list with one object per state; with --sentences one object per "
            "line and sentence before it.",
        ),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Measure the perplexity of text with the full softmax.

    Exp of the mean loss per word and sentence end: forward, backward, and the
    geometric mean of both. Words that are not in the model's vocabulary are read
    by their characters and count as <UNK> where they should be said; the figure
    without them stands beside. No figure depends on how the text is batched, and
    elmo evaluate gives the same for the same text prepared with the same
    vocabulary.

    Memory is bounded by the longest document.
    """
    from elmokit.cli.progress import TokenBar
    from elmokit.data.reading import Reading, check_files, read_sentences
    from elmokit.embed.model import load
    from elmokit.embed.scoring import language_model
    from elmokit.progress import Progress
    from elmokit.train.text import evaluate_text

    if by_token and not by_sentence:
        raise typer.BadParameter("goes with --sentences.", param_hint="--tokens")
    check_files(files)
    elmo = load(model, device=device, precision=precision.value)
    _, vocabulary = language_model(elmo)
    states = states_of(elmo, state)
    skipped: list[str] = []
    reading = Reading(one_sentence_per_line, tokenized)
    text = read_sentences(files, reading, skip_bad=skip_bad, on_bad=skipped.append)

    def show(scored: ScoredSentence) -> None:
        _show(scored, by_token=by_token, as_json=as_json)

    with TokenBar(shown=not (quiet or by_sentence)) as bar:
        found = evaluate_text(
            elmo.bilm,
            elmo.scorer(),
            vocabulary,
            text,
            states=states,
            warm=elmo.warm,
            on_sentence=show if by_sentence else None,
            on_progress=lambda targets: bar(Progress(targets, 0, None)),
        )
    if skipped:
        typer.echo(f"{plural(len(skipped), 'line')} skipped, first {skipped[0]}", err=True)
    if as_json:
        typer.echo(json.dumps([figure.to_dict() for figure in found]))
    else:
        for figure in found:
            typer.echo(str(figure))


def states_of(elmo: ElmoModel, state: State) -> list[str]:
    """Return the states to measure, all of which the model has."""
    if state is not State.ALL:
        if state is State.WARM:
            elmo.start("warm")  # raises if there is none
        return [state.value]
    if elmo.warm is None:
        typer.echo("note: the model has no warm state; make one with: elmo warm", err=True)
        return ["carry", "reset"]
    return ["carry", "reset", "warm"]


def _show(scored: ScoredSentence, *, by_token: bool, as_json: bool) -> None:
    from elmokit.cli import score
    from elmokit.embed.scoring import SentenceScore

    forward, backward = (-scored.forward).tolist(), (-scored.backward).tolist()
    found = SentenceScore(
        tokens=tuple(scored.words),
        forward=tuple(forward[:-1]),
        backward=tuple(backward[1:]),
        end=forward[-1],
        begin=backward[0],
        unknown=tuple(scored.unknown.tolist()),
        state=scored.state,
    )
    score.show(found, {"document": scored.document}, by_token=by_token, as_json=as_json)
