"""The recipe that puts two tables of static vectors side by side."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from elmokit.analysis.static import read_static
from tests.tasks.table_runs import RECIPE

pytestmark = pytest.mark.skipif(not RECIPE.exists(), reason="a source package has no recipes")


def test_a_word_has_the_numbers_of_both_or_zeros(
    recipe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, both = (tmp_path / name for name in ("first.txt", "second.txt", "both.txt"))
    first.write_text("the 1 2\ncat 3 4\n")
    second.write_text("2 3\ncat 0.5 0.25 0.125\nmat 7 8 9\n")  # with word2vec's first line
    given = ["beside.py", str(first), str(second), "-o", str(both)]
    monkeypatch.setattr(sys, "argv", given)
    recipe.beside.main()
    found = read_static(both)
    assert list(found.words) == ["the", "cat", "mat"]
    assert found.vectors.tolist() == [[1, 2, 0, 0, 0], [3, 4, 0.5, 0.25, 0.125], [0, 0, 7, 8, 9]]
