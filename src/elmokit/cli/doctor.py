"""`elmo doctor`: show versions, extras, devices and the kernel for precision 'fast'."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from dataclasses import asdict
from typing import Any

import typer

from elmokit.cli import options as opt
from elmokit.cli.output import print_json
from elmokit.progress import plural

# The features that each extra enables. The packages of an extra are read from elmokit's metadata.
_FEATURES = {
    "all": "all of the following except flair",
    "arrow": "vectors in Parquet files and Arrow tables",
    "coref": "elmo task coref",
    "flair": "token embeddings for flair",
    "gensim": "gensim KeyedVectors",
    "hub": "hf:// models and save_pretrained",
    "log": "training logs for TensorBoard",
    "onnx": "elmo convert --to onnx, and embedding without PyTorch",
    "plot": "elmo plot",
    "ray": "elmo embed --engine ray",
    "search": "elmo index",
    "sentence-transformers": "a module for sentence-transformers",
    "serve": "elmo serve",
    "sklearn": "ElmoVectorizer for scikit-learn",
    "spacy": "a pipeline component for spaCy",
    "static": "GloVe vectors (--static glove-6b-50d)",
}


def doctor(
    probe: bool = True,
    as_json: opt.AsJson = False,
) -> None:
    """Show versions, extras, devices and the kernel for precision 'fast'.

    Args:
        probe: Determine which kernel is used for precision 'fast'. The first time, this takes a few
            seconds.
    """
    import torch

    packages = _installed_versions()
    devices = [f"cpu ({plural(torch.get_num_threads(), 'thread')})"]
    for i in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(i)
        devices.append(f"cuda:{i} {properties.name}, {properties.total_memory / 2**30:.0f} GiB")
    report = {
        "elmokit": _version("elmokit") or "unknown",
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}, {plural(os.cpu_count() or 1, 'CPU')}",
        "bundled_model": _check_bundled_model(),
        "packages": packages.pop(None),
        "extras": {
            extra: {"enables": enables, "packages": packages[extra]}
            for extra, enables in _FEATURES.items()
            if extra in packages
        },
        "devices": devices,
    }
    if probe:
        from elmokit.embed.fast import fast_choice

        choice = fast_choice()
        report["fast"] = {**asdict(choice), "note": choice.describe()}
    if as_json:
        print_json(report, indent=2)
    else:
        _show(report)


def _installed_versions() -> dict[str | None, dict[str, str | None]]:
    """Return the installed versions of packages for each extra; core packages have the key None."""
    if _version("elmokit") is None:  # not installed, for example only on PYTHONPATH
        return {None: {}}
    extras = importlib.metadata.metadata("elmokit").get_all("Provides-Extra") or []
    packages: dict[str | None, dict[str, str | None]] = {extra: {} for extra in (None, *extras)}
    for requirement in importlib.metadata.requires("elmokit") or []:
        name = re.split(r"[^\w.-]", requirement)[0]
        extra = re.search(r"""extra == ['"]([\w-]+)['"]""", requirement)
        if name != "elmokit":
            packages[extra[1] if extra else None][name] = _version(name)
    return packages


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _check_bundled_model() -> str:
    from elmokit.errors import ElmoError
    from elmokit.sources.resolve import load_parts

    try:
        return f"ok, {load_parts().n_parameters:,} parameters"
    except ElmoError as error:
        return f"unusable: {error}"


def _show(report: dict[str, Any]) -> None:
    for key in ("elmokit", "python", "system", "bundled_model"):
        typer.echo(f"{key.replace('_', ' '):14} {report[key]}")
    typer.echo("packages")
    for name, version in report["packages"].items():
        typer.echo(f"  {name:12} {version or f'missing: pip install {name}'}")
    typer.echo("extras (pip install 'elmokit[NAME]')")
    for extra, entry in report["extras"].items():
        packages = {} if extra == "all" else entry["packages"]  # listed under the other extras
        versions = [f"{name} {version or '(missing)'}" for name, version in packages.items()]
        typer.echo(
            f"  {extra:21} {': '.join(filter(None, [entry['enables'], ', '.join(versions)]))}"
        )
    typer.echo("\n  ".join(["devices", *report["devices"]]))
    if "fast" in report:
        typer.echo(f"precision 'fast' on this CPU: {report['fast']['note']}")
