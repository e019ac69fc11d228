"""`elmo info`: show the architecture and contents of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmokit.cli import options as opt
from elmokit.cli.output import print_json

if TYPE_CHECKING:
    from elmokit.sources.modeldir import ModelParts
    from elmokit.sources.onnxdir import OnnxParts

_MAX_CARD_LINES = 6


def info(
    model: opt.OptionalModelArgument = None,
    weights: opt.Weights = None,
    installed: Annotated[bool, typer.Option("--installed")] = False,
    as_json: opt.AsJson = False,
) -> None:
    """Show the architecture and contents of a model.

    Reads and validates all weights.

    Args:
        model: ONNX models are also supported and do not require PyTorch.
        installed: List the bundled and installed models, which can be loaded by name.
    """
    if installed:
        _list_installed(as_json)
        return
    from elmokit.embed.loading import load

    parts: ModelParts | OnnxParts = load(model, weights, device="cpu").parts
    summary = _describe(parts)
    if as_json:
        print_json(summary, indent=2)
        return
    rows = _format_rows(parts, summary)
    width = max(len(label) for label, _ in rows) + 1
    for label, text in rows:
        typer.echo(f"{label:<{width}}{text}")
    # Omit the tables of the model card, which repeat the lines above.
    lines = [line.lstrip("# ") for line in (parts.card or "").splitlines()]
    prose = [line for line in lines if line.strip() and not line.startswith(("|", "---"))]
    for line in prose[:_MAX_CARD_LINES] + ["..."] * (len(prose) > _MAX_CARD_LINES):
        typer.echo(f"  {line}")


def _list_installed(as_json: bool) -> None:
    from elmokit.sources.package import installed_models
    from elmokit.sources.resolve import named_models

    packages = installed_models()
    rows: list[dict[str, Any]] = []
    for name, path in named_models().items():
        size = sum(file.stat().st_size for file in path.iterdir() if file.is_file())
        is_bundled = name not in packages or packages[name].path != path
        package = "elmokit" if is_bundled else packages[name].package
        rows.append({"name": name, "package": package, "bytes": size, "path": str(path)})
    if as_json:
        print_json(rows, indent=2)
        return
    for row in rows:
        typer.echo(f"{row['name']:<20} {row['bytes'] / 1e6:6.1f} MB  {row['package']}")


def _describe(parts: ModelParts | OnnxParts) -> dict[str, Any]:
    from elmokit.sources.onnxdir import OnnxParts  # not `ModelParts`, which imports torch

    summary = {
        "source": parts.source,
        "bilm": parts.config.to_dict(),
        "layers": parts.config.n_layers,
        "vector_dim": parts.config.output_dim,
        "vocabulary": None if parts.vocabulary is None else len(parts.vocabulary),
        "warm": parts.warm is not None,
        "metadata": parts.metadata,
        "files": [str(file) for file in parts.files],
        "bytes": sum(file.stat().st_size for file in parts.files if file.is_file()),
        "card": parts.card,
    }
    if isinstance(parts, OnnxParts):
        return summary | {"storage": parts.storage, "head": False}
    head, adagrad = parts.head is not None, parts.accumulators is not None
    return summary | {"parameters": parts.n_parameters, "head": head, "adagrad": adagrad}


def _format_rows(parts: ModelParts | OnnxParts, summary: dict[str, Any]) -> list[tuple[str, str]]:
    from elmokit.sources.card import architecture_rows, training_rows

    kind = f" (ONNX, {summary['storage']})" if "storage" in summary else ""
    words = "none" if summary["vocabulary"] is None else f"{summary['vocabulary']:,} words"
    parameters = [("parameters", f"{summary['parameters']:,}")] if "parameters" in summary else []
    adagrad = [("Adagrad", "accumulators, to continue training")] if summary.get("adagrad") else []
    names = ", ".join(file.name for file in parts.files)
    return [
        ("model", f"{parts.source}{kind}"),
        *architecture_rows(parts.config),
        *parameters,
        ("vocabulary", words),
        ("LM head", "yes" if summary["head"] else "none"),
        ("warm state", "yes" if summary["warm"] else "none"),
        *adagrad,
        *training_rows(parts.metadata),
        ("size on disk", f"{summary['bytes'] / 1e6:,.1f} MB: {names}"),
        ("card", "none" if parts.card is None else ""),
    ]
