"""`elmo evaluate`: the perplexity of a model on prepared text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elmokit.cli.options import AsJson, Device, HeadModel, Precision, PrecisionName
from elmokit.cli.perplexity import State, StateChoice, states_of


def evaluate(
    data: Annotated[Path, typer.Argument(help="The folder that `elmo prepare` made.")],
    model: HeadModel = None,
    split: Annotated[str, typer.Option(help="Which part of the corpus.")] = "valid",
    state: StateChoice = State.CARRY,
    precision: Precision = PrecisionName.EXACT,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Measure held-out perplexity with the full softmax.

    exp of the mean loss per word and sentence end: forward, backward, and the geometric mean of
    both; `<UNK>` counts, and the figure over known words alone stands beside. carry: each document
    is one text; reset: every sentence starts from zero; warm: from the model's warm state.
    """
    import json

    from elmokit.data.corpus import Corpus
    from elmokit.embed.model import load
    from elmokit.embed.scoring import language_model
    from elmokit.errors import ConfigError
    from elmokit.train.evaluate import encoder_of, prepared_types
    from elmokit.train.evaluate import evaluate as measure

    corpus = Corpus.open(data)
    elmo = load(model, device=device, precision=precision.value)
    _, vocabulary = language_model(elmo)
    if vocabulary.words != corpus.vocabulary.words:
        raise ConfigError(
            f"{data} was prepared with another vocabulary than the model {elmo.source} has. "
            f"Prepare the text again with: elmo prepare --vocab {elmo.source} FILES... -o DATA"
        )
    chars = None if elmo.config.char_cnn is None else corpus.chars
    types = prepared_types(encoder_of(elmo.engine, chars), len(vocabulary))
    found = [
        measure(
            elmo.scorer(),
            types,
            corpus.tokens(split),
            corpus.documents(split),
            state=name,
            warm=elmo.warm,
        )
        for name in states_of(elmo, state)
    ]
    if as_json:
        typer.echo(json.dumps([perplexity.to_dict() for perplexity in found]))
    else:
        for perplexity in found:
            typer.echo(str(perplexity))
