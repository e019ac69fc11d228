"""Notebook representations of objects."""

from __future__ import annotations

import dataclasses
import math
from html.parser import HTMLParser

import numpy as np
import pytest

import elmokit
from elmokit import html
from elmokit.embed.model import ElmoModel
from elmokit.embed.scoring import SentenceScore
from elmokit.embed.vectors import SentenceVectors
from tests.conftest import TINY_MODEL
from tests.sources.models import make_parts

EVIL = "<script>alert(1)</script>\"'&\ud800\x00"


class Balanced(HTMLParser):
    """Checks that every element is closed, and collects the tag names."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs)
        self.open.append(tag)
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def elmo() -> ElmoModel:
    return elmokit.load(TINY_MODEL, device="cpu")


def test_user_text_is_escaped() -> None:
    pieces = [
        html.chips([EVIL], [0.5], [EVIL]),
        html.card(EVIL, [(EVIL, EVIL)]),
        html.caption(EVIL),
        html.marked_table([[EVIL, EVIL, EVIL, EVIL]]),
    ]
    for piece in pieces:
        assert "script" not in Balanced(piece).seen
        piece.encode()  # no lone surrogate is left


def test_vectors_show_their_tokens_and_stay_small(elmo: ElmoModel) -> None:
    found = elmo.embed([["a", "b", "a"], [EVIL], [], ["x"] * 500])
    shown = [vectors._repr_html_() for vectors in found]
    for text in shown:
        assert "script" not in Balanced(text).seen
    assert "3 tokens, 3 layers of 32" in shown[0]
    assert "440 more" in shown[3]
    assert len(shown[3]) < 30_000
    cosine = float(np.dot(*(v / np.linalg.norm(v) for v in found[0].top[[0, 2]])))
    assert f"a {cosine:.2f}" in shown[0]


def test_zero_vector_is_supported() -> None:
    vectors = SentenceVectors(["a", "b"], None, np.zeros((3, 2, 4), dtype=np.float32))
    Balanced(vectors._repr_html_())


def test_model_shows_a_card(elmo: ElmoModel) -> None:
    shown = elmo._repr_html_()
    assert "table" in Balanced(shown).seen
    assert "53,792" in shown
    assert "perplexity" not in shown
    measured = {"mean": 42.42, "state": "reset"}
    for metadata in (
        {"training": {"steps": 1200, "perplexity": measured}},
        {"training": {"steps": 1200, "perplexity": None}, "perplexity": [measured, "odd"]},
    ):
        shown = ElmoModel(dataclasses.replace(make_parts(), metadata=metadata))._repr_html_()
        assert "1,200 steps" in shown
        assert "42.4 (reset)" in shown


def test_score_highlights_surprising_tokens() -> None:
    half = math.log(0.5)
    score = SentenceScore(("a", EVIL), (half, 9 * half), (half, half), half, half, (False, True))
    shown = score._repr_html_()
    assert "script" not in Balanced(shown).seen
    assert "forward 9.0 bits" in shown
