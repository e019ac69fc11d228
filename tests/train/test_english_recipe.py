"""The recipe of the English model: proportions of the sources, and perplexity by register."""

from __future__ import annotations

import importlib.util
import math
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from elmokit.data.corpus import Corpus
from elmokit.data.layout import PrepareSettings
from elmokit.data.prepare import prepare
from elmokit.data.reading import read_sentences
from elmokit.model.bilm import BiLM
from elmokit.model.engine import PlainEngine
from elmokit.model.scoring import Scorer
from elmokit.model.softmax import LMHead
from elmokit.settings import with_settings
from elmokit.sources import modeldir
from elmokit.sources.modeldir import ModelParts
from elmokit.train.config import run_preset
from elmokit.train.text import evaluate_text
from tests.data.texts import random_text
from tests.train.conftest import SETTINGS

RECIPES = Path(__file__).resolve().parents[2] / "recipes" / "english"

pytestmark = pytest.mark.skipif(not RECIPES.exists(), reason="a source package has no recipes")


def recipe(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"english_{name}", RECIPES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_register_scores_equal_those_of_each_file(corpus: Corpus, tmp_path: Path) -> None:
    config = with_settings(run_preset("toy"), SETTINGS)
    # The weights of `random_bilm` amplify rounding errors in a document.
    bilm = BiLM(config.model).eval()
    head = LMHead(corpus.n_words, config.model.lstm.projection_dim)
    modeldir.save(ModelParts(bilm, vocabulary=corpus.vocabulary, head=head), tmp_path / "model")
    files = [tmp_path / f"{name}.txt" for name in ("a", "b", "c")]
    for seed, file in enumerate(files):
        file.write_text(random_text(5, seed), "utf-8")
    found = recipe("registers").measure(str(tmp_path / "model"), files, "cpu")
    for file in files:
        sentences = read_sentences([file])
        states = ("carry", "reset")
        scorer = Scorer(PlainEngine(bilm), config.model.lstm, head, torch.device("cpu"))
        wanted = evaluate_text(bilm, scorer, corpus.vocabulary, sentences, states=states)
        for perplexity in wanted:
            measured = found[file.stem][perplexity.state]
            assert measured["targets"] == perplexity.targets
            assert measured["unknown"] == perplexity.unknown
            assert measured["mean"] == pytest.approx(perplexity.mean, rel=1e-5)


@pytest.mark.parametrize("shares", ["natural", "balanced"])
def test_sources_are_repeated_according_to_their_proportions(tmp_path: Path, shares: str) -> None:
    sources = recipe("sources")
    for seed, source in enumerate(sources.SOURCES):
        (tmp_path / f"{source.name}.txt").write_text(random_text(5, seed), "utf-8")
    files = sources.files_of(tmp_path, shares)
    assert not any("europarl" in str(path) for _, path in files)
    prepare([path for _, path in files], tmp_path / "data", PrepareSettings(), workers=1)
    corpus = Corpus.open(tmp_path / "data")
    rows = {row["name"]: row for row in sources.count(tmp_path / "data", files)}
    assert sum(row.get("tokens", 0) for row in rows.values()) == corpus.meta.splits["train"].tokens
    for source in sources.SOURCES:
        if not source.included:
            assert "tokens" not in rows[source.name]
            continue
        text = (tmp_path / f"{source.name}.txt").read_text("utf-8")
        documents = len(re.split(r"\n{2,}", text.strip()))
        times = source.repeats if shares == "balanced" else 1
        assert rows[source.name]["documents"] == math.ceil(documents * times)
