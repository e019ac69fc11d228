"""Models of ELMoForManyLangs as they lie on disks: a folder, or the zip it came in."""

from __future__ import annotations

import fnmatch
from pathlib import Path

from elmokit.convert import elmo_for_many_langs
from elmokit.errors import WeightsError
from elmokit.sources.modeldir import ModelParts

#: Without these two there is no model; the rest is missed when it is looked for.
WEIGHTS = (elmo_for_many_langs.EMBEDDER, elmo_for_many_langs.ENCODER)
_FILES = (
    *WEIGHTS,
    elmo_for_many_langs.CONFIG,
    elmo_for_many_langs.CHARACTERS,
    elmo_for_many_langs.WORDS,
    elmo_for_many_langs.CLASSIFIER,
)
# The file with the shape, by the name all of them have: cnn_50_100_512_4096_sample.json.
_SHAPE = "cnn_*.json"


def is_file(name: str) -> bool:
    """Tell whether a file name is that of a part of such a model."""
    return name in _FILES or fnmatch.fnmatch(name, _SHAPE)


def is_many_langs_dir(path: Path) -> bool:
    """Tell whether a folder holds such a model (it may still be damaged)."""
    return all((path / name).is_file() for name in WEIGHTS)


def load(path: Path, *, vocab: Path | None = None) -> ModelParts:
    """Read a model.

    Args:
        path: The folder.
        vocab: Not taken: such a model has its own lexicon.
    """
    if vocab is not None:
        raise WeightsError(
            f"{path} is of ELMoForManyLangs and reads by its own lexicon, {_FILES[3]} and "
            f"{_FILES[4]}: it takes no other vocabulary ({vocab})."
        )
    bilm, files = elmo_for_many_langs.read(path)
    parts = ModelParts(bilm, source=str(path), files=files)
    parts.metadata["converted_from"] = [file.name for file in files]
    parts.check()
    return parts
