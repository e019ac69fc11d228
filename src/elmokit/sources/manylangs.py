"""Models of ELMoForManyLangs: the directory of one language."""

from __future__ import annotations

from pathlib import Path

from elmokit.convert import elmo_for_many_langs
from elmokit.errors import WeightsError
from elmokit.sources.modeldir import ModelParts

#: The files that identify such a directory.
WEIGHTS = (elmo_for_many_langs.EMBEDDER, elmo_for_many_langs.ENCODER)


def is_many_langs_dir(path: Path) -> bool:
    """Return whether a directory contains such a model (it may still be damaged)."""
    return all((path / name).is_file() for name in WEIGHTS)


def load(path: Path, *, vocab: Path | None = None) -> ModelParts:
    """Load a model.

    Args:
        path: The directory.
        vocab: Not supported, because such a model has its own lexicon.
    """
    if vocab is not None:
        raise WeightsError(
            f"{path} is a model of ELMoForManyLangs, which uses its own lexicon. Remove the "
            f"vocabulary {vocab}."
        )
    bilm, files = elmo_for_many_langs.read(path)
    metadata = {"converted_from": [file.name for file in files]}
    parts = ModelParts(bilm, metadata=metadata, source=str(path), files=files)
    parts.check()
    return parts
