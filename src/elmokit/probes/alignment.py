"""Convert a range of characters of a sentence to the tokens that it covers.

Datasets mark a word by its characters. Usually these are the characters of a token; otherwise, the
result says how they differ, so that such words can be counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

Fit = Literal["exact", "inside", "several", "across", "none"]


class Alignment(NamedTuple):
    """The tokens first, ..., last - 1, and how they fit.

    fit: "exact": one token with the same characters. "inside": part of one token. "several":
    exactly several whole tokens. "across": part of a token and something else. "none": no token;
    first == last.
    """

    first: int
    last: int
    fit: Fit


def align(offsets: Sequence[tuple[int, int]], start: int, end: int) -> Alignment:
    """Find the tokens that overlap the characters start, ..., end - 1.

    Args:
        offsets: (start, end) of each token, in order.
        start: The first character.
        end: The character after the last one.
    """
    overlapping = [i for i, (a, b) in enumerate(offsets) if a < end and b > start]
    if start >= end or not overlapping:
        return Alignment(0, 0, "none")
    first, last = overlapping[0], overlapping[-1]
    a, b = offsets[first][0], offsets[last][1]
    fit: Fit = "across"
    if (a, b) == (start, end):
        fit = "exact" if first == last else "several"
    elif first == last and a <= start and end <= b:
        fit = "inside"
    return Alignment(first, last + 1, fit)
