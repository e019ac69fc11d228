"""Everything that decides a task's training run, in one value that goes to and comes from JSON."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from elmokit.embed.layer_choice import LayerChoice
from elmokit.settings import (
    Bounds,
    Count,
    CountOrZero,
    Expected,
    Fraction,
    NonNegative,
    Positive,
    Seed,
    Settings,
    Size,
    invalid,
    parse,
)

_NUMBER = r"-?(\d+\.?\d*|\.\d+)([eE]-?\d{1,2})?"


class ElmoConfig(Settings):
    """How ELMo enters a task model.

    Attributes:
        place: "input": [x_k; ELMo_k]. "output": [h_k; ELMo_k] after the task's RNN. "both", "none".
        layer: "mix": a mix of all layers. "top": the last layer alone, as CoVe and TagLM did.
            "average", or the number of a layer: that alone.
        mix: With layer "mix", given weights s_j that sum to 1, such as "0.2,0.5,0.3". Empty: they
            are learned.
        penalty: lambda of the paper's lambda * ||w||^2. Large values keep the mix near the average.
        layer_norm: Bring every h_{k,j} to mean 0 and variance 1 before mixing.
        dropout: On ELMo_k.
        state: What the biLM starts each sentence from, "reset" or "warm".
        storage: How layers are kept, "float16" or "float32".
    """

    place: Literal["none", "input", "output", "both"] = "input"
    layer: Annotated[
        str,
        Field(pattern=r"^(mix|top|average|\d{1,3})$"),
        Expected("'mix', 'top', 'average' or a layer number"),
    ] = "mix"
    mix: Annotated[
        str,
        Field(pattern=f"^({_NUMBER}(,{_NUMBER})*)?$", max_length=1000),
        Expected("weights such as 0.2,0.5,0.3, with elmo.layer=mix"),
    ] = ""
    penalty: NonNegative = 0.001
    layer_norm: bool = False
    dropout: Fraction = 0.5
    state: Literal["reset", "warm"] = "reset"
    storage: Literal["float16", "float32"] = "float16"

    @model_validator(mode="before")
    @classmethod
    def _read_older(cls, values: Any) -> Any:
        """Read the single setting `layers`, which older task folders hold."""
        if not isinstance(values, dict) or "layers" not in values:
            return values
        layers = values["layers"]
        own = {"layer": "top"} if layers == "top" else {"mix": "" if layers == "all" else layers}
        return {name: value for name, value in values.items() if name != "layers"} | own

    @model_validator(mode="after")
    def _check_mix(self) -> Self:
        if self.mix and self.layer != "mix":
            raise invalid("mix", self.mix, "nothing, unless elmo.layer is 'mix'")
        return self

    def weights(self, n_layers: int) -> list[float] | None:
        """Return the weights s_j of the layers; None if they are learned."""
        if self.layer == "mix":
            return [float(part) for part in self.mix.split(",")] if self.mix else None
        return list(LayerChoice.parse(self.layer, n_layers).weights)


class StaticConfig(Settings):
    """The task model's own word vectors, x_k beside ELMo_k.

    Attributes:
        source: `glove-6b-50d`, a text file of word2vec or GloVe, or "none": vectors of its own.
        dim: Size of a vector where there is no source.
        trainable: Train the vectors of words in the training data; else they stay as they came.
        words: The most frequent words of the source that are kept for text not seen yet, besides
            those in the data.
    """

    source: str = "glove-6b-50d"
    dim: Size = 50
    trainable: bool = True
    words: CountOrZero = 100_000


class TrainConfig(Settings):
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

    optimizer: Literal["adam", "adamw", "adadelta", "adagrad", "sgd"] = "adam"
    learning_rate: Positive = 1e-3
    weight_decay: NonNegative = 0.0
    clip: NonNegative = 5.0
    batch_size: Count = 32
    batch_tokens: Count = 4096
    epochs: Count = 50
    patience: CountOrZero = 10
    halve_after: CountOrZero = 0
    checkpoint_every: CountOrZero = 0
    checkpoint_seconds: NonNegative = 30.0
    seed: Seed = 0
    share: Annotated[float, Bounds(gt=0, le=1)] = 1.0


class TaskConfig(Settings):
    """A whole run; `model` is a dataclass of the task's own, best a subclass of `Settings`."""

    model: Any
    elmo: ElmoConfig = ElmoConfig()
    static: StaticConfig = StaticConfig()
    train: TrainConfig = TrainConfig()

    @field_validator("model", mode="before")
    @classmethod
    def _read_model(cls, value: object, info: ValidationInfo) -> Any:
        """Read the task's own settings where values are read as JSON, which names their class."""
        return value if info.context is None else parse(info.context, value)
