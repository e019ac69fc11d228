"""Write the tables that compare a small encoder, ELMo and static vectors, from stored results.

Run as, from the root of the repository:
    python recipes/minilm-table.py
Reads results/probes/{pos,wsd,english-original}.json and results/analysis/{wic,morphology,minilm}
.json and writes the tables of docs/explanation/static-or-contextual.md between their markers.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from marks import replace_between

GLOVE = "glove-6b-50d"
# The models in the tables, and the vectors shown for each.
ROWS: dict[str, tuple[str, ...]] = {
    "GloVe": (f"{GLOVE}, the word", f"{GLOVE}, mean of the sentence"),
    "english": ("layer 0", "layer 1", "layer 2", "average", "concat"),
    "english-original": ("layer 0", "layer 1", "layer 2", "average"),
    "MiniLM": (*(f"layer {j}" for j in range(7)), "average", "concat"),
}
NAMES = {f"{GLOVE}, the word": "word", f"{GLOVE}, mean of the sentence": "sentence mean"}
KINDS = ("inflected", "derived", "compound", "misspelled", "made-up", "look-alike")
SPEED_MODELS = {
    "GloVe": "GloVe",
    "english, fast": "english",
    "english, exact": "english",
    "english-original, fast": "english-original",
    "english-original, exact": "english-original",
    "MiniLM, int8": "MiniLM",
    "MiniLM, float32": "MiniLM",
}


def main() -> None:
    """Read the results and update the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument(
        "--page", type=Path, default=Path("docs/explanation/static-or-contextual.md")
    )
    args = parser.parse_args()
    text = args.page.read_text("utf-8")
    for mark, make_table in (
        ("known", probe_table),
        ("morphology", morphology_table),
        ("speed", speed_table),
    ):
        text = replace_between(text, mark, make_table(args.results))
    args.page.write_text(text, "utf-8")


def probe_table(results: Path) -> list[str]:
    """Return the table of probe scores: senses and parts of speech."""
    original = _json(results / "probes/english-original.json")
    minilm = _json(results / "analysis/minilm.json")
    wic = _json(results / "analysis/wic.json")
    wsd = _by_name(_json(results / "probes/wsd.json")["runs"])["Precision fast"]
    pos = _by_name(_json(results / "probes/pos.json")["runs"])["XPOS, precision exact"]
    parts = {
        "GloVe": (wic, wsd, pos),
        "english": (wic, wsd, pos),
        "english-original": (original["wic"], original["wsd"], original["pos"]),
        "MiniLM": (minilm["wic"], minilm["wsd"], minilm["ud"]),
    }
    lines = [
        "| Model | Vectors | Same sense (WiC) | Word senses | Parts of speech "
        "| POS, unseen words |",
        "|---|---|---|---|---|---|",
    ]
    for model, vectors in ROWS.items():
        wic_results, wsd_results, pos_results = (_by_name(part["results"]) for part in parts[model])
        for vector in vectors:
            cells = [
                _percent(wic_results, vector, "overall", "accuracy"),
                _percent(wsd_results, vector, "f1", "ALL"),
                _percent(pos_results, vector, "accuracy"),
                _percent(pos_results, vector, "unseen"),
            ]
            name = NAMES.get(vector, vector)
            lines.append(f"| {model} | {name} | {' | '.join(cells)} |")
    return lines


def morphology_table(results: Path) -> list[str]:
    """Return the share of related words among the 10 nearest of 20,000 words."""
    english = _json(results / "analysis/morphology.json")
    shares = {
        "GloVe": english["static_figures"],
        "english, layer 0": english["layer_0"],
        **_json(results / "analysis/minilm.json")["morphology"]["figures"],
    }
    titles = " | ".join(kind.capitalize() for kind in KINDS)
    lines = [f"| Percentage among the 10 nearest | {titles} |", "|---|" + "---|" * len(KINDS)]
    for name, by_kind in shares.items():
        cells = (f"{100 * by_kind[k]['in_ten']:.0f}" if k in by_kind else "" for k in KINDS)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def speed_table(results: Path) -> list[str]:
    """Return the table of speeds and sizes."""
    values = _json(results / "analysis/minilm.json")["speed"]
    lines = [
        "| Model | Words/s, one CPU core | Slowest to fastest round | Size (MB) |",
        "|---|---|---|---|",
    ]
    for name, size in SPEED_MODELS.items():
        if name not in values["tokens_per_second"]:
            continue  # `fast` on a CPU that does not support it
        rate, (low, high) = values["tokens_per_second"][name], values["range"][name]
        megabytes = values["megabytes"][size]
        lines.append(f"| {name} | {rate:,} | {low:,} to {high:,} | {megabytes:.0f} |")
    return lines


def _json(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def _by_name(items: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {item["name"]: item for item in items}


def _percent(results: dict[str, dict[str, Any]], name: str, *keys: str) -> str:
    """Return a value in percent, or an empty string if it was not measured."""
    value: Any = results.get(name)
    for key in keys:
        value = None if value is None else value.get(key)
    return "" if value is None else f"{100 * value:.1f}"


if __name__ == "__main__":
    main()
