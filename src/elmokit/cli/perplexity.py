"""`elmo perplexity`: compute the perplexity of a text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from elmokit.cli import score
from elmokit.cli.options import (
    Device,
    HeadModel,
    OneSentencePerLine,
    Paragraphs,
    Precision,
    Quiet,
    SkipBad,
    Tokenized,
)
from elmokit.cli.output import log, log_skipped, print_perplexities

if TYPE_CHECKING:
    from elmokit.embed.model import ElmoModel
    from elmokit.embed.scoring import SentenceScore
    from elmokit.train.text import ScoredSentence

StateChoice = Annotated[
    Literal["carry", "reset", "warm", "all"],
    typer.Option(
        help="Initial LSTM state of each sentence. carry: the final state of the previous "
        "sentence, and zero at the beginning of a document. reset: zero. warm: the state stored "
        "with the model. all: measure with each of them."
    ),
]


def perplexity(
    files: Paragraphs,
    model: HeadModel = None,
    state: StateChoice = "carry",
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
    precision: Precision = "exact",
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
    elmo = load(model, device=device, precision=precision)
    _, vocabulary = language_model(elmo)
    skipped: list[str] = []
    reading = Reading(one_sentence_per_line, tokenized)
    text = read_sentences(files, reading, skip_bad=skip_bad, on_bad=skipped.append)

    def show(scored: ScoredSentence) -> None:
        where = {"document": scored.document}
        score.show(_score(scored), where, by_token=by_token, as_json=as_json)

    with TokenBar(shown=not (quiet or by_sentence)) as bar:
        perplexities = evaluate_text(
            elmo.bilm,
            elmo.scorer(),
            vocabulary,
            text,
            states=states_of(elmo, state),
            warm=elmo.warm,
            on_sentence=show if by_sentence else None,
            on_progress=lambda targets: bar(Progress(targets, 0, None)),
        )
    log_skipped(len(skipped), *skipped[:1])
    print_perplexities(perplexities, as_json=as_json)


def states_of(elmo: ElmoModel, state: str) -> list[str]:
    """Return the states to measure with; raise an error if the model lacks the chosen one."""
    if state != "all":
        if state == "warm":
            elmo.initial_state("warm")  # raises if there is none
        return [state]
    if elmo.warm is None:
        log("note: the model has no warm state; compute one with `elmo warm`")
        return ["carry", "reset"]
    return ["carry", "reset", "warm"]


def _score(scored: ScoredSentence) -> SentenceScore:
    from elmokit.embed.scoring import SentenceScore

    forward, backward = (-scored.forward).tolist(), (-scored.backward).tolist()
    return SentenceScore(
        tokens=tuple(scored.words),
        forward=tuple(forward[:-1]),
        backward=tuple(backward[1:]),
        end=forward[-1],
        begin=backward[0],
        unknown=tuple(scored.unknown.tolist()),
        state=scored.state,
    )
