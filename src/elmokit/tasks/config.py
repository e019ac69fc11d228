"""The settings of a run that trains a task model."""

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

Place = Literal["none", "input", "output", "both"]

_NUMBER = r"-?(\d+\.?\d*|\.\d+)([eE]-?\d{1,2})?"


class ElmoConfig(Settings):
    """Settings for adding ELMo to a task model.

    Attributes:
        place: Where to add ELMo: "input" for [x_k; ELMo_k], "output" for [h_k; ELMo_k] after the
            task's RNN, "both" or "none".
        layer: "mix" for a mix of all layers, "top" for the last layer (as in CoVe and TagLM),
            "average", or the number of a single layer.
        mix: With layer "mix", fixed weights s_j that sum to 1, such as "0.2,0.5,0.3". If empty, the
            weights are learned.
        penalty: The regularization strength, lambda in lambda * ||w||^2. Large values keep the mix
            near the average.
        layer_norm: Normalize each h_{k,j} to mean 0 and variance 1 before mixing.
        dropout: Dropout on ELMo_k.
        state: Initial state of each sentence, "reset" or "warm".
        storage: Data type of the layers in the layer cache, "float16" or "float32".
    """

    place: Place = "input"
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

    @model_validator(mode="after")
    def _check_mix(self) -> Self:
        if self.mix and self.layer != "mix":
            raise invalid("mix", self.mix, "no value unless elmo.layer is 'mix'")
        return self

    def weights(self, n_layers: int) -> list[float] | None:
        """Return the fixed weights s_j of the layers, or None if they are learned."""
        if self.layer == "mix":
            return [float(part) for part in self.mix.split(",")] if self.mix else None
        return list(LayerChoice.parse(self.layer, n_layers).weights)


class StaticConfig(Settings):
    """The static word vectors of a task model.

    Attributes:
        source: `glove-6b-50d`, a text file in word2vec or GloVe format, or "none" for random
            initial vectors.
        dim: Size of the vectors if source is "none".
        trainable: Train the vectors of the words in the training data. Otherwise, all vectors are
            frozen.
        words: How many of the source's most frequent words to store for unseen text, in addition to
            the words of the data.
    """

    source: str = "glove-6b-50d"
    dim: Size = 50
    trainable: bool = True
    words: CountOrZero = 100_000


class TrainConfig(Settings):
    """Settings for training a task model.

    Attributes:
        optimizer: adam, adamw, adadelta, adagrad or sgd.
        learning_rate: The learning rate.
        weight_decay: The weight decay.
        clip: Maximum gradient norm; 0 disables clipping.
        batch_size: Maximum number of examples per batch.
        batch_tokens: Maximum number of tokens per batch, including padding.
        epochs: Maximum number of passes over the training data.
        patience: Stop after this many epochs without a better dev score, counted from the first
            score that is not 0; 0 disables early stopping.
        halve_after: Halve the learning rate after this many epochs without a better dev score,
            counted in the same way; 0 keeps the rate constant.
        checkpoint_every: Number of steps between additional checkpoints within epochs; 0 disables
            these checkpoints.
        checkpoint_seconds: Minimum number of seconds between checkpoints at the end of epochs, so
            that short runs do not spend most of their time writing files.
        seed: Random seed for initial weights, data order and dropout.
        share: Fraction of the training data to use; smaller fractions are subsets of larger ones.
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
    """The settings of a run; `model` is an instance of the task's own dataclass."""

    model: Any
    elmo: ElmoConfig = ElmoConfig()
    static: StaticConfig = StaticConfig()
    train: TrainConfig = TrainConfig()

    @field_validator("model", mode="before")
    @classmethod
    def _read_model(cls, value: object, info: ValidationInfo) -> Any:
        """Read the task's own settings from JSON, given their class as the validation context."""
        return value if info.context is None else parse(info.context, value)
