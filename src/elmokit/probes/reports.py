"""Format the report of a probe as a table or as JSON values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import from_json, to_json


def format_table(rows: Sequence[Mapping[str, object]]) -> str:
    """Return rows as an aligned text table; the keys of the first row are the column headers."""
    cells = [list(rows[0]), *([_format_cell(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def _format_cell(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def json_values(report: object) -> dict[str, Any]:
    """Return a report as a JSON-serializable dictionary; NaN and infinities become null."""
    values: dict[str, Any] = from_json(to_json(report, inf_nan_mode="null"))
    return values
