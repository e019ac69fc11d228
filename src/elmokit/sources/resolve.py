"""Find and load a model from a directory, a file, a zip file, a URL or a name."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from elmokit.errors import WeightsError, nearest
from elmokit.sources import archive, hdf5dir, hub, manylangs, modeldir, onnxdir, published, tfdir
from elmokit.sources.download import fetch, is_url
from elmokit.sources.modeldir import ModelParts
from elmokit.sources.package import installed_models
from elmokit.storage.atomic import restore_directory
from elmokit.storage.regular import check_regular_files

#: The bundled model, a directory in `elmokit/models/`.
DEFAULT_MODEL = "english"

_MODELS = Path(__file__).resolve().parent.parent / "models"
# Larger models are separate packages, built from `weights/` of a checkout.
_WEIGHTS = Path(__file__).resolve().parents[3] / "weights"
_PACKAGED = ("english-original",)
_KINDS = (
    "a folder of elmokit, a folder or zip with an options.json and an HDF5 file, such an "
    "options.json, a folder or zip of ELMoForManyLangs, or a checkpoint of bilm-tf"
)


def load_parts(
    path: str | Path | None = None,
    weights: str | Path | None = None,
    *,
    vocab: str | Path | None = None,
) -> ModelParts:
    """Find and load a model, and check that its parts belong together.

    Args:
        path: A model directory; a directory, a zip file, an `options.json` or a weight file of
            AllenNLP or bilm-tf; a directory or zip file of ELMoForManyLangs; a training checkpoint
            of bilm-tf, or its directory; the URL of one of these files; a name such as
            `allennlp:original` or the name of an installed model package (`english-original`: pip
            install elmokit-english-original); or `hf://user/model` on the Hugging Face Hub.
            Default: the bundled English model.
        weights: The HDF5 file, if it is not in the same directory as `options.json`.
        vocab: A vocabulary file, one word per line, if it is not `vocab.txt` in the same directory.
    """
    if path is None and weights is not None:
        path, weights = weights, None
    if path is not None and not str(path).strip():
        raise WeightsError(f"The name of a model is empty. Give {_KINDS}, or leave it out.")
    words = None if vocab is None else Path(vocab).expanduser()
    if path is None:
        return _bundled(words)
    if weights is None and str(path) in named_models():
        parts = modeldir.load(named_models()[str(path)], vocab=words)
        parts.source = str(path)
        return parts
    if hub.is_name(str(path)):
        if weights is not None:
            raise WeightsError(f"{path} is complete; it takes no weights from elsewhere.")
        return hub.load(str(path), vocab=words)
    if published.is_name(str(path)):
        if weights is not None or words is not None:
            raise WeightsError(f"{path} is complete; it takes no other weights and no vocabulary.")
        return published.load(str(path))
    if weights is None and is_url(str(path)) and hdf5dir.is_options(str(path)):
        # URLs in existing code: the weights are in the same directory as the options.
        weights = str(path)[: -len(hdf5dir.OPTIONS)] + hdf5dir.WEIGHTS
    try:
        local = _local(path)
        parts = _load(local, None if weights is None else _local_weights(weights), words)
    except OSError as error:
        raise WeightsError(f"{path} cannot be read: {error.strerror or error}.") from error
    parts.source = str(path)
    return parts


def named_models() -> dict[str, Path]:
    """Return the models of this package, of its checkout and of installed packages, by name.

    For a directory of the same name in the working directory, use ./NAME.
    """
    folders = [entry for root in (_MODELS, _WEIGHTS) if root.is_dir() for entry in root.iterdir()]
    own = {folder.name: folder for folder in sorted(folders) if modeldir.is_model_dir(folder)}
    return {name: model.path for name, model in installed_models().items()} | own


def _bundled(vocab: Path | None) -> ModelParts:
    folder = _MODELS / DEFAULT_MODEL
    if not modeldir.is_model_dir(folder):
        raise WeightsError(
            f"This installation has no default model (looked in {folder}). Give {_KINDS}, or a "
            f"name: {', '.join(_names())}."
        )
    parts = modeldir.load(folder, vocab=vocab)
    parts.source = DEFAULT_MODEL
    return parts


def _local(path: str | Path) -> Path:
    """Return a local path for a path or URL."""
    if is_url(str(path)):
        return fetch(str(path), published.place_of(str(path)))
    local = Path(path).expanduser()
    restore_directory(local)
    if not local.exists() and tfdir.prefix_of(local) is None:
        raise WeightsError(_not_found(str(path), local))
    if local.exists() and not (local.is_file() or local.is_dir()):
        raise WeightsError(f"{path} is a pipe or a device. Expected a file or a folder.")
    return local


def _local_weights(path: str | Path) -> Path:
    local = Path(path).expanduser()
    if is_url(str(path)) or local.is_file() or local.is_dir():
        return _local(path)
    beside = [entry.name for entry in local.parent.iterdir()] if local.parent.is_dir() else []
    raise WeightsError(f"There is no weights file {str(path)!r}.{nearest(local.name, beside)}")


def _load(path: Path, weights: Path | None, vocab: Path | None) -> ModelParts:
    check_regular_files(path, WeightsError)
    if weights is not None and weights.is_dir():
        raise WeightsError(f"{weights} is a folder; the weights should be one HDF5 file.")
    if weights is None:
        if path.is_file() and path.name in (modeldir.CONFIG, modeldir.WEIGHTS):
            path = path.parent
        if _is_zip(path):
            return _load_zip(path, vocab)
        if path.is_dir() and modeldir.is_model_dir(path):
            return modeldir.load(path, vocab=vocab)
        if path.is_dir() and onnxdir.is_onnx_dir(path):
            raise WeightsError(
                f"{path} is a model in ONNX, which embeds and no more: elmokit.load(PATH) in "
                "Python, `elmo embed` and `elmo info` open it. Give the model that it was made of."
            )
        if path.is_dir() and manylangs.is_many_langs_dir(path):
            return manylangs.load(path, vocab=vocab)
        if _is_checkpoint(path):
            return tfdir.load(tfdir.find(path), vocab=vocab)
    elif path.is_dir() and modeldir.is_model_dir(path):
        raise WeightsError(f"{path} is complete; it takes no weights from elsewhere ({weights}).")
    if weights is None and not _may_be_hdf5(path):
        raise WeightsError(_not_a_model(path))
    return hdf5dir.load(hdf5dir.find(path, weights), vocab=vocab)


def _load_zip(path: Path, vocab: Path | None) -> ModelParts:
    with archive.extracted(path) as folder:
        parts = _load(folder, None, vocab)
    parts.files = (path,)
    return parts


def _is_zip(path: Path) -> bool:
    return path.is_file() and (
        path.suffix.lower() == ".zip" or _starts_with(path, b"PK\x03\x04", b"PK\x05\x06")
    )


def _is_checkpoint(path: Path) -> bool:
    if not path.is_dir():
        return tfdir.prefix_of(path) is not None
    # The checkpoints of bilm-tf and weights exported from them may be in one directory.
    return tfdir.is_tf_dir(path) and not any(hdf5dir.is_weights(e.name) for e in path.iterdir())


def _may_be_hdf5(path: Path) -> bool:
    if path.is_dir():
        return hdf5dir.is_hdf5_dir(path)
    named = hdf5dir.is_weights(path.name) or path.suffix.lower() == ".json"
    return named or _starts_with(path, b"\x89HDF")


def _starts_with(path: Path, *starts: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(8).startswith(starts)


def _not_a_model(path: Path) -> str:
    if path.is_file():
        return f"{path} is not a model: expected {_KINDS}."
    found = sorted(entry.name for entry in path.iterdir())
    listed = ", ".join(found[:12]) + (", ..." if len(found) > 12 else "")
    return (
        f"There is no model in {path}. Looked for {modeldir.CONFIG} with {modeldir.WEIGHTS}, for "
        f"options.json with an .hdf5 file or a checkpoint of bilm-tf, and for "
        f"{' with '.join(manylangs.WEIGHTS)}; found {listed or 'nothing'}."
    )


def _not_found(text: str, path: Path) -> str:
    beside: Iterable[str] = ()
    if path.parent.is_dir():
        beside = [entry.name for entry in path.parent.iterdir()]
    hint = nearest(path.name, beside) or nearest(text, _names())
    if text in _PACKAGED:
        hint = f" Install it with: pip install elmokit-{text}"
    elif f"allennlp:{text}" in published.PUBLISHED:
        hint = f" Did you mean 'allennlp:{text}'?"
    return f"There is no model {text!r}.{hint} Give a path, or a name: {', '.join(_names())}."


def _names() -> list[str]:
    return [*named_models(), *published.PUBLISHED]
