"""Perplexity, compared with a slow implementation: one sentence and one probability at a time."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from elmokit.data.corpus import Corpus
from elmokit.data.layout import BEGIN_ID, END_ID, UNKNOWN_ID
from elmokit.model.bilm import BiLM
from elmokit.model.engine import PlainEngine, exact_engine
from elmokit.model.lstm import LstmState
from elmokit.model.scoring import Scorer, TextTypes
from elmokit.model.softmax import LMHead
from elmokit.train.evaluate import evaluate, make_encoder, make_text_types
from tests.conftest import TINY, random_bilm


@pytest.fixture(scope="module")
def model(corpus: Corpus) -> tuple[BiLM, LMHead]:
    torch.manual_seed(0)
    return random_bilm(TINY).double(), LMHead(corpus.n_words, 10).double()


def language_models(corpus: Corpus, bilm: BiLM, head: LMHead) -> tuple[Scorer, TextTypes]:
    engine = exact_engine(bilm)
    types = make_text_types(make_encoder(engine, corpus.chars), corpus.n_words)
    return Scorer(engine, bilm.config.lstm, head, torch.device("cpu")), types


def slow_losses(
    corpus: Corpus, bilm: BiLM, head: LMHead, state: str, warm: LstmState | None = None
) -> tuple[list[float], list[float]]:
    """Return the losses of both directions, token by token, with the state passed explicitly."""
    tokens, documents = corpus.tokens("valid"), corpus.documents("valid")
    encode = make_encoder(PlainEngine(bilm), corpus.chars)
    losses: tuple[list[float], list[float]] = ([], [])
    for d, stack in enumerate((bilm.forward_lm, bilm.backward_lm)):
        for a, z in itertools.pairwise(documents):
            run = tokens[a:z].astype(np.int64)
            sentences = [s for s in np.split(run, np.flatnonzero(run == END_ID) + 1) if len(s)]
            cell, hidden = torch.zeros(2, 1, 24).double(), torch.zeros(2, 1, 10).double()
            for sentence in sentences if d == 0 else sentences[::-1]:
                words = sentence[:-1].tolist()
                if state != "carry":
                    cell, hidden = torch.zeros_like(cell), torch.zeros_like(hidden)
                    if warm is not None:
                        cell, hidden = warm.cell[d], warm.hidden[d]
                inputs = [BEGIN_ID, *words] if d == 0 else [END_ID, *words[::-1]]
                targets = [*words, END_ID] if d == 0 else [*words[::-1], BEGIN_ID]
                for read, said in zip(inputs, targets, strict=True):
                    outputs, cell, hidden = stack(encode(np.array([read])), [1], cell, hidden)
                    said = said if said < corpus.n_words else UNKNOWN_ID
                    losses[d].append(-head(outputs[-1])[0, said].item())
    return losses


@pytest.mark.parametrize("state", ["carry", "reset", "warm"])
def test_perplexity_equals_the_slow_implementation(
    corpus: Corpus, model: tuple[BiLM, LMHead], state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bilm, head = model
    warm = LstmState(torch.randn(2, 2, 1, 24).double(), torch.randn(2, 2, 1, 10).double())
    data = (corpus.tokens("valid"), corpus.documents("valid"))
    expected = slow_losses(corpus, bilm, head, state, warm if state == "warm" else None)
    for rows, steps, window, positions in ((128, 64, 1 << 18, 4096), (2, 5, 50, 7)):
        monkeypatch.setattr("elmokit.model.scoring._ROWS", rows)
        monkeypatch.setattr("elmokit.model.scoring._MIN_STEPS", steps)
        monkeypatch.setattr("elmokit.model.scoring._MAX_STEPS", steps)
        monkeypatch.setattr("elmokit.model.scoring._WINDOW_TOKENS", window)
        monkeypatch.setattr("elmokit.model.scoring._POSITIONS", positions)
        models = language_models(corpus, bilm, head)
        found = evaluate(*models, *data, state=state, warm=warm)
        assert found.forward == pytest.approx(math.exp(np.mean(expected[0])), rel=1e-9)
        assert found.backward == pytest.approx(math.exp(np.mean(expected[1])), rel=1e-9)
        assert found.mean == pytest.approx(math.sqrt(found.forward * found.backward), rel=1e-9)
        assert found.targets == len(expected[0])
    assert found.unknown > 0
    assert found.known != found.mean


def test_opening_symbol_is_not_counted(corpus: Corpus, model: tuple[BiLM, LMHead]) -> None:
    bilm, head = model
    data = (corpus.tokens("valid"), corpus.documents("valid"))
    found = evaluate(*language_models(corpus, bilm, head), *data)
    counts = corpus.meta.splits["valid"]
    assert found.targets == counts.tokens + counts.sentences


@pytest.mark.parametrize("state", ["carry", "reset"])
def test_fast_readers_equal_the_reference_perplexity(corpus: Corpus, state: str) -> None:
    bilm = random_bilm(TINY, scale=1.0)
    head = LMHead(corpus.n_words, 10)
    data = (corpus.tokens("valid"), corpus.documents("valid"))
    found = evaluate(*language_models(corpus, bilm, head), *data, state=state)
    reference = language_models(corpus, random_bilm(TINY, scale=1.0).double(), head.double())
    expected = evaluate(*reference, *data, state=state)
    assert found.mean == pytest.approx(expected.mean, rel=1e-5)
