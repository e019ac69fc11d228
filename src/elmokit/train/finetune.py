"""Fine-tuning: continue the training of a biLM on in-domain text.

If the model has an LM head, the biLM and the head are trained together, on text that was prepared
with the vocabulary of the model. If the model has no head, as is the case for the weights published
by AllenNLP, a new head is created for the vocabulary of the text. In the first `head_steps` steps,
only the new head is trained, because its gradients would otherwise damage the biLM.

Checkpoints of bilm-tf contain the accumulators of Adagrad. The accumulators are used if the
optimizer is "adagrad".

The training loop is the same as for a new model. The default learning rate is lower, because the
weights have already been trained.
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
from elmokit.train.checkpoint import named_weights
from elmokit.train.config import RunConfig, with_length
from elmokit.train.loop import TrainResult
from elmokit.train.metrics import read_evaluations
from elmokit.train.optimizer import OptimizerConfig
from elmokit.train.step import StepConfig

# By default, the number of rows is chosen to give about this many steps per epoch, within the
# limits _ROWS. Small texts need small batches for a sufficient number of steps, but large batches
# are more efficient.
_STEPS_PER_EPOCH = 1000
_ROWS = (16, 1024)


@dataclass(frozen=True)
class InitialModel:
    """The initial model of a fine-tuning run.

    Attributes:
        parts: The biLM, and a head for the vocabulary of the corpus.
        has_new_head: Whether the head is new.
    """

    parts: ModelParts
    has_new_head: bool


def prepare_initial_model(
    parts: ModelParts, corpus: Corpus, *, new_head: bool = False
) -> InitialModel:
    """Return the initial model of a fine-tuning run, with a new head if the model has none.

    Args:
        parts: The model, with or without a head.
        corpus: The text.
        new_head: Create a new head for the vocabulary of the text even if the model has a head.

    Raises:
        ConfigError: The head does not match the vocabulary of the text.
    """
    if parts.bilm.config.char_cnn is None:
        raise ConfigError(
            f"{parts.source} has no character CNN, so it cannot be fine-tuned. Use another model, "
            "or train a new one with `elmo prepare` and `elmo train`."
        )
    if parts.head is None or new_head:
        head = make_unigram_head(corpus, parts.bilm.config.lstm.projection_dim)
        with_head = dataclasses.replace(
            parts,
            vocabulary=corpus.vocabulary,
            head=head,
            warm=None,
            card=None,
            accumulators={
                n: t for n, t in (parts.accumulators or {}).items() if n.startswith("bilm.")
            },
        )
        return InitialModel(with_head, has_new_head=True)
    if parts.vocabulary is None or parts.vocabulary.words != corpus.vocabulary.words:
        raise ConfigError(
            f"{corpus.path} was not prepared with the vocabulary of {parts.source}. Prepare the "
            f"text again with: elmo prepare --vocab {parts.source} FILES... -o DATA. "
            "Alternatively, train a new head for the vocabulary of this text with --new-head."
        )
    return InitialModel(parts, has_new_head=False)


def make_unigram_head(corpus: Corpus, projection_dim: int) -> LMHead:
    """Return a head that predicts the unigram distribution of the corpus for all inputs.

    With this head, training converges faster than with a randomly initialized head.
    """
    head = LMHead(corpus.n_words, projection_dim)
    # Add 1, because the words of a given vocabulary need not occur in the corpus.
    counts = corpus.target_counts.astype(np.float64) + 1.0
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(torch.from_numpy(np.log(counts / counts.sum())))
    return head


def finetune_config(
    initial: InitialModel,
    corpus: Corpus,
    *,
    epochs: float | None = None,
    max_steps: int | None = None,
    head_steps: int | None = None,
    settings: Iterable[str] = (),
    seed: int = 0,
) -> RunConfig:
    """Return the settings of a fine-tuning run.

    Args:
        initial: The initial model.
        corpus: The text.
        epochs: Number of epochs. Default: 2 with a new head, otherwise 1.
        max_steps: Total number of steps, instead of `epochs`.
        head_steps: Number of initial steps in which only the head is trained. Default: half of all
            steps for a new head, otherwise 0.
        settings: Changes to the settings, as `NAME=VALUE` with dotted names.
        seed: Random seed for document order, negative samples and dropout.

    Raises:
        ConfigError: A setting is invalid, or changes the configuration of the model.
    """
    n_tokens = len(corpus.tokens())
    step = StepConfig(seed=seed)
    rows = 2 ** int(math.log2(max(1.0, n_tokens / step.steps / _STEPS_PER_EPOCH)))
    base = RunConfig(
        initial.parts.bilm.config,
        dataclasses.replace(step, rows=min(max(rows, _ROWS[0]), _ROWS[1])),
        OptimizerConfig(learning_rate=5e-4, warmup=20, head_rate=4e-3),
        seed=seed,
    )
    settings = list(settings)
    set_names = {setting.partition("=")[0].strip() for setting in settings}
    config = with_settings(base, settings)
    if config.model != base.model:
        raise ConfigError(
            f"The configuration of {initial.parts.source} cannot be changed. Remove all settings "
            "of the model (lstm.*, char_cnn.*)."
        )
    if epochs is None and max_steps is None and "max_steps" not in set_names:
        epochs = 1.0 + initial.has_new_head
    config = with_length(config, n_tokens, max_steps=max_steps, epochs=epochs)
    if head_steps is None:
        head_steps = config.optimizer.head_steps
        if initial.has_new_head and "optimizer.head_steps" not in set_names:
            head_steps = config.max_steps // 2
    validate("head_steps", head_steps, Annotated[int, Bounds(ge=0, le=config.max_steps)])
    optimizer = dataclasses.replace(config.optimizer, head_steps=head_steps)
    assert initial.parts.head is not None
    weights = named_weights(initial.parts.bilm, initial.parts.head).items()
    arrays = ((name, tensor.detach().cpu().numpy()) for name, tensor in weights)
    start = fingerprint_model(base.model.to_dict(), arrays)
    return dataclasses.replace(config, optimizer=optimizer, start=start)


def perplexity_by_stage(config: RunConfig, run: TrainResult) -> dict[str, dict[str, Any]]:
    """Return the held-out perplexities of a fine-tuning run.

    Args:
        config: The settings of the run; see `finetune_config`.
        run: The result of `train` with these settings.

    Returns:
        The evaluations "before" training, after the steps that train only the "head" (if any), and
        "after" training. Evaluations that were not run are omitted.
    """
    evaluations = read_evaluations(run.model.parent)
    steps = {"before": 0, "head": config.optimizer.head_steps, "after": run.steps}
    if not config.optimizer.head_steps:
        del steps["head"]
    if run.interrupted:
        del steps["after"]
    return {name: evaluations[step] for name, step in steps.items() if step in evaluations}
