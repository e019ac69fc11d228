"""Load published models by name: AllenNLP's four English models.

Files are downloaded to the cache once. You can also copy them there yourself.
`ELMOKIT_ALLENNLP_URL` selects a mirror.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from elmokit.convert import bilm_hdf5
from elmokit.errors import ConfigError, WeightsError, suggest
from elmokit.presets import preset
from elmokit.sources import download, hdf5dir
from elmokit.sources.download import cache_dir, fetch
from elmokit.sources.modeldir import ModelParts

_BASE = "https://allennlp.s3.amazonaws.com/models/elmo"
# An older URL of the same files, which existing code and configurations may contain.
_OLD_BASE = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo"
_PREFIX = "allennlp:"


class PublishedModel(NamedTuple):
    """A published model.

    Attributes:
        folder: The name of the directory, which is also part of the file names.
        preset: The preset with the configuration of the model.
    """

    folder: str
    preset: str

    def url(self, kind: str, base: str | None = None) -> str:
        """Return the URL of "options.json" or "weights.hdf5"."""
        base = base or os.environ.get("ELMOKIT_ALLENNLP_URL") or _BASE
        return f"{base.rstrip('/')}/{self.folder}/elmo_{self.folder}_{kind}"

    def cached_path(self, kind: str) -> Path:
        """Return the cache path of a file. It is the same for all mirrors."""
        return cache_dir() / "allennlp" / self.folder / f"elmo_{self.folder}_{kind}"


PUBLISHED = {
    "allennlp:small": PublishedModel("2x1024_128_2048cnn_1xhighway", "small"),
    "allennlp:medium": PublishedModel("2x2048_256_2048cnn_1xhighway", "medium"),
    "allennlp:original": PublishedModel("2x4096_512_2048cnn_2xhighway", "original"),
    "allennlp:5.5B": PublishedModel("2x4096_512_2048cnn_2xhighway_5.5B", "original"),
}


def is_name(text: str) -> bool:
    """Return whether a string starts with the prefix of published model names."""
    return text.startswith(_PREFIX)


def load(name: str, *, vocab: Path | None = None) -> ModelParts:
    """Load a published model. Downloads it unless it is in the cache.

    Args:
        name: One of `PUBLISHED`.
        vocab: A vocabulary file.
    """
    if name not in PUBLISHED:
        raise WeightsError(
            f"Unknown published model '{name}'.{suggest(name, PUBLISHED)} Expected one of: "
            f"{', '.join(PUBLISHED)}."
        )
    model = PUBLISHED[name]
    options = fetch(model.url(hdf5dir.OPTIONS), model.cached_path(hdf5dir.OPTIONS))
    expected = preset(model.preset)
    with _suggest_new_download(options):  # before downloading hundreds of megabytes
        config = bilm_hdf5.read_options(options)
        if config != expected:
            raise WeightsError(
                f"{options} does not match the configuration of {name}: expected {expected}, "
                f"found {config}."
            )
    weights = fetch(model.url(hdf5dir.WEIGHTS), model.cached_path(hdf5dir.WEIGHTS))
    with _suggest_new_download(weights):
        parts = hdf5dir.load(options, weights, vocab=vocab)
    parts.metadata["name"] = name
    return parts


@contextmanager
def _suggest_new_download(file: Path) -> Iterator[None]:
    try:
        yield
    except (ConfigError, WeightsError) as error:
        raise type(error)(f"{error} Delete {file} to download it again.") from None


def cached_path(url: str) -> Path:
    """Return the cache path of the file at a URL. It is the same for all mirrors."""
    for model in PUBLISHED.values():
        for kind in (hdf5dir.OPTIONS, hdf5dir.WEIGHTS):
            if url in (model.url(kind), model.url(kind, _BASE), model.url(kind, _OLD_BASE)):
                return model.cached_path(kind)
    return download.cached_path(url)
