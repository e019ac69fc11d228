"""The recipe of word2vec: what it trains on is the corpus, and what it writes can be read."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from elmokit.analysis.static import load_static
from elmokit.data.corpus import Corpus
from elmokit.data.layout import PrepareSettings
from elmokit.data.prepare import prepare
from tests.data.texts import documents_of, random_text

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "word2vec.py"

pytestmark = pytest.mark.skipif(not RECIPE.exists(), reason="a source package has no recipes")


@pytest.fixture
def recipe() -> Any:
    return SimpleNamespace(**runpy.run_path(str(RECIPE)))


@pytest.mark.parametrize("cased", [True, False])
def test_the_text_is_that_of_the_corpus_sentence_by_sentence(
    recipe: Any, tmp_path: Path, cased: bool
) -> None:
    text = tmp_path / "text.txt"
    text.write_text(random_text(5), "utf-8")
    prepare([text], tmp_path / "data", PrepareSettings(), workers=1)
    written = "".join(recipe.sentences(Corpus.open(tmp_path / "data"), cased=cased))
    found = [line.split() for line in written.splitlines() if line.strip()]
    wanted = [sentence for document in documents_of([text]) for sentence in document]
    if not cased:
        wanted = [[word.lower() for word in sentence] for sentence in wanted]
    assert found == wanted


def test_frequent_and_wanted_words_are_written(recipe: Any, tmp_path: Path) -> None:
    class Vectors(dict[str, Any]):
        index_to_key = ("the", "rare", "cat", "other")
        vector_size = 2

    vectors = Vectors({w: np.array([n, -n / 3]) for n, w in enumerate(Vectors.index_to_key)})
    (tmp_path / "words").write_text("cat\nnot there\n")
    chosen = recipe.wanted([tmp_path / "words"])
    assert recipe.write(vectors, tmp_path / "v.txt", chosen, 1) == 2
    table = load_static(tmp_path / "v.txt")
    assert list(table.words) == ["the", "cat"]
    assert table.vector("Cat").tolist() == pytest.approx([2, -0.667])
    assert recipe.wanted(None) is None
    assert recipe.write(vectors, tmp_path / "all.txt", None, 0) == 4
