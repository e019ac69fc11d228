"""Finetuning: continue the training of a biLM on in-domain text.

A model with an LM head is finetuned as a whole, on text that was prepared with its vocabulary.
Weights without a head, as published by AllenNLP and bilm-tf, get a new one for the vocabulary of
the text. Because the gradients of a new head are noise to the biLM, only the head is trained for
the first `head_steps` steps, while the biLM is frozen; then both are trained together.

Checkpoints of bilm-tf contain the accumulators of Adagrad, which runs with that optimizer use.

Otherwise a run is like any other: the same schedule, checkpoints, metrics, exact resume and export.
The peak learning rate is lower, because the weights are already trained.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch

from elmokit.data.corpus import Corpus
from elmokit.errors import ConfigError
from elmokit.model.softmax import LMHead
from elmokit.settings import Bounds, validate, with_settings
from elmokit.sources.modeldir import ModelParts
from elmokit.storage.fingerprint import fingerprint_model
from elmokit.train.config import RunConfig, with_length
from elmokit.train.loop import TrainResult
from elmokit.train.metrics import evaluations
from elmokit.train.optimizer import OptimizerConfig
from elmokit.train.step import StepConfig

# The number of rows is chosen so that an epoch has about this many steps, within bounds: a small
# text needs many small steps, a large one fills the GPU.
_STEPS_PER_EPOCH = 1000
_ROWS = (16, 1024)


@dataclass(frozen=True)
class Start:
    """The model that a run starts from.

    Attributes:
        parts: The biLM, and a head for the words of the corpus.
        new_head: Whether that head is new.
    """

    parts: ModelParts
    new_head: bool


def start_from(parts: ModelParts, corpus: Corpus, *, new_head: bool = False) -> Start:
    """Prepare a model for finetuning; add a head if it has none.

    Args:
        parts: The model, with or without a head.
        corpus: The text.
        new_head: Create a new head for the vocabulary of the text, even if there is one.

    Raises:
        ConfigError: The head does not match the vocabulary of the text.
    """
    if parts.bilm.config.lexicon is not None:
        raise ConfigError(
            f"{parts.source} uses a lexicon (ELMoForManyLangs). Such models cannot be trained; "
            "train a new one for your language with: elmo prepare, elmo train."
        )
    if parts.bilm.config.char_cnn is None:
        raise ConfigError(
            f"{parts.source} reads words, not characters. Such models cannot be finetuned, because "
            "they cannot represent other words."
        )
    if parts.head is None or new_head:
        head = unigram_head(corpus, parts.bilm.config.lstm.projection_dim)
        started = dataclasses.replace(
            parts,
            vocabulary=corpus.vocabulary,
            head=head,
            warm=None,
            card=None,
            accumulators=parts.accumulators and _without_head(parts.accumulators),
        )
        return Start(started, new_head=True)
    if parts.vocabulary is None or parts.vocabulary.words != corpus.vocabulary.words:
        raise ConfigError(
            f"{corpus.path} was not prepared with the vocabulary of {parts.source}. Prepare the "
            f"text again with: elmo prepare --vocab {parts.source} FILES... -o DATA. Or train a "
            "new head for the words of this text: --new-head."
        )
    return Start(parts, new_head=False)


def _without_head(accumulators: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in accumulators.items() if name.startswith("bilm.")}


def unigram_head(corpus: Corpus, projection_dim: int) -> LMHead:
    """Return a head that predicts the unigram distribution, independent of the biLM.

    It is a better initialization than random rows, which would have to be unlearned.
    """
    head = LMHead(corpus.n_words, projection_dim)
    counts = corpus.target_counts.astype(np.float64) + 1.0  # a given vocabulary has unseen words
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(torch.from_numpy(np.log(counts / counts.sum())))
    return head


def finetune_config(
    start: Start,
    corpus: Corpus,
    *,
    epochs: float | None = None,
    max_steps: int | None = None,
    head_steps: int | None = None,
    settings: Iterable[str] = (),
    seed: int = 0,
) -> RunConfig:
    """Return the settings of a run.

    Args:
        start: The model.
        corpus: The text.
        epochs: Number of epochs. Default: 2 with a new head, otherwise 1.
        max_steps: Total number of steps, instead of `epochs`.
        head_steps: The number of first steps that only train the head. Default: half of all steps
            for a new head, otherwise 0.
        settings: Changes by dotted names, see `with_settings`.
        seed: Random seed for document order, negative samples and dropout.

    Raises:
        ConfigError: A setting is invalid, or would change the shape of the model.
    """
    n_tokens = len(corpus.tokens())
    shape = StepConfig(seed=seed)
    rows = 2 ** int(math.log2(max(1.0, n_tokens / shape.steps / _STEPS_PER_EPOCH)))
    base = RunConfig(
        start.parts.bilm.config,
        dataclasses.replace(shape, rows=min(max(rows, _ROWS[0]), _ROWS[1])),
        OptimizerConfig(learning_rate=5e-4, warmup=20, head_rate=4e-3),
        seed=seed,
    )
    config = with_settings(base, settings)
    if config.model != base.model:
        raise ConfigError(
            f"The shape of {start.parts.source} cannot be changed. Remove the settings of model, "
            "lstm and char_cnn."
        )
    if epochs is None and max_steps is None and config.max_steps == base.max_steps:
        epochs = 1.0 + start.new_head
    config = with_length(config, n_tokens, max_steps=max_steps, epochs=epochs)
    if head_steps is None:
        default = config.max_steps // 2 if start.new_head else 0
        head_steps = config.optimizer.head_steps or default
    validate("head_steps", head_steps, Annotated[int, Bounds(ge=0, le=config.max_steps)])
    optimizer = dataclasses.replace(config.optimizer, head_steps=head_steps)
    return dataclasses.replace(config, optimizer=optimizer, start=_fingerprint(start.parts))


def perplexity_by_stage(config: RunConfig, run: TrainResult) -> dict[str, dict[str, Any]]:
    """Return the held-out perplexities of a finetuning run, as far as they were measured.

    Args:
        config: The settings of the run, see `finetune_config`.
        run: The result of `train` with these settings.

    Returns:
        The evaluation "before" training, after training the "head" alone (if there are such steps)
        and "after" training.
    """
    measured = evaluations(run.model.parent)
    steps = {"before": 0, "head": config.optimizer.head_steps, "after": run.steps}
    if not config.optimizer.head_steps:
        del steps["head"]
    if run.interrupted:
        del steps["after"]
    return {name: measured[step] for name, step in steps.items() if step in measured}


def _fingerprint(parts: ModelParts) -> str:
    """Return the fingerprint of a biLM and its head."""
    assert parts.head is not None
    modules = {"bilm": parts.bilm, "head": parts.head}
    arrays = (
        (f"{module}.{name}", tensor.detach().cpu().numpy())
        for module in modules
        for name, tensor in modules[module].state_dict().items()
    )
    return fingerprint_model(parts.bilm.config.to_dict(), arrays)
