"""The example notebook runs from top to bottom and gives its saved output.

This does not need Jupyter: the cells run in order in one namespace, in a child process and a copy
of their directory, and show the value of a last expression as a notebook does.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.outputs import differences

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
NOTEBOOK = EXAMPLES / "elmokit.ipynb"
LARGEST = 300_000  # bytes: outputs are part of every clone

# Reads the sources of the cells as JSON; writes the text and display output of each.
RUNNER = """
import ast, contextlib, io, json, sys

namespace, shown = {"__name__": "__main__"}, []
for number, source in enumerate(json.load(sys.stdin)):
    tree, value, printed = ast.parse(source, f"cell {number}"), None, io.StringIO()
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"cell {number}", "exec"), namespace)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), namespace)
    html = value._repr_html_() if hasattr(value, "_repr_html_") else None
    shown.append({"printed": printed.getvalue(), "html": html})
json.dump(shown, sys.stdout)
"""


@pytest.fixture(scope="module")
def cells() -> list[dict[str, Any]]:
    book = json.loads(NOTEBOOK.read_text("utf-8"))
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in book["cells"]}) == len(book["cells"])
    return [cell for cell in book["cells"] if cell["cell_type"] == "code"]


def _saved(cell: dict[str, Any]) -> dict[str, str | None]:
    """Return the saved text and display output of a cell."""
    printed = [o for o in cell["outputs"] if o["output_type"] == "stream"]
    results = [o["data"] for o in cell["outputs"] if o["output_type"] == "execute_result"]
    html = results[0].get("text/html") if results else None
    return {
        "printed": "".join("".join(output["text"]) for output in printed),
        "html": None if html is None else "".join(html),
    }


def test_notebook_was_saved_completely_and_is_small(cells: list[dict[str, Any]]) -> None:
    assert NOTEBOOK.stat().st_size < LARGEST
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert all(cell["outputs"] for cell in cells)
    kinds = {output["output_type"] for cell in cells for output in cell["outputs"]}
    assert kinds == {"stream", "execute_result"}  # no error among the outputs
    assert str(Path.home()) not in NOTEBOOK.read_text("utf-8")


@pytest.mark.slow
def test_every_cell_runs_and_gives_its_saved_output(
    cells: list[dict[str, Any]], tmp_path: Path
) -> None:
    folder = shutil.copytree(EXAMPLES, tmp_path / "examples")
    done = subprocess.run(
        [sys.executable, "-c", RUNNER],
        input=json.dumps(["".join(cell["source"]) for cell in cells]),
        cwd=folder,
        env=os.environ | {"PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=550,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for cell, shown in zip(cells, json.loads(done.stdout), strict=True):
        saved, where = _saved(cell), f"cell {cell['execution_count']}"
        found = differences(saved["printed"] or "", shown["printed"])
        assert not found, f"{where} prints something else:\n{found}"
        assert (saved["html"] is None) == (shown["html"] is None), where
        if saved["html"] is not None:
            # Images are only compared by size: coordinates change with the last bits of a sum.
            assert len(shown["html"]) == pytest.approx(len(saved["html"]), rel=0.05), where
