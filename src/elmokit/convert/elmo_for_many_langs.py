"""The models of ELMoForManyLangs: one directory for each of 44 languages.

    config.json           training settings; `config_path` names the file with its shape
    cnn_50_100_...json    that shape; missing in the published zip files
    char.dic, word.dic    the lexicons: a character or word, a tab, its index
    token_embedder.pkl    weights saved by torch, read with `weights_only=True`
    encoder.pkl
    classifier.pkl        the LM head, which few models have; it is not read

Differences from bilm-tf's models, and how they are converted:

    token encoder   a lexicon of Unicode characters and a word table: `model/lexicon_encoder.py`
    highways        g x + (1 - g) f(x): the gate is inverted, -W and -b, exactly
    LSTM gates      in the order i, f, j, o: reordered to i, j, f, o
    forget gate     the bias includes 1, which is subtracted. This is exact for a bias of 0.5 to 2
                    (training starts from 1), otherwise to half a unit of float32
    skip            always used, from the second layer on
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elmokit.config import BiLMConfig, LstmConfig
from elmokit.convert.torch_pickle import read_state_dict
from elmokit.convert.weights import check_shape, make_bilm
from elmokit.errors import ConfigError, WeightsError, nearest, warn
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

# Settings that cannot be derived from tensors, as in all published models: the authors used the
# same values for all languages (issue 26 of HIT-SCIR/ELMoForManyLangs).
_LEXICON_SETTINGS = {"activation": "relu", "max_characters_per_token": 50}
_CLIP = 3.0


def read(folder: Path) -> tuple[BiLM, tuple[Path, ...]]:
    """Read a model, including its lexicon.

    Returns:
        The biLM and the files that were read.

    Raises:
        ConfigError: It is a model of ELMoForManyLangs, but not a supported kind of ELMo.
        WeightsError: A file is missing or damaged, or the files are from different models.
    """
    embedder, encoder = (_State(folder / name) for name in (EMBEDDER, ENCODER))
    settings = _settings_file(folder)
    config = _read_config(embedder, encoder, settings)
    lexicon = config.lexicon
    assert lexicon is not None
    state = dict(_embedder_parameters(embedder, config))
    state |= dict(_lstm_parameters(encoder, config.lstm))
    embedder.check_all_used()
    encoder.check_all_used()
    bilm = make_bilm(config, state)
    assert isinstance(bilm.encoder, LexiconEncoder)
    words = _read_dic(folder / WORDS) if lexicon.n_words else None
    characters = _read_dic(folder / CHARACTERS) if lexicon.n_characters else None
    try:
        bilm.encoder.lexicon = Lexicon(words, characters, lexicon.max_characters_per_token)
        bilm.encoder.lexicon.check(lexicon)
    except WeightsError as error:
        raise WeightsError(f"{folder}, {WORDS} and {CHARACTERS}: {error}") from None
    names = [CONFIG, CHARACTERS if characters else "", WORDS if words else "", EMBEDDER, ENCODER]
    files = [folder / name for name in names if name and (folder / name).is_file()]
    return bilm, (*files, *([] if settings is None else [settings]))


# ---------------------------------------------------------------------------------------- settings


def _settings_file(folder: Path) -> Path | None:
    """Find the file that `config_path` names, only in the directory of the model."""
    config = folder / CONFIG
    named = read_json(config).get("config_path") if config.is_file() else None
    if isinstance(named, str) and named:
        name = Path(named.replace("\\", "/")).name
        for path in (folder / name, folder / "configs" / name):
            if path.is_file():
                return path
    warn(
        f"{folder} does not contain the file with the model's settings ({named or 'config_path'} "
        f"of {CONFIG}), as is usual with ELMoForManyLangs. Sizes are derived from the tensors, and "
        "the settings of all published models are used: relu, at most 50 characters, clips "
        f"{_CLIP:g}. If your model differs, add the file."
    )
    return None


def _read_config(embedder: _State, encoder: _State, settings: Path | None) -> BiLMConfig:
    """Return the configuration that matches the tensors and the file with settings."""
    n_words, word_dim = embedder.matrix("word_emb_layer.embedding.weight", optional=True)
    n_characters, char_dim = embedder.matrix("char_emb_layer.embedding.weight", optional=True)
    projection_dim, dim = encoder.matrix("forward_layer_0.state_projection.weight")
    weights = embedder.numbered("convolutions.{}.weight")
    lexicon = {
        "n_words": n_words,
        "word_dim": word_dim,
        "n_characters": n_characters,
        "embedding_dim": char_dim,
        "filters": [[weight[2], weight[0]] for weight in weights if len(weight) == 3],
        "n_highway": len(embedder.numbered("highways._layers.{}.weight")),
        **_LEXICON_SETTINGS,
    }
    lstm = {
        "dim": dim,
        "projection_dim": projection_dim,
        "n_layers": len(encoder.numbered("forward_layer_{}.input_linearity.weight")),
        "cell_clip": _CLIP,
        "proj_clip": _CLIP,
        "use_skip_connections": True,
    }
    if settings is not None:
        _apply_settings(settings, lexicon, lstm)
    if projection_dim >= dim:
        raise ConfigError(
            f"{encoder.path}: unsupported model, whose projection ({projection_dim}) is not "
            f"smaller than its cell ({dim})."
        )
    try:
        return BiLMConfig.from_dict({"lstm": lstm, "lexicon": lexicon})
    except ConfigError as error:
        raise ConfigError(f"{settings or embedder.path.parent}: {error}") from None


def _apply_settings(path: Path, lexicon: dict[str, Any], lstm: dict[str, Any]) -> None:
    """Set what cannot be derived from tensors according to the file with settings."""
    values = read_json(path)

    def get(section: str, key: str) -> Any:
        group = values.get(section)
        if not isinstance(group, Mapping) or key not in group:
            hint = nearest(key, group) if isinstance(group, Mapping) else ""
            raise ConfigError(f"{path}: the key '{section}.{key}' is missing.{hint}")
        return group[key]

    for section, expected in (("token_embedder", "cnn"), ("encoder", "elmo")):
        if str(name := get(section, "name")).lower() != expected:
            raise ConfigError(
                f"{path}: unsupported {section}.name {name!r}. Expected '{expected}' (ELMo)."
            )
    lexicon |= {key: get("token_embedder", key) for key in _LEXICON_SETTINGS}
    # In the original, a clip of 0 means no clip.
    lstm |= {key: get("encoder", key) or None for key in ("cell_clip", "proj_clip")}


# ----------------------------------------------------------------------------------------- tensors


class _State:
    """The tensors of a file that have not been used yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._tensors = read_state_dict(path)

    def matrix(self, name: str, *, optional: bool = False) -> tuple[int, int]:
        """Return the shape of a matrix; (0, 0) if it is optional and missing."""
        if optional and name not in self._tensors:
            return 0, 0
        shape = tuple(self._get(name).shape)
        if len(shape) != 2:
            raise WeightsError(
                f"Tensor '{name}' in {self.path} has shape {list(shape)}; expected a matrix."
            )
        return shape

    def numbered(self, pattern: str) -> list[tuple[int, ...]]:
        """Return the shapes of numbered tensors, from 0 until one is missing."""
        shapes: list[tuple[int, ...]] = []
        while (tensor := self._tensors.get(pattern.format(len(shapes)))) is not None:
            shapes.append(tuple(tensor.shape))
        return shapes

    def take(self, name: str, *shape: int) -> Tensor:
        """Remove a tensor and return it as float32, if it has the expected shape."""
        tensor = self._get(name)
        what = f"Tensor '{name}' in {self.path}"
        check_shape(what, tensor.shape, shape)
        if not tensor.is_floating_point() or not bool(torch.isfinite(tensor).all()):
            raise WeightsError(f"{what} contains values that are not finite floats.")
        del self._tensors[name]
        return tensor.detach().to(torch.float32).contiguous()

    def check_all_used(self) -> None:
        """Raise an error if tensors are left."""
        if self._tensors:
            raise WeightsError(
                f"{self.path} contains unexpected tensors: {', '.join(sorted(self._tensors)[:5])}. "
                "It is not a supported model of ELMoForManyLangs."
            )

    def _get(self, name: str) -> Tensor:
        if name not in self._tensors:
            raise WeightsError(
                f"{self.path} has no tensor '{name}', which a model of ELMoForManyLangs needs. It "
                f"contains {', '.join(list(self._tensors)[:8]) or 'no tensors'}."
            )
        return self._tensors[name]


def _embedder_parameters(state: _State, config: BiLMConfig) -> Iterator[tuple[str, Tensor]]:
    lexicon = config.lexicon
    assert lexicon is not None
    f, d = lexicon.n_filters, config.lstm.projection_dim
    if lexicon.n_words:
        theirs = "word_emb_layer.embedding.weight"
        yield "encoder.word_embed", state.take(theirs, lexicon.n_words, lexicon.word_dim)
    if lexicon.n_characters:
        theirs = "char_emb_layer.embedding.weight"
        yield "encoder.char_embed", state.take(theirs, lexicon.n_characters, lexicon.embedding_dim)
    for i, (width, count) in enumerate(lexicon.filters):
        name = f"convolutions.{i}."
        weight = state.take(f"{name}weight", count, lexicon.embedding_dim, width)
        yield f"encoder.{name}weight", weight
        yield f"encoder.{name}bias", state.take(f"{name}bias", count)
    for i in range(lexicon.n_highway):
        for kind, shape in (("weight", (2 * f, f)), ("bias", (2 * f,))):
            transform, gate = state.take(f"highways._layers.{i}.{kind}", *shape).chunk(2)
            yield f"encoder.highways.{i}.transform.{kind}", transform.contiguous()
            yield f"encoder.highways.{i}.carry.{kind}", -gate
    yield "encoder.projection.weight", state.take("projection.weight", d, lexicon.word_dim + f)
    yield "encoder.projection.bias", state.take("projection.bias", d)


def _lstm_parameters(state: _State, lstm: LstmConfig) -> Iterator[tuple[str, Tensor]]:
    h, d = lstm.dim, lstm.projection_dim
    for direction in ("forward", "backward"):
        for layer in range(lstm.n_layers):
            theirs, ours = f"{direction}_layer_{layer}.", f"{direction}_lm.layers.{layer}."
            weight = state.take(theirs + "input_linearity.weight", 4 * h, d)
            yield ours + "weight_input", _gates(weight)
            recurrent = state.take(theirs + "state_linearity.weight", 4 * h, d)
            yield ours + "weight_recurrent", _gates(recurrent)
            bias = _gates(state.take(theirs + "state_linearity.bias", 4 * h))
            bias[2 * h : 3 * h] -= FORGET_BIAS
            yield ours + "bias", bias
            projection = state.take(theirs + "state_projection.weight", d, h)
            yield ours + "weight_projection", projection


def _gates(rows: Tensor) -> Tensor:
    """Reorder rows i, f, j, o to i, j, f, o."""
    i, f, j, o = rows.chunk(4, dim=0)
    return torch.cat([i, j, f, o])


# ----------------------------------------------------------------------------------------- lexicon


def _read_dic(path: Path) -> list[str]:
    """Return the entries of a lexicon file in the order of their indices.

    As in the original, an empty entry is the ideographic space.
    """
    try:
        lines = read_bounded(path, WeightsError).decode("utf-8").split("\n")
    except FileNotFoundError:
        raise WeightsError(f"The model's lexicon {path} does not exist.") from None
    except UnicodeDecodeError as error:
        raise WeightsError(f"{path} is not valid UTF-8 at byte {error.start:,}.") from None
    entries: dict[int, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip("\r"):
            continue
        *entry, index = line.strip().split("\t")
        if len(entry) > 1 or not index.isascii() or not index.isdigit():
            raise WeightsError(
                f"Invalid line in {path}:{number}: {line[:60]!r}. Expected an entry, a tab and its "
                "index."
            )
        if int(index) in entries:
            raise WeightsError(f"Duplicate index {index} in {path}:{number}.")
        entries[int(index)] = entry[0] if entry else "\u3000"
    missing = next((index for index in range(len(entries)) if index not in entries), None)
    if missing is not None:
        raise WeightsError(f"{path} has no entry with index {missing}: lines are missing.")
    return [entries[index] for index in range(len(entries))]
