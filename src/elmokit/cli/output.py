"""What commands print: results to standard output, messages to standard error."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Protocol

import typer

from elmokit.progress import plural

#: The exit code of an interrupted command.
INTERRUPTED = 130


class Result(Protocol):
    """A result of the library, which is printed as JSON or as text."""

    def to_dict(self) -> dict[str, Any]: ...


def print_json(values: object, indent: int | None = None) -> None:
    """Print values as JSON."""
    typer.echo(json.dumps(values, ensure_ascii=False, indent=indent))


def print_result(result: Result, *, as_json: bool) -> None:
    """Print a result as one line of JSON, or as text."""
    if as_json:
        print_json(result.to_dict())
    else:
        typer.echo(str(result))


def print_perplexities(perplexities: Iterable[Result], *, as_json: bool) -> None:
    """Print one perplexity per line, or all of them as a JSON list."""
    if as_json:
        print_json([perplexity.to_dict() for perplexity in perplexities])
        return
    for perplexity in perplexities:
        typer.echo(str(perplexity))


def log(message: str) -> None:
    """Print a message to standard error."""
    typer.echo(message, err=True)


def log_skipped(lines: int, first: object = None) -> None:
    """Report lines that were skipped, if there are any."""
    if lines:
        log(f"{plural(lines, 'line')} skipped, first: {first}")


def log_summary(output: object, facts: Iterable[str]) -> None:
    """Report what was written, for example "vectors.h5: 3 sentences, 13 tokens"."""
    log(f"{output}: {', '.join(facts)}")


def finished_work(n: int, noun: str) -> str:
    """Describe what an interrupted run has finished, and how to resume it."""
    return (
        f"{plural(n, noun)} finished and saved. Resume with the same command and --resume, or "
        "discard them with --overwrite."
    )
