"""The README shows the figures in results/."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLE1 = ROOT / "results" / "tasks" / "table1.json"
ROWS = {
    "ner": "NER",
    "sst5": "SST-5",
    "snli": "SNLI",
    "squad": "SQuAD",
    "srl": "SRL",
    "coref": "Coreference",
}

pytestmark = pytest.mark.skipif(not TABLE1.is_file(), reason="a source package has no results")


@pytest.mark.parametrize("task", ROWS)
def test_scores_of_the_tasks(task: str) -> None:
    found = json.loads(TABLE1.read_text("utf-8"))["tasks"][task]
    lines = (ROOT / "README.md").read_text("utf-8").splitlines()
    row = next(line for line in lines if line.startswith(f"| {ROWS[task]}"))
    static, elmo, less = row.split("|")[2:5]
    assert float(static) == pytest.approx(found["baseline"]["test"], abs=0.0501)
    assert float(elmo.strip(" *")) == pytest.approx(found["elmo"]["test"], abs=0.0501)
    assert float(less.strip(" %")) == pytest.approx(found["relative_error_reduction"], abs=0.501)
