"""Find and load a model by path, URL or name."""

from __future__ import annotations

import zipfile
from pathlib import Path

from elmokit.convert import elmo_for_many_langs
from elmokit.errors import WeightsError, join_names, suggest
from elmokit.sources import archive, hdf5dir, hub, modeldir, onnxdir, published, tfdir
from elmokit.sources.download import fetch, is_url
from elmokit.sources.modeldir import ModelParts
from elmokit.sources.modelfiles import CONFIG
from elmokit.sources.package import installed_models
from elmokit.storage.atomic import restore_directory
from elmokit.storage.regular import check_regular_files

#: The bundled model, a directory in `elmokit/models/`.
DEFAULT_MODEL = "english"

_MODELS = Path(__file__).resolve().parent.parent / "models"
# Larger models are separate packages, built from `weights/` in a clone of the repository.
_WEIGHTS = Path(__file__).resolve().parents[3] / "weights"
_INSTALLABLE = ("english-original",)
_FORMATS = (
    "a model directory with config.json and model.safetensors, an options.json file with HDF5 "
    "weights (or a directory or zip file that contains both), an ELMoForManyLangs directory or "
    "zip file, or a bilm-tf checkpoint"
)


def load_parts(
    path: str | Path | None = None,
    weights: str | Path | None = None,
    *,
    vocab: str | Path | None = None,
) -> ModelParts:
    """Find and load a model, and check that its parts match.

    Args:
        path: A model directory; an AllenNLP or bilm-tf directory, zip file, `options.json` or
            weight file; an ELMoForManyLangs directory or zip file; a bilm-tf training checkpoint or
            its directory; the URL of one of these files; the name of a published model, such as
            `allennlp:original`; the name of an installed model package, such as `english-original`
            (pip install elmokit-english-original); or `hf://user/model` on the Hugging Face Hub.
            Default: the bundled English model.
        weights: The HDF5 weights, if they are not in the same directory as `options.json`.
        vocab: A vocabulary file with one word per line, if it is not `vocab.txt` in the same
            directory as the model.
    """
    if path is None and weights is not None:
        path, weights = weights, None
    source = DEFAULT_MODEL if path is None else str(path)
    if not source.strip():
        raise WeightsError(f"The model name is empty. Expected {_FORMATS}.")
    vocab = None if vocab is None else _expand_user(vocab)
    try:
        if weights is not None and (hub.is_name(source) or published.is_name(source)):
            raise _redundant_weights(source, weights)
        if published.is_name(source):
            parts = published.load(source, vocab=vocab)
        else:
            if weights is None and is_url(source) and hdf5dir.is_options(source):
                # Published models have their weights in the same directory.
                weights = source[: -len(hdf5dir.OPTIONS)] + hdf5dir.WEIGHTS
            weights = None if weights is None else _resolve(weights, is_model=False)
            local = hub.fetch(source) if hub.is_name(source) else _resolve(source)
            parts = _load(local, weights, vocab)
    except OSError as error:
        raise WeightsError(f"{source} cannot be read: {error.strerror or error}.") from error
    except MemoryError as error:
        raise WeightsError(f"{source} cannot be loaded: not enough memory. {error}") from error
    parts.source = source
    return parts


def named_models() -> dict[str, Path]:
    """Return the bundled and installed models by name, and those in a clone of the repository.

    These names take precedence over files in the working directory. To load a file, use ./NAME.
    """
    folders = [entry for root in (_MODELS, _WEIGHTS) if root.is_dir() for entry in root.iterdir()]
    bundled = {folder.name: folder for folder in sorted(folders) if modeldir.is_model_dir(folder)}
    return {name: model.path for name, model in installed_models().items()} | bundled


def _resolve(path: str | Path, *, is_model: bool = True) -> Path:
    """Return the local path of a model or weight file.

    Args:
        path: A path or URL, or the name of a model.
        is_model: Whether the path refers to a model rather than a weight file.
    """
    source = str(path)
    named = named_models() if is_model else {}
    if source in named:
        return named[source]
    if is_url(source):
        return fetch(source, published.cached_path(source))
    local = _expand_user(path)
    restore_directory(local)
    if local.exists() or (is_model and tfdir.find_prefix(local) is not None):
        return local
    siblings = [entry.name for entry in local.parent.iterdir()] if local.parent.is_dir() else []
    hint = suggest(local.name, siblings)
    if not is_model:
        raise WeightsError(f"The weight file {source!r} does not exist.{hint}")
    if source in _INSTALLABLE:
        hint = f" Install its package, elmokit-{source}."
    elif f"allennlp:{source}" in published.PUBLISHED:
        hint = f" Did you mean 'allennlp:{source}'?"
    names = [*named, *published.PUBLISHED]
    raise WeightsError(
        f"Model {source!r} not found.{hint or suggest(source, names)} Expected a path or one of: "
        f"{', '.join(names)}."
    )


def _expand_user(path: str | Path) -> Path:
    try:
        return Path(path).expanduser()
    except (ValueError, RuntimeError) as error:  # a NUL character or an unknown user
        raise WeightsError(f"Invalid path {str(path)!r}: {error}") from error


def _load(path: Path, weights: Path | None, vocab: Path | None) -> ModelParts:
    check_regular_files(path, WeightsError)
    if weights is not None:
        if weights.is_dir():
            raise WeightsError(f"{weights} is a directory; expected an HDF5 weight file.")
        if modeldir.is_model_dir(path):
            raise _redundant_weights(path, weights)
        return hdf5dir.load(*hdf5dir.find(path, weights), vocab=vocab)
    if path.is_file() and path.name in (CONFIG, modeldir.WEIGHTS):
        path = path.parent
    if path.is_file() and (path.suffix.lower() == ".zip" or zipfile.is_zipfile(path)):
        with archive.extracted(path) as folder:
            parts = _load(folder, None, vocab)
        parts.files = (path,)
        return parts
    if modeldir.is_model_dir(path):
        return modeldir.load(path, vocab=vocab)
    if onnxdir.is_onnx_dir(path):
        raise WeightsError(
            f"{path} is an ONNX model. ONNX models work only with elmokit.load, `elmo embed` and "
            "`elmo info`. Use the original model instead."
        )
    if elmo_for_many_langs.is_model_dir(path):
        return _load_many_langs(path, vocab)
    if _is_checkpoint(path):
        return tfdir.load(path, vocab=vocab)
    if _may_be_hdf5(path):
        return hdf5dir.load(*hdf5dir.find(path), vocab=vocab)
    contents = ""
    if path.is_dir():
        names = sorted(file.name for file in path.iterdir())
        contents = (
            f" The directory contains {join_names(names)}." if names else " The directory is empty."
        )
    raise WeightsError(f"{path} is not a model: expected {_FORMATS}.{contents}")


def _load_many_langs(path: Path, vocab: Path | None) -> ModelParts:
    if vocab is not None:
        raise WeightsError(
            f"{path} is an ELMoForManyLangs model, which contains its own vocabulary. Do not "
            f"specify another one ({vocab})."
        )
    bilm, files = elmo_for_many_langs.read(path)
    metadata = {"converted_from": [file.name for file in files]}
    return ModelParts(bilm, metadata=metadata, source=str(path), files=files)


def _is_checkpoint(path: Path) -> bool:
    if not path.is_dir():
        return tfdir.find_prefix(path) is not None
    # A directory can contain both bilm-tf checkpoints and the HDF5 weights exported from them.
    return tfdir.is_tf_dir(path) and not any(hdf5dir.is_weights(e.name) for e in path.iterdir())


def _may_be_hdf5(path: Path) -> bool:
    import h5py

    names = [entry.name for entry in path.iterdir()] if path.is_dir() else [path.name]
    return (
        any(hdf5dir.is_options(name) or hdf5dir.is_weights(name) for name in names)
        or path.suffix.lower() == ".json"
        or h5py.is_hdf5(path)
    )


def _redundant_weights(source: object, weights: object) -> WeightsError:
    return WeightsError(
        f"{source} already contains weights. Do not specify another weight file ({weights})."
    )
