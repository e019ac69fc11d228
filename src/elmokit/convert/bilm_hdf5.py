"""The weight files of bilm-tf and AllenNLP: `options.json` and one HDF5 file.

Reading and writing are exact inverses: every tensor is stored as it is in the file and only
transposed, so a float32 file survives the round trip bit by bit. The LM head is not part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit.config import BiLMConfig, CharCnnConfig
from elmokit.convert.weights import as_float32, check_shape, make_bilm
from elmokit.errors import ConfigError, WeightsError, nearest, warn
from elmokit.hdf5_sink import Hdf5Sink
from elmokit.model.bilm import BiLM
from elmokit.model.chars import N_CHARACTERS, N_STORED_CHARACTERS
from elmokit.storage.hdf5 import find_dataset, hdf5_errors, open_hdf5
from elmokit.storage.manifest import read_json, write_json

Array = NDArray[np.float32]

# Keys that the original programs write or read; training keys do not affect vectors.
_TRAINING_KEYS = frozenset(
    "bidirectional dropout all_clip_norm_val n_epochs n_train_tokens batch_size n_tokens_vocab "
    "unroll_steps n_negative_samples_batch learning_rate sample_softmax share_embedding_softmax "
    "reverse initial_accumulator_value seed n_gpus".split()
)
_LSTM_KEYS = frozenset(
    ("dim", "projection_dim", "n_layers", "cell_clip", "proj_clip", "use_skip_connections")
)
_CHAR_CNN_KEYS = frozenset(
    "activation filters embedding max_characters_per_token n_highway n_characters "
    "projection_after_highway".split()
)


def read(options: Path, weights: Path) -> BiLM:
    """Read a biLM.

    Args:
        options: The `options.json`.
        weights: The HDF5 file.
    """
    with hdf5_errors(weights, error=WeightsError), open_hdf5(weights, error=WeightsError) as file:
        table = find_dataset(file, "embedding", error=WeightsError)
        n_words = int(table.shape[0]) if table is not None and table.shape else None
        config = read_options(options, n_words=n_words)
        state: dict[str, torch.Tensor] = {}
        for entry in entries(config):
            state |= entry.tensors(_dataset(file, entry, weights))
    return make_bilm(config, state)


def write(bilm: BiLM, options: Path, weights: Path) -> None:
    """Write a biLM so that AllenNLP, bilm-tf and simple_elmo can read it, not atomically."""
    import h5py

    state = {name: tensor.detach().cpu().numpy() for name, tensor in bilm.state_dict().items()}
    with Hdf5Sink(weights) as sink, h5py.File(sink, "w") as file:
        for entry in entries(bilm.config):
            value = entry.pack(*(state[name] for name in entry.names))
            data = np.ascontiguousarray(value, dtype=np.float32)
            file.create_dataset(entry.dataset, data=data)
            sink.check()
    write_json(options, to_options(bilm.config))


# ---------------------------------------------------------------------------------------- options


def read_options(path: Path, *, n_words: int | None = None) -> BiLMConfig:
    """Read an `options.json`.

    Args:
        path: The file.
        n_words: Vocabulary size of a model without `char_cnn`. Default: `n_tokens_vocab`.
    """
    values = read_json(path)
    try:
        return _from_options(values, n_words)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _from_options(options: Mapping[str, Any], n_words: int | None) -> BiLMConfig:
    _warn_unknown(options, _TRAINING_KEYS | {"lstm", "char_cnn"}, "")
    lstm = _section(options, "lstm", _LSTM_KEYS)
    lstm["use_skip_connections"] = bool(lstm.get("use_skip_connections"))
    defaults = {"dim": None, "projection_dim": None, "n_layers": 1, "cell_clip": None}
    values: dict[str, Any] = {"lstm": {**defaults, "proj_clip": None, **lstm}}
    if "char_cnn" not in options:
        values["n_words"] = n_words or options.get("n_tokens_vocab")
        return BiLMConfig.from_dict(values)
    cnn = _section(options, "char_cnn", _CHAR_CNN_KEYS)
    n_characters = cnn.get("n_characters", N_CHARACTERS)
    # bilm-tf trains with 261 and predicts with 262; the weights are the same.
    if n_characters not in (N_STORED_CHARACTERS, N_CHARACTERS):
        raise ConfigError(
            f"Unsupported char_cnn.n_characters: {n_characters}. Expected 261 (training) or 262 "
            "(prediction), because ELMo reads UTF-8 bytes."
        )
    embedding = cnn.get("embedding")
    if not isinstance(embedding, Mapping) or "dim" not in embedding:
        raise ConfigError(f"Invalid char_cnn.embedding: {embedding!r}. Expected {{'dim': ...}}.")
    values["char_cnn"] = {
        "embedding_dim": embedding["dim"],
        "filters": cnn.get("filters"),
        "n_highway": cnn.get("n_highway") or 0,
        "activation": cnn.get("activation", "relu"),
        "max_characters_per_token": cnn.get("max_characters_per_token"),
    }
    return BiLMConfig.from_dict(values)


def to_options(config: BiLMConfig) -> dict[str, Any]:
    """Return the contents of an `options.json` for prediction."""
    next(entries(config))  # raises if the format does not support the model
    # Clips are written even if they are null, because AllenNLP requires the keys.
    options: dict[str, Any] = {"lstm": config.lstm.to_dict()}
    if config.char_cnn is None:
        return options | {"n_tokens_vocab": config.n_words}
    cnn: CharCnnConfig = config.char_cnn
    options["char_cnn"] = {
        "activation": cnn.activation,
        "filters": [list(pair) for pair in cnn.filters],
        "n_highway": cnn.n_highway,
        "embedding": {"dim": cnn.embedding_dim},
        "n_characters": N_CHARACTERS,
        "max_characters_per_token": cnn.max_characters_per_token,
    }
    return options


def _section(options: Mapping[str, Any], name: str, known: frozenset[str]) -> dict[str, Any]:
    section = options.get(name)
    if not isinstance(section, Mapping):
        raise ConfigError(f"The key '{name}' is missing or not an object.")
    _warn_unknown(section, known, f"{name}.")
    return {key: section[key] for key in known if key in section}


def _warn_unknown(values: Mapping[str, Any], known: frozenset[str] | set[str], where: str) -> None:
    for key in values:
        if key not in known:
            missing = [name for name in known if name not in values]
            if suggestion := nearest(key, missing):
                # A misspelled clip would silently give unclipped vectors.
                raise ConfigError(f"Unknown key '{where}{key}'.{suggestion}")
            warn(f"Ignoring the unknown key '{where}{key}' in the options.")


# ---------------------------------------------------------------------------------------- tensors


@dataclass(frozen=True)
class Entry:
    """One dataset of the file and the parameters of the biLM that it contains."""

    dataset: str
    shape: tuple[int, ...]
    names: tuple[str, ...]
    pack: Callable[..., Array]
    unpack: Callable[[Array], tuple[Array, ...]]

    def tensors(self, value: Array) -> dict[str, torch.Tensor]:
        """Return the parameters in the value of the dataset."""
        parts = zip(self.names, self.unpack(value), strict=True)
        return {name: torch.from_numpy(np.ascontiguousarray(part)) for name, part in parts}


def same(dataset: str, shape: tuple[int, ...], name: str) -> Entry:
    """Describe a tensor that is stored as it is used."""
    return Entry(dataset, shape, (name,), lambda a: a, lambda a: (a,))


def _transposed(dataset: str, shape: tuple[int, int], name: str) -> Entry:
    """Describe a matrix that TensorFlow applies as x W and torch as x W^T."""
    return Entry(dataset, shape, (name,), lambda a: a.T, lambda a: (a.T,))


def entries(config: BiLMConfig) -> Iterator[Entry]:
    """Yield the datasets of a model of this shape; bilm-tf's checkpoints have the same tensors.

    Raises:
        ConfigError: The format does not support such a model.
    """
    if config.lexicon is not None:
        raise ConfigError(
            "The HDF5 format of AllenNLP and bilm-tf does not support models with a lexicon of "
            "characters and words (ELMoForManyLangs). Use elmokit's format."
        )
    d, h = config.lstm.projection_dim, config.lstm.dim
    if (cnn := config.char_cnn) is None:
        assert config.n_words is not None
        yield same("embedding", (config.n_words, d), "encoder.embedding")
    else:
        yield from _encoder_entries(cnn, d)
    for number, direction in enumerate(("forward_lm", "backward_lm")):
        for layer in range(config.lstm.n_layers):
            ours = f"{direction}.layers.{layer}."
            theirs = f"RNN_{number}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/"
            yield Entry(
                theirs + "W_0",
                (2 * d, 4 * h),
                (ours + "weight_input", ours + "weight_recurrent"),
                lambda w_x, w_r: np.concatenate([w_x, w_r], axis=1).T,
                lambda w, d=d: (w[:d].T, w[d:].T),  # type: ignore[misc]
            )
            yield same(theirs + "B", (4 * h,), ours + "bias")
            if config.lstm.has_projection:
                yield _transposed(theirs + "W_P_0", (h, d), ours + "weight_projection")


def _encoder_entries(cnn: CharCnnConfig, d: int) -> Iterator[Entry]:
    f = cnn.n_filters
    yield same("char_embed", (N_STORED_CHARACTERS, cnn.embedding_dim), "encoder.char_embed")
    for i, (width, count) in enumerate(cnn.filters):
        yield Entry(
            f"CNN/W_cnn_{i}",
            (1, width, cnn.embedding_dim, count),
            (f"encoder.convolutions.{i}.weight",),
            lambda a: a.transpose(2, 1, 0)[None],
            lambda a: (a[0].transpose(2, 1, 0),),
        )
        yield same(f"CNN/b_cnn_{i}", (count,), f"encoder.convolutions.{i}.bias")
    for i in range(cnn.n_highway):
        for part in ("carry", "transform"):
            ours = f"encoder.highways.{i}.{part}."
            yield _transposed(f"CNN_high_{i}/W_{part}", (f, f), ours + "weight")
            yield same(f"CNN_high_{i}/b_{part}", (f,), ours + "bias")
    if f != d:
        yield _transposed("CNN_proj/W_proj", (f, d), "encoder.projection.weight")
        yield same("CNN_proj/b_proj", (d,), "encoder.projection.bias")


def _dataset(file: Any, entry: Entry, path: Path) -> Array:
    # Models of one layer were dumped without the MultiRNNCell scope.
    for name in (entry.dataset, entry.dataset.replace("/MultiRNNCell/Cell0", "")):
        dataset = find_dataset(file, name, error=WeightsError)
        if dataset is not None:
            what = f"Tensor '{entry.dataset}' in {path}"
            check_shape(what, dataset.shape, entry.shape)
            return as_float32(what, np.asarray(dataset[()]))
    names: list[str] = []
    file.visit(names.append)
    listed = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    raise WeightsError(
        f"{path} has no tensor '{entry.dataset}' {list(entry.shape)}, which its options require. "
        f"It contains {listed or 'no tensors'}."
    )
