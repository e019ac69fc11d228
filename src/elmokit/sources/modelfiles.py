"""Read and write the files of a model directory other than weights, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elmokit.config import BiLMConfig
from elmokit.errors import ConfigError, WeightsError, suggest
from elmokit.model.lexicon import Lexicon
from elmokit.progress import plural
from elmokit.settings import validate
from elmokit.storage.manifest import check_format, read_json, write_json
from elmokit.storage.regular import read_bounded
from elmokit.text.vocab import Vocabulary

CONFIG = "config.json"
VOCABULARY = "vocab.txt"
LEXICON = "lexicon.json"
CARD = "README.md"

_FORMAT_KEYS = ("format", "format_version", "storage", "bilm")


def read_config(path: Path, format_name: str, newest: int) -> tuple[BiLMConfig, dict[str, Any]]:
    """Read the configuration of the biLM and the metadata from a `config.json` file.

    Args:
        path: The file.
        format_name: The expected name of the format.
        newest: The newest supported format version.
    """
    values = read_json(path)
    hint = "Convert models from other libraries with `elmo convert` first."
    check_format(values, path, format_name, newest, hint=hint)
    if "bilm" not in values:
        raise ConfigError(f"{path} has no key 'bilm'.{suggest('bilm', values)}")
    try:
        config = BiLMConfig.from_dict(values["bilm"])
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return config, select_metadata(values)


def select_metadata(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata: all entries of a `config.json` that the format does not define."""
    return {key: value for key, value in values.items() if key not in _FORMAT_KEYS}


def write_lexicon(lexicon: Lexicon, path: Path) -> None:
    """Write the words and characters of a model with a lexicon."""
    # The format is JSON, because a character may be a line break.
    values = {"words": lexicon.words, "characters": lexicon.characters}
    write_json(path, values, ensure_ascii=False, indent=0)


def read_lexicon(path: Path, max_characters: int) -> Lexicon:
    """Read a file that `write_lexicon` has written.

    Args:
        path: The file.
        max_characters: The maximum number of characters per token.
    """
    values = read_json(path)
    try:
        words, characters = (
            validate(name, values.get(name), list[str] | None) for name in ("words", "characters")
        )
        return Lexicon(words, characters, max_characters)
    except (ConfigError, WeightsError) as error:
        raise type(error)(f"{path}: {error}") from None


def check_vocabulary(vocabulary: Vocabulary | None, config: BiLMConfig, source: str) -> None:
    """Raise an error if the vocabulary of a word-input model is missing or has the wrong size."""
    n_words = 0 if vocabulary is None else len(vocabulary)
    if config.n_words is not None and n_words != config.n_words:
        problem = "is missing" if vocabulary is None else f"has {plural(n_words, 'word')}"
        raise WeightsError(
            f"{source} has {plural(config.n_words, 'word embedding')}, but its vocabulary "
            f"{problem}. Add the words to the model directory as {VOCABULARY}, one per line."
        )


def read_card(path: Path) -> str | None:
    """Read the model card, if it exists."""
    # Decode the bytes to preserve line endings. Invalid UTF-8 is not an error.
    return read_bounded(path, WeightsError).decode("utf-8", "replace") if path.is_file() else None
