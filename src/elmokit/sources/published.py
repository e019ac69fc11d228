"""Published models by name: the four English models of AllenNLP.

Files are downloaded once into the cache; you can also copy them there. `ELMOKIT_ALLENNLP_URL`
selects a mirror.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from elmokit.convert import bilm_hdf5
from elmokit.errors import ConfigError, WeightsError, nearest
from elmokit.presets import preset
from elmokit.sources import download, hdf5dir
from elmokit.sources.download import cache_dir, fetch
from elmokit.sources.modeldir import ModelParts

_BASE = "https://allennlp.s3.amazonaws.com/models/elmo"
# The URL of the same files in older code and configurations.
_OLD_BASE = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo"
_PREFIX = "allennlp:"


class Published(NamedTuple):
    """A published model.

    Attributes:
        folder: The directory of its files, which is also part of their names.
        preset: The preset with its shape.
    """

    folder: str
    preset: str

    def url(self, kind: str, base: str | None = None) -> str:
        """Return the URL of the `options.json` or `weights.hdf5`."""
        base = base or os.environ.get("ELMOKIT_ALLENNLP_URL") or _BASE
        return f"{base.rstrip('/')}/{self.folder}/elmo_{self.folder}_{kind}"

    def cached_path(self, kind: str) -> Path:
        """Return where that file is cached, for any mirror."""
        return cache_dir() / "allennlp" / self.folder / f"elmo_{self.folder}_{kind}"


PUBLISHED = {
    "allennlp:small": Published("2x1024_128_2048cnn_1xhighway", "small"),
    "allennlp:medium": Published("2x2048_256_2048cnn_1xhighway", "medium"),
    "allennlp:original": Published("2x4096_512_2048cnn_2xhighway", "original"),
    "allennlp:5.5B": Published("2x4096_512_2048cnn_2xhighway_5.5B", "original"),
}


def is_name(text: str) -> bool:
    """Return whether a string names a published model."""
    return text.startswith(_PREFIX)


def load(name: str, *, vocab: Path | None = None) -> ModelParts:
    """Load a published model; download it if it is not in the cache.

    Args:
        name: One of `PUBLISHED`.
        vocab: A vocabulary file.
    """
    if name not in PUBLISHED:
        raise WeightsError(
            f"No published model '{name}'.{nearest(name, PUBLISHED)} Names: {', '.join(PUBLISHED)}."
        )
    model = PUBLISHED[name]
    options = fetch(model.url(hdf5dir.OPTIONS), model.cached_path(hdf5dir.OPTIONS))
    _check_shape(options, model, name)  # before downloading hundreds of megabytes
    weights = fetch(model.url(hdf5dir.WEIGHTS), model.cached_path(hdf5dir.WEIGHTS))
    try:
        parts = hdf5dir.load(options, weights, vocab=vocab)
    except WeightsError as error:
        raise WeightsError(f"{error} Delete {weights} to download it again.") from None
    parts.source = name
    parts.metadata["name"] = name
    return parts


def cached_path(url: str) -> Path:
    """Return where the file of a URL is cached; all URLs of a published model share one path."""
    for model in PUBLISHED.values():
        for kind in (hdf5dir.OPTIONS, hdf5dir.WEIGHTS):
            if url in (model.url(kind), model.url(kind, _BASE), model.url(kind, _OLD_BASE)):
                return model.cached_path(kind)
    return download.cached_path(url)


def _check_shape(options: Path, model: Published, name: str) -> None:
    remedy = f"Delete {options} to download it again."
    try:
        config = bilm_hdf5.read_options(options)
    except ConfigError as error:
        raise ConfigError(f"{error} {remedy}") from None
    if config != preset(model.preset):
        raise WeightsError(
            f"{options} does not have the shape of {name}: expected {preset(model.preset)}, found "
            f"{config}. {remedy}"
        )
