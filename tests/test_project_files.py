"""Statements about the code in the project's own files are correct."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

import elmokit
from tests.docs.pages import Block, blocks

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "elmokit"
GUIDE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")

# A row of the two tables: | `bulk/run.py` | `embed_corpus` | purpose |
TOUR = re.findall(r"^\| `([\w/]+\.py)` \| `([\w.]+)` \| .+ \|$", GUIDE, re.MULTILINE)


def defined(path: Path) -> set[str]:
    """Return the names of the functions and classes of a file; methods as Class.method."""
    found = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{n.name}" for n in node.body if isinstance(n, ast.FunctionDef)}
    return found


def version() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return str(project["version"])


def test_code_tours_are_complete() -> None:
    rows = [line for line in GUIDE.splitlines() if re.match(r"^\| `[\w/]+\.py`", line)]
    assert len(rows) == len(TOUR) > 30, "a row of a tour is not `file` | `name` | text"


@pytest.mark.parametrize(("file", "name"), TOUR)
def test_names_in_code_tours_exist(file: str, name: str) -> None:
    assert (PACKAGE / file).is_file(), f"CONTRIBUTING.md names {file}"
    assert name in defined(PACKAGE / file), f"CONTRIBUTING.md names {name} in {file}"


def test_other_files_named_in_the_guide_exist() -> None:
    named = set(re.findall(r"`((?:src|tests|docs|recipes|results|benchmarks)/[\w./-]*)`", GUIDE))
    named |= set(re.findall(r"`((?:embed|model|train|cli|tasks)/[\w/]+\.py)`", GUIDE))
    assert len(named) > 20
    missing = [n for n in named if not (ROOT / n).exists() and not (PACKAGE / n).exists()]
    assert not missing


def test_names_in_the_text_of_the_guide_exist() -> None:
    pairs = re.findall(r"`(\w+)` (?:of|in)\s+`(src/[\w/]+\.py)`", GUIDE)
    assert len(pairs) >= 3
    for name, file in pairs:
        text = (ROOT / file).read_text("utf-8")
        assert re.search(rf"^(?:def|class) {name}\b|^{name}\b", text, re.MULTILINE), (name, file)


def test_citation_has_the_version_of_the_package() -> None:
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    found = re.search(r'^version: "?([^"\n]+)"?$', citation, re.MULTILINE)
    assert found is not None
    assert found[1] == version() == elmokit.__version__
    assert "Deep contextualized word representations" in citation


def old_code() -> list[tuple[str, Block]]:
    pages = sorted((ROOT / "docs").rglob("*.md"))
    return [(page.name, b) for page in pages for b in blocks(page) if b.language == "py"]


def test_code_for_old_systems_is_valid_and_does_not_use_elmokit() -> None:
    assert len(old_code()) > 8
    for page, block in old_code():
        ast.parse(block.text, f"{page}:{block.line}")
        assert "elmokit" not in block.text, f"{page}:{block.line}: ours should be ```python and run"
