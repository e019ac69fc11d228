"""A benchmark's report as text: tables, with bars where one look should do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from elmokit.embed.bench.report import BenchReport

_BAR = 24


def render(report: BenchReport) -> str:
    """Return the report as plain text."""
    model, machine, text = report.model, report.machine, report.text
    weights = "random weights" if model["random_weights"] else "its own weights"
    parts = [
        f"{model['name']}: {model['shape']}, {model['parameters']:,} parameters, {weights}\n"
        f"{machine['device']}, {machine['cores']} cores, torch {machine['versions']['torch']}\n"
        f"text: {text['name']}, {text['tokens_per_sentence']} tokens a sentence"
    ]
    if report.cells:
        parts.append(_cells(report))
    if report.network:
        parts.append(_network(report))
    if report.lengths:
        parts.append(_lengths(report))
    parts += [_long_sentence(row) for row in report.long_sentence]
    parts.append(_loads(report))
    parts += [_error(row) for row in report.errors]
    parts += [f"note: {note}" for note in report.notes]
    return "\n\n".join(parts)


def columns(rows: Sequence[Sequence[object]]) -> str:
    """Set rows in columns: the first of each row to the left, numbers to the right."""
    cells = [[str(value) for value in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    lines = []
    for row in cells:
        first = row[0].ljust(widths[0])
        rest = [value.rjust(width) for value, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join([first, *rest]).rstrip())
    return "\n".join(lines)


def bar(value: float, largest: float) -> str:
    """Draw a number as a bar; the largest fills the line."""
    return "#" * max(1, round(_BAR * value / largest)) if largest > 0 else ""


def _setup(row: dict[str, Any]) -> tuple[str, str]:
    return row["precision"], str(row["threads"] or "auto")


def _cells(report: BenchReport) -> str:
    largest = max(row["tokens_per_second"] for row in report.cells)
    table: list[Sequence[object]] = [
        ("precision", "threads", "batch", "tokens/s", "cold", "cache hits", "")
    ]
    for row in report.cells:
        drawn = bar(row["tokens_per_second"], largest).ljust(_BAR)
        table.append(
            (
                *_setup(row),
                row["batch"],
                f"{row['tokens_per_second']:,.0f}",
                f"{row['cold_tokens_per_second']:,.0f}",
                f"{row['hit_rate']:.1%}",
                drawn,
            )
        )
    return columns(table)


def _network(report: BenchReport) -> str:
    table: list[Sequence[object]] = [
        ("network alone", "threads", "batch", "biLM tokens/s", "LSTMs", "from text")
    ]
    for row in report.network:
        rates = ("bilm_tokens_per_second", "lstm_tokens_per_second", "from_text_tokens_per_second")
        table.append((*_setup(row), row["batch"], *(f"{row[rate]:,.0f}" for rate in rates)))
    return columns(table)


def _lengths(report: BenchReport) -> str:
    largest = max(row["tokens_per_second"] for row in report.lengths)
    table: list[Sequence[object]] = [
        ("one run", "threads", "tokens", "seconds", "tokens/s", "cache hits", "GiB", "")
    ]
    for row in report.lengths:
        table.append(
            (
                *_setup(row),
                f"{row['tokens']:,}",
                f"{row['seconds']:,.2f}",
                f"{row['tokens_per_second']:,.0f}",
                f"{row['hit_rate']:.1%}",
                f"{row['peak_gib']:.2f}",
                bar(row["tokens_per_second"], largest).ljust(_BAR),
            )
        )
    return columns(table)


def _long_sentence(row: dict[str, Any]) -> str:
    return (
        f"{row['precision']}: a token of one {row['tokens']:,}-token sentence costs "
        f"{row['ratio']:.2f} times that of {row['short_tokens']:,}-token ones at batch 1"
    )


def _loads(report: BenchReport) -> str:
    table: list[Sequence[object]] = [
        ("process", "threads", "load s", "first vector ms", "then ms", "p99", "loaded GiB", "peak")
    ]
    for row in report.loads:
        again = [
            f"{row[key]:,.1f}" if key in row else "-" for key in ("sentence_ms", "sentence_p99_ms")
        ]
        table.append(
            (
                *_setup(row),
                f"{row['load_s']:.2f}",
                f"{row['first_vector_ms']:,.0f}",
                *again,
                f"{row['loaded_gib']:.2f}",
                f"{row['peak_gib']:.2f}",
            )
        )
    return columns(table)


def _error(row: dict[str, Any]) -> str:
    mean = ", ".join(f"{value:.6f}" for value in row["cosine_mean"])
    worst = ", ".join(f"{value:.6f}" for value in row["cosine_worst"])
    return (
        f"{row['precision']} against exact, layer by layer: cosine {mean} (worst token {worst}), "
        f"largest difference {row['largest_difference']:.2g}"
    )
