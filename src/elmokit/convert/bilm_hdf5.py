"""Read and write bilm-tf and AllenNLP model files: `options.json` and one HDF5 file.

Tensors are only transposed and concatenated, so a round trip preserves float32 weights exactly.
The format does not include the LM head.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.config import BiLMConfig, CharCnnConfig, LstmConfig
from elmokit.convert.weights import Entry, build_module, read_parameters, unchanged
from elmokit.errors import ConfigError, WeightsError, suggest, warn
from elmokit.model.bilm import BiLM
from elmokit.model.chars import N_CHARACTERS, N_STORED_CHARACTERS
from elmokit.storage.hdf5 import find_dataset, hdf5_errors, open_hdf5
from elmokit.storage.hdf5_writer import Hdf5Writer
from elmokit.storage.manifest import read_json, write_json

# Keys that only affect training, except that word-input models need `n_tokens_vocab`.
_TRAINING_KEYS = (
    "bidirectional dropout all_clip_norm_val n_epochs n_train_tokens batch_size n_tokens_vocab "
    "unroll_steps n_negative_samples_batch learning_rate sample_softmax share_embedding_softmax "
    "reverse initial_accumulator_value seed n_gpus".split()
)
_CHAR_CNN_KEYS = (
    "activation filters embedding max_characters_per_token n_highway n_characters "
    "projection_after_highway".split()
)


def read(options: Path, weights: Path) -> BiLM:
    """Read a biLM.

    Args:
        options: The `options.json` file.
        weights: The HDF5 file.
    """
    with hdf5_errors(weights, error=WeightsError), open_hdf5(weights, error=WeightsError) as file:
        table = find_dataset(file, "embedding", error=WeightsError)
        n_words = int(table.shape[0]) if table is not None and table.shape else None
        config = read_options(options, n_words=n_words)
        find = functools.partial(_find_dataset, file)
        parameters = read_parameters(entries(config), find, file, weights)
    return build_module(lambda: BiLM(config), parameters)


def write(bilm: BiLM, options: Path, weights: Path) -> None:
    """Write a biLM for AllenNLP, bilm-tf and simple_elmo. The files are not written atomically."""
    state = {name: tensor.detach().cpu().numpy() for name, tensor in bilm.state_dict().items()}
    with weights.open("wb") as file:
        writer = Hdf5Writer(file)
        for entry in entries(bilm.config):
            value = entry.pack(*(state[name] for name in entry.parameters))
            writer.add_numbers(value.astype(np.float32, copy=False), name=entry.name)
        writer.finish()
    write_json(options, to_options(bilm.config))


# ---------------------------------------------------------------------------------------- options


def read_options(path: Path, *, n_words: int | None = None) -> BiLMConfig:
    """Read the configuration of a biLM.

    Args:
        path: The `options.json` file.
        n_words: Vocabulary size of a model without `char_cnn`. Default: `n_tokens_vocab`.
    """
    values = read_json(path)
    try:
        return _from_options(values, n_words)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _from_options(options: Mapping[str, Any], n_words: int | None) -> BiLMConfig:
    _check_keys(options, (*_TRAINING_KEYS, "lstm", "char_cnn"), "")
    lstm = _section(options, "lstm", LstmConfig.__dataclass_fields__, n_layers=1)
    lstm["use_skip_connections"] = bool(lstm["use_skip_connections"])
    if "char_cnn" not in options:
        n_words = n_words or options.get("n_tokens_vocab")
        return BiLMConfig.from_dict({"lstm": lstm, "n_words": n_words})
    defaults = {"activation": "relu", "n_characters": N_CHARACTERS}
    cnn = _section(options, "char_cnn", _CHAR_CNN_KEYS, **defaults)
    # bilm-tf uses 261 for training and 262 for prediction, with the same weights.
    if (n_characters := cnn["n_characters"]) not in (N_STORED_CHARACTERS, N_CHARACTERS):
        raise ConfigError(
            f"Unsupported char_cnn.n_characters: {n_characters}. Expected 261 (training) or 262 "
            "(prediction), because ELMo reads UTF-8 bytes."
        )
    embedding = cnn["embedding"]
    if not isinstance(embedding, Mapping) or "dim" not in embedding:
        raise ConfigError(f"Invalid char_cnn.embedding: {embedding!r}. Expected {{'dim': ...}}.")
    cnn |= {"embedding_dim": embedding["dim"], "n_highway": cnn["n_highway"] or 0}
    char_cnn = {name: cnn[name] for name in CharCnnConfig.__dataclass_fields__}
    return BiLMConfig.from_dict({"lstm": lstm, "char_cnn": char_cnn})


def to_options(config: BiLMConfig) -> dict[str, Any]:
    """Return the contents of an `options.json` file for prediction."""
    next(entries(config))  # raises an error if the format does not support the model
    # AllenNLP requires the keys `cell_clip` and `proj_clip`, even if they are null.
    options: dict[str, Any] = {"lstm": config.lstm.to_dict()}
    if config.char_cnn is None:
        return options | {"n_tokens_vocab": config.n_words}
    cnn = config.char_cnn.to_dict()
    cnn |= {"embedding": {"dim": cnn.pop("embedding_dim")}, "n_characters": N_CHARACTERS}
    return options | {"char_cnn": cnn}


def _section(
    options: Mapping[str, Any], name: str, keys: Collection[str], **defaults: Any
) -> dict[str, Any]:
    section = options.get(name)
    if not isinstance(section, Mapping):
        raise ConfigError(f"Missing or invalid key '{name}'. Expected an object with settings.")
    _check_keys(section, keys, f"{name}.")
    return {key: section.get(key, defaults.get(key)) for key in keys}


def _check_keys(values: Mapping[str, Any], known: Collection[str], prefix: str) -> None:
    for key in values:
        if key not in known:
            missing = [name for name in known if name not in values]
            if suggestion := suggest(key, missing):
                # For example, ignoring a misspelled `cell_clip` would give wrong vectors.
                raise ConfigError(f"Unknown key '{prefix}{key}'.{suggestion}")
            warn(f"Ignoring the unknown key '{prefix}{key}' in the options.")


# ---------------------------------------------------------------------------------------- tensors


def _transposed(name: str, shape: tuple[int, int], parameter: str) -> Entry:
    """Return the entry of a transposed matrix: TensorFlow computes x W, and torch x W^T."""
    return Entry(name, shape, (parameter,), lambda a: (a.T,), lambda a: a.T)


def entries(config: BiLMConfig) -> Iterator[Entry]:
    """Yield the datasets of a model. bilm-tf checkpoints contain the same tensors.

    Raises:
        ConfigError: The format does not support the model.
    """
    if config.lexicon is not None:
        raise ConfigError(
            "The HDF5 format of AllenNLP and bilm-tf does not support models with a lexicon of "
            "characters and words (ELMoForManyLangs). Convert the model to elmokit's format "
            "instead."
        )
    d, h = config.lstm.projection_dim, config.lstm.dim
    if (cnn := config.char_cnn) is None:
        assert config.n_words is not None
        yield unchanged("embedding", (config.n_words, d), "encoder.embedding")
    else:
        yield from _encoder_entries(cnn, d)
    for number, direction in enumerate(("forward_lm", "backward_lm")):
        for layer in range(config.lstm.n_layers):
            prefix = f"{direction}.layers.{layer}."
            tf_prefix = f"RNN_{number}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/"
            yield Entry(
                tf_prefix + "W_0",
                (2 * d, 4 * h),
                (prefix + "weight_input", prefix + "weight_recurrent"),
                lambda w: (w[:d].T, w[d:].T),
                lambda w_x, w_r: np.concatenate([w_x, w_r], axis=1).T,
            )
            yield unchanged(tf_prefix + "B", (4 * h,), prefix + "bias")
            if config.lstm.has_projection:
                yield _transposed(tf_prefix + "W_P_0", (h, d), prefix + "weight_projection")


def _encoder_entries(cnn: CharCnnConfig, d: int) -> Iterator[Entry]:
    f = cnn.n_filters
    yield unchanged("char_embed", (N_STORED_CHARACTERS, cnn.embedding_dim), "encoder.char_embed")
    for i, (width, count) in enumerate(cnn.filters):
        yield Entry(
            f"CNN/W_cnn_{i}",
            (1, width, cnn.embedding_dim, count),
            (f"encoder.convolutions.{i}.weight",),
            lambda a: (a[0].transpose(2, 1, 0),),
            lambda a: a.transpose(2, 1, 0)[None],
        )
        yield unchanged(f"CNN/b_cnn_{i}", (count,), f"encoder.convolutions.{i}.bias")
    for i in range(cnn.n_highway):
        for name in ("carry", "transform"):
            prefix = f"encoder.highways.{i}.{name}."
            yield _transposed(f"CNN_high_{i}/W_{name}", (f, f), prefix + "weight")
            yield unchanged(f"CNN_high_{i}/b_{name}", (f,), prefix + "bias")
    if f != d:
        yield _transposed("CNN_proj/W_proj", (f, d), "encoder.projection.weight")
        yield unchanged("CNN_proj/b_proj", (d,), "encoder.projection.bias")


def _find_dataset(file: Any, name: str) -> Any:
    # Models with a single layer are saved without the MultiRNNCell scope.
    for candidate in (name, name.replace("/MultiRNNCell/Cell0", "")):
        if (dataset := find_dataset(file, candidate, error=WeightsError)) is not None:
            return dataset
    return None
