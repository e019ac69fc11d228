"""Exact match and F1 of answers, as in the official script of SQuAD v1.1."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalize_answer(text: str) -> list[str]:
    """Return the words to compare: lowercased, without ASCII punctuation or articles."""
    return _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()


def exact_match(gold: str, predicted: str) -> bool:
    """Return whether two answers are the same after normalization."""
    return normalize_answer(gold) == normalize_answer(predicted)


def answer_f1(gold: str, predicted: str) -> float:
    """Return the word-level F1 of two answers, from 0 to 1.

    The F1 of two answers without words, such as punctuation, is 0, even if they are identical.
    """
    gold_words, predicted_words = normalize_answer(gold), normalize_answer(predicted)
    shared = (Counter(gold_words) & Counter(predicted_words)).total()
    return 2 * shared / (len(gold_words) + len(predicted_words)) if shared else 0.0


def squad_scores(gold: Sequence[Sequence[str]], predicted: Sequence[str]) -> dict[str, float]:
    """Return mean F1 and exact match in percent; the best of several gold answers counts."""
    pairs = list(zip(gold, predicted, strict=True))
    matches = [max(exact_match(text, answer) for text in texts) for texts, answer in pairs]
    f1 = [max(answer_f1(text, answer) for text in texts) for texts, answer in pairs]
    n = max(1, len(pairs))
    return {"f1": 100 * sum(f1) / n, "exact_match": 100 * sum(matches) / n}
