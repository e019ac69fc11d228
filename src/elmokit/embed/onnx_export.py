"""Convert a model to ONNX, and compare the vectors of both models before writing the files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from elmokit.embed.fast import SENTENCES, check_cosines
from elmokit.embed.model import ElmoModel
from elmokit.embed.onnx_model import OnnxModel
from elmokit.embed.vectors import cosines
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
        The accuracy, as stored in config.json: for each layer, the largest difference from the
        vectors of the torch model, and the mean and the lowest cosine similarity to them.

    Raises:
        ConfigError: int8 is not accurate enough for the model.
    """
    onnx_parts = onnxdir.build(parts, storage=storage)
    error = compare(ElmoModel(parts, device="cpu"), OnnxModel(onnx_parts))
    if storage == "int8":
        check_cosines(error["mean_cosine"], "int8", "Convert the model with --storage float32.")
    onnx_parts.metadata["onnx"]["error"] = error
    onnxdir.save(onnx_parts, path, overwrite=overwrite)
    return error


def compare(exact: ElmoModel, other: OnnxModel) -> dict[str, Any]:
    """Embed the same sentences with both models, and return the differences for each layer."""
    sentences = _sentences(exact)
    expected, actual = (
        np.concatenate(model.compute(sentences), axis=1) for model in (exact, other)
    )  # (L + 1, tokens, 2D) each
    cosine = np.stack([cosines(*layers) for layers in zip(expected, actual, strict=True)])
    return {
        "tokens": expected.shape[1],
        "largest_difference": _round(np.abs(expected - actual).max(axis=(1, 2)), 10),
        "mean_cosine": _round(cosine.mean(axis=1), 7),
        "worst_cosine": _round(cosine.min(axis=1), 7),
    }


def _sentences(model: ElmoModel) -> list[list[str]]:
    sentences = [sentence.split() for sentence in SENTENCES]
    words = model.vocabulary
    if model.config.n_words is None or words is None or UNKNOWN in words:
        return sentences
    # The model has no <UNK>, so use only words from its vocabulary.
    sentences = [[token for token in sentence if token in words] for sentence in sentences]
    return sentences if any(sentences) else [list(words.words[:20])]


def _round(values: Any, digits: int) -> list[float]:
    return [round(float(value), digits) for value in values]
