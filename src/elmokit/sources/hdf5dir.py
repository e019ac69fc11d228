"""Models of bilm-tf and AllenNLP: options, an HDF5 file, and optionally a vocabulary.

File names differ between publishers: `options.json` and `weights.hdf5`,
`elmo_2x4096_512_2048cnn_2xhighway_options.json` and `..._weights.hdf5`, `model.hdf5`, ...
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from elmokit.convert import bilm_hdf5
from elmokit.errors import ElmoError, ElmoWarning, WeightsError
from elmokit.sources.modeldir import VOCABULARY, ModelParts
from elmokit.storage.overwrite import Kind, new_directory
from elmokit.text.vocab import Vocabulary

OPTIONS = "options.json"
WEIGHTS = "weights.hdf5"
FILES = (OPTIONS, WEIGHTS, VOCABULARY)

_SUFFIXES = (".hdf5", ".h5")


@dataclass(frozen=True)
class Hdf5Files:
    """The files of one model."""

    options: Path
    weights: Path
    vocab: Path | None = None


def is_options(name: str) -> bool:
    """Tell whether a file name is that of an options file."""
    return name.lower().endswith(OPTIONS)


def is_weights(name: str) -> bool:
    """Tell whether a file name is that of an HDF5 file."""
    return name.lower().endswith(_SUFFIXES)


def is_hdf5_dir(path: Path) -> bool:
    """Tell whether a folder holds something of a model of this kind."""
    return any(is_options(entry.name) or is_weights(entry.name) for entry in path.iterdir())


def find(path: Path, weights: Path | None = None) -> Hdf5Files:
    """Find the files of a model.

    Args:
        path: A directory, an options file, or (without `weights`) a weight file.
        weights: The weight file. Default: the one in the same directory as the options.
    """
    options = path if path.is_file() else None
    if weights is None and path.is_file() and not path.name.lower().endswith(".json"):
        options, weights = None, path
    folder = path if path.is_dir() else path.parent
    if options is None:
        beside = weights.parent if weights is not None and not path.is_dir() else folder
        options = _options_in(beside, weights)
    if weights is None:
        weights = _weights_in(folder, options)
    vocabs = (options.parent / VOCABULARY, weights.parent / VOCABULARY)
    return Hdf5Files(options, weights, next((v for v in vocabs if v.is_file()), None))


def load(files: Hdf5Files, *, vocab: Path | None = None) -> ModelParts:
    """Read a model.

    Args:
        files: Its files.
        vocab: A vocabulary to take instead of the one found.
    """
    bilm = bilm_hdf5.read(files.options, files.weights)
    vocab = vocab or files.vocab
    used = (
        (files.options, files.weights) if vocab is None else (files.options, files.weights, vocab)
    )
    parts = ModelParts(bilm, source=str(files.weights), files=used)
    parts.metadata["converted_from"] = [files.options.name, files.weights.name]
    if vocab is not None:
        # A model that reads characters does not need its vocabulary, which may be invalid.
        needed = bilm.config.n_words is not None or vocab != files.vocab
        parts.vocabulary = Vocabulary.from_file(vocab) if needed else _readable(vocab)
    parts.check()
    return parts


def save(parts: ModelParts, path: Path, *, overwrite: bool = False) -> None:
    """Write a folder that AllenNLP, bilm-tf and simple_elmo can read.

    The head, the warm state, the card and the metadata have no place in it.

    Args:
        parts: The model.
        path: The folder; if it holds anything but such a model, it is not touched.
        overwrite: Replace a model that is there.
    """
    parts.check()
    kind = Kind("model", FILES, _is_ours)
    with new_directory(path, kind, overwrite=overwrite) as folder:
        bilm_hdf5.write_files(parts.bilm, folder / OPTIONS, folder / WEIGHTS)
        if parts.vocabulary is not None:
            parts.vocabulary.save(folder / VOCABULARY)


def _is_ours(path: Path) -> bool:
    return (path / OPTIONS).is_file() and (path / WEIGHTS).is_file()


def _readable(vocab: Path) -> Vocabulary | None:
    try:
        return Vocabulary.from_file(vocab)
    except ElmoError as error:
        warnings.warn(
            f"The vocabulary is left out, the vectors do not need it. {error}",
            ElmoWarning,
            stacklevel=4,
        )
        return None


def _options_in(folder: Path, weights: Path | None) -> Path:
    found = _files(folder, is_options)
    if not found:
        raise WeightsError(
            f"There is no options file in {folder}, which says the shape of the model. It is named "
            f"{OPTIONS} or ..._{OPTIONS} and comes from where the weights come from."
        )
    return _chosen(found, "options files", stem=_partner(weights, "weights", "options"))


def _weights_in(folder: Path, options: Path) -> Path:
    found = _files(folder, is_weights)
    if not found:
        raise WeightsError(
            f"There is no HDF5 file ({', '.join(_SUFFIXES)}) beside {options}. Give the path of "
            "the weights too: --weights FILE (in Python: weights=...)."
        )
    return _chosen(found, "HDF5 files", stem=_partner(options, "options", "weights"))


def _files(folder: Path, wanted: Callable[[str], bool]) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_file() and wanted(p.name))


def _partner(path: Path | None, ending: str, other: str) -> str:
    """`elmo_x_options` for `elmo_x_weights.hdf5`: the stem that the other file should have."""
    if path is None or not path.stem.lower().endswith(ending):
        return other
    return path.stem[: -len(ending)] + other


def _chosen(found: list[Path], what: str, *, stem: str) -> Path:
    """Choose the only file, or the one whose name matches its partner, or the default name."""
    kind = "weights" if stem.endswith("weights") else "options"
    choices = (
        found,
        [path for path in found if path.stem == stem],
        [path for path in found if path.stem == kind],
        [path for path in found if kind == "weights" and "weights" in path.stem.lower()],
    )
    for choice in choices:
        if len(choice) == 1:
            return choice[0]
    listed = ", ".join(path.name for path in found)
    raise WeightsError(
        f"There are several {what} in {found[0].parent}: {listed}. Say which one is meant: give "
        "the options file as the model and the HDF5 file with --weights (in Python: weights=...)."
    )
