"""Find and load a model from a directory, a file, a zip file, a URL or a name."""

from __future__ import annotations

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
    "a model directory, a directory or zip file with options.json and an HDF5 file, such an "
    "options.json, a directory or zip file of ELMoForManyLangs, or a checkpoint of bilm-tf"
)


def load_parts(
    path: str | Path | None = None,
    weights: str | Path | None = None,
    *,
    vocab: str | Path | None = None,
) -> ModelParts:
    """Find and load a model, and check that its parts match.

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
    source = DEFAULT_MODEL if path is None else str(path)
    if not source.strip():
        raise WeightsError(f"The model name is empty. Expected {_KINDS}.")
    words = None if vocab is None else Path(vocab).expanduser()
    try:
        if hub.is_name(source) or published.is_name(source):
            if weights is not None:
                raise _complete(source, weights)
            load = hub.load if hub.is_name(source) else published.load
            parts = load(source, vocab=words)
        else:
            if weights is None and is_url(source) and hdf5dir.is_options(source):
                # URLs in existing code: the weights are in the same directory as the options.
                weights = source[: -len(hdf5dir.OPTIONS)] + hdf5dir.WEIGHTS
            weights = None if weights is None else _local(weights, weights=True)
            parts = _load(_local(source), weights, words)
    except OSError as error:
        raise WeightsError(f"{source} cannot be read: {error.strerror or error}.") from error
    except MemoryError as error:
        raise WeightsError(f"{source} cannot be loaded: not enough memory. {error}") from error
    parts.source = source
    return parts


def named_models() -> dict[str, Path]:
    """Return the models of this package, of its checkout and of installed packages, by name.

    For a directory of the same name in the working directory, use ./NAME.
    """
    folders = [entry for root in (_MODELS, _WEIGHTS) if root.is_dir() for entry in root.iterdir()]
    own = {folder.name: folder for folder in sorted(folders) if modeldir.is_model_dir(folder)}
    return {name: model.path for name, model in installed_models().items()} | own


def _local(path: str | Path, *, weights: bool = False) -> Path:
    """Return the local path of a model or weight file: a name, a URL or a path."""
    text = str(path)
    if not weights and text in (named := named_models()):
        return named[text]
    if is_url(text):
        return fetch(text, published.cached_path(text))
    local = Path(path).expanduser()
    restore_directory(local)
    if local.exists() or (not weights and tfdir.prefix_of(local) is not None):
        return local
    siblings = [entry.name for entry in local.parent.iterdir()] if local.parent.is_dir() else []
    hint = nearest(local.name, siblings)
    if weights:
        raise WeightsError(f"The weight file {text!r} does not exist.{hint}")
    if text in _PACKAGED:
        hint = f" Install it with: pip install elmokit-{text}"
    elif f"allennlp:{text}" in published.PUBLISHED:
        hint = f" Did you mean 'allennlp:{text}'?"
    hint = hint or nearest(text, _names())
    raise WeightsError(
        f"Model {text!r} not found.{hint} Expected a path or one of: {', '.join(_names())}."
    )


def _load(path: Path, weights: Path | None, vocab: Path | None) -> ModelParts:
    check_regular_files(path, WeightsError)
    if weights is not None:
        if weights.is_dir():
            raise WeightsError(f"{weights} is a directory. Expected the weights, an HDF5 file.")
        if modeldir.is_model_dir(path):
            raise _complete(path, weights)
        return hdf5dir.load(*hdf5dir.find(path, weights), vocab=vocab)
    if path.is_file() and path.name in (modeldir.CONFIG, modeldir.WEIGHTS):
        path = path.parent
    if _is_zip(path):
        with archive.extracted(path) as folder:
            parts = _load(folder, None, vocab)
        parts.files = (path,)
        return parts
    if modeldir.is_model_dir(path):
        return modeldir.load(path, vocab=vocab)
    if onnxdir.is_onnx_dir(path):
        raise WeightsError(
            f"{path} is an ONNX model, which can only compute embeddings, with elmokit.load in "
            "Python, `elmo embed` and `elmo info`. Pass the model that it was converted from."
        )
    if manylangs.is_many_langs_dir(path):
        return manylangs.load(path, vocab=vocab)
    if _is_checkpoint(path):
        return tfdir.load(path, vocab=vocab)
    if _may_be_hdf5(path):
        return hdf5dir.load(*hdf5dir.find(path), vocab=vocab)
    raise WeightsError(f"{path} is not a model: expected {_KINDS}{_listing(path)}.")


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
        names = [entry.name for entry in path.iterdir()]
        return any(hdf5dir.is_options(name) or hdf5dir.is_weights(name) for name in names)
    named = hdf5dir.is_weights(path.name) or path.suffix.lower() == ".json"
    return named or _starts_with(path, b"\x89HDF")


def _starts_with(path: Path, *starts: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(8).startswith(starts)


def _listing(path: Path) -> str:
    if path.is_file():
        return ""
    names = sorted(entry.name for entry in path.iterdir())
    listed = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    return f"; it contains {listed or 'no files'}"


def _complete(source: object, weights: object) -> WeightsError:
    return WeightsError(f"{source} includes its weights. Remove the other weights, {weights}.")


def _names() -> list[str]:
    return [*named_models(), *published.PUBLISHED]
