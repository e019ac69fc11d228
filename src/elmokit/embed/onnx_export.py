"""Convert a model to ONNX, and compare it with torch before it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from elmokit.embed.fast import LEAST_COSINE
from elmokit.embed.model import ElmoModel
from elmokit.embed.onnx_model import OnnxModel
from elmokit.errors import ConfigError
from elmokit.sources import onnxdir
from elmokit.sources.modeldir import ModelParts
from elmokit.text.vocab import UNKNOWN

# The King James Bible, Ecclesiastes 1 and 1 Kings 3, and a word.
_SENTENCES = (
    "Vanity of vanities , saith the Preacher , vanity of vanities ; all is vanity .",
    "What profit hath a man of all his labour which he taketh under the sun ?",
    "One generation passeth away , and another generation cometh : but the earth abideth for "
    "ever .",
    "The sun also ariseth , and the sun goeth down , and hasteth to his place where he arose .",
    "All the rivers run into the sea ; yet the sea is not full ; unto the place from whence the "
    "rivers come , thither they return again .",
    "The thing that hath been , it is that which shall be ; and that which is done is that which "
    "shall be done : and there is no new thing under the sun .",
    "And the king said , Bring me a sword . And they brought a sword before the king .",
    "And the king said , Divide the living child in two , and give half to the one , and half to "
    "the other .",
    "And all Israel heard of the judgment which the king had judged ; and they feared the king .",
    "Amen",
)


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
    lengths = np.linalg.norm(expected, axis=-1) * np.linalg.norm(actual, axis=-1)
    cosines = (expected * actual).sum(axis=-1) / np.maximum(lengths, 1e-30)
    return {
        "tokens": expected.shape[1],
        "largest_difference": _rounded(np.abs(expected - actual).max(axis=(1, 2)), 10),
        "mean_cosine": _rounded(cosines.mean(axis=1), 7),
        "worst_cosine": _rounded(cosines.min(axis=1), 7),
    }


def _sentences(model: ElmoModel) -> list[list[str]]:
    sentences = [sentence.split() for sentence in _SENTENCES]
    words = model.vocabulary
    if model.config.n_words is None or words is None or UNKNOWN in words:
        return sentences
    # A model without <UNK>: use the words of its vocabulary.
    known = [[token for token in sentence if token in words] for sentence in sentences]
    return known if any(known) else [list(words.words[:20])]


def _rounded(values: Any, digits: int) -> list[float]:
    return [round(float(value), digits) for value in values]
