"""Replace the generated part of a page, which is between two markers."""

from __future__ import annotations

from collections.abc import Sequence


def replace_between(text: str, mark: str, lines: Sequence[str]) -> str:
    """Replace the lines between the two markers of a name."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise SystemExit(f"The page must contain '{begin}' and '{end}' exactly once.")
    before, rest = text.split(begin)
    return "\n".join([before + begin, *lines, end + rest.split(end)[1]])
