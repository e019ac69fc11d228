"""Everything that decides a training run, in one value that goes to and comes from JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from elmokit.config import BiLMConfig
from elmokit.errors import ConfigError, nearest
from elmokit.presets import preset
from elmokit.train.optimizer import OptimizerConfig
from elmokit.train.step import StepConfig


@dataclass(frozen=True)
class RunConfig:
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
    step: StepConfig = field(default_factory=StepConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    max_steps: int = 1000
    restart: float = 0.1
    log_every: int = 10
    evaluate_every: int = 500
    checkpoint_every: int = 500
    keep: int = 2
    patience: int = 0
    seed: int = 0
    start: str = ""

    @property
    def tokens_per_step(self) -> int:
        """Tokens that a step reads; a token read by both directions counts once."""
        return self.step.rows * self.step.steps

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunConfig:
        """Build a config from JSON values."""
        fields = dict(values)
        fields["model"] = BiLMConfig.from_dict(fields["model"])
        fields["step"] = StepConfig(**fields["step"])
        fields["optimizer"] = OptimizerConfig(**fields["optimizer"])
        return cls(**fields)


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


def with_settings(config: RunConfig, settings: Iterable[str]) -> RunConfig:
    """Change values by dotted names, as `--set lstm.dim=1024` does.

    The names of the model's own sections (`lstm`, `char_cnn`) may be given without `model.`.
    """
    values = config.to_dict()
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set needs NAME=VALUE, found '{setting}'.")
        *path, last = name.strip().split(".")
        if path and path[0] in ("lstm", "char_cnn"):
            path = ["model", *path]
        place: Any = values
        for key in [*path, last]:
            if not isinstance(place, dict) or key not in place:
                known = place if isinstance(place, dict) else {}
                raise ConfigError(
                    f"No setting '{name}'.{nearest(key, known)} "
                    f"Known here: {', '.join(map(str, known)) or 'nothing'}."
                )
            parent, place = place, place[key]
        parent[last] = _value(text.strip())
    return _checked(values)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _checked(values: Mapping[str, Any]) -> RunConfig:
    config = RunConfig.from_dict(values)
    problems = []
    for name, value, low in (
        ("step.rows", config.step.rows, 1),
        ("step.steps", config.step.steps, 1),
        ("step.negatives", config.step.negatives, 0),
        ("max_steps", config.max_steps, 1),
        ("log_every", config.log_every, 1),
        ("keep", config.keep, 1),
    ):
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            problems.append(f"{name} should be an integer of at least {low}, found {value!r}")
    for name, share in (("step.dropout", config.step.dropout), ("restart", config.restart)):
        if not isinstance(share, int | float) or not 0 <= share <= 1:
            problems.append(f"{name} should be between 0 and 1, found {share!r}")
    for name, choice, choices in (
        ("optimizer.kind", config.optimizer.kind, ("adamw", "adagrad")),
        ("optimizer.decay", config.optimizer.decay, ("cosine", "linear")),
    ):
        if choice not in choices:
            problems.append(f"{name} should be {' or '.join(choices)}, not {choice!r}")
    if problems:
        raise ConfigError("These settings cannot be trained with: " + "; ".join(problems) + ".")
    return config
