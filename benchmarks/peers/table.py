"""Render results/embed-speed.json as Markdown tables for the README and the documentation.

    python benchmarks/peers/table.py                    print the tables
    python benchmarks/peers/table.py --write FILE.md    insert them between the markers of the file
    python benchmarks/peers/table.py --check FILE.md    exit with 1 if the tables are out of date

`--short` renders the small table of the README. docs/explanation/speed.md contains all tables.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[2] / "results" / "embed-speed.json"
BEGIN, END = "<!-- embed-speed: begin -->", "<!-- embed-speed: end -->"
BASE = "allennlp"
#: The rows of the short table: elmokit, and the default usage and best case of the others.
SHORT_ROWS = (BASE, "allennlp-cached-sorted", "simple_elmo", "ours-exact", "ours-fast")
SHORT_BATCHES = ("1", "32", "128")


def render(results: dict[str, Any], *, short: bool = False) -> str:
    """Return one Markdown table per model: tokens/s, with the speedup over AllenNLP."""
    models = list(results["models"].items())
    return "\n\n".join(_table(*model, short=short) for model in (models[:1] if short else models))


def _table(name: str, results: dict[str, Any], *, short: bool) -> str:
    rows = {row["row"]: row for row in results["rows"] if not short or row["row"] in SHORT_ROWS}
    batches = list(next(iter(rows.values()))["tokens_per_second"])
    batches = [batch for batch in batches if not short or batch in SHORT_BATCHES]
    title = f"{name.capitalize()} model ({results['shape']})"
    lines = [
        f"| {title} | {' | '.join(f'Batch {b}' for b in batches)} | Load (s) | RSS (GiB) |",
        "|---" * (len(batches) + 3) + "|",
    ]
    base = rows.get(BASE)
    for key, row in rows.items():
        cells = [_cell(row, base, batch) for batch in batches]
        load = f"{row['load_s']:.1f}"
        bold = "**" if key.startswith("ours") else ""
        label = f"{bold}{row['label']}{bold}"
        lines.append(f"| {label} | {' | '.join(cells)} | {load} | {row['peak_gib']:.2f} |")
    return "\n".join(lines)


def _cell(row: dict[str, Any], base: dict[str, Any] | None, batch: str) -> str:
    speed = row["tokens_per_second"].get(batch)
    if speed is None:
        return "-"
    if base is None or row is base:
        return f"{speed:,.0f}"
    return f"{speed:,.0f} ({row['times_allennlp'][batch]:.1f}x)"


def insert_table(text: str, table: str) -> str:
    """Return `text` with `table` between the markers."""
    if BEGIN not in text or END not in text:
        raise SystemExit(f"The file does not contain the lines '{BEGIN}' and '{END}'.")
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def main(arguments: list[str] | None = None) -> int:
    """Print, write or check the tables."""
    parser = argparse.ArgumentParser(description="Render the tables of results/embed-speed.json.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--write", type=Path, metavar="FILE")
    parser.add_argument("--check", type=Path, metavar="FILE")
    parser.add_argument("--short", action="store_true", help="one small table")
    options = parser.parse_args(arguments)
    table = render(json.loads(options.results.read_text("utf-8")), short=options.short)
    if options.write:
        options.write.write_text(insert_table(options.write.read_text("utf-8"), table), "utf-8")
    elif options.check:
        text = options.check.read_text("utf-8")
        if insert_table(text, table) != text:
            print(
                f"The table in {options.check} is out of date. Update it with --write.",
                file=sys.stderr,
            )
            return 1
    else:
        print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
