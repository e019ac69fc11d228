"""Scripts outside of the package only import names that exist."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

from tests.recipes.conftest import ROOT

SCRIPTS = [
    path
    for folder in ("recipes", "benchmarks", "examples", "docs/hooks", "scripts")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_that_scripts_import_from_elmokit_exist(path: Path) -> None:
    missing = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        module = getattr(node, "module", None) or ""
        if isinstance(node, ast.ImportFrom) and module.split(".")[0] == "elmokit":
            assert importlib.util.find_spec(module) is not None, f"line {node.lineno}: {module}"
            loaded = pytest.importorskip(module, exc_type=ImportError)
            for name in (alias.name for alias in node.names):
                submodule = f"{module}.{name}"
                if not hasattr(loaded, name) and importlib.util.find_spec(submodule) is None:
                    missing.append(f"line {node.lineno}: {submodule}")
    assert not missing
