"""UD English EWT as raw text with gold spans."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

Spans = list[tuple[int, int]]


class Sentence(NamedTuple):
    text: str
    tokens: Spans
    starts_document: bool
    starts_paragraph: bool


def read(path: Path) -> Iterator[Sentence]:
    for block in path.read_text(encoding="utf-8").strip().split("\n\n"):
        lines = block.split("\n")
        comments = [line for line in lines if line.startswith("#")]
        rows = [line.split("\t") for line in lines if not line.startswith("#")]
        text = next(line for line in comments if line.startswith("# text = "))[9:]
        yield Sentence(
            text,
            gold_spans(text, rows),
            any(line.startswith("# newdoc") for line in comments),
            any(line.startswith("# newpar") for line in comments),
        )


def gold_spans(text: str, rows: list[list[str]]) -> Spans:
    """Return the spans of the words; multiword tokens are split if their parts match the text."""
    spans: Spans = []
    position = 0
    forms = {row[0]: row[1] for row in rows}
    covered = 0  # the last word of a multiword token
    for key, form in forms.items():
        if "." in key or ("-" not in key and int(key) <= covered):
            continue
        parts = [form]
        if "-" in key:
            first, covered = map(int, key.split("-"))
            words = [forms[str(number)] for number in range(first, covered + 1)]
            parts = words if "".join(words) == form else parts
        position = text.index(form, position)
        for part in parts:
            spans.append((position, position + len(part)))
            position += len(part)
    return spans


def documents(sentences: list[Sentence]) -> Iterator[tuple[str, Spans]]:
    """Return the reconstructed text of each document with the spans of its sentences."""
    text, spans = "", Spans()
    for sentence in sentences:
        if sentence.starts_document and text:
            yield text, spans
            text, spans = "", Spans()
        if text:
            text += "\n\n" if sentence.starts_paragraph else " "
        spans.append((len(text), len(text) + len(sentence.text)))
        text += sentence.text
    yield text, spans


def f1(pairs: list[tuple[set[object], set[object]]]) -> float:
    """Compute F1 of (gold, predicted) sets, summed over all pairs."""
    common = sum(len(gold & found) for gold, found in pairs)
    return 2 * common / sum(len(gold) + len(found) for gold, found in pairs)
