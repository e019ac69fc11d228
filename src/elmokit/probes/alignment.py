"""A stretch of characters in a sentence -> the tokens it covers.

Data sets mark a word by the characters it stands on; our tokens have borders of their own. Mostly
they are the same. If not, the answer says how, so that it can be counted and not just hoped for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

Fit = Literal["exact", "inside", "several", "across", "none"]


class Alignment(NamedTuple):
    """The tokens first, ..., last - 1, and how they fit.

    fit: "exact": one token, the same characters. "inside": the stretch is a part of one token.
    "several": exactly some whole tokens. "across": it cuts through a token and takes in others.
    "none": no token is there; first == last.
    """

    first: int
    last: int
    fit: Fit


def align(offsets: Sequence[tuple[int, int]], start: int, end: int) -> Alignment:
    """Find the tokens under the characters start, ..., end - 1.

    Args:
        offsets: (start, end) of each token, in order.
        start: The first character.
        end: The character after the last one.
    """
    touched = [i for i, (a, b) in enumerate(offsets) if a < end and b > start]
    if start >= end or not touched:
        return Alignment(0, 0, "none")
    first, last = touched[0], touched[-1] + 1
    same_borders = offsets[first][0] == start and offsets[last - 1][1] == end
    if last - first == 1:
        return Alignment(
            first, last, "exact" if same_borders else _part(offsets[first], start, end)
        )
    return Alignment(first, last, "several" if same_borders else "across")


def _part(token: tuple[int, int], start: int, end: int) -> Fit:
    return "inside" if token[0] <= start and end <= token[1] else "across"
