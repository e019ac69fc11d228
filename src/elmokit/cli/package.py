"""`elmo package`: build a wheel that contains a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def package(
    model: Path,
    output: Annotated[Path, typer.Option("--output", "-o")] = Path("dist"),
    name: str | None = None,
    version: str = "1.0.0",
) -> None:
    """Build a wheel that contains a model.

    Writes elmokit_NAME-VERSION-py3-none-any.whl. After installing the wheel (pip install FILE), you
    can load the model by name: elmokit.load("NAME") in Python, or --model NAME on the command
    line. `elmo info --installed` lists the installed models.

    Args:
        model: Model directory, as written by `elmo train`, `finetune` or `convert`.
        output: Directory for the wheel.
        name: Name of the model. Default: the name of the model directory.
        version: Version of the package, for example 1.0.0 or 1.0.0rc1.
    """
    from elmokit.sources.package import build_package

    wheel = build_package(model, output, name=name or model.resolve().name, version=version)
    typer.echo(f"{wheel} ({wheel.stat().st_size / 1e6:.1f} MB)")
