"""`elmo convert`: from the format of AllenNLP and bilm-tf to ours, and back."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.options import Weights

if TYPE_CHECKING:
    from elmokit.sources.modeldir import ModelParts


class Format(StrEnum):
    """The formats that can be written."""

    ELMOKIT = "elmokit"
    HDF5 = "hdf5"


def convert(
    model: Annotated[
        str,
        typer.Argument(
            help="A model folder, a zip, an options.json of AllenNLP or bilm-tf, or a name such as "
            "allennlp:original.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path,
        typer.Argument(help="The folder to make.", metavar="OUT", show_default=False),
    ],
    weights: Weights = None,
    to: Annotated[
        Format,
        typer.Option(
            help="elmokit: config.json + model.safetensors + card, opens at once. "
            "hdf5: options.json + weights.hdf5, for AllenNLP, bilm-tf and simple_elmo."
        ),
    ] = Format.ELMOKIT,
    vocab: Annotated[
        Path | None,
        typer.Option(
            help="The words of the model, one per line, if there is no vocab.txt beside it.",
            show_default=False,
        ),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace a model in OUT. Other files are never replaced."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of text.")
    ] = False,
) -> None:
    """Convert a model between AllenNLP's format and elmokit's. No bit of a float32 weight changes.

    OUT is written beside and renamed at the end: it is there whole or not at all.
    """
    from elmokit.sources import hdf5dir, modeldir
    from elmokit.sources.resolve import load_parts

    parts = load_parts(model, weights, vocab=vocab)
    writer = modeldir if to is Format.ELMOKIT else hdf5dir
    lost = _lost(parts) if to is Format.HDF5 else []
    writer.save(parts, out, overwrite=overwrite)
    written = {name: (out / name).stat().st_size for name in writer.FILES if (out / name).exists()}
    if as_json:
        result = {"format": to, "folder": str(out), "written": written, "lost": lost}
        typer.echo(json.dumps(result, ensure_ascii=False, indent=2))
        return
    for name, size in written.items():
        typer.echo(f"{out / name}  {size:,} bytes")
    if lost:
        typer.echo(f"note: HDF5 has no place for {', '.join(lost)}; left out", err=True)


def _lost(parts: ModelParts) -> list[str]:
    given = {
        "the language-model head": parts.head is not None,
        "the warm state": parts.warm is not None,
        "the card": parts.card is not None,
        "the metadata": bool(parts.metadata.keys() - {"converted_from"}),
    }
    return [what for what, there in given.items() if there]
