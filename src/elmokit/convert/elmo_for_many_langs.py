"""The models of ELMoForManyLangs: one directory for each of 44 languages.

    config.json           training settings; `config_path` names the file with its shape
    cnn_50_100_...json    that shape; missing in the published zip files
    char.dic, word.dic    the lexicons: a character or word, a tab, its index
    token_embedder.pkl    weights saved by torch, read with `weights_only=True`
    encoder.pkl

Differences from bilm-tf's models, and how they are converted:

    token encoder   a lexicon of Unicode characters and a word table: `model/lexicon_encoder.py`
    highways        g x + (1 - g) f(x): the gate is inverted, -W and -b, exactly
    LSTM gates      in the order i, f, j, o: reordered to i, j, f, o
    forget gate     the bias includes 1, which is subtracted. This is exact for a bias of 0.5 to 2
                    (training starts from 1), otherwise to half a unit of float32
    skip            always used, from the second layer on
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elmokit.config import BiLMConfig, LstmConfig
from elmokit.convert.torch_pickle import read_state_dict
from elmokit.errors import ConfigError, ElmoWarning, WeightsError, nearest
from elmokit.model.bilm import BiLM
from elmokit.model.blank import blank
from elmokit.model.lexicon import Lexicon
from elmokit.model.lexicon_encoder import LexiconEncoder
from elmokit.model.lstm import FORGET_BIAS
from elmokit.storage.manifest import read_json

CONFIG = "config.json"
CHARACTERS = "char.dic"
WORDS = "word.dic"
EMBEDDER = "token_embedder.pkl"
ENCODER = "encoder.pkl"
#: The LM head, which only few have; it is not read.
CLASSIFIER = "classifier.pkl"

# What tensors do not tell, as all published models have it: the authors used the same values for
# all languages (issue 26 of HIT-SCIR/ELMoForManyLangs).
_PUBLISHED: dict[str, Any] = {"activation": "relu", "max_characters": 50, "clip": 3.0}


def read(folder: Path) -> tuple[BiLM, tuple[Path, ...]]:
    """Read a model, its lexicon included.

    Returns:
        The biLM and the files that were read.

    Raises:
        ConfigError: It is a model of ELMoForManyLangs, but not an ELMo that can be computed here.
        WeightsError: A file is missing or damaged, or the files are not of one model.
    """
    embedder, encoder = (_State(folder / name) for name in (EMBEDDER, ENCODER))
    shape = _shape_file(folder)
    config = _shape_of(embedder, encoder, shape)
    lexicon = config.lexicon
    assert lexicon is not None
    state = dict(_embedder_parameters(embedder, config))
    state |= dict(_lstm_parameters(encoder, config.lstm))
    for part in (embedder, encoder):
        part.check_all_used()
    with blank():
        bilm = BiLM(config)
    bilm.load_state_dict(state, assign=True)
    assert isinstance(bilm.encoder, LexiconEncoder)
    words = _read_dic(folder / WORDS) if lexicon.n_words else None
    characters = _read_dic(folder / CHARACTERS) if lexicon.n_characters else None
    try:
        known = Lexicon(words, characters, lexicon.max_characters_per_token)
        known.check(lexicon)
    except WeightsError as error:
        raise WeightsError(f"{folder}, {WORDS} and {CHARACTERS}: {error}") from None
    bilm.encoder.lexicon = known
    if (folder / CLASSIFIER).exists():
        warnings.warn(
            f"{folder / CLASSIFIER} is not read: a language-model head of ELMoForManyLangs is "
            "learned anew. Vectors need none.",
            ElmoWarning,
            stacklevel=3,
        )
    names = [CONFIG, *([CHARACTERS] if characters else []), *([WORDS] if words else [])]
    files = [folder / name for name in (*names, EMBEDDER, ENCODER) if (folder / name).is_file()]
    return bilm.eval(), (*files, *([shape.path] if shape is not None else []))


# ------------------------------------------------------------------------------------------- shape


@dataclass(frozen=True)
class _Shape:
    """The file with the shape of a model."""

    path: Path
    values: Mapping[str, Any]

    def get(self, section: str, key: str) -> Any:
        found = self.values.get(section)
        if not isinstance(found, Mapping):
            raise ConfigError(f"{self.path}: the key '{section}' is missing or not an object.")
        if key not in found:
            raise ConfigError(
                f"{self.path}: the key '{section}.{key}' is missing.{nearest(key, found)}"
            )
        return found[key]


def _shape_file(folder: Path) -> _Shape | None:
    """Find the file that `config_path` names, in the folder of the model alone."""
    config = folder / CONFIG
    named = read_json(config).get("config_path") if config.is_file() else None
    if isinstance(named, str) and named:
        name = Path(named.replace("\\", "/")).name
        for path in (folder / name, folder / "configs" / name):
            if path.is_file():
                return _Shape(path, read_json(path))
    warnings.warn(
        f"{folder} does not hold the file with the model's shape ({named or 'config_path'} of "
        f"{CONFIG}), as is usual with ELMoForManyLangs. The sizes are taken from the tensors; for "
        f"the rest it is read as all published models are: {_PUBLISHED['activation']}, at most "
        f"{_PUBLISHED['max_characters']} characters, clips {_PUBLISHED['clip']:g}. If yours is "
        "another, put that file there.",
        ElmoWarning,
        stacklevel=4,
    )
    return None


def _shape_of(embedder: _State, encoder: _State, shape: _Shape | None) -> BiLMConfig:
    """Return the shape that the tensors have; what the file says of it must agree."""
    words, characters = (
        embedder.shape(f"{kind}_emb_layer.embedding.weight", optional=True)
        for kind in ("word", "char")
    )
    weights = list(embedder.each("convolutions.{}.weight"))
    state_projection = encoder.shape("forward_layer_0.state_projection.weight")
    lexicon = {
        "n_words": words[0] if words else 0,
        "word_dim": words[1] if words else 0,
        "n_characters": characters[0] if characters else 0,
        "embedding_dim": characters[1] if characters else 0,
        "filters": [[w[2], w[0]] for w in weights if len(w) == 3],
        "n_highway": len(list(embedder.each("highways._layers.{}.weight"))),
        "activation": _PUBLISHED["activation"],
        "max_characters_per_token": _PUBLISHED["max_characters"],
    }
    lstm = {
        "dim": state_projection[1],
        "projection_dim": state_projection[0],
        "n_layers": len(list(encoder.each("forward_layer_{}.input_linearity.weight"))),
        "cell_clip": _PUBLISHED["clip"],
        "proj_clip": _PUBLISHED["clip"],
        "use_skip_connections": True,
    }
    if shape is not None:
        _compare(shape, lexicon, lstm)
        # In the original a clip of 0 is none.
        lstm |= {key: shape.get("encoder", key) or None for key in ("cell_clip", "proj_clip")}
        if lexicon["n_characters"]:
            lexicon["activation"] = shape.get("token_embedder", "activation")
        limit = shape.get("token_embedder", "max_characters_per_token")
        lexicon["max_characters_per_token"] = limit
    if lstm["projection_dim"] >= lstm["dim"]:
        raise ConfigError(
            f"{encoder.path}: the projection ({lstm['projection_dim']}) should be smaller than the "
            f"cell ({lstm['dim']}); other models of ELMoForManyLangs are not read here."
        )
    try:
        return BiLMConfig.from_dict({"lstm": lstm, "lexicon": lexicon})
    except ConfigError as error:
        where = embedder.path.parent if shape is None else shape.path
        raise ConfigError(f"{where}: {error}") from None


def _compare(shape: _Shape, lexicon: Mapping[str, Any], lstm: Mapping[str, Any]) -> None:
    for section, wanted in (("token_embedder", "cnn"), ("encoder", "elmo")):
        found = shape.get(section, "name")
        if str(found).lower() != wanted:
            raise ConfigError(
                f"{shape.path}: '{section}.name' is {found!r}; only '{wanted}' is ELMo and is read "
                "here."
            )
    said = [("encoder", key, lstm[key]) for key in ("dim", "projection_dim", "n_layers")]
    said += [
        ("token_embedder", "word_dim", lexicon["word_dim"]),
        ("token_embedder", "char_dim", lexicon["embedding_dim"]),
    ]
    if lexicon["n_characters"]:
        said += [("token_embedder", key, lexicon[key]) for key in ("filters", "n_highway")]
    for section, key, found in said:
        if (expected := shape.get(section, key)) != found:
            raise WeightsError(
                f"{shape.path} says {section}.{key} = {expected!r}, and the tensors beside it have "
                f"{found!r}. The files are not of the same model."
            )


# ----------------------------------------------------------------------------------------- tensors


class _State:
    """The tensors of a file, with a note of those that were taken."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._tensors = read_state_dict(path)
        self._used: set[str] = set()

    def shape(self, name: str, *, optional: bool = False) -> tuple[int, ...]:
        """Return the shape of a matrix; that of a missing one is ()."""
        if optional and name not in self._tensors:
            return ()
        shape = tuple(self._get(name).shape)
        if len(shape) != 2:
            raise WeightsError(f"Tensor '{name}' in {self.path} should be a matrix, not {shape}.")
        return shape

    def each(self, pattern: str) -> Iterator[tuple[int, ...]]:
        """Give the shapes of numbered tensors, from 0 until one is missing."""
        number = 0
        while (tensor := self._tensors.get(pattern.format(number))) is not None:
            yield tuple(tensor.shape)
            number += 1

    def take(self, name: str, *shape: int) -> Tensor:
        """Return a tensor as float32, once its shape is as expected."""
        tensor = self._get(name)
        if tuple(tensor.shape) != shape:
            raise WeightsError(
                f"Tensor '{name}' in {self.path} has shape {list(tensor.shape)}; those beside it "
                f"call for {list(shape)}."
            )
        if not tensor.is_floating_point() or not bool(torch.isfinite(tensor).all()):
            raise WeightsError(f"Tensor '{name}' in {self.path} holds other than finite numbers.")
        self._used.add(name)
        return tensor.detach().to(torch.float32).contiguous()

    def check_all_used(self) -> None:
        """Refuse what no such model has."""
        if left := sorted(self._tensors.keys() - self._used):
            raise WeightsError(
                f"{self.path} holds tensors that no model of this kind has: {', '.join(left[:5])}."
            )

    def _get(self, name: str) -> Tensor:
        if name not in self._tensors:
            listed = ", ".join(list(self._tensors)[:8])
            raise WeightsError(
                f"{self.path} has no tensor '{name}', which a model of ELMoForManyLangs has. It "
                f"holds: {listed or 'nothing'}."
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
    """Bring rows i, f, j, o to the order i, j, f, o."""
    i, f, j, o = rows.chunk(4, dim=0)
    return torch.cat([i, j, f, o])


# ----------------------------------------------------------------------------------------- lexicon


def _read_dic(path: Path) -> list[str]:
    """Read a lexicon: its entries in the order of their places.

    A line whose entry is blank is that of the ideographic space, as the original has it.
    """
    try:
        lines = path.read_text("utf-8").split("\n")
    except FileNotFoundError:
        raise WeightsError(f"There is no {path}, the lexicon of the model.") from None
    except UnicodeDecodeError as error:
        raise WeightsError(f"{path} is not valid UTF-8 at byte {error.start:,}.") from None
    places: dict[int, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip("\r"):
            continue
        fields = line.strip().split("\t")
        if len(fields) == 1:
            fields = ["\u3000", *fields]
        if len(fields) != 2 or not fields[1].isascii() or not fields[1].isdigit():
            raise WeightsError(
                f"{path}, line {number}: expected an entry, a tab and its place, found "
                f"{line[:60]!r}."
            )
        entry, place = fields[0], int(fields[1])
        if place in places:
            raise WeightsError(
                f"{path}, line {number}: place {place} is taken by {places[place]!r} already."
            )
        places[place] = entry
    if sorted(places) != list(range(len(places))):
        missing = next(place for place in range(len(places)) if place not in places)
        raise WeightsError(f"{path} has no entry for place {missing}: lines were lost.")
    return [places[place] for place in range(len(places))]
