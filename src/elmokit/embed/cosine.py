"""Vectors of length 1 and their cosines."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]


def unit(vectors: FloatArray) -> FloatArray:
    """Return vectors of length 1, shape (..., D); a zero vector stays zero."""
    lengths: FloatArray = np.linalg.norm(vectors, axis=-1, keepdims=True)
    lengths[lengths == 0] = 1
    scaled: FloatArray = vectors / lengths
    return scaled


def similarity(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the cosine of every row of `a` with every row of `b`, shape (N, M)."""
    products: FloatArray = unit(np.atleast_2d(a)) @ unit(np.atleast_2d(b)).T
    return products


def cosines(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the cosine of each row of `a` with the same row of `b`, shape (n,)."""
    products: FloatArray = np.einsum("nd,nd->n", unit(a), unit(b))
    return products
