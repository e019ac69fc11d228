"""Model configuration.

Field names follow the original `options.json` (`lstm.dim`, `char_cnn.filters`, ...). Derived sizes
are properties, not fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from elmokit.settings import (
    Bounds,
    CountOrZero,
    Expected,
    Layers,
    Settings,
    Size,
    SizeOrZero,
    invalid,
)

Activation = Literal["relu", "tanh"]
#: Maximum number of character ids per token, including the begin and end markers.
Characters = Annotated[int, Bounds(ge=3, le=1024)]
Highways = Annotated[int, Bounds(ge=0, le=128)]
#: Integers are not converted to floats, because that would change the fingerprint of the model.
Clip = Annotated[
    int | float | None, Bounds(gt=0, le=10**9), Expected("a number > 0 and <= 10**9, or null")
]
Filters = Annotated[
    tuple[tuple[Size, Size], ...],
    Field(max_length=64),
    Expected("a list of [width, count] pairs, at most 64 of them, each number from 1 to 65536"),
]

# Limited, because the size of a highway layer is quadratic in the number of filters.
_MAX_FILTERS = 1 << 16

#: The filters of all released models, as (width, count) pairs. Each model has 2048 filters.
RELEASED_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))


class _ConvolutionSettings:
    """Settings of the character convolutions, shared by both character-based token encoders."""

    filters: Filters
    max_characters_per_token: Characters

    @property
    def n_filters(self) -> int:
        """The total number of convolution filters."""
        return sum(count for _, count in self.filters)

    @property
    def max_width(self) -> int:
        """The width of the widest filter."""
        return max((width for width, _ in self.filters), default=0)

    def _check_filters(self) -> None:
        limit = self.max_characters_per_token
        if not self.filters:
            raise invalid("filters", self.filters, "at least one [width, count] pair")
        if self.n_filters > _MAX_FILTERS:
            raise invalid("filters", self.filters, f"at most {_MAX_FILTERS:,} filters in total")
        if self.max_width > limit:
            expected = f"widths up to max_characters_per_token ({limit})"
            raise invalid("filters", self.filters, expected)


class CharCnnConfig(_ConvolutionSettings, Settings):
    """The character CNN: character embeddings, convolutions, highway layers and a projection."""

    embedding_dim: Size = 16
    filters: Filters = RELEASED_FILTERS
    n_highway: Highways = 2
    activation: Activation = "relu"
    max_characters_per_token: Characters = 50

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._check_filters()
        return self


class LexiconConfig(_ConvolutionSettings, Settings):
    """The token encoder of ELMoForManyLangs: word embeddings and a character CNN.

    The characters are the Unicode characters of a lexicon, not bytes. Either the words or the
    characters can be omitted.
    """

    n_words: CountOrZero = 0
    word_dim: SizeOrZero = 0
    n_characters: CountOrZero = 0
    embedding_dim: SizeOrZero = 0
    filters: Filters = ()
    n_highway: Highways = 0
    activation: Activation = "relu"
    max_characters_per_token: Characters = 50

    @model_validator(mode="after")
    def _check(self) -> Self:
        for rows, dim in (("n_words", "word_dim"), ("n_characters", "embedding_dim")):
            if bool(getattr(self, rows)) != bool(getattr(self, dim)):
                raise invalid(dim, getattr(self, dim), f"0 if and only if {rows} is 0")
        if not self.n_words and not self.n_characters:
            raise invalid("n_words", 0, "at least 1 if n_characters is 0")
        if self.n_characters:
            self._check_filters()
        elif self.filters or self.n_highway:
            raise invalid(
                "filters", self.filters, "no filters or highway layers if n_characters is 0"
            )
        return self


class LstmConfig(Settings):
    """The LSTM stack of one direction: cells of size `dim`, outputs of size `projection_dim`."""

    dim: Size = 4096
    projection_dim: Size = 512
    n_layers: Layers = 2
    cell_clip: Clip = 3.0
    proj_clip: Clip = 3.0
    use_skip_connections: bool = True

    @property
    def has_projection(self) -> bool:
        """Whether cell outputs are projected.

        As in bilm-tf, there is no projection if `projection_dim` equals `dim`.
        """
        return self.projection_dim < self.dim

    @model_validator(mode="after")
    def _check_projection(self) -> Self:
        if self.projection_dim > self.dim:
            # bilm-tf would omit the projection, so layer 0 would be wider than the others.
            raise invalid("projection_dim", self.projection_dim, f"at most dim ({self.dim})")
        return self


class BiLMConfig(Settings):
    """The configuration of a biLM.

    A biLM has exactly one kind of input: `char_cnn` (bytes), `n_words` (ids) or `lexicon`.
    """

    lstm: LstmConfig = LstmConfig()
    char_cnn: CharCnnConfig | None = CharCnnConfig()
    n_words: Annotated[int | None, Bounds(ge=1, le=10**9)] = None
    lexicon: LexiconConfig | None = None

    @property
    def n_layers(self) -> int:
        """The number of layers L + 1: the token encoder and L LSTM layers."""
        return self.lstm.n_layers + 1

    @property
    def output_dim(self) -> int:
        """The number of dimensions of a vector, 2 * D: D for each direction."""
        return 2 * self.lstm.projection_dim

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dictionary."""
        values = super().to_dict()
        if self.lexicon is None:  # does not change the fingerprints of models without a lexicon
            del values["lexicon"]
        return values

    @classmethod
    def from_dict(cls, values: object, model: type | None = None) -> Self:
        """Read JSON values. A missing `char_cnn` means null."""
        if isinstance(values, Mapping):
            values = {"char_cnn": None, **values}
        return super().from_dict(values, model)

    @model_validator(mode="after")
    def _check_input(self) -> Self:
        inputs = [name for name in _INPUTS if getattr(self, name) is not None]
        if len(inputs) != 1:
            raise invalid("input", inputs, f"exactly one of {', '.join(_INPUTS)}")
        return self


_INPUTS = ("char_cnn", "n_words", "lexicon")
