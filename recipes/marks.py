"""Pages of which a part is written by a recipe, between two marks."""

from __future__ import annotations

from collections.abc import Sequence


def between(text: str, mark: str, lines: Sequence[str]) -> str:
    """Put lines between the two marks of a name."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise SystemExit(f"The page should have '{begin}' and '{end}' once each.")
    before, rest = text.split(begin)
    return "\n".join([before + begin, *lines, end + rest.split(end)[1]])
