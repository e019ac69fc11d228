"""`elmo perplexity`: compute the perplexity of a text."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.options import (
    PARAGRAPHS,
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
    """Initial states to measure with."""

    CARRY = "carry"
    RESET = "reset"
    WARM = "warm"
    ALL = "all"


StateChoice = Annotated[
    State,
    typer.Option(
        help="Initial LSTM state of each sentence. carry: the final state of the previous "
        "sentence, and zero at the beginning of a document. reset: zero. warm: the state stored "
        "with the model. all: measure with each of them."
    ),
]


def perplexity(
    files: Annotated[list[str], typer.Argument(metavar="FILES...", help=PARAGRAPHS)],
    model: HeadModel = None,
    state: StateChoice = State.CARRY,
    one_sentence_per_line: OneSentencePerLine = False,
    tokenized: Tokenized = False,
    by_sentence: Annotated[
        bool,
        typer.Option(
            "--sentences", help="First print the scores of every sentence, like `elmo score`."
        ),
    ] = False,
    by_token: Annotated[
        bool, typer.Option("--tokens", help="With --sentences: also print log p of every token.")
    ] = False,
    skip_bad: SkipBad = False,
    precision: Precision = PrecisionName.EXACT,
    device: Device = "auto",
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print a JSON list with one object per state; with --sentences, first one JSON "
            "object per line for each sentence.",
        ),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Compute the perplexity of text with the full softmax.

    Perplexity is exp of the mean loss per word and sentence boundary: forward,
    backward, and their geometric mean. As inputs, out-of-vocabulary words are
    encoded from their characters; as targets, they count as <UNK>. Perplexity
    without them is also printed. Results do not depend on batching and equal
    those of `elmo evaluate` for the same text and vocabulary.

    Memory grows with the longest document, not with the text.
    """
    from elmokit.cli.progress import TokenBar
    from elmokit.data.reading import Reading, check_files, read_sentences
    from elmokit.embed.model import load
    from elmokit.embed.scoring import language_model
    from elmokit.progress import Progress
    from elmokit.train.text import evaluate_text

    if by_token and not by_sentence:
        raise typer.BadParameter("requires --sentences.", param_hint="--tokens")
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
        perplexities = evaluate_text(
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
        typer.echo(f"{plural(len(skipped), 'line')} skipped, first: {skipped[0]}", err=True)
    if as_json:
        typer.echo(json.dumps([perplexity.to_dict() for perplexity in perplexities]))
    else:
        for perplexity in perplexities:
            typer.echo(str(perplexity))


def states_of(elmo: ElmoModel, state: State) -> list[str]:
    """Return the states to measure with; raise an error if the model lacks the given one."""
    if state is not State.ALL:
        if state is State.WARM:
            elmo.start("warm")  # raises if there is none
        return [state.value]
    if elmo.warm is None:
        typer.echo("note: the model has no warm state; compute one with `elmo warm`", err=True)
        return ["carry", "reset"]
    return ["carry", "reset", "warm"]


def _show(scored: ScoredSentence, *, by_token: bool, as_json: bool) -> None:
    from elmokit.cli import score
    from elmokit.embed.scoring import SentenceScore

    forward, backward = (-scored.forward).tolist(), (-scored.backward).tolist()
    sentence = SentenceScore(
        tokens=tuple(scored.words),
        forward=tuple(forward[:-1]),
        backward=tuple(backward[1:]),
        end=forward[-1],
        begin=backward[0],
        unknown=tuple(scored.unknown.tolist()),
        state=scored.state,
    )
    score.show(sentence, {"document": scored.document}, by_token=by_token, as_json=as_json)
