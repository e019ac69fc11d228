"""Everything that decides a task's training run, in one value that goes to and comes from JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from elmokit.errors import ConfigError, nearest

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

PLACES = ("none", "input", "output", "both")
OPTIMIZERS = ("adam", "adamw", "adadelta", "adagrad", "sgd")


@dataclass(frozen=True)
class ElmoConfig:
    """How ELMo enters a task model.

    Attributes:
        place: "input": [x_k; ELMo_k]. "output": [h_k; ELMo_k] after the task's RNN. "both", "none".
        layers: "all": a learned mix. "top": the last layer alone, as CoVe and TagLM did. Or given
            weights s_j that sum to 1, such as "0.2,0.5,0.3".
        penalty: lambda of the paper's lambda * ||w||^2. Large values keep the mix near the average.
        layer_norm: Bring every h_{k,j} to mean 0 and variance 1 before mixing.
        dropout: On ELMo_k.
        state: What the biLM starts each sentence from, "reset" or "warm".
        storage: How layers are kept, "float16" or "float32".
    """

    place: str = "input"
    layers: str = "all"
    penalty: float = 0.001
    layer_norm: bool = False
    dropout: float = 0.5
    state: str = "reset"
    storage: str = "float16"

    @property
    def weights(self) -> list[float] | None:
        """The given weights s_j, if `layers` gives any."""
        if self.layers in ("all", "top"):
            return None
        try:
            return [float(part) for part in self.layers.split(",")]
        except ValueError:
            raise ConfigError(
                f"elmo.layers should be 'all', 'top' or weights such as 0.2,0.5,0.3; found "
                f"'{self.layers}'."
            ) from None


@dataclass(frozen=True)
class StaticConfig:
    """The task model's own word vectors, x_k beside ELMo_k.

    Attributes:
        source: `glove-6b-50d`, a text file of word2vec or GloVe, or "none": vectors of its own.
        dim: Size of a vector where there is no source.
        trainable: Train the vectors of words in the training data; else they stay as they came.
        words: The most frequent words of the source that are kept for text not seen yet, besides
            those in the data.
    """

    source: str = "glove-6b-50d"
    dim: int = 50
    trainable: bool = True
    words: int = 100_000


@dataclass(frozen=True)
class TrainConfig:
    """How a task model is trained.

    Attributes:
        optimizer: adam, adamw, adadelta, adagrad or sgd.
        learning_rate: Its rate.
        weight_decay: Its weight decay.
        clip: Largest norm of the gradient; 0 is no limit.
        batch_size: Examples that are trained on together.
        batch_tokens: Tokens that are trained on together at most, padding included.
        epochs: Passes over the training data at most.
        patience: Stop after so many epochs without a better dev score, counted from the first
            score that is not 0; 0 never.
        halve_after: Halve the rate after so many epochs without a better dev score, counted in the
            same way; 0 never.
        checkpoint_every: Steps between checkpoints, besides those at the ends of epochs; 0 none.
        checkpoint_seconds: The end of an epoch is passed over if the last is not so old, so that
            short runs, many at once, do not spend their time on the disk.
        seed: Of initial weights, order and dropout.
        share: Share of the training data; smaller shares are parts of larger ones.
    """

    optimizer: str = "adam"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    clip: float = 5.0
    batch_size: int = 32
    batch_tokens: int = 4096
    epochs: int = 50
    patience: int = 10
    halve_after: int = 0
    checkpoint_every: int = 0
    checkpoint_seconds: float = 30.0
    seed: int = 0
    share: float = 1.0


@dataclass(frozen=True)
class TaskConfig:
    """A whole run; `model` is a dataclass of the task's own."""

    model: Any
    elmo: ElmoConfig = field(default_factory=ElmoConfig)
    static: StaticConfig = field(default_factory=StaticConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        problems = _problems(self)
        if problems:
            raise ConfigError("These settings cannot be trained with: " + "; ".join(problems) + ".")

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], model: type[DataclassInstance]) -> TaskConfig:
        """Build a config from JSON values; `model` is the class of the task's own part."""
        kinds: dict[str, Any] = {
            "model": model,
            "elmo": ElmoConfig,
            "static": StaticConfig,
            "train": TrainConfig,
        }
        _check_keys(kinds, values, "config")
        parts = {}
        for name, kind in kinds.items():
            given = values.get(name, {})
            if not isinstance(given, Mapping):
                raise ConfigError(f"'{name}' should be a JSON object, found {given!r}.")
            _check_keys([f.name for f in dataclasses.fields(kind)], given, name)
            parts[name] = kind(**given)
        return cls(**parts)


def with_settings(config: TaskConfig, settings: Iterable[str]) -> TaskConfig:
    """Change values by dotted names, as `--set train.epochs=10` does."""
    values = config.to_dict()
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set needs NAME=VALUE, found '{setting}'.")
        section, _, key = name.strip().partition(".")
        known = [f"{part}.{k}" for part, inner in values.items() for k in inner]
        if section not in values or key not in values[section]:
            raise ConfigError(
                f"No setting '{name}'.{nearest(name, known)} There are: {', '.join(known)}."
            )
        values[section][key] = _value(name, text.strip(), values[section][key])
    return TaskConfig.from_dict(values, type(config.model))


def check_sizes(model: DataclassInstance, may_be_zero: tuple[str, ...] = ()) -> None:
    """Refuse a task's own settings whose whole numbers are too small.

    Args:
        model: The settings; all their integers are sizes or numbers of something.
        may_be_zero: Those of which 0 means to leave something out.
    """
    for part in dataclasses.fields(model):
        size, least = getattr(model, part.name), int(part.name not in may_be_zero)
        if type(size) is int and size < least:
            raise ConfigError(f"model.{part.name} should be at least {least}, found {size}.")


def _value(name: str, text: str, before: object) -> Any:
    """Read a value of the type that the setting has."""
    if isinstance(before, str):
        return text
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = None
    if isinstance(before, float) and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not type(before):
        kind = {bool: "true or false", int: "an integer", float: "a number"}.get(type(before))
        raise ConfigError(f"{name} should be {kind or type(before).__name__}, found '{text}'.")
    return value


def _check_keys(known: Iterable[str], values: Mapping[str, Any], where: str) -> None:
    for key in values:
        if key not in known:
            raise ConfigError(
                f"Unknown key '{key}' in '{where}'.{nearest(key, known)} "
                f"Known keys: {', '.join(known)}."
            )


def _problems(config: TaskConfig) -> list[str]:
    """List everything wrong with a config, so that it is said at once."""
    found = {
        f"{section}.{key}": value
        for section, part in config.to_dict().items()
        for key, value in part.items()
    }
    problems = [
        f"{name} should be one of {', '.join(known)}; found '{found[name]}'"
        for name, known in _KNOWN.items()
        if found[name] not in known
    ]
    chances = [name for name in found if name.endswith("dropout")]  # those of the model, too
    for names, is_good, expected in (*_BOUNDS, (chances, *_CHANCE)):
        problems += [
            f"{name} should be {expected}, found {found[name]}"
            for name in names
            if not is_good(found[name])
        ]
    return problems


_KNOWN = {
    "elmo.place": PLACES,
    "elmo.state": ("reset", "warm"),
    "elmo.storage": ("float16", "float32"),
    "train.optimizer": OPTIMIZERS,
}
_CHANCE: tuple[Callable[[Any], bool], str] = (lambda x: 0 <= x < 1, "at least 0 and below 1")
#: What is said of a number that is none of these, which NaN never is.
_BOUNDS: tuple[tuple[Sequence[str], Callable[[Any], bool], str], ...] = (
    (
        ("train.batch_size", "train.batch_tokens", "train.epochs", "static.dim"),
        lambda x: x >= 1,
        "at least 1",
    ),
    (
        (
            *("train.patience", "train.halve_after", "static.words"),
            *("train.checkpoint_every", "train.checkpoint_seconds"),
        ),
        lambda x: x >= 0,
        "at least 0",
    ),
    (
        ("train.clip", "train.weight_decay", "elmo.penalty"),
        lambda x: 0 <= x < math.inf,
        "at least 0 and finite",
    ),
    (("train.learning_rate",), lambda x: 0 < x < math.inf, "above 0 and finite"),
    (("train.share",), lambda x: 0 < x <= 1, "above 0 and at most 1"),
    # Each step's seed is this one times a million and some, and torch takes none from 2**64 on.
    (("train.seed",), lambda x: 0 <= x < 2**43, f"from 0 to {2**43 - 1}"),
)
