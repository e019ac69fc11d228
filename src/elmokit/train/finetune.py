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
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch

from elmokit.data.corpus import Corpus
from elmokit.errors import ConfigError
from elmokit.model.softmax import LMHead
from elmokit.progress import LogFn, no_log
from elmokit.settings import Bounds, check, with_settings
from elmokit.sources.modeldir import ModelParts
from elmokit.storage.fingerprint import fingerprint_model
from elmokit.train.config import RunConfig, with_length
from elmokit.train.loop import TrainResult, train
from elmokit.train.metrics import evaluations
from elmokit.train.optimizer import OptimizerConfig
from elmokit.train.step import StepConfig

# So many rows that a pass over the text has about this many steps, within bounds: a small text
# needs many small steps, a large one fills the GPU.
_STEPS_PER_EPOCH = 1000
_ROWS = (16, 1024)


@dataclass(frozen=True)
class Start:
    """What a run starts from.

    Attributes:
        parts: The biLM, and a head for the words of the corpus.
        new_head: Whether that head has learned nothing yet.
    """

    parts: ModelParts
    new_head: bool


@dataclass(frozen=True)
class FinetuneResult:
    """How a run ended.

    Attributes:
        run: Its end, as of any training run.
        perplexity: Held-out perplexity "before", after the steps of the "head" alone (if there are
            any) and "after"; what was not measured is not there.
    """

    run: TrainResult
    perplexity: dict[str, dict[str, Any]]


def start_from(parts: ModelParts, corpus: Corpus, *, new_head: bool = False) -> Start:
    """Take a model to start from, and give it a head if it has none.

    Args:
        parts: The model; bare weights or with a head.
        corpus: The text.
        new_head: Make a new head even if there is one, for another vocabulary.

    Raises:
        ConfigError: The head is not one for the vocabulary of the text.
    """
    if parts.bilm.config.lexicon is not None:
        raise ConfigError(
            f"{parts.source} reads by a lexicon of its own (ELMoForManyLangs): such models are "
            "read here, not trained. Train one for your language with: elmo prepare, elmo train."
        )
    if parts.bilm.config.char_cnn is None:
        raise ConfigError(
            f"{parts.source} reads words, not characters: there is nothing that it could learn "
            "about the words of another text."
        )
    if parts.head is None or new_head:
        head = unigram_head(corpus, parts.bilm.config.lstm.projection_dim)
        started = dataclasses.replace(
            parts,
            vocabulary=corpus.vocabulary,
            head=head,
            warm=None,
            card=None,
            accumulators=_of_bilm(parts.accumulators),
        )
        return Start(started, new_head=True)
    if parts.vocabulary is None or parts.vocabulary.words != corpus.vocabulary.words:
        raise ConfigError(
            f"{corpus.path} was prepared with another vocabulary than the head of {parts.source} "
            f"has. Prepare the text again with: elmo prepare --vocab {parts.source} FILES... -o "
            "DATA. Or give up that head and learn a new one for the words of this text: --new-head."
        )
    return Start(parts, new_head=False)


def _of_bilm(accumulators: dict[str, torch.Tensor] | None) -> dict[str, torch.Tensor] | None:
    """Leave out those of the head: a new one has learned nothing yet."""
    if accumulators is None:
        return None
    return {name: tensor for name, tensor in accumulators.items() if name.startswith("bilm.")}


def unigram_head(corpus: Corpus, projection_dim: int) -> LMHead:
    """Make a head that knows how frequent words are, and nothing else.

    Its perplexity is that of the unigram distribution, whatever the biLM says: a fairer beginning
    than random rows, and the first steps are not spent on unlearning them.
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
        start: What it starts from.
        corpus: The text.
        epochs: Passes over the text; 1, and one more for a new head.
        max_steps: Steps in all, instead of `epochs`.
        head_steps: How many of them are the head's alone; half of them for a new head, else none.
        settings: Changes by dotted names, see `with_settings`.
        seed: Of the order of documents, negatives and dropout.

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
            f"The shape of {start.parts.source} cannot be changed: leave the settings of model, "
            "lstm and char_cnn as they are."
        )
    if epochs is None and max_steps is None and config.max_steps == base.max_steps:
        epochs = 1.0 + start.new_head
    config = with_length(config, n_tokens, max_steps=max_steps, epochs=epochs)
    if head_steps is None:
        default = config.max_steps // 2 if start.new_head else 0
        head_steps = config.optimizer.head_steps or default
    check("head_steps", head_steps, Annotated[int, Bounds(ge=0, le=config.max_steps)])
    optimizer = dataclasses.replace(config.optimizer, head_steps=head_steps)
    return dataclasses.replace(config, optimizer=optimizer, start=_fingerprint(start.parts))


def finetune(
    config: RunConfig,
    start: Start,
    corpus: Corpus,
    out: Path,
    *,
    resume: bool = False,
    device: str | torch.device = "cpu",
    log: LogFn = no_log,
    tensorboard: bool = False,
    deterministic: bool = False,
    warm_state: bool = False,
) -> FinetuneResult:
    """Finetune a model; the arguments are those of `train`.

    Args:
        config: Everything that decides the run, see `finetune_config`.
        start: What it starts from, see `start_from`.
        corpus: The prepared text; perplexities are of its "valid" part.
        out: The run's folder.
        resume: Go on from the newest checkpoint there.
        device: Where to compute.
        log: Called with lines for the user.
        tensorboard: Log to TensorBoard, too.
        deterministic: On a GPU, the same bits every time.
        warm_state: Also make the state of `state="warm"`.
    """
    run = train(
        config,
        corpus,
        out,
        resume=resume,
        device=device,
        log=log,
        tensorboard=tensorboard,
        deterministic=deterministic,
        start=start.parts,
        warm_state=warm_state,
    )
    measured = evaluations(out)
    steps = {"before": 0, "head": config.optimizer.head_steps, "after": run.steps}
    if not config.optimizer.head_steps:
        del steps["head"]
    if run.interrupted:
        del steps["after"]
    found = {name: measured[step] for name, step in steps.items() if step in measured}
    return FinetuneResult(run, found)


def _fingerprint(parts: ModelParts) -> str:
    """Return the fingerprint of the biLM and the head that a run starts from."""
    assert parts.head is not None
    modules = {"bilm": parts.bilm, "head": parts.head}
    arrays = (
        (f"{module}.{name}", tensor.detach().cpu().numpy())
        for module in modules
        for name, tensor in modules[module].state_dict().items()
    )
    return fingerprint_model(parts.bilm.config.to_dict(), arrays)
