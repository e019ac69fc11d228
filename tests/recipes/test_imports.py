"""Scripts outside of the package use only names and arguments that exist."""

from __future__ import annotations

import ast
import importlib.util
import os
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


FOLDERS = sorted({path.parent for path in SCRIPTS if "hooks" not in path.parts})
# Errors of mypy for names and arguments that do not exist. Scripts need not be fully typed.
CODES = ("[attr-defined]", "[call-arg]", "[name-defined]")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of mypy, so that only the first folder checks the package."""
    return tmp_path_factory.mktemp("mypy")


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_all_attributes_and_arguments_that_scripts_use_exist(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = pytest.importorskip("mypy.api")
    bases = [ROOT / "src", folder, ROOT / "recipes" / "tasks", ROOT / "benchmarks" / "peers"]
    monkeypatch.setenv("MYPYPATH", os.pathsep.join(map(str, dict.fromkeys(bases))))
    monkeypatch.chdir(folder)
    options = ["--follow-imports=silent", "--ignore-missing-imports", "--check-untyped-defs"]
    options += ["--scripts-are-modules", "--config-file=", f"--cache-dir={cache}"]
    out, err, _ = api.run([*options, *(path.name for path in sorted(folder.glob("*.py")))])
    assert not err
    assert "Found" in out or "Success" in out
    assert not [line for line in out.splitlines() if line.endswith(CODES)]
