"""A model as a folder of ONNX, compared with torch before it is written."""

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
    """Write a model as a folder of ONNX.

    Args:
        parts: The model.
        path: The folder to make.
        storage: "float32" or "int8".
        overwrite: Replace a model in ONNX that is there.

    Returns:
        What its vectors lose, as config.json tells it: the largest difference to those of torch,
        the mean and the worst cosine, per layer.

    Raises:
        ConfigError: The model loses too much by int8.
    """
    built = onnxdir.build(parts, storage=storage)
    error = compare(ElmoModel(parts, device="cpu"), OnnxModel(built))
    worst = int(np.argmin(error["mean_cosine"]))
    if storage == "int8" and not error["mean_cosine"][worst] >= LEAST_COSINE:
        raise ConfigError(
            f"This model loses too much by int8: the mean cosine of layer {worst} to its exact "
            f"vectors is {error['mean_cosine'][worst]:.4f}, and at least {LEAST_COSINE} is asked. "
            "Convert it with --storage float32."
        )
    built.metadata["onnx"]["error"] = error
    onnxdir.save(built, path, overwrite=overwrite)
    return error


def compare(exact: ElmoModel, other: OnnxModel) -> dict[str, Any]:
    """Let both models read the same sentences, and say per layer how far they are apart."""
    sentences = _sentences(exact)
    there, here = (
        np.concatenate(model.compute(sentences), axis=1) for model in (exact, other)
    )  # (L + 1, tokens, 2D) each
    lengths = np.linalg.norm(there, axis=-1) * np.linalg.norm(here, axis=-1)
    cosines = (there * here).sum(axis=-1) / np.maximum(lengths, 1e-30)
    return {
        "tokens": there.shape[1],
        "largest_difference": _told(np.abs(there - here).max(axis=(1, 2)), 10),
        "mean_cosine": _told(cosines.mean(axis=1), 7),
        "worst_cosine": _told(cosines.min(axis=1), 7),
    }


def _sentences(model: ElmoModel) -> list[list[str]]:
    sentences = [sentence.split() for sentence in _SENTENCES]
    words = model.vocabulary
    if model.config.n_words is None or words is None or UNKNOWN in words:
        return sentences
    # A model that knows no unknown words: those that it knows, or any.
    known = [[token for token in sentence if token in words] for sentence in sentences]
    return known if any(known) else [list(words.words[:20])]


def _told(values: Any, digits: int) -> list[float]:
    return [round(float(value), digits) for value in values]
