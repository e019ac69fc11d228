"""`elmo convert`: from other people's formats to ours, to that of AllenNLP and bilm-tf, to ONNX."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmokit.cli.options import MODELS, TextAsJson, Weights, not_stdout

if TYPE_CHECKING:
    from elmokit.sources.modeldir import ModelParts


class Format(StrEnum):
    """The formats that can be written."""

    ELMOKIT = "elmokit"
    HDF5 = "hdf5"
    ONNX = "onnx"


class Storage(StrEnum):
    """How numbers may be stored."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    INT8 = "int8"


def convert(
    model: Annotated[
        str,
        typer.Argument(
            help=MODELS,
            show_default=False,
        ),
    ],
    out: Annotated[
        Path,
        typer.Argument(
            help="The folder to make.", metavar="OUT", callback=not_stdout, show_default=False
        ),
    ],
    weights: Weights = None,
    to: Annotated[
        Format,
        typer.Option(
            help="elmokit: config.json + model.safetensors + card, opens at once. "
            "hdf5: options.json + weights.hdf5, for AllenNLP, bilm-tf and simple_elmo. "
            "onnx: encoder.onnx + bilm.onnx, for any onnxruntime and for elmokit without torch."
        ),
    ] = Format.ELMOKIT,
    vocab: Annotated[
        Path | None,
        typer.Option(
            help="The words of the model, one per line, if there is no vocab.txt beside it.",
            show_default=False,
        ),
    ] = None,
    storage: Annotated[
        Storage,
        typer.Option(
            help="How a folder of elmokit stores its numbers: float32 keeps every bit, float16 "
            "takes half of the space, int8 (one scale per row) a quarter. With --to onnx, int8 "
            "also computes so: faster, rounded; what that costs is measured and told."
        ),
    ] = Storage.FLOAT32,
    part_size: Annotated[
        int | None,
        typer.Option(help="Cut the weights into files of so many MB, about.", show_default=False),
    ] = None,
    without_head: Annotated[
        bool,
        typer.Option(
            "--without-head",
            help="Leave out the language-model head, its words and what else is for training: all "
            "that vectors need is kept.",
        ),
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace a model in OUT. Other files are never replaced."),
    ] = False,
    as_json: TextAsJson = False,
) -> None:
    """Convert a model from another format to elmokit's, AllenNLP's or ONNX, or store it smaller.

    No bit of a float32 weight changes unless --storage asks for fewer.

    OUT is written beside and renamed at the end: it is there whole or not at all.
    """
    from elmokit.errors import ConfigError
    from elmokit.sources import hdf5dir, modeldir, onnxdir
    from elmokit.sources.resolve import load_parts

    if to is Format.ONNX:
        onnxdir.check_available()
    parts = load_parts(model, weights, vocab=vocab)
    if without_head:
        _leave_out_head(parts)
    lost = [] if to is Format.ELMOKIT else _lost(parts, to)
    result: dict[str, Any] = {"format": to, "folder": str(out)}
    if to is Format.ONNX:
        from elmokit.embed.onnx_export import export

        if part_size is not None:
            raise ConfigError("ONNX is one file per graph: --part-size does not fit.")
        result["error"] = export(parts, out, storage=storage.value, overwrite=overwrite)
    elif to is Format.HDF5:
        if storage is not Storage.FLOAT32 or part_size is not None:
            raise ConfigError("HDF5 is one file of float32: --storage and --part-size do not fit.")
        hdf5dir.save(parts, out, overwrite=overwrite)
    else:
        part_bytes = None if part_size is None else part_size * 10**6
        modeldir.save(parts, out, overwrite=overwrite, storage=storage.value, part_bytes=part_bytes)
    files = {Format.ELMOKIT: modeldir.FILES, Format.HDF5: hdf5dir.FILES, Format.ONNX: onnxdir.FILES}
    written = {name: (out / name).stat().st_size for name in files[to] if (out / name).exists()}
    result |= {"written": written, "lost": lost}
    if as_json:
        typer.echo(json.dumps(result, ensure_ascii=False, indent=2))
        return
    for name, size in written.items():
        typer.echo(f"{out / name}  {size:,} bytes")
    for line in _told(result.get("error")):
        typer.echo(line)
    if lost:
        name = "HDF5" if to is Format.HDF5 else "ONNX"
        typer.echo(f"note: {name} has no place for {', '.join(lost)}; left out", err=True)


def _leave_out_head(parts: ModelParts) -> None:
    from elmokit.sources import card

    parts.head = parts.accumulators = None
    if parts.bilm.config.n_words is None:  # else they are the words that the model reads
        parts.vocabulary = None
    if parts.card is not None and card.is_generated(parts.card):
        parts.card = None  # it is made again, and tells of no head


def _told(error: dict[str, Any] | None) -> list[str]:
    """Say how far the vectors of ONNX are from those of torch."""
    if error is None:
        return []
    names = ("largest_difference", "mean_cosine", "worst_cosine")
    rows = zip(*(error[name] for name in names), strict=True)
    return [
        f"layer {j}: differs from torch by {difference:.1e} at most; cosine {mean:.6f} in the "
        f"mean, {worst:.6f} at worst"
        for j, (difference, mean, worst) in enumerate(rows)
    ]


def _lost(parts: ModelParts, to: Format) -> list[str]:
    from elmokit.sources import card

    given = {
        "the language-model head": parts.head is not None,
        "the warm state": parts.warm is not None and to is Format.HDF5,
        "the Adagrad accumulators": parts.accumulators is not None,
        "the card": parts.card is not None and not card.is_generated(parts.card),
        "the metadata": bool(parts.metadata.keys() - {"converted_from"}),
    }
    if to is Format.ONNX:
        del given["the card"], given["the metadata"]
    return [what for what, there in given.items() if there]
