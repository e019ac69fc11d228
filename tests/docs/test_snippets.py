"""All Python code in README.md and docs/ runs, page by page, as a reader would run it.

Rules for authors of pages:

* All ```python blocks of a page run in order, in one namespace, in an empty directory that contains
  a copy of `examples/`. A page imports everything that it uses, so that readers can follow it from
  the top. `elmokit.load()` returns a model that all pages share (do not change its weights).
* `print(...)  # text` announces the output: the lines must be printed in this order. Decimal
  numbers may differ by one in the last digit.
* A comment on the line before a block (or separated from it by an empty line) is a marker:

      <!-- file: notes.txt -->             write the block to notes.txt, for the following code
      <!-- run -->                         run a shell block (```, ```sh, ```console) with bash
      <!-- output -->                      the block is the output of the last block that ran; the
                                           line `...` matches any lines; numbers as above
      <!-- not run: needs a GPU -->        do not run the block, for the given reason; it must be
                                           valid Python. `NOT_RUN` below limits the number of these
  Code that uses other packages and cannot be run is marked ```py, and only in docs/migrating/.

* Things that a page needs but does not show (an index, a trained model, a server) are prepared in
  `tests/docs/stage.py`, with one function per page.
* Shell blocks without `<!-- run -->` are not run, but every `elmo ...` line in them is parsed by
  the real command (`tests/docs/test_commands.py`): commands, options and values must exist. The
  same applies to options of commands in the text, such as `elmo embed --workers 2`.
* `tests/docs/test_links.py` checks links, images and anchors. A link may refer to any file of the
  repository (`../../results/serve.json`, `../../recipes/english.md`). The site displays it.
* Do not use Mermaid, or formulas that need a script, because the site loads nothing from other
  hosts.

To test one page: `pytest tests/docs/test_snippets.py -k first-vectors -m ''`.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import elmokit
from elmokit.embed.fingerprint import fingerprint
from tests.docs import stage
from tests.docs.outputs import differences, expected_output
from tests.docs.pages import ROOT, SHELLS, Block, blocks, name, pages

# Maximum number of Python blocks that may be marked as not run.
NOT_RUN = 4

# Pages with independent programs, which are run elsewhere.
ELSEWHERE = {"docs/how-to/integrations.md": "tests/integrations/test_examples.py"}

# Pages that take more than a second.
SLOW = (
    "docs/tutorials/",
    "docs/migrating/",
    "docs/how-to/corpus.md",
    "docs/how-to/mix-layers.md",
    "docs/how-to/scale.md",
)

LOAD = elmokit.load


def _runs(block: Block) -> bool:
    return (block.language == "python" and block.mark != "not run") or block.mark == "run"


def _pages() -> list[Any]:
    with_code = [
        path for path in pages() if name(path) not in ELSEWHERE and any(map(_runs, blocks(path)))
    ]
    return [
        pytest.param(path, id=name(path), marks=[pytest.mark.slow] * name(path).startswith(SLOW))
        for path in with_code
    ]


@pytest.fixture(scope="session")
def english() -> Iterator[Any]:
    """Load the bundled model, and check that no page changes it."""
    model = LOAD()
    before = fingerprint(model)
    yield model
    assert fingerprint(model) == before, "a page changed the weights of the shared model"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, english: Any) -> Path:
    """Create a directory with only the examples, and a model that all pages share."""

    def load(source: Any = "english", **settings: Any) -> Any:
        return english if source == "english" and not settings else LOAD(source, **settings)

    monkeypatch.setattr(elmokit, "load", load)
    monkeypatch.setitem(sys.modules, "page", types.ModuleType("page"))
    binaries = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{binaries}{os.pathsep}{os.environ['PATH']}")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", _pages())
def test_page_runs_from_top_to_bottom(page: Path, folder: Path) -> None:
    namespace = sys.modules["page"].__dict__
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stage.prepare(name(page), folder, namespace, stack)
        try:
            printed = ""
            for block in blocks(page):
                printed = _follow(block, printed, namespace, name(page))
        finally:
            elmokit.load().bilm.requires_grad_(False).eval()
            torch.set_num_threads(1)


def _follow(block: Block, printed: str, namespace: dict[str, Any], page: str) -> str:
    """Do what the block requires, and return the latest output."""
    where = f"{page}:{block.line}"
    if block.mark == "file":
        Path(block.why).parent.mkdir(parents=True, exist_ok=True)
        Path(block.why).write_text(block.text, "utf-8")
    elif block.mark == "output":
        found = differences(block.text, printed)
        assert not found, f"{where}: the page does not show what was printed:\n{found}"
    elif block.language == "python" and block.mark != "not run":
        printed = _python(block, namespace, page)
        found = differences("...\n" + "\n...\n".join([*expected_output(block.text), ""]), printed)
        assert not expected_output(block.text) or not found, (
            f"{where}: printed is something else:\n{found}"
        )
    elif block.mark == "run":
        assert block.language in SHELLS, f"{where}: `run` is for shell and not {block.language}"
        printed = _shell(block, where)
    return printed


def _python(block: Block, namespace: dict[str, Any], page: str) -> str:
    printed = io.StringIO()
    code = compile("\n" * block.line + block.text, str(ROOT / page), "exec")
    with contextlib.redirect_stdout(printed):
        exec(code, namespace)
    return printed.getvalue()


def _shell(block: Block, where: str) -> str:
    script = block.text
    if block.language == "console":
        script = "\n".join(re.findall(r"^\$ (.*)$", script, re.MULTILINE))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=550,
    )
    assert done.returncode == 0, f"{where}: ended with {done.returncode}\n{done.stderr[-3000:]}"
    return done.stdout


def test_few_blocks_are_not_run_and_each_states_a_reason() -> None:
    left_out = [
        (f"{name(page)}:{block.line}", block)
        for page in pages()
        for block in blocks(page)
        if block.language == "python" and block.mark == "not run"
    ]
    for where, block in left_out:
        assert block.why, f"{where}: say why, as in <!-- not run: needs a GPU -->"
        ast.parse(block.text, where)
    assert len(left_out) <= NOT_RUN, [where for where, _ in left_out]


def test_markers_precede_blocks_of_a_matching_kind() -> None:
    for page in pages():
        for block in blocks(page):
            where = f"{name(page)}:{block.line}"
            if block.mark == "file":
                target = Path(block.why)
                assert block.why, f"{where}: say which file"
                assert not target.is_absolute(), f"{where}: {target}"
                assert ".." not in target.parts, f"{where}: {target}"
            if block.mark in ("output", "file"):
                assert block.language != "python" or block.mark == "file", f"{where}: {block.mark}"
            if block.language in ("py", "python3", "pycon"):
                assert name(page).startswith("docs/migrating/"), f"{where}: say ```python"
    for elsewhere in ELSEWHERE:
        assert (ROOT / elsewhere).exists()
