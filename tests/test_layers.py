"""The rooms of the house: arrows point from the outer rooms to the inner ones only."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "elmokit"

# Each room may import from itself and from the rooms named; top-level files are open to all.
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
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        rooms |= {n.split(".")[1] for n in names if n.startswith("elmokit.")}
    return rooms & set(MAY_IMPORT)


def test_every_room_is_known() -> None:
    rooms = {p.name for p in PACKAGE.iterdir() if p.is_dir() and (p / "__init__.py").exists()}
    assert rooms == set(MAY_IMPORT)


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_arrows_point_inwards(room: str) -> None:
    for path in (PACKAGE / room).rglob("*.py"):
        strangers = imports(path) - MAY_IMPORT[room] - {room}
        assert not strangers, f"{path.relative_to(PACKAGE)} imports from {strangers}"


def loaded_after(program: str) -> set[str]:
    program += "\nimport sys; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_importing_elmokit_loads_nothing_heavy() -> None:
    loaded = loaded_after("import elmokit")
    assert not loaded & {"torch", "h5py", "pyarrow", "safetensors", "typer", "tqdm", "pydantic"}


def test_the_help_needs_no_torch() -> None:
    loaded = loaded_after("import elmokit.cli.main")
    assert not loaded & {"torch", "numpy", "h5py", "pyarrow", "safetensors", "pydantic"}
