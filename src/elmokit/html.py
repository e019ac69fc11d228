"""HTML representations of objects in notebooks.

The HTML needs no external files, does not affect the style of the page, and works with light and
dark themes. Text is escaped, and long content is truncated.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

_INVALID_CHARACTERS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]")
_SHADE = "0,114,178"
_TABULAR_DIGITS = "font-variant-numeric:tabular-nums"


def escape(text: str) -> str:
    """Escape text for use in elements and attributes."""
    # Tokens may contain lone surrogates and control characters, which HTML does not allow.
    valid = _INVALID_CHARACTERS.sub("\ufffd", text).encode("utf-8", "backslashreplace").decode()
    return html.escape(valid)


def chips(
    words: Sequence[str],
    shades: Sequence[float],
    titles: Sequence[str],
    *,
    limit: int = 60,
) -> str:
    """Return a row of words, each with a background shade from 0 to 1 and a tooltip."""
    spans = [
        f'<span title="{escape(title)}" style="display:inline-block;margin:2px;padding:1px 6px;'
        f"border-radius:5px;border:1px solid rgba({_SHADE},.35);"
        f'background:rgba({_SHADE},{min(max(shade, 0.0), 1.0) * 0.55:.2f})">{escape(word)}</span>'
        for word, shade, title in zip(words[:limit], shades, titles, strict=False)
    ]
    if len(words) > limit:
        spans.append(f"<span>… {len(words) - limit:,} more</span>")
    return f'<div style="line-height:1.9">{"".join(spans)}</div>'


def card(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return a box with a title and a table of labels and values."""
    lines = "".join(
        f'<tr><td style="text-align:left;opacity:.7;padding:1px 14px 1px 0">{escape(label)}</td>'
        f'<td style="text-align:left;{_TABULAR_DIGITS}">{escape(value)}</td></tr>'
        for label, value in rows
    )
    return (
        f'<div style="border:1px solid rgba(128,128,128,.4);border-radius:8px;padding:8px 14px;'
        f'display:inline-block"><div style="font-weight:600">{escape(title)}</div>'
        f'<table style="border-collapse:collapse;margin:4px 0">{lines}</table></div>'
    )


def caption(text: str) -> str:
    """Return a line of explanatory text."""
    return f'<div style="opacity:.7;font-size:90%">{escape(text)}</div>'


def marked_table(rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose last column shows a sentence with one word in bold.

    Args:
        rows: The cells of each row. The last three are the left context, the word and the right
            context.
    """
    lines = []
    for row in rows:
        *cells, left, word, right = map(escape, row)
        cells.append(f"{left} <b>{word}</b> {right}")
        style = f"text-align:left;padding:1px 10px 1px 0;{_TABULAR_DIGITS}"
        lines.append("".join(f'<td style="{style}">{cell}</td>' for cell in cells))
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<table style="border-collapse:collapse">{body}</table>'
