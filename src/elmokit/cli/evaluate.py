"""`elmo evaluate`: the perplexity of a model on prepared text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elmokit.cli.options import AsJson, Device, HeadModel, Precision, PrecisionName


def evaluate(
    data: Annotated[Path, typer.Argument(help="The folder that `elmo prepare` made.")],
    model: HeadModel = None,
    split: Annotated[str, typer.Option(help="Which part of the corpus.")] = "valid",
    state: Annotated[
        str,
        typer.Option(help="What sentences start from: carry, reset, warm, or all three."),
    ] = "carry",
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
    from elmokit.embed.model import STATES, load
    from elmokit.errors import ConfigError, nearest
    from elmokit.train.evaluate import encoder_of, prepared_types
    from elmokit.train.evaluate import evaluate as measure

    states = ["carry", "reset", "warm"] if state == "all" else [state]
    for name in states:
        if name not in STATES:
            raise ConfigError(f"No state '{name}'.{nearest(name, STATES)} Or give: all.")
    corpus = Corpus.open(data)
    elmo = load(model, device=device, precision=precision.value)
    if elmo.head is None or elmo.vocabulary is None:
        raise ConfigError(f"The model {elmo.source} has no language-model head to measure with.")
    if elmo.vocabulary.words != corpus.vocabulary.words:
        raise ConfigError(
            f"{data} was prepared with another vocabulary than the model {elmo.source} has. "
            f"Prepare the text again with: elmo prepare --vocab {elmo.source} FILES... -o DATA"
        )
    if state == "warm" and elmo.warm is None:
        raise ConfigError(f"The model {elmo.source} has no warm state; make one with: elmo warm.")
    chars = None if elmo.config.char_cnn is None else corpus.chars
    types = prepared_types(encoder_of(elmo.engine, chars), len(elmo.vocabulary))
    found = [
        measure(
            elmo.scorer(),
            types,
            corpus.tokens(split),
            corpus.documents(split),
            state=name,
            warm=elmo.warm,
        )
        for name in states
        if name != "warm" or elmo.warm is not None
    ]
    if as_json:
        typer.echo(json.dumps([perplexity.to_dict() for perplexity in found]))
        return
    for p in found:
        typer.echo(
            f"{p.state:6} perplexity {p.mean:.2f} (forward {p.forward:.2f}, backward "
            f"{p.backward:.2f}; without <UNK> {p.known:.2f}) over {p.targets:,} targets, "
            f"{p.unknown / max(1, p.targets):.2%} unknown"
        )
