"""`elmo kin`: do words that are kin find each other in layer 0?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from elmokit.cli.options import AnyModel, Device, StaticTable, TextAsJson, Weights


def kin(
    pairs: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="Lines of word, kin and kind, separated by tabs. Nothing: the list that comes "
            "with the package.",
            show_default=False,
        ),
    ] = None,
    model: AnyModel = None,
    weights: Weights = None,
    words: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The words to rank kin among, one per line. Nothing: the most frequent words of "
            "the model's vocabulary, or else of the static vectors.",
            show_default=False,
        ),
    ] = None,
    max_words: Annotated[int, typer.Option(min=1, help="Rank among this many words.")] = 20_000,
    static: StaticTable = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the random pairs.")] = 0,
    device: Device = "auto",
    as_json: TextAsJson = False,
) -> None:
    """Measure how words that are kin find each other in layer 0.

    Layer 0 knows a word by its characters, also one that it never saw. For
    each kind of kinship: the mean cosine of kin and of random pairs (a word
    with the kin of another one of its kind), how often kin are nearer than
    those (AUC), and the rank of the kin among many words (mean reciprocal
    rank, share at rank 1, share in the first 10).
    """
    from elmokit.analysis.evidence import json_values
    from elmokit.analysis.kin import (
        bundled_pairs,
        measure_kin,
        read_pairs,
        read_words,
        vocabulary_of,
    )
    from elmokit.analysis.static import load_static
    from elmokit.embed.model import load

    given = bundled_pairs() if pairs is None else read_pairs(pairs)
    listed = None if words is None else read_words(words, max_words)
    table = None if static is None else load_static(static)
    elmo = load(model, weights, device)
    vocabulary = vocabulary_of(elmo, table, max_words) if listed is None else listed
    report = measure_kin(elmo, given, vocabulary, static=table, seed=seed)
    if as_json:
        typer.echo(json.dumps(json_values(report), ensure_ascii=False))
    else:
        typer.echo(str(report))
    typer.echo(f"{len(given):,} pairs, ranked among {report.vocabulary:,} words", err=True)
