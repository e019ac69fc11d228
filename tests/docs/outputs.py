"""Comparing the output shown on a page with the actual output."""

from __future__ import annotations

import difflib
import re

_NUMBER = re.compile(r"-?\d+\.\d+")


def expected_output(program: str) -> list[str]:
    """Return the output that the program announces in comments."""
    return re.findall(r"^ *print\(.*\)  # (.+)$", program, re.MULTILINE)


def differences(shown: str, printed: str) -> str:
    """Return nothing if `printed` is what the page shows, else both next to each other."""
    wanted, found = _lines(shown), _lines(printed)
    if _match(wanted, found):
        return ""
    return "\n".join(difflib.unified_diff(wanted, found, "the page", "printed", lineterm=""))


def _lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _match(wanted: list[str], found: list[str]) -> bool:
    if not wanted:
        return not found
    if wanted[0] == "...":
        return any(_match(wanted[1:], found[n:]) for n in range(len(found) + 1))
    return bool(found) and _alike(wanted[0], found[0]) and _match(wanted[1:], found[1:])


def _alike(wanted: str, found: str) -> bool:
    """Test for equality, except for decimals that differ by one in their last digit."""
    if _NUMBER.sub("0.0", wanted) != _NUMBER.sub("0.0", found):
        return False
    pairs = zip(_NUMBER.findall(wanted), _NUMBER.findall(found), strict=True)
    return all(_near(one, other) for one, other in pairs)


def _near(one: str, other: str) -> bool:
    places = len(one.partition(".")[2])
    return len(other.partition(".")[2]) == places and (
        abs(float(one) - float(other)) < 1.5 * 10**-places
    )
