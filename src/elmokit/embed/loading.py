"""`elmokit.load`, which selects the backend of a model before it imports heavy packages."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from elmokit.errors import ConfigError, WeightsError, check_choice, optional_imports
from elmokit.parallel import available_cores
from elmokit.storage.atomic import restore_directory

if TYPE_CHECKING:
    import torch

    from elmokit.embed.model import ElmoModel
    from elmokit.embed.onnx_model import OnnxModel


@overload
def load(
    path: str | Path | None = ...,
    weights: str | Path | None = ...,
    device: str | torch.device = ...,
    precision: str = ...,
    backend: Literal["auto", "torch"] = ...,
) -> ElmoModel: ...


@overload
def load(
    path: str | Path,
    weights: None = ...,
    device: str = ...,
    precision: str = ...,
    *,
    backend: Literal["onnx"],
) -> OnnxModel: ...


def load(
    path: str | Path | None = None,
    weights: str | Path | None = None,
    device: str | torch.device = "auto",
    precision: str = "exact",
    backend: str = "auto",
) -> Any:
    """Load a model.

    Args:
        path: The model. One of:

            - None: the bundled English model (default);
            - a name: `english`, `allennlp:original`, or the name of an installed model package;
            - a model directory written by `elmo train` or `elmo convert`;
            - an `options.json` of AllenNLP or bilm-tf, its directory, its URL, or its HDF5 file;
            - an ELMoForManyLangs directory;
            - a zip file of one of these directories;
            - a training checkpoint of bilm-tf (the directory or one of its files);
            - `hf://user/model`: a model on the Hugging Face Hub (extra `hub`);
            - an ONNX directory written by `elmo convert --to onnx` (extra `onnx`, no torch).
        weights: The HDF5 weights file, if it is not in the same directory as `options.json`.
        device: "auto" (a GPU if available), "cpu", "cuda", "cuda:1", ...
        precision: "exact" uses float32 and gives the same vectors as the original systems. "fast"
            is several times faster and uses int8 on a CPU and bfloat16 on a GPU. An error is raised
            if the mean cosine similarity of the "fast" vectors to the exact vectors is below 0.999
            in any layer. `elmo doctor` shows the implementation for this machine.
        backend: "torch", "onnx" (for ONNX directories, which need onnxruntime but not torch), or
            "auto", which selects the backend for the model.

    Returns:
        An `ElmoModel`, or an `OnnxModel` with the same methods for embedding.
    """
    check_choice("backend", backend, ("auto", "torch", "onnx"))
    for kind, value in (("model", path), ("weights", weights)):
        if not isinstance(value, str | os.PathLike | None):
            raise ConfigError(
                f"Invalid {kind} {value!r}: expected a name or a path, got {type(value).__name__}."
            )
    if backend == "onnx" or (backend == "auto" and is_onnx(path)):
        return _load_onnx(path, weights, str(device), precision)
    require_torch(path)
    from elmokit.embed.model import ElmoModel
    from elmokit.embed.precision import PRECISIONS
    from elmokit.sources.resolve import load_parts

    check_choice("precision", precision, PRECISIONS)
    return ElmoModel(load_parts(path, weights), device=device, precision=precision)


def is_onnx(path: str | Path | None) -> bool:
    """Return whether a path is an ONNX directory."""
    from elmokit.sources.onnxdir import is_onnx_dir

    if path is None:
        return False
    try:
        folder = Path(path).expanduser()
        restore_directory(folder)
        return is_onnx_dir(folder)
    except (OSError, ValueError, RuntimeError):  # the caller reports invalid paths
        return False


def _load_onnx(
    path: str | Path | None, weights: str | Path | None, device: str, precision: str
) -> OnnxModel:
    from elmokit.embed.onnx_model import OnnxModel
    from elmokit.sources import onnxdir

    if path is None or not is_onnx(path):
        raise WeightsError(
            f"'{path or 'english'}' is not an ONNX model: backend 'onnx' expects a directory with "
            f"{onnxdir.ENCODER} and {onnxdir.BILM}. Create one with: elmo convert "
            f"{path or 'english'} OUT --to onnx"
        )
    if weights is not None:
        raise WeightsError(
            f"{path} is an ONNX model, which already contains its weights. Remove the argument "
            f"weights ('{weights}')."
        )
    return OnnxModel(onnxdir.load(Path(path).expanduser()), device=device, precision=precision)


def require_torch(path: str | Path | None) -> None:
    """Raise an error if torch is not installed. All models except ONNX models need it."""
    name = "the bundled model" if path is None else f"'{path}'"
    hint = (
        ". ONNX models do not need torch: on a machine with torch, convert the model with: elmo "
        "convert MODEL OUT --to onnx"
    )
    with optional_imports(None, f"Loading {name}", hint):
        import torch  # noqa: F401


def thread_count(model: str | None) -> int:
    """Return the number of threads that a model uses in this process.

    Args:
        model: The model, as in `elmokit.load`.
    """
    if not is_onnx(model):
        import torch

        return torch.get_num_threads()
    return onnx_threads() or available_cores()


def onnx_threads() -> int | None:
    """Return OMP_NUM_THREADS, which torch also uses, or None if it is not a positive integer."""
    value = os.environ.get("OMP_NUM_THREADS", "")
    return int(value) if value.isdecimal() and int(value) else None
