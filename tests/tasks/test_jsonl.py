"""JSON lines that are valid JSON but not valid text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from elmokit.errors import DataError
from elmokit.tasks.registry import load_task
from elmokit.text.lines import Line

HALF = "\ud800 bad"
#: Examples for prediction, in the format of each task.
EXAMPLES: dict[str, list[dict[str, Any]]] = {
    "ner": [{"tokens": ["a", HALF]}, {"text": HALF}],
    "sst5": [{"tokens": ["a", HALF]}, {"text": HALF}],
    "snli": [{"sentence1": "a", "sentence2": HALF}],
    "srl": [{"tokens": ["a", HALF]}, {"text": HALF}],
    "coref": [{"sentences": [["a", HALF]]}, {"name": HALF, "text": "a"}],
    "squad": [{"question": HALF, "context": "b"}, {"id": HALF, "question": "a", "context": "b"}],
}
CASES = [(name, example) for name, examples in EXAMPLES.items() for example in examples]


@pytest.mark.parametrize(("name", "example"), CASES)
def test_lone_surrogates_are_rejected(name: str, example: dict[str, Any]) -> None:
    line = Line("x", 7, json.dumps(example))
    with pytest.raises(DataError, match=r"x, line 7.*: .*(surrogate|unexpected end of hex)"):
        list(load_task(name).parse([line], "jsonl"))


@pytest.mark.parametrize(("name", "example"), CASES)
def test_surrogate_pairs_are_read(name: str, example: dict[str, Any]) -> None:
    written = json.dumps(example).replace("\\ud800", "\\ud83d\\ude00")
    found = list(load_task(name).parse([Line("x", 7, written)], "jsonl"))
    assert "\U0001f600" in repr(found)


def test_training_files_are_read_in_the_same_way(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    for name, example in (
        ("srl", {"words": ["a", HALF], "frames": []}),
        ("snli", {"gold_label": "neutral", "sentence1": "a", "sentence2": HALF}),
        ("squad", {"question": "a", "context": HALF, "answers": []}),
    ):
        path.write_text(json.dumps(example))
        with pytest.raises(DataError, match=r"data.json.*: .*(surrogate|unexpected end of hex)"):
            load_task(name).read(str(path))


@pytest.mark.parametrize("name", EXAMPLES)
def test_excessive_nesting_is_an_error_with_its_line(name: str) -> None:
    for depth in (500, 100_000):
        deep = '{"tokens": ' + "[" * depth + "]" * depth + "}"
        with pytest.raises(DataError, match="x, line 7: "):
            list(load_task(name).parse([Line("x", 7, deep)], "jsonl"))
