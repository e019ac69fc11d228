"""`elmo convert`: convert models from and to other formats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from elmokit.cli.options import ModelArgument, TextAsJson, Weights, not_stdout
from elmokit.cli.output import log, print_json

if TYPE_CHECKING:
    from elmokit.sources.modeldir import ModelParts


def convert(
    model: ModelArgument,
    out: Annotated[
        Path, typer.Argument(help="Directory to write.", metavar="OUT", callback=not_stdout)
    ],
    weights: Weights = None,
    to: Annotated[
        Literal["elmokit", "hdf5", "onnx"],
        typer.Option(
            help="Output format. elmokit: config.json, model.safetensors and a model card. "
            "hdf5: options.json and weights.hdf5, for AllenNLP, bilm-tf and simple_elmo. "
            "onnx: encoder.onnx and bilm.onnx, for onnxruntime and for elmokit without torch."
        ),
    ] = "elmokit",
    vocab: Annotated[
        Path | None,
        typer.Option(
            help="Vocabulary, one word per line. Default: vocab.txt in the directory of the model, "
            "if it exists."
        ),
    ] = None,
    storage: Annotated[
        Literal["float32", "float16", "int8"],
        typer.Option(
            help="Data type of the weights. float32 is lossless, float16 takes half the space, and "
            "int8 (one scale per row) a quarter. With --to onnx, int8 also makes inference faster "
            "and less accurate; the accuracy loss is measured and reported."
        ),
    ] = "float32",
    part_size: Annotated[
        int | None,
        typer.Option(help="Split the weights into files of about this many MB. Default: one file."),
    ] = None,
    without_head: Annotated[
        bool,
        typer.Option(
            "--without-head",
            help="Omit the LM head, its vocabulary and the optimizer state, which are not "
            "needed to compute vectors.",
        ),
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace a model in OUT; never replaces other files."),
    ] = False,
    as_json: TextAsJson = False,
) -> None:
    """Convert a model to another format, or compress it.

    The conversion is lossless unless you use --storage. OUT is written
    atomically.
    """
    from elmokit.sources import hdf5dir, modeldir, onnxdir
    from elmokit.sources.resolve import load_parts

    if part_size is not None and to != "elmokit":
        raise typer.BadParameter(f"not supported with --to {to}.", param_hint="--part-size")
    if storage != "float32" and to == "hdf5":
        raise typer.BadParameter("not supported with --to hdf5.", param_hint="--storage")
    if to == "onnx":
        onnxdir.check_available()
    parts = load_parts(model, weights, vocab=vocab)
    if without_head:
        _remove_head(parts)
    lost = [] if to == "elmokit" else _lost(parts, to)
    result: dict[str, Any] = {"format": to, "folder": str(out)}
    if to == "onnx":
        from elmokit.embed.onnx_export import export

        result["error"] = export(parts, out, storage=storage, overwrite=overwrite)
    elif to == "hdf5":
        hdf5dir.save(parts, out, overwrite=overwrite)
    else:
        part_bytes = None if part_size is None else part_size * 10**6
        modeldir.save(parts, out, overwrite=overwrite, storage=storage, part_bytes=part_bytes)
    files = {"elmokit": modeldir.FILES, "hdf5": hdf5dir.FILES, "onnx": onnxdir.FILES}
    written = {name: (out / name).stat().st_size for name in files[to] if (out / name).exists()}
    result |= {"written": written, "lost": lost}
    if as_json:
        print_json(result, indent=2)
        return
    for name, size in written.items():
        typer.echo(f"{out / name}  {size:,} bytes")
    for line in _format_error(result.get("error")):
        typer.echo(line)
    if lost:
        log(f"note: {to.upper()} cannot store {', '.join(lost)}; omitted")


def _remove_head(parts: ModelParts) -> None:
    from elmokit.sources import card

    parts.head = parts.accumulators = None
    if parts.bilm.config.n_words is None:  # otherwise it is the input vocabulary
        parts.vocabulary = None
    if parts.card is not None and card.is_generated(parts.card):
        parts.card = None  # it is generated again, without the head


def _format_error(error: dict[str, Any] | None) -> list[str]:
    """Describe how much the vectors of ONNX differ from those of torch."""
    if error is None:
        return []
    names = ("largest_difference", "mean_cosine", "worst_cosine")
    rows = zip(*(error[name] for name in names), strict=True)
    return [
        f"layer {j}: maximum difference from torch {difference:.1e}; cosine: mean {mean:.6f}, "
        f"minimum {worst:.6f}"
        for j, (difference, mean, worst) in enumerate(rows)
    ]


def _lost(parts: ModelParts, to: str) -> list[str]:
    from elmokit.sources import card

    present = {
        "the LM head": parts.head is not None,
        "the warm state": parts.warm is not None and to == "hdf5",
        "the Adagrad accumulators": parts.accumulators is not None,
        "the model card": parts.card is not None and not card.is_generated(parts.card),
        "the metadata": bool(parts.metadata.keys() - {"converted_from"}),
    }
    if to == "onnx":
        del present["the model card"], present["the metadata"]
    return [part for part, is_present in present.items() if is_present]
