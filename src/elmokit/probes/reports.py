"""Format the report of a probe: a table for people, or plain values for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json, to_json

from elmokit.probes.statistics import Interval

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def format_table(rows: Sequence[Mapping[str, str | int | float | Interval]]) -> str:
    """Return rows as aligned text; the keys of the first row are the titles of the columns."""
    cells = [list(rows[0]), *([_format(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def _format(value: str | int | float | Interval) -> str:
    if isinstance(value, Interval):
        return f"{value.low:.4f} to {value.high:.4f}"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def json_values(report: DataclassInstance) -> dict[str, Any]:
    """Return a report as plain JSON values; NaN and infinities become null."""
    values: dict[str, Any] = from_json(to_json(asdict(report), inf_nan_mode="null"))
    return values
