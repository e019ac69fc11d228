"""`elmo evaluate`: compute the perplexity of a model on a prepared corpus."""

from __future__ import annotations

from typing import Annotated

import typer

from elmokit.cli.options import AsJson, Device, HeadModel, Precision, PreparedData
from elmokit.cli.output import print_perplexities
from elmokit.cli.perplexity import StateChoice, states_of


def evaluate(
    data: PreparedData,
    model: HeadModel = None,
    split: Annotated[str, typer.Option(help="Split of the corpus: train or valid.")] = "valid",
    state: StateChoice = "carry",
    precision: Precision = "exact",
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Compute the perplexity of a prepared corpus with the full softmax.

    Perplexity is exp of the mean loss per word and sentence boundary: forward, backward, and their
    geometric mean, with and without the words that are mapped to <UNK>.
    """
    from elmokit.data.corpus import Corpus
    from elmokit.embed.model import load
    from elmokit.embed.scoring import language_model
    from elmokit.errors import ConfigError
    from elmokit.train.evaluate import encoder_of, prepared_types
    from elmokit.train.evaluate import evaluate as measure

    corpus = Corpus.open(data)
    elmo = load(model, device=device, precision=precision)
    _, vocabulary = language_model(elmo)
    if vocabulary.words != corpus.vocabulary.words:
        raise ConfigError(
            f"The vocabulary of {data} differs from the vocabulary of the model {elmo.source}. "
            f"Prepare the text again: elmo prepare --vocab {elmo.source} FILES... -o DATA"
        )
    chars = None if elmo.config.char_cnn is None else corpus.chars
    types = prepared_types(encoder_of(elmo.engine, chars), len(vocabulary))
    perplexities = [
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
    print_perplexities(perplexities, as_json=as_json)
