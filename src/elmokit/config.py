"""The shape of a biLM, as frozen dataclasses that go to and come from JSON.

The names are those of the original `options.json` (`lstm.dim`, `char_cnn.filters`, ...), so that
whoever knows one file knows the other. Sizes that follow from others are properties, never fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from elmokit.errors import ConfigError, nearest

Activation = Literal["relu", "tanh"]

#: The filters of every released model: (width, count), 2048 in all.
RELEASED_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))


@dataclass(frozen=True)
class CharCnnConfig:
    """The context-free token encoder: characters -> convolutions -> highways -> projection."""

    embedding_dim: int = 16
    filters: tuple[tuple[int, int], ...] = RELEASED_FILTERS
    n_highway: int = 2
    activation: Activation = "relu"
    max_characters_per_token: int = 50

    @property
    def n_filters(self) -> int:
        """The number of convolution filters over all widths."""
        return sum(count for _, count in self.filters)

    @property
    def max_width(self) -> int:
        """The width of the widest filter."""
        return max(width for width, _ in self.filters)


@dataclass(frozen=True)
class LexiconConfig:
    """The token encoder of ELMoForManyLangs: a table of words beside a CNN over characters.

    A character is one of Unicode, looked up in a lexicon, not a byte. Either table may be missing.
    """

    n_words: int = 0
    word_dim: int = 0
    n_characters: int = 0
    embedding_dim: int = 0
    filters: tuple[tuple[int, int], ...] = ()
    n_highway: int = 0
    activation: Activation = "relu"
    max_characters_per_token: int = 50

    @property
    def n_filters(self) -> int:
        """The number of convolution filters over all widths."""
        return sum(count for _, count in self.filters)

    @property
    def max_width(self) -> int:
        """The width of the widest filter."""
        return max((width for width, _ in self.filters), default=0)


@dataclass(frozen=True)
class LstmConfig:
    """One direction's stack of LSTMs. `dim` is the cell, `projection_dim` what leaves the layer."""

    dim: int = 4096
    projection_dim: int = 512
    n_layers: int = 2
    cell_clip: float | None = 3.0
    proj_clip: float | None = 3.0
    use_skip_connections: bool = True

    @property
    def has_projection(self) -> bool:
        """Whether the cell output is projected down (bilm-tf: only if it gets smaller)."""
        return self.projection_dim < self.dim


@dataclass(frozen=True)
class BiLMConfig:
    """A whole biLM. Exactly one input: `char_cnn` (bytes), `n_words` (word ids) or `lexicon`."""

    lstm: LstmConfig = LstmConfig()
    char_cnn: CharCnnConfig | None = CharCnnConfig()
    n_words: int | None = None
    lexicon: LexiconConfig | None = None

    def __post_init__(self) -> None:
        problems = _problems(self)
        if problems:
            raise ConfigError("This is not the shape of a biLM: " + "; ".join(problems) + ".")

    @property
    def n_layers(self) -> int:
        """Vectors per token: layer 0 (the token encoder) and one per LSTM layer, L + 1."""
        return self.lstm.n_layers + 1

    @property
    def output_dim(self) -> int:
        """The size of each layer's vector: both directions together, 2D."""
        return 2 * self.lstm.projection_dim

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        values = dataclasses.asdict(self)
        if self.lexicon is None:  # few models have one, and readers of old files know none
            del values["lexicon"]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> BiLMConfig:
        """Build a config from JSON values; an unknown key is an error that names the nearest."""
        known = _check_keys(cls, values, "config")
        lstm = LstmConfig(**_check_keys(LstmConfig, known.get("lstm", {}), "config.lstm"))
        char_cnn = None
        if (given := known.get("char_cnn")) is not None:
            fields = dict(_check_keys(CharCnnConfig, given, "config.char_cnn"))
            if "filters" in fields:
                fields["filters"] = _filters(fields["filters"])
            char_cnn = CharCnnConfig(**fields)
        lexicon = None
        if (given := known.get("lexicon")) is not None:
            fields = dict(_check_keys(LexiconConfig, given, "config.lexicon"))
            fields["filters"] = _filters(fields["filters"]) if fields.get("filters") else ()
            lexicon = LexiconConfig(**fields)
        return cls(lstm, char_cnn, known.get("n_words"), lexicon)


def _check_keys(cls: type[Any], values: object, where: str) -> Mapping[str, Any]:
    if not isinstance(values, Mapping):
        raise ConfigError(f"'{where}' should be a JSON object, found {type(values).__name__}.")
    names = [field.name for field in dataclasses.fields(cls)]
    for key in values:
        if key not in names:
            raise ConfigError(
                f"Unknown key '{key}' in '{where}'.{nearest(str(key), names)} "
                f"Known keys: {', '.join(names)}."
            )
    return values


def _filters(value: object) -> tuple[tuple[int, int], ...]:
    try:
        pairs = tuple((width, count) for width, count in value)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        pairs = ()
    if not pairs or not all(_is_size(width) and _is_size(count) for width, count in pairs):
        raise ConfigError(f"'filters' should be a list of [width, count] pairs, found {value!r}.")
    return pairs


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _problems(config: BiLMConfig) -> list[str]:
    """List everything wrong with a config, so that it is said at once."""
    problems = _lstm_problems(config.lstm)
    inputs = (config.char_cnn, config.n_words, config.lexicon)
    if sum(given is not None for given in inputs) != 1:
        problems.append(
            "give either char_cnn (character input) or n_words (word-id input) or lexicon"
        )
    if config.n_words is not None and not _is_size(config.n_words):
        problems.append(f"n_words should be a positive integer, found {config.n_words!r}")
    if config.char_cnn is not None:
        problems += _char_cnn_problems(config.char_cnn, config.lstm)
    if config.lexicon is not None:
        problems += _lexicon_problems(config.lexicon)
    return problems


def _lstm_problems(lstm: LstmConfig) -> list[str]:
    problems = []
    for name in ("dim", "projection_dim", "n_layers"):
        if not _is_size(value := getattr(lstm, name)):
            problems.append(f"lstm.{name} should be a positive integer, found {value!r}")
    if not problems and lstm.projection_dim > lstm.dim:
        # bilm-tf would drop the projection and layer 0 would be wider than the others.
        problems.append(
            f"lstm.projection_dim ({lstm.projection_dim}) should not exceed lstm.dim ({lstm.dim})"
        )
    for name in ("cell_clip", "proj_clip"):
        value = getattr(lstm, name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (is_number and value > 0):
            problems.append(f"lstm.{name} should be a positive number or null, found {value!r}")
    if not isinstance(lstm.use_skip_connections, bool):
        problems.append("lstm.use_skip_connections should be true or false")
    return problems


def _char_cnn_problems(cnn: CharCnnConfig, lstm: LstmConfig) -> list[str]:
    problems = []
    for name in ("embedding_dim", "max_characters_per_token"):
        if not _is_size(value := getattr(cnn, name)):
            problems.append(f"char_cnn.{name} should be a positive integer, found {value!r}")
    if isinstance(cnn.n_highway, bool) or not isinstance(cnn.n_highway, int) or cnn.n_highway < 0:
        problems.append(f"char_cnn.n_highway should be 0 or more, found {cnn.n_highway!r}")
    if cnn.activation not in ("relu", "tanh"):
        problems.append(f"char_cnn.activation should be relu or tanh, found {cnn.activation!r}")
    if any(width < 1 or count < 1 for width, count in cnn.filters):
        problems.append(f"char_cnn.filters should be positive pairs, found {cnn.filters!r}")
    elif _is_size(cnn.max_characters_per_token):
        if cnn.max_width > cnn.max_characters_per_token:
            problems.append(
                f"the widest filter ({cnn.max_width}) does not fit in "
                f"max_characters_per_token ({cnn.max_characters_per_token})"
            )
        if cnn.max_characters_per_token < 3:
            problems.append("max_characters_per_token should be at least 3 (word, begin and end)")
    return problems


def _lexicon_problems(lexicon: LexiconConfig) -> list[str]:
    problems = []
    for table in (("n_words", "word_dim"), ("n_characters", "embedding_dim")):
        for name in table:
            value = getattr(lexicon, name)
            if value != 0 and not _is_size(value):
                problems.append(f"lexicon.{name} should be 0 or more, found {value!r}")
        if len({bool(getattr(lexicon, name)) for name in table}) > 1:
            problems.append(f"lexicon.{table[0]} and lexicon.{table[1]} are both 0 or neither")
    if problems:
        return problems
    if not lexicon.n_characters:
        if lexicon.filters or lexicon.n_highway:
            problems.append("lexicon.filters and lexicon.n_highway need a lexicon of characters")
        if not lexicon.n_words:
            problems.append("lexicon needs characters or words")
        return problems
    if not lexicon.filters:
        return ["lexicon.filters should be a list of [width, count] pairs, found none"]
    cnn = CharCnnConfig(
        lexicon.embedding_dim,
        lexicon.filters,
        lexicon.n_highway,
        lexicon.activation,
        lexicon.max_characters_per_token,
    )
    return [told.replace("char_cnn.", "lexicon.") for told in _char_cnn_problems(cnn, LstmConfig())]
