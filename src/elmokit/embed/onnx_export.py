"""Convert a model to ONNX, and compare it with torch before it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from elmokit.embed.fast import LEAST_COSINE, SENTENCES
from elmokit.embed.model import ElmoModel
from elmokit.embed.onnx_model import OnnxModel
from elmokit.embed.vectors import cosines
from elmokit.errors import ConfigError
from elmokit.sources import onnxdir
from elmokit.sources.modeldir import ModelParts
from elmokit.text.vocab import UNKNOWN


def export(
    parts: ModelParts, path: Path, *, storage: str = "float32", overwrite: bool = False
) -> dict[str, Any]:
    """Write a model as an ONNX directory.

    Args:
        parts: The model.
        path: The directory to create.
        storage: "float32" or "int8".
        overwrite: Replace an existing ONNX model.

    Returns:
        The error of its vectors, as in config.json: the largest difference from torch, the mean and
        the worst cosine, per layer.

    Raises:
        ConfigError: int8 is not accurate enough for the model.
    """
    built = onnxdir.build(parts, storage=storage)
    error = compare(ElmoModel(parts, device="cpu"), OnnxModel(built))
    worst = int(np.argmin(error["mean_cosine"]))
    if storage == "int8" and not error["mean_cosine"][worst] >= LEAST_COSINE:
        raise ConfigError(
            f"int8 is not accurate enough for this model: the mean cosine of layer {worst} with "
            f"the exact vectors is {error['mean_cosine'][worst]:.4f}; expected at least "
            f"{LEAST_COSINE}. Convert it with --storage float32."
        )
    built.metadata["onnx"]["error"] = error
    onnxdir.save(built, path, overwrite=overwrite)
    return error


def compare(exact: ElmoModel, other: OnnxModel) -> dict[str, Any]:
    """Embed the same sentences with both models, and return the differences per layer."""
    sentences = _sentences(exact)
    expected, actual = (
        np.concatenate(model.compute(sentences), axis=1) for model in (exact, other)
    )  # (L + 1, tokens, 2D) each
    cosine = np.stack([cosines(*layers) for layers in zip(expected, actual, strict=True)])
    return {
        "tokens": expected.shape[1],
        "largest_difference": _rounded(np.abs(expected - actual).max(axis=(1, 2)), 10),
        "mean_cosine": _rounded(cosine.mean(axis=1), 7),
        "worst_cosine": _rounded(cosine.min(axis=1), 7),
    }


def _sentences(model: ElmoModel) -> list[list[str]]:
    sentences = [sentence.split() for sentence in SENTENCES]
    words = model.vocabulary
    if model.config.n_words is None or words is None or UNKNOWN in words:
        return sentences
    # A model without <UNK>: use the words of its vocabulary.
    known = [[token for token in sentence if token in words] for sentence in sentences]
    return known if any(known) else [list(words.words[:20])]


def _rounded(values: Any, digits: int) -> list[float]:
    return [round(float(value), digits) for value in values]
