"""Packages of elmokit import only from the packages that they may depend on."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "elmokit"

# Each package may import from itself and the listed packages; all may import top-level modules.
MAY_IMPORT: dict[str, set[str]] = {
    "storage": set(),
    "model": {"storage"},
    "text": {"storage"},
    "data": {"storage", "model", "text"},
    "convert": {"storage", "model", "text"},
    "sources": {"storage", "model", "text", "convert"},
    "embed": {"storage", "model", "text", "sources"},
    "bulk": {"storage", "text", "embed"},
    "train": {"storage", "model", "text", "data", "sources"},
    "compat": {"storage", "model", "text", "convert", "sources", "embed"},
    "search": {"storage", "text", "embed", "bulk"},
    "probes": {"text", "embed"},
    "tasks": {"storage", "model", "text", "sources", "embed", "train"},
    "plot": {"storage", "text", "embed", "search", "tasks"},
    "integrations": {"embed", "model", "sources", "storage", "text"},
    "serve": {"model", "text", "embed", "search", "tasks", "plot"},
    "cli": {
        *("storage", "model", "text", "data", "convert", "sources", "embed", "bulk", "compat"),
        *("train", "search", "probes", "tasks", "plot", "serve"),
    },
}


def imports(path: Path) -> set[str]:
    packages = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        packages |= {n.split(".")[1] for n in names if n.startswith("elmokit.")}
    return packages & set(MAY_IMPORT)


def test_every_package_is_listed() -> None:
    packages = {p.name for p in PACKAGE.iterdir() if p.is_dir() and (p / "__init__.py").exists()}
    assert packages == set(MAY_IMPORT)


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_packages_import_only_from_allowed_packages(package: str) -> None:
    for path in (PACKAGE / package).rglob("*.py"):
        forbidden = imports(path) - MAY_IMPORT[package] - {package}
        assert not forbidden, f"{path.relative_to(PACKAGE)} imports from {forbidden}"


def modules_after_import(program: str) -> set[str]:
    program += "\nimport sys; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_importing_elmokit_loads_no_heavy_dependencies() -> None:
    loaded = modules_after_import("import elmokit")
    assert not loaded & {"torch", "h5py", "pyarrow", "safetensors", "typer", "tqdm", "pydantic"}


def test_help_does_not_import_torch() -> None:
    loaded = modules_after_import("import elmokit.cli.main")
    assert not loaded & {"torch", "numpy", "h5py", "pyarrow", "safetensors", "pydantic"}
