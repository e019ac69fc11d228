"""Run a recipe as a user does: by its file name and arguments, in this process."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "recipes"

RunRecipe = Callable[..., None]


@pytest.fixture
def run_recipe(monkeypatch: pytest.MonkeyPatch) -> RunRecipe:
    """Run `python recipes/NAME ARGUMENTS`, and unload the modules that it imported afterwards."""
    if not RECIPES.exists():
        pytest.skip("a source package has no recipes")

    def run(name: str, *arguments: object) -> None:
        path = RECIPES / name
        before = set(sys.modules)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", [str(path), *map(str, arguments)])
            patch.syspath_prepend(str(path.parent))
            runpy.run_path(str(path), run_name="__main__")
        for module in set(sys.modules) - before:
            source = getattr(sys.modules[module], "__file__", None)
            if source and Path(source).is_relative_to(RECIPES):
                del sys.modules[module]

    return run
