"""`elmo convert`: convert models from and to other formats."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from elmokit.cli import options as opt
from elmokit.cli.output import log, print_json, print_table


def _check_output(path: Path) -> Any:
    if path.suffix.lower() in (".zip", ".hdf5", ".h5", ".onnx", ".safetensors"):
        raise typer.BadParameter(
            f"'{path}' has a file extension, but the output is a directory. Use a path without an "
            "extension."
        )
    return opt.reject_stdout(path)


def convert(
    model: opt.ModelArgument,
    out: Annotated[Path, typer.Argument(callback=_check_output)],
    weights: opt.Weights = None,
    to: Literal["elmokit", "hdf5", "onnx"] = "elmokit",
    vocab: Path | None = None,
    storage: Literal["float32", "float16", "int8"] = "float32",
    part_size: Annotated[int | None, typer.Option(min=1)] = None,
    without_head: Annotated[bool, typer.Option("--without-head")] = False,
    overwrite: opt.Overwrite = False,
    as_json: opt.AsJson = False,
) -> None:
    """Convert a model to another format, or compress it.

    With --storage float32, the elmokit and hdf5 formats preserve the weights exactly. OUT is
    written atomically.

    Args:
        out: Output directory.
        to: Output format. elmokit: config.json, model.safetensors and a model card. hdf5:
            options.json and weights.hdf5, for AllenNLP, bilm-tf and simple_elmo. onnx: encoder.onnx
            and bilm.onnx, for ONNX Runtime and for elmokit without PyTorch.
        vocab: Vocabulary file, one word per line. Default: vocab.txt in the model directory.
        storage: Data type of the stored weights. float16 needs half the space of float32, and int8
            (one scale per row) a quarter. With --to onnx, int8 also makes inference faster but
            less accurate; the accuracy loss is reported.
        part_size: Split the weights into files of about this size in MB. Default: one file.
        without_head: Omit the LM head, its vocabulary and the optimizer state, which are not needed
            to compute vectors.
    """
    from elmokit.sources import hdf5dir, modeldir, onnxdir
    from elmokit.sources.resolve import load_parts

    if part_size is not None and to != "elmokit":
        raise opt.UsageError(f"--part-size is not supported with --to {to}. Omit it.")
    if storage != "float32" and to == "hdf5":
        raise opt.UsageError(f"--storage {storage} is not supported with --to hdf5. Use float32.")
    if to == "onnx":
        onnxdir.check_available()
    parts = load_parts(model, weights, vocab=vocab)
    if without_head:
        parts.head = parts.accumulators = None
        if parts.bilm.config.n_words is None:  # otherwise, the input layer needs it
            parts.vocabulary = None
    optional = {
        "the LM head": parts.head,
        "the Adagrad accumulators": parts.accumulators,
        "the warm state": parts.warm if to == "hdf5" else None,
        "the model card": parts.card if to == "hdf5" else None,
        "the metadata": (parts.metadata or None) if to == "hdf5" else None,
    }
    omitted = [name for name, part in optional.items() if part is not None and to != "elmokit"]
    result: dict[str, Any] = {"format": to, "folder": str(out)}
    if to == "onnx":
        from elmokit.embed.onnx_export import export

        result["error"] = export(parts, out, storage=storage, overwrite=overwrite)
    elif to == "hdf5":
        hdf5dir.save(parts, out, overwrite=overwrite)
    else:
        part_bytes = None if part_size is None else part_size * 10**6
        modeldir.save(parts, out, overwrite=overwrite, storage=storage, part_bytes=part_bytes)
    written = {file.name: file.stat().st_size for file in sorted(out.iterdir())}
    result |= {"written": written, "omitted": omitted}
    if as_json:
        print_json(result, indent=2)
        return
    for name, size in written.items():
        typer.echo(f"{out / name}  {size:,} bytes")
    if to == "onnx":
        columns = {n: values for n, values in result["error"].items() if isinstance(values, list)}
        layers = zip(*columns.values(), strict=True)
        rows = [
            {"layer": j, **dict(zip(columns, row, strict=True))} for j, row in enumerate(layers)
        ]
        print_table(rows, ("layer", *columns))
    if omitted:
        log(f"Not supported by the {to} format and therefore omitted: {', '.join(omitted)}.")
