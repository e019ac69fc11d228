"""`elmokit.load`: which backend opens a model. Nothing heavy is imported before that is known."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from elmokit.errors import ConfigError, DependencyError, WeightsError, nearest
from elmokit.storage.atomic import restore_directory

if TYPE_CHECKING:
    import torch

    from elmokit.embed.model import ElmoModel
    from elmokit.embed.onnx_model import OnnxModel

BACKENDS: tuple[str, ...] = ("auto", "torch", "onnx")


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

            - nothing: the model that comes with the package;
            - a name: `english`, `allennlp:original`, or that of an installed model package;
            - a model folder, as `elmo train` and `elmo convert` make it;
            - an `options.json` of AllenNLP or bilm-tf, its folder, its address, or its HDF5 file;
            - a folder of ELMoForManyLangs;
            - a zip of one of these folders;
            - a checkpoint of bilm-tf's training: its folder, or one of its files;
            - `hf://user/model`: one of the Hugging Face hub (extra `hub`);
            - a folder of ONNX, as `elmo convert --to onnx` makes it (extra `onnx`, no torch).
        weights: The HDF5 file, if it does not lie beside the `options.json`.
        device: "auto" (a GPU if there is one), "cpu", "cuda", "cuda:1", ...
        precision: "exact": float32, equal to the original systems. "fast": several times as fast,
            with rounded numbers (int8 on a CPU; the cosine to exact vectors is at least 0.999, or
            the model is refused). `elmo doctor` tells what it is on this machine.
        backend: "torch"; "onnx" for a folder that `elmo convert --to onnx` made, which needs
            onnxruntime and not torch; "auto" takes what the folder is.

    Returns:
        An `ElmoModel`; of a folder of ONNX an `OnnxModel`, which embeds alike.
    """
    if backend not in BACKENDS:
        raise ConfigError(
            f"No backend '{backend}'.{nearest(backend, BACKENDS)} There are: {', '.join(BACKENDS)}."
        )
    if backend == "onnx" or (backend == "auto" and is_onnx(path)):
        return _load_onnx(path, weights, str(device), precision)
    need_torch(path)
    from elmokit.embed import model

    return model.load(path, weights, device, precision)


def is_onnx(path: str | Path | None) -> bool:
    """Tell whether what the user wrote is a folder of ONNX."""
    from elmokit.sources.onnxdir import is_onnx_dir

    if path is None:
        return False
    folder = Path(path).expanduser()
    restore_directory(folder)
    return is_onnx_dir(folder)


def _load_onnx(
    path: str | Path | None, weights: str | Path | None, device: str, precision: str
) -> OnnxModel:
    from elmokit.embed.onnx_model import OnnxModel
    from elmokit.sources import onnxdir

    if path is None or not is_onnx(path):
        name = "the model of the package" if path is None else f"'{path}'"
        raise WeightsError(
            f"The backend onnx opens a folder with {onnxdir.ENCODER} and {onnxdir.BILM}, and "
            f"{name} is none. Make one with: elmo convert {path or 'english'} OUT --to onnx"
        )
    if weights is not None:
        raise WeightsError(f"{path} is complete; it takes no weights from elsewhere ({weights}).")
    return OnnxModel(onnxdir.load(Path(path).expanduser()), device=device, precision=precision)


def need_torch(path: str | Path | None) -> None:
    """Raise if torch is not installed, for a model that is not in ONNX."""
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        name = "the model of the package" if path is None else f"'{path}'"
        raise DependencyError(
            "torch",
            None,
            "Only folders of ONNX are read without torch (made where it is by: elmo convert MODEL "
            f"OUT --to onnx); to load {name} elmokit",
        ) from None
