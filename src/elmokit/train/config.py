"""The configuration of a training run, stored as JSON."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated

from pydantic import Field

from elmokit.config import BiLMConfig
from elmokit.errors import ConfigError
from elmokit.presets import preset
from elmokit.settings import (
    Count,
    CountOrZero,
    Expected,
    Positive,
    Probability,
    Seed,
    Settings,
    check,
)
from elmokit.train.optimizer import OptimizerConfig
from elmokit.train.step import StepConfig


class RunConfig(Settings):
    """A training run.

    Attributes:
        model: Shape of the biLM.
        step: Rows, steps, negatives, dropout.
        optimizer: How weights are changed.
        max_steps: Steps in all.
        restart: Chance that a row starts from the zero state at the beginning of a sentence, so
            that `state="reset"` is familiar to the model; documents always start from zero.
        log_every: Steps between two lines of metrics.
        evaluate_every: Steps between two evaluations on held-out text; 0 only at the end.
        checkpoint_every: Steps between two checkpoints; 0 only at the end.
        keep: Checkpoints that are kept.
        patience: Stop after so many evaluations without a better one; 0 never.
        seed: Of initial weights, order of documents, negatives and dropout.
        start: Digest of the weights that a finetuned model starts from; nothing for new weights.
    """

    model: BiLMConfig
    step: StepConfig = StepConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    max_steps: Count = 1000
    restart: Probability = 0.1
    log_every: Count = 10
    evaluate_every: CountOrZero = 500
    checkpoint_every: CountOrZero = 500
    keep: Count = 2
    patience: CountOrZero = 0
    seed: Seed = 0
    start: Annotated[
        str,
        Field(pattern="^([0-9a-f]{32})?$"),
        Expected("the digest that `elmo finetune` sets, or nothing"),
    ] = ""

    @property
    def tokens_per_step(self) -> int:
        """Tokens that a step reads; a token read by both directions counts once."""
        return self.step.rows * self.step.steps


def run_preset(name: str) -> RunConfig:
    """Return the training settings that go with a model preset."""
    model = preset(name)
    if name == "toy":
        return RunConfig(
            model,
            StepConfig(rows=32, steps=20, negatives=512),
            OptimizerConfig(learning_rate=4e-3, warmup=50),
            max_steps=400,
            evaluate_every=200,
            checkpoint_every=200,
        )
    # A long memory of squared gradients lags behind: see recipes/english.md.
    rate = {"small": 4e-3, "medium": 4e-3, "original": 2.5e-3}[name]
    return RunConfig(
        model,
        StepConfig(rows=1024, steps=20, negatives=8192),
        OptimizerConfig(learning_rate=rate, warmup=1000, beta2=0.95),
        max_steps=20_000,
    )


def with_length(
    config: RunConfig,
    n_tokens: int,
    *,
    max_steps: int | None = None,
    max_tokens: int | None = None,
    epochs: float | None = None,
) -> RunConfig:
    """Set the number of steps, in one of three units; without any it stays as it is.

    Args:
        config: The run.
        n_tokens: Tokens of the corpus.
        max_steps: Steps.
        max_tokens: Tokens to read.
        epochs: Passes over the corpus.

    Raises:
        ConfigError: Several are given, or a value is invalid.
    """
    given = {"max_steps": max_steps, "max_tokens": max_tokens, "epochs": epochs}
    if len(names := [name for name, value in given.items() if value is not None]) > 1:
        raise ConfigError(f"Give one of {', '.join(given)}, not {' and '.join(names)}.")
    if max_tokens is not None:
        max_steps = math.ceil(check("max_tokens", max_tokens, Positive) / config.tokens_per_step)
    if epochs is not None:
        tokens = check("epochs", epochs, Positive) * n_tokens
        max_steps = max(1, round(tokens / config.tokens_per_step))
    return config if max_steps is None else dataclasses.replace(config, max_steps=max_steps)
