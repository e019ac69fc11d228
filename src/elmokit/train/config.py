"""The settings of a training run."""

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
    validate,
)
from elmokit.train.optimizer import OptimizerConfig
from elmokit.train.step import StepConfig


class RunConfig(Settings):
    """The settings of a training run.

    Attributes:
        model: The configuration of the biLM.
        step: The batch size and training objective.
        optimizer: The optimizer and learning-rate schedule.
        max_steps: Total number of steps.
        restart: Probability that the state of a row is reset to zero at the beginning of a
            sentence, so that the model also learns to start from the zero state (`state="reset"`).
            The state is always reset at the beginning of a document.
        log_every: Steps between lines of metrics.
        evaluate_every: Steps between evaluations on held-out text. 0: only at the end.
        checkpoint_every: Steps between checkpoints. 0: only at the end.
        keep: Number of recent checkpoints to keep, in addition to the one with the lowest
            perplexity.
        patience: Stop after this number of evaluations without improvement, and use the weights
            with the lowest perplexity. A checkpoint of these weights is kept. 0: never stop early.
        seed: Random seed for initial weights, document order, restarts and (on a CPU) dropout.
        start: Fingerprint of the initial weights of a fine-tuning run. Empty for random weights.
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
        Expected("the fingerprint that `elmo finetune` sets, or an empty string"),
    ] = ""

    @property
    def tokens_per_step(self) -> int:
        """Tokens per step. Each token is counted once, although both directions read it."""
        return self.step.rows * self.step.steps


def run_preset(name: str) -> RunConfig:
    """Return the settings of a preset."""
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
    # With a larger beta2, AdamW adapts too slowly; see recipes/english.md.
    learning_rate = {"small": 4e-3, "medium": 4e-3, "original": 2.5e-3}[name]
    return RunConfig(
        model,
        StepConfig(rows=1024, steps=20, negatives=8192),
        OptimizerConfig(learning_rate=learning_rate, warmup=1000, beta2=0.95),
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
    """Return the settings with a new length of the run, specified in steps, tokens or epochs.

    Args:
        config: The settings of the run.
        n_tokens: Number of tokens in the corpus.
        max_steps: Number of steps. Default: `config.max_steps`.
        max_tokens: Number of tokens to read.
        epochs: Number of passes over the corpus.

    Raises:
        ConfigError: More than one length is specified, or a value is invalid.
    """
    units = {"max_steps": max_steps, "max_tokens": max_tokens, "epochs": epochs}
    if len(names := [name for name, value in units.items() if value is not None]) > 1:
        raise ConfigError(f"{' and '.join(names)} cannot be combined. Use only one of them.")
    if max_tokens is not None:
        max_steps = math.ceil(validate("max_tokens", max_tokens, Positive) / config.tokens_per_step)
    if epochs is not None:
        tokens = validate("epochs", epochs, Positive) * n_tokens
        max_steps = max(1, round(tokens / config.tokens_per_step))
    return config if max_steps is None else dataclasses.replace(config, max_steps=max_steps)
