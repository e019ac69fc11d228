"""The bundled model gives the same results as before the refactoring.

The stored figures come from `recipes/refactoring_baseline.py`, whose `--check` compares much more.
"""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

import elmokit

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "refactoring_baseline.py"
# Other CPUs sum in another order; use the recipe for an exact comparison on the same machine.
TOLERANCE = 2e-5


@pytest.fixture(scope="module")
def recipe() -> dict[str, Any]:
    recipe = runpy.run_path(str(RECIPE))
    recipe["TOLERANCES"] |= {"vectors": TOLERANCE, "perplexity": TOLERANCE}
    return recipe


@pytest.fixture(scope="module")
def stored(recipe: dict[str, Any]) -> dict[str, Any]:
    sections: dict[str, Any] = json.loads(recipe["STORED"].read_text("utf-8"))["sections"]
    return sections


@pytest.fixture(scope="module")
def english() -> elmokit.ElmoModel:
    return elmokit.load("english", device="cpu")


def test_vectors_are_unchanged(
    recipe: dict[str, Any], stored: dict[str, Any], english: elmokit.ElmoModel
) -> None:
    tiny = elmokit.load(recipe["TINY"], device="cpu")
    for name, model in (("english", english), ("tiny", tiny)):
        now = recipe["vectors_of"](model)
        assert recipe["differences"](f"vectors/{name}", stored["vectors"][name], now) == []


@pytest.mark.parametrize("state", ["reset", "warm"])
def test_perplexities_are_unchanged(
    recipe: dict[str, Any], stored: dict[str, Any], english: elmokit.ElmoModel, state: str
) -> None:
    scores = english.score(recipe["SENTENCES"], state)
    now = [[s.forward_perplexity, s.backward_perplexity, s.perplexity] for s in scores]
    assert recipe["differences"]("perplexity", stored["perplexity"][f"score_{state}"], now) == []
