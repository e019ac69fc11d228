"""Published models by name: the four English models of AllenNLP.

Files are downloaded once into the cache; you can also copy them there. `ELMOKIT_ALLENNLP_URL`
selects a mirror.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from elmokit.convert import bilm_hdf5
from elmokit.errors import ConfigError, WeightsError, nearest
from elmokit.presets import preset
from elmokit.sources import hdf5dir
from elmokit.sources.download import cache_dir, cached_path, fetch
from elmokit.sources.modeldir import ModelParts

_BASE = "https://allennlp.s3.amazonaws.com/models/elmo"
# The URL of the same files in older code and configurations.
_OLD_BASE = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo"
_PREFIX = "allennlp:"


@dataclass(frozen=True)
class Published:
    """A published model.

    Attributes:
        folder: The directory of its files, which is also part of their names.
        shape: The preset with its shape.
    """

    folder: str
    shape: str

    def url(self, kind: str) -> str:
        """Return the URL of the `options.json` or `weights.hdf5`."""
        base = os.environ.get("ELMOKIT_ALLENNLP_URL") or _BASE
        return f"{base.rstrip('/')}/{self.folder}/{self._file(kind)}"

    def place(self, kind: str) -> Path:
        """Return where that file is cached, for any mirror."""
        return cache_dir() / "allennlp" / self.folder / self._file(kind)

    def _file(self, kind: str) -> str:
        return f"elmo_{self.folder}_{kind}"


PUBLISHED = {
    "allennlp:small": Published("2x1024_128_2048cnn_1xhighway", "small"),
    "allennlp:medium": Published("2x2048_256_2048cnn_1xhighway", "medium"),
    "allennlp:original": Published("2x4096_512_2048cnn_2xhighway", "original"),
    "allennlp:5.5B": Published("2x4096_512_2048cnn_2xhighway_5.5B", "original"),
}
_OTHER_SPELLINGS = {"allennlp:original-5.5b": "allennlp:5.5B"}


def is_name(text: str) -> bool:
    """Return whether a string names a published model."""
    return text.lower().startswith(_PREFIX)


def load(name: str, *, vocab: Path | None = None) -> ModelParts:
    """Load a published model; download it if it is not in the cache.

    Args:
        name: One of `PUBLISHED`.
        vocab: A vocabulary file.
    """
    name = _proper(name)
    model = PUBLISHED[name]
    options = fetch(model.url(hdf5dir.OPTIONS), model.place(hdf5dir.OPTIONS))
    _check_shape(options, model, name)  # before downloading hundreds of megabytes
    weights = fetch(model.url(hdf5dir.WEIGHTS), model.place(hdf5dir.WEIGHTS))
    try:
        parts = hdf5dir.load(options, weights, vocab=vocab)
    except WeightsError as error:
        raise WeightsError(f"{error} Delete {weights} to download it again.") from None
    parts.source = name
    parts.metadata["name"] = name
    return parts


def place_of(url: str) -> Path:
    """Return where the file of a URL is cached; URLs of published models share one place."""
    for model in PUBLISHED.values():
        for kind in (hdf5dir.OPTIONS, hdf5dir.WEIGHTS):
            ends = f"/{model.folder}/{model._file(kind)}"
            if url in (model.url(kind), _BASE + ends, _OLD_BASE + ends):
                return model.place(kind)
    return cached_path(url)


def _proper(name: str) -> str:
    spellings = {known.lower(): known for known in PUBLISHED} | _OTHER_SPELLINGS
    if name.lower() not in spellings:
        raise WeightsError(
            f"No published model '{name}'.{nearest(name, PUBLISHED)} Names: {', '.join(PUBLISHED)}."
        )
    return spellings[name.lower()]


def _check_shape(options: Path, model: Published, name: str) -> None:
    remedy = f"Delete {options} to download it again."
    try:
        config = bilm_hdf5.read_options(options)
    except ConfigError as error:
        raise ConfigError(f"{error} {remedy}") from None
    if config != preset(model.shape):
        raise WeightsError(
            f"{options} does not have the shape of {name}: expected {preset(model.shape)}, found "
            f"{config}. {remedy}"
        )
