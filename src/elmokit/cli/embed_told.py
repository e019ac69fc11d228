"""What `elmo embed` tells when it ends: what was made, or what is kept of it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import typer

from elmokit.telling import plural

if TYPE_CHECKING:
    from elmokit.bulk.settings import Summary

NOTHING = "nothing was finished, nothing is kept."


def is_folder(output: str) -> bool:
    """Tell whether a name means a folder of shards: it has no suffix."""
    return output.endswith("/") or not PurePath(output).suffix


def kept(output: str) -> str:
    """Say what an interrupted run has left, and how to go on."""
    if is_folder(output):
        return "the shards that are finished are kept; go on with the same command and --resume."
    from elmokit.bulk.corpus import kept_sentences

    sentences = kept_sentences(Path(output))
    if not sentences:
        return NOTHING
    return (
        f"{plural(sentences, 'sentence')} finished and kept; go on with the same command and "
        "--resume (or throw them away with --overwrite)."
    )


def tell(summary: Summary, *, as_json: bool) -> None:
    """Print the summary."""
    if as_json:
        values = {**dataclasses.asdict(summary), "output": str(summary.output)}
        typer.echo(json.dumps(values, ensure_ascii=False))
    told = [plural(summary.sentences, "sentence"), plural(summary.tokens, "token")]
    if summary.tokens_per_second:
        told.append(f"{summary.tokens_per_second:,.0f} tokens/s")
    if summary.resumed_sentences:
        told.append(f"{plural(summary.resumed_sentences, 'sentence')} of them from before")
    told.append(f"{plural(summary.cut_tokens, 'token')} cut")
    if summary.skipped_lines:
        told.append(f"{plural(summary.skipped_lines, 'line')} skipped")
    typer.echo(f"{summary.output}: {', '.join(told)}", err=True)
