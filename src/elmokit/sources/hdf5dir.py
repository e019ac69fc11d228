"""Find, load and save bilm-tf and AllenNLP models: options, an HDF5 file, and a vocabulary.

File names differ between publishers: `options.json` and `weights.hdf5`,
`elmo_2x4096_512_2048cnn_2xhighway_options.json` and `..._weights.hdf5`, `model.hdf5`, ...
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from elmokit.convert import bilm_hdf5
from elmokit.errors import ElmoError, WeightsError, join_names, warn
from elmokit.sources.modeldir import ModelParts
from elmokit.sources.modelfiles import VOCABULARY
from elmokit.storage.overwrite import DirectoryKind, new_directory
from elmokit.text.vocab import Vocabulary

OPTIONS = "options.json"
WEIGHTS = "weights.hdf5"
FILES = (OPTIONS, WEIGHTS, VOCABULARY)

_SUFFIXES = (".hdf5", ".h5")


def is_options(name: str) -> bool:
    """Return whether a file has the name of an options file."""
    return name.lower().endswith(OPTIONS)


def is_weights(name: str) -> bool:
    """Return whether a file has the name of an HDF5 file."""
    return name.lower().endswith(_SUFFIXES)


def is_model(names: Iterable[str]) -> bool:
    """Return whether a directory with these file names contains a model."""
    names = list(names)
    return any(map(is_options, names)) and any(map(is_weights, names))


def find(path: Path, weights: Path | None = None) -> tuple[Path, Path]:
    """Find the options and the weights of a model.

    Args:
        path: A directory, an options file, or (without `weights`) a weight file.
        weights: The weight file. Default: the weight file in the directory of the options.
    """
    options = None
    if path.is_file() and (weights is not None or path.suffix.lower() == ".json"):
        options = path
    elif path.is_file():
        weights = path
    options = options or _choose(path if path.is_dir() else path.parent, "options", weights)
    return options, weights or _choose(options.parent, "weights", options)


def load(options: Path, weights: Path, *, vocab: Path | None = None) -> ModelParts:
    """Load a model.

    Args:
        options: The options file.
        weights: The HDF5 file.
        vocab: The vocabulary. Default: `vocab.txt` in the directory of either file, if it exists.
    """
    bilm = bilm_hdf5.read(options, weights)
    paths = (options.parent / VOCABULARY, weights.parent / VOCABULARY)
    file = vocab or next((path for path in paths if path.is_file()), None)
    vocabulary = None
    if file is not None:
        try:
            vocabulary = Vocabulary.from_file(file)
        except ElmoError as error:
            # A model with character input does not need the vocabulary.
            if vocab is not None or bilm.config.n_words is not None:
                raise
            warn(f"Ignoring the invalid vocabulary, because vectors do not depend on it. {error}")
    parts = ModelParts(
        bilm,
        vocabulary=vocabulary,
        metadata={"converted_from": [options.name, weights.name]},
        source=str(weights),
        files=(options, weights) if file is None else (options, weights, file),
    )
    parts.check()
    return parts


def save(parts: ModelParts, path: Path, *, overwrite: bool = False) -> None:
    """Write a directory that AllenNLP, bilm-tf and simple_elmo can read.

    The format cannot store the LM head, the warm state, the accumulators, the model card or the
    metadata.

    Args:
        parts: The model.
        path: The output directory. Must not contain anything except a model in this format.
        overwrite: Replace an existing model.
    """
    parts.check()
    kind = DirectoryKind("model", FILES, lambda path: (path / OPTIONS).exists())
    with new_directory(path, kind, overwrite=overwrite) as folder:
        bilm_hdf5.write(parts.bilm, folder / OPTIONS, folder / WEIGHTS)
        if parts.vocabulary is not None:
            parts.vocabulary.save(folder / VOCABULARY)


def _choose(folder: Path, kind: str, other: Path | None) -> Path:
    """Return the only file of a kind, or the only one whose name matches `other` or the kind.

    Args:
        folder: The directory of the file.
        kind: "options" or "weights".
        other: The file of the other kind, if known.
    """
    is_kind, other_kind, description = (
        (is_options, "weights", "options file")
        if kind == "options"
        else (is_weights, "options", "HDF5 file")
    )
    files = sorted(path for path in folder.iterdir() if path.is_file() and is_kind(path.name))
    matching = kind if other is None else other.stem.removesuffix(other_kind) + kind
    for candidates in (
        files,
        [path for path in files if path.stem == matching],
        [path for path in files if kind in path.stem.lower()],
    ):
        if len(candidates) == 1:
            return candidates[0]
    names = join_names(path.name for path in files) if files else "none"
    raise WeightsError(
        f"Expected one {description}, such as {OPTIONS if kind == 'options' else WEIGHTS}, in the "
        f"directory '{folder}'; found {names}. Pass the options file as the model, and the HDF5 "
        "file with --weights FILE (in Python: weights=...)."
    )
