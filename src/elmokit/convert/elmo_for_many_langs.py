"""Read ELMoForManyLangs models. Each model is a directory for one language.

    config.json           training settings; `config_path` names the architecture file
    cnn_50_100_...json    the architecture; missing from the published zip files
    char.dic, word.dic    the lexicon: a character or word, a tab and an index per line
    token_embedder.pkl    weights saved by PyTorch, read with `weights_only=True`
    encoder.pkl
    classifier.pkl        the LM head, which few models contain; not read

Differences from bilm-tf's models, and how they are converted:

    token encoder      a lexicon of Unicode characters and a word table: `model/lexicon_encoder.py`
    highways           g x + (1 - g) f(x): the gate is inverted (-W and -b), which is exact
    LSTM gates         i, f, j, o: reordered to i, j, f, o
    forget gate        the bias includes the constant 1, which is subtracted. The result is exact
                       for a bias from 0.5 to 2 (training starts from 1); otherwise it is rounded
    skip connections   always used, starting with the second layer
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.config import BiLMConfig, LexiconConfig, LstmConfig
from elmokit.convert.torch_pickle import read_state_dict
from elmokit.convert.weights import Array, Entry, build_module, read_parameters, unchanged
from elmokit.errors import ConfigError, WeightsError, join_names, suggest, warn
from elmokit.model.bilm import BiLM
from elmokit.model.lexicon import Lexicon
from elmokit.model.lexicon_encoder import LexiconEncoder
from elmokit.model.lstm import FORGET_BIAS
from elmokit.storage.manifest import read_json
from elmokit.storage.regular import read_bounded

CONFIG = "config.json"
CHARACTERS = "char.dic"
WORDS = "word.dic"
EMBEDDER = "token_embedder.pkl"
ENCODER = "encoder.pkl"
#: The files that identify a directory as an ELMoForManyLangs model.
WEIGHTS = (EMBEDDER, ENCODER)

# Settings that cannot be derived from tensors. All published models have these values (issue 26 of
# HIT-SCIR/ELMoForManyLangs).
_LEXICON_SETTINGS = {"activation": "relu", "max_characters_per_token": 50}
_CLIP = 3.0


def is_model_dir(path: Path) -> bool:
    """Return whether a directory contains an ELMoForManyLangs model (it may still be damaged)."""
    return all((path / name).is_file() for name in WEIGHTS)


def read(folder: Path) -> tuple[BiLM, tuple[Path, ...]]:
    """Read a model, including its lexicon.

    Returns:
        The biLM and the files that were read.

    Raises:
        ConfigError: The model is not a supported kind of ELMo.
        WeightsError: A file is missing or damaged, or the files are from different models.
    """
    tensors = read_state_dict(folder / EMBEDDER) | read_state_dict(folder / ENCODER)
    architecture = _find_architecture(folder)
    config, lexicon = _read_config(folder, tensors, architecture)
    entries = [*_embedder_entries(lexicon, config.lstm), *_lstm_entries(config.lstm)]
    parameters = read_parameters(entries, tensors.get, tensors, folder)
    if unexpected := tensors.keys() - {entry.name for entry in entries}:
        raise WeightsError(
            f"{folder} contains unexpected tensors: {join_names(sorted(unexpected))}. It is not a "
            "supported ELMoForManyLangs model."
        )
    bilm = build_module(lambda: BiLM(config), parameters)
    assert isinstance(bilm.encoder, LexiconEncoder)
    words = _read_dic(folder / WORDS) if lexicon.n_words else None
    characters = _read_dic(folder / CHARACTERS) if lexicon.n_characters else None
    try:
        bilm.encoder.lexicon = Lexicon(words, characters, lexicon.max_characters_per_token)
        bilm.encoder.lexicon.check(lexicon)
    except WeightsError as error:
        raise WeightsError(f"{WORDS} and {CHARACTERS} in {folder}: {error}") from None
    files = [folder / name for name in (CONFIG, CHARACTERS, WORDS, EMBEDDER, ENCODER)]
    if architecture is not None:
        files.append(architecture)
    return bilm, tuple(file for file in files if file.is_file())


# ---------------------------------------------------------------------------------------- settings


def _find_architecture(folder: Path) -> Path | None:
    """Return the architecture file that `config_path` specifies, if the model contains it."""
    config = folder / CONFIG
    config_path = read_json(config).get("config_path") if config.is_file() else None
    if isinstance(config_path, str) and config_path:
        name = Path(config_path.replace("\\", "/")).name
        for path in (folder / name, folder / "configs" / name):
            if path.is_file():
                return path
    warn(
        f"{folder} does not contain the architecture file (config_path in {CONFIG}: "
        f"{config_path or 'not set'}). This is common for ELMoForManyLangs models. Sizes are "
        "derived from the tensors, and the other settings are those of all published models: relu, "
        f"at most 50 characters per token, and clipping at {_CLIP:g}. If your model uses "
        "different settings, add the architecture file to the directory."
    )
    return None


def _read_config(
    folder: Path, tensors: Mapping[str, Array], architecture: Path | None
) -> tuple[BiLMConfig, LexiconConfig]:
    """Derive the configuration from the tensors and the architecture file."""
    n_words, word_dim = _matrix_shape(tensors, "word_emb_layer.embedding.weight")
    n_characters, char_dim = _matrix_shape(tensors, "char_emb_layer.embedding.weight")
    projection_dim, dim = _matrix_shape(tensors, "forward_layer_0.state_projection.weight")
    convolutions = _numbered_tensors(tensors, "convolutions.{}.weight")
    lexicon = {
        "n_words": n_words,
        "word_dim": word_dim,
        "n_characters": n_characters,
        "embedding_dim": char_dim,
        "filters": [[array.shape[-1], array.shape[0]] for array in convolutions if array.ndim],
        "n_highway": len(_numbered_tensors(tensors, "highways._layers.{}.weight")),
        **_LEXICON_SETTINGS,
    }
    lstm = {
        "dim": dim,
        "projection_dim": projection_dim,
        "n_layers": len(_numbered_tensors(tensors, "forward_layer_{}.input_linearity.weight")),
        "cell_clip": _CLIP,
        "proj_clip": _CLIP,
        "use_skip_connections": True,
    }
    if architecture is not None:
        _apply_settings(architecture, lexicon, lstm)
    try:
        config = BiLMConfig.from_dict({"lstm": lstm, "lexicon": lexicon})
    except ConfigError as error:
        raise ConfigError(
            f"{architecture or folder} is not a supported ELMoForManyLangs model: {error}"
        ) from None
    assert config.lexicon is not None
    return config, config.lexicon


def _matrix_shape(tensors: Mapping[str, Array], name: str) -> tuple[int, int]:
    """Return the shape of a matrix, or (0, 0) if it does not exist."""
    shape = tensors[name].shape if name in tensors else ()
    return (shape[0], shape[1]) if len(shape) == 2 else (0, 0)


def _numbered_tensors(tensors: Mapping[str, Array], pattern: str) -> list[Array]:
    """Return the tensors numbered 0, 1, ... up to the first missing number."""
    names = map(pattern.format, itertools.count())
    return [tensors[name] for name in itertools.takewhile(tensors.__contains__, names)]


def _apply_settings(path: Path, lexicon: dict[str, Any], lstm: dict[str, Any]) -> None:
    """Replace the default settings with those of the architecture file."""
    values = read_json(path)

    def get_setting(section: str, key: str) -> Any:
        group = values.get(section)
        if not isinstance(group, Mapping) or key not in group:
            hint = suggest(key, group) if isinstance(group, Mapping) else ""
            raise ConfigError(f"{path}: the key '{section}.{key}' is missing.{hint}")
        return group[key]

    for section, expected in (("token_embedder", "cnn"), ("encoder", "elmo")):
        if str(name := get_setting(section, "name")).lower() != expected:
            raise ConfigError(
                f"{path}: unsupported {section}.name {name!r}. Expected '{expected}' (ELMo)."
            )
    lexicon |= {key: get_setting("token_embedder", key) for key in _LEXICON_SETTINGS}
    # In ELMoForManyLangs, 0 means no clipping.
    lstm |= {key: get_setting("encoder", key) or None for key in ("cell_clip", "proj_clip")}


# ----------------------------------------------------------------------------------------- tensors


def _embedder_entries(lexicon: LexiconConfig, lstm: LstmConfig) -> Iterator[Entry]:
    f, d = lexicon.n_filters, lstm.projection_dim
    shape: tuple[int, ...]
    if lexicon.n_words:
        shape = (lexicon.n_words, lexicon.word_dim)
        yield unchanged("word_emb_layer.embedding.weight", shape, "encoder.word_embed")
    if lexicon.n_characters:
        shape = (lexicon.n_characters, lexicon.embedding_dim)
        yield unchanged("char_emb_layer.embedding.weight", shape, "encoder.char_embed")
    for i, (width, count) in enumerate(lexicon.filters):
        name = f"convolutions.{i}."
        shape = (count, lexicon.embedding_dim, width)
        yield unchanged(name + "weight", shape, f"encoder.{name}weight")
        yield unchanged(name + "bias", (count,), f"encoder.{name}bias")
    for i in range(lexicon.n_highway):
        for kind, shape in (("weight", (2 * f, f)), ("bias", (2 * f,))):
            prefix = f"encoder.highways.{i}."
            yield Entry(
                f"highways._layers.{i}.{kind}",
                shape,
                (f"{prefix}transform.{kind}", f"{prefix}carry.{kind}"),
                lambda a: (a[:f], -a[f:]),
            )
    yield unchanged("projection.weight", (d, lexicon.word_dim + f), "encoder.projection.weight")
    yield unchanged("projection.bias", (d,), "encoder.projection.bias")


def _lstm_entries(lstm: LstmConfig) -> Iterator[Entry]:
    h, d = lstm.dim, lstm.projection_dim
    for direction in ("forward", "backward"):
        for layer in range(lstm.n_layers):
            source, prefix = f"{direction}_layer_{layer}.", f"{direction}_lm.layers.{layer}."
            for name, shape, parameter, unpack in (
                ("input_linearity.weight", (4 * h, d), "weight_input", _reorder_gates),
                ("state_linearity.weight", (4 * h, d), "weight_recurrent", _reorder_gates),
                ("state_linearity.bias", (4 * h,), "bias", _unpack_bias),
            ):
                yield Entry(source + name, shape, (prefix + parameter,), unpack)
            if lstm.has_projection:
                name = source + "state_projection.weight"
                yield unchanged(name, (d, h), prefix + "weight_projection")


def _reorder_gates(rows: Array) -> tuple[Array]:
    """Reorder rows i, f, j, o to i, j, f, o."""
    i, f, j, o = np.split(rows, 4)
    return (np.concatenate([i, j, f, o]),)


def _unpack_bias(bias: Array) -> tuple[Array]:
    """Reorder the gate biases, and subtract the constant 1 from the bias of the forget gate."""
    (bias,) = _reorder_gates(bias)
    h = len(bias) // 4
    bias[2 * h : 3 * h] -= FORGET_BIAS
    return (bias,)


# ----------------------------------------------------------------------------------------- lexicon


def _read_dic(path: Path) -> list[str]:
    """Return the entries of a lexicon file, sorted by index.

    As in ELMoForManyLangs, an empty entry stands for the ideographic space.
    """
    try:
        lines = read_bounded(path, WeightsError).decode("utf-8").split("\n")
    except FileNotFoundError:
        raise WeightsError(
            f"The lexicon file {path} does not exist. Copy it from the original model."
        ) from None
    except UnicodeDecodeError as error:
        raise WeightsError(
            f"{path} is not valid UTF-8 at byte {error.start:,}. Copy the file again."
        ) from None
    entries = []
    for number, line in enumerate(lines, start=1):
        if not line.strip("\r"):
            continue
        *entry, index = line.strip().split("\t")
        if len(entry) > 1 or not index.isascii() or not index.isdigit() or len(index) > 9:
            raise WeightsError(
                f"Invalid line in {path}:{number}: {line[:60]!r}. Expected an entry, a tab and an "
                "index."
            )
        entries.append((int(index), entry[0] if entry else "\u3000"))
    entries.sort()
    if [index for index, _ in entries] != list(range(len(entries))):
        raise WeightsError(
            f"Invalid indices in {path}: expected each index from 0 to {len(entries) - 1} once. "
            "Copy the file again."
        )
    return [entry for _, entry in entries]
