"""Vectors of length 1 and their cosines."""

from __future__ import annotations

import numpy as np

from elmokit.embed.vectors import FloatArray


def unit(vectors: FloatArray) -> FloatArray:
    """Return vectors of length 1, shape (..., D); a zero vector stays zero."""
    lengths: FloatArray = np.linalg.norm(vectors, axis=-1, keepdims=True)
    lengths[lengths == 0] = 1
    scaled: FloatArray = vectors / lengths
    return scaled


def cosines(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the cosine of each row of `a` with the same row of `b`, shape (n,)."""
    products: FloatArray = np.einsum("nd,nd->n", unit(a), unit(b))
    return products
