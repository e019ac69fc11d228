"""Write results/tasks/*.json, the tables of docs/results.md and the figures from finished runs.

Needs: the output directory of `run.py`, or its unpacked archive; pip install matplotlib.

Run as: python recipes/tasks/tables.py runs/
Published runs in results/tasks are included in addition to those of the directory, which may be
empty; with another --results, only the directory counts. Missing runs are shown as "not run". An
asterisk marks runs that were stopped by the time limit.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from counts import METRIC
from earlier import RESULTS, Earlier
from figures import draw_curves, draw_weights
from finetune import SUMMARY
from finished import machines
from gains import error_reduction, gain, gain_over_seeds, gain_text
from published import FINE_TUNED, SOURCE, TABLE1, TABLE2, TABLE3
from results import Measured, Source, curve
from runs import (
    COMPARED,
    FILES,
    FIRST,
    SEEDS,
    TRIALS,
    Cell,
    Run,
    baseline,
    compute_layers,
    described,
    models_of,
    places_of,
    shares_of,
    statics_of,
    trial_settings,
    trials_of,
    tuned_of,
    with_elmo,
)

ROOT = Path(__file__).parents[2]
NAMES = {
    "ner": "NER, F1",
    "sst5": "SST-5, accuracy",
    "snli": "SNLI, accuracy",
    "squad": "SQuAD, F1",
    "srl": "SRL, F1",
    "coref": "coreference, mean F1",
}
NOT_RUN = "not run"
SIDES = {"baseline": "static", "elmo": "+ ELMo"}
PAGE_WIDTH = 118  # characters per line of text
CURVES, WEIGHTS = "figures/sample-efficiency.svg", "figures/layer-weights.svg"

Table = tuple[dict[str, Any], list[str]]


def main() -> None:
    """Write all results, tables and figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", type=Path, help="output directory of run.py")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    args = parser.parse_args()
    source = Source(args.runs, Earlier(args.results))
    for line in source.earlier.outdated:
        sys.stdout.write(f"{line}\n")
    about = {
        "recipe": "recipes/tasks/run.py, recipes/tasks/tables.py",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machines": all_machines(source),
        "settings": {task: described(task) for task in FILES},
    }
    makers: dict[str, Callable[[Source], Table]] = {
        "table1": table1,
        "trials": trials,
        "table2": lambda found: by_column(found, "table2", compute_layers, TABLE2),
        "table3": lambda found: by_column(found, "table3", places_of, TABLE3),
        "models": lambda found: by_column(found, "models", models_of, {}),
        "finetune": finetune,
        "static": lambda found: by_column(found, "static", statics_of, {}),
        "figure1": figure1,
        "figure2": figure2,
    }
    page = args.docs / "results.md"
    text = page.read_text("utf-8")
    made = {}
    for name, make in makers.items():
        made[name], lines = make(source)
        text = put_between(text, name, "\n".join(lines))
    # Written only after all tables succeeded, because the next tables are made from these files.
    page.write_text(text, "utf-8")
    args.results.mkdir(parents=True, exist_ok=True)
    for name, values in made.items():
        path = args.results / f"{name}.json"
        path.write_text(json.dumps({**about, **values}, indent=1) + "\n", "utf-8")
    (args.docs / "figures").mkdir(exist_ok=True)
    draw_curves(made["figure1"]["tasks"], NAMES, args.docs / CURVES)
    draw_weights(made["figure2"]["tasks"], NAMES, args.docs / WEIGHTS)
    sys.stdout.write(f"{page}, {args.results}/*.json, {args.docs / 'figures'}/*.svg\n")


def all_machines(source: Source) -> list[dict[str, Any]]:
    """Return the published machines, then the new ones of the directory."""
    found = list(source.earlier.machines)
    for one in machines(source.folder):
        if one not in found:
            found.append(one)
    return found


def put_between(text: str, name: str, inner: str) -> str:
    """Replace the text between the markers of a name."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    found = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if len(found.findall(text)) != 1:
        sys.exit(f"docs/results.md must contain {begin} and {end} exactly once.")
    return found.sub(lambda _: f"{begin}\n{inner}\n{end}", text)


def table(titles: list[str], rows: list[list[str]]) -> Iterator[str]:
    """Yield a Markdown table."""
    yield f"| {' | '.join(titles)} |"
    yield "|" + "---|" * len(titles)
    for row in rows:
        yield f"| {' | '.join(row)} |"


# ----------------------------------------------------------------------------------------- tables


def table1(source: Source) -> Table:
    """Compare static vectors with and without ELMo on the test set."""
    rows = []
    values: dict[str, Any] = {}
    for task in FILES:
        base, elmo = Measured(source, baseline(task)), Measured(source, with_elmo(task))
        paper = TABLE1[task]
        row = [NAMES[task], base.text("test"), elmo.text("test"), NOT_RUN, ""]
        values[task] = {
            "metric": METRIC[task],
            "baseline": base.to_dict(),
            "elmo": elmo.to_dict(),
            "paper": paper._asdict(),
        }
        found = gain_over_seeds(base, elmo)
        if found is not None:
            reduced = error_reduction(base.mean("test"), elmo.mean("test"))
            values[task] |= {"difference": found, "relative_error_reduction": round(reduced, 2)}
            row[3:] = gain_text(found), f"**{reduced:.1f}%**"
        rows.append([*row, f"{paper.baseline}", f"{paper.elmo}", f"{paper.relative:g}%"])
    titles = ["Task", "Static", "+ ELMo", "Gain (95% interval)", "Relative error reduction"]
    titles += ["Paper: static", "Paper: + ELMo", "Paper: relative error reduction"]
    return {"tasks": values}, list(table(titles, rows))


def trials(source: Source) -> Table:
    """Compare settings on the dev set, with one seed."""
    rows = []
    values: dict[str, Any] = {}
    for task in TRIALS:
        for side, cells in trials_of(task).items():
            for name, cell in cells.items():
                run = source.find(Run(cell, SEEDS[0]))
                settings = ", ".join(f"`{one}`" for one in trial_settings(cell)) or "as in Table 1"
                score = f"{run.dev:.2f}{'*' if run.cut else ''}" if run else NOT_RUN
                rows.append([NAMES[task], SIDES[side], settings, score])
                entry = {"cell": cell.name, "runs": [run.to_dict()] if run else []}
                values.setdefault(task, {}).setdefault(side, {})[name] = entry
    return {"tasks": values}, list(table(["Task", "Model", "Settings", "Dev"], rows))


def compared(table: str) -> list[str]:
    """Return the tasks of a table, in the order of Table 1."""
    return [task for task in FILES if task in COMPARED[table]]


def by_column(
    source: Source,
    name: str,
    cells: Callable[[str], dict[str, Cell]],
    paper: Mapping[str, Sequence[float]],
) -> Table:
    """Compare configurations on dev and test, followed by the paper's results."""
    rows, values = [], {}
    for task in compared(name):
        measured = {column: Measured(source, cell) for column, cell in cells(task).items()}
        values[task] = {column: found.to_dict() for column, found in measured.items()}
        for part in ("dev", "test"):
            rows.append([f"{NAMES[task]}, {part}", *(m.text(part) for m in measured.values())])
    for task, figures in paper.items():
        rows.append([f"*paper: {NAMES[task]}, dev*", *(f"{x:.1f}" for x in figures)])
    columns = [title(column) for column in cells(next(iter(FILES)))]
    return {"tasks": values, "source": SOURCE}, list(table(["Task", *columns], rows))


def title(column: str) -> str:
    """Return the title of a column: capitalized, unless it is the name of a model."""
    return column if column.startswith("english") else column[0].upper() + column[1:]


def finetune(source: Source) -> Table:
    """Compare the biLM before and after fine-tuning on the task's text: scores, perplexity."""
    rows, perplexities = [], []
    values: dict[str, Any] = {}
    for task in compared("finetune"):
        cells = {name: Measured(source, cell) for name, cell in tuned_of(task).items()}
        values[task] = {name: found.to_dict() for name, found in cells.items()}
        base, english, tuned = cells.values()
        shown = ["", "", ""]
        found = gain(english, tuned, source.earlier.tuned_gains.get(task))
        if base and found is not None:
            values[task]["tuned_gain"] = found
            less = (error_reduction(base.mean("test"), m.mean("test")) for m in (english, tuned))
            shown = [gain_text(found), *(f"{one:.1f}%" for one in less)]
        rows.append([f"{NAMES[task]}, dev", *(m.text("dev") for m in cells.values()), *[""] * 4])
        row = [f"{NAMES[task]}, test", *(m.text("test") for m in cells.values()), *shown]
        rows.append([*row, f"{TABLE1[task].relative:g}%"])
        report = source.earlier.tuned.get(task)
        path = source.folder / SUMMARY.format(task=task)
        if path.is_file():
            report = json.loads(path.read_text("utf-8"))
        figures = [NOT_RUN, NOT_RUN]
        if report is not None:
            values[task]["finetune"] = report
            figures = [f"{report['perplexity'][when]['mean']:.1f}" for when in ("before", "after")]
        paper = [f"{x}" for x in FINE_TUNED.get(task, ("", ""))]
        perplexities.append([NAMES[task].split(",")[0], *figures, *paper])
    titles = ["Task", "Static", "+ english", "+ fine-tuned", "Fine-tuning gain (95% interval)"]
    titles += ["Relative error reduction: english", "Fine-tuned", "Paper"]
    lines = [*table(titles, rows), ""]
    titles = ["Dev perplexity", "Before", "After", "Paper: before", "Paper: after"]
    return {"tasks": values, "source": SOURCE}, [*lines, *table(titles, perplexities)]


def figure1(source: Source) -> Table:
    """Compare scores by epoch and by the fraction of the training data."""
    rows, values = [], {}
    for task in ("srl", "ner"):
        shares = {}
        for share, cells in shares_of(task).items():
            base, elmo = (Measured(source, cell) for cell in cells)
            shares[f"{share:g}"] = {"baseline": base.to_dict(), "elmo": elmo.to_dict()}
            rows.append([NAMES[task], f"{100 * share:g}%", base.text("test"), elmo.text("test")])
        published = source.earlier.curves.get(task, {})
        curves = {
            name: curve(Measured(source, cell), published.get(name, []))
            for name, cell in (("baseline", baseline(task)), ("elmo", with_elmo(task, FIRST)))
        }
        values[task] = {"shares": shares, "dev_by_epoch": curves, **passing(curves)}
    lines = [f"![Dev score by epoch, and test score by amount of training data]({CURVES})\n"]
    lines += table(["Task", "Training data", "Static", "+ ELMo"], rows)
    for task, found in values.items():
        if "passed_in_epoch" in found:
            sentence = (
                f"{NAMES[task]} on dev, seed 0: The model with static vectors reaches its best "
                f"score of {found['best_baseline']:.2f} in epoch {found['best_baseline_epoch']}. "
                f"With ELMo, the model exceeds this score in epoch "
                f"{found['passed_in_epoch'] or 'none'}."
            )
            lines += ["", textwrap.fill(sentence, PAGE_WIDTH)]
    return {"tasks": values}, lines


def passing(curves: dict[str, list[float]]) -> dict[str, Any]:
    """Return the epoch in which the model with ELMo exceeds the best one without."""
    if not all(curves.values()):
        return {}
    best = max(curves["baseline"])
    later = (epoch for epoch, score in enumerate(curves["elmo"], 1) if score > best)
    return {
        "best_baseline": best,
        "best_baseline_epoch": curves["baseline"].index(best) + 1,
        "passed_in_epoch": next(later, None),
    }


def figure2(source: Source) -> Table:
    """Collect the learned weights s_j of every task at input and output."""
    rows: list[list[str]] = []
    values: dict[str, Any] = {}
    for task in FILES:
        cells = [with_elmo(task, FIRST)]
        if task in COMPARED["table3"]:
            cells += places_of(task).values()
        for cell in dict.fromkeys(cells):
            measured = Measured(source, cell)
            for place, mix in measured.mixes().items():
                weights = [f"{s:.2f}" for s in mix["s"]]
                rows.append([task, cell.elmo, place, *weights, f"{mix['gamma']:.2f}"])
                values.setdefault(task, {}).setdefault(cell.elmo, {})[place] = mix
            if not measured:
                rows.append([task, cell.elmo, NOT_RUN, "", "", "", ""])
    titles = ["Task", "ELMo at", "Mix at", "s_0", "s_1", "s_2", "gamma"]
    lines = [f"![Learned layer weights of each task]({WEIGHTS})\n", *table(titles, rows)]
    return {"tasks": values}, lines


if __name__ == "__main__":
    main()
