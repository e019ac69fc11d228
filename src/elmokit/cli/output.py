"""Print results to standard output and messages to standard error."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import typer

from elmokit.progress import plural

if TYPE_CHECKING:
    from elmokit.train.loop import TrainResult

#: The exit code of an interrupted command.
INTERRUPTED = 130


def print_json(values: object, indent: int | None = None) -> None:
    """Print values as JSON."""
    typer.echo(json.dumps(values, ensure_ascii=False, indent=indent))


def print_result(values: object, text: object, *, as_json: bool) -> None:
    """Print a result as one line of JSON, or as text."""
    if as_json:
        print_json(values)
    else:
        typer.echo(str(text))


def print_table(rows: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> None:
    """Print rows as a table. Columns that the rows do not contain are omitted."""
    rows = list(rows)
    names = [name for name in columns if name in rows[0]]
    cells = [[name.replace("_", " ") for name in names]]
    cells += [[_format(row[name]) for name in names] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        aligned = [value.rjust(width) for value, width in zip(line, widths, strict=True)]
        typer.echo("  ".join(aligned))


def _format(value: Any) -> str:
    if value is None:
        return "auto"
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def print_training(run: TrainResult, summary: dict[str, Any], *, as_json: bool) -> None:
    """Print the JSON summary of a training run if requested. Exit if the run was interrupted."""
    if as_json:
        values = {"steps": run.steps, "tokens": run.tokens, "interrupted": run.interrupted}
        print_json({**values, "model": str(run.model), **summary})
    if run.interrupted:
        raise typer.Exit(INTERRUPTED)


def log(message: str) -> None:
    """Print a message to standard error."""
    typer.echo(message, err=True)


def log_skipped(lines: int, first: object = None) -> None:
    """Log the number of skipped lines and the first of them, if there are any."""
    if lines:
        log(f"{plural(lines, 'line')} skipped, first: {first}")


def log_summary(output: object, *details: str) -> None:
    """Log a summary of the output, for example "vectors.h5: 3 sentences, 13 tokens"."""
    log(f"{output}: {', '.join(detail for detail in details if detail)}")


def format_resumed_work(n: int, noun: str) -> str:
    """Return a message about results of an earlier run; empty if there are none."""
    return f"{plural(n, noun)} from an earlier run" if n else ""


def format_saved_work(n: int, noun: str) -> str:
    """Return a message about the results of an interrupted run and how to resume it."""
    return (
        f"{plural(n, noun)} finished and saved. Resume with the same command and --resume, or "
        "start again with --overwrite."
    )
