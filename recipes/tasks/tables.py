"""Write results/tasks/*.json, the tables of docs/results.md and the figures from finished runs.

Needs: the output directory of `run.py`, or its unpacked archive; pip install matplotlib.

Run as: python recipes/tasks/tables.py runs/
Runs that are published in --results (default: results/tasks) are included in addition to those in
the directory, which can be empty. Missing runs are shown as "not run". An asterisk marks runs that
were stopped by the time limit.
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
from figures import draw_curves, draw_weights
from finetune import SUMMARY
from finished import read_machines
from gains import error_reduction, format_gain, gain, gain_over_seeds
from paper import FINE_TUNED, SOURCE, TABLE1, TABLE2, TABLE3
from published_runs import RESULTS, PublishedRuns
from results import CellResults, RunSource, dev_curve
from runs import (
    COMPARED,
    FILES,
    SEEDS,
    TABLES_MODEL,
    TRIALS,
    TUNED,
    Cell,
    Run,
    baseline,
    finetune_cells,
    model_cells,
    second_version_cells,
    share_cells,
    static_cells,
    table2_cells,
    table3_cells,
    task_settings,
    trial_cells,
    trial_settings,
    tuned_cells,
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
GAIN_TITLES = ["Task", "Static", "+ ELMo", "Gain (95% interval)", "Relative error reduction"]
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
    source = RunSource(args.runs, PublishedRuns(args.results))
    for line in source.published.outdated:
        sys.stdout.write(f"{line}\n")
    metadata = {
        "recipe": "recipes/tasks/run.py, recipes/tasks/tables.py",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machines": all_machines(source),
        "settings": {task: task_settings(task) for task in FILES},
    }
    table_functions: dict[str, Callable[[RunSource], Table]] = {
        "table1": table1,
        "trials": trials,
        "tuned": tuned,
        "table2": lambda source: compare_cells(source, "table2", table2_cells, TABLE2),
        "table3": lambda source: compare_cells(source, "table3", table3_cells, TABLE3),
        "second-version": lambda source: compare_cells(
            source, "second-version", second_version_cells, {}
        ),
        "models": lambda source: compare_cells(source, "models", model_cells, {}),
        "finetune": finetune,
        "static": lambda source: compare_cells(source, "static", static_cells, {}),
        "figure1": figure1,
        "figure2": figure2,
    }
    page = args.docs / "results.md"
    text = page.read_text("utf-8")
    results = {}
    for name, make_table in table_functions.items():
        results[name], lines = make_table(source)
        text = replace_between(text, name, "\n".join(lines))
    # Written only after all tables succeeded, because later runs of this script read these files.
    page.write_text(text, "utf-8")
    args.results.mkdir(parents=True, exist_ok=True)
    for name, values in results.items():
        path = args.results / f"{name}.json"
        path.write_text(json.dumps({**metadata, **values}, indent=1) + "\n", "utf-8")
    (args.docs / "figures").mkdir(exist_ok=True)
    draw_curves(results["figure1"]["tasks"], NAMES, args.docs / CURVES)
    draw_weights(results["figure2"]["tasks"], NAMES, args.docs / WEIGHTS)
    sys.stdout.write(f"{page}, {args.results}/*.json, {args.docs / 'figures'}/*.svg\n")


def all_machines(source: RunSource) -> list[dict[str, Any]]:
    """Return the published machines, then the new ones of the directory."""
    machines = list(source.published.machines)
    for machine in read_machines(source.folder):
        if machine not in machines:
            machines.append(machine)
    return machines


def replace_between(text: str, name: str, inner: str) -> str:
    """Replace the text between the markers of a name."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        sys.exit(f"docs/results.md must contain {begin} and {end} exactly once.")
    return pattern.sub(lambda _: f"{begin}\n{inner}\n{end}", text)


def table(titles: list[str], rows: list[list[str]]) -> Iterator[str]:
    """Yield a Markdown table."""
    yield f"| {' | '.join(titles)} |"
    yield "|" + "---|" * len(titles)
    for row in rows:
        yield f"| {' | '.join(row)} |"


# ----------------------------------------------------------------------------------------- tables


def table1(source: RunSource) -> Table:
    """Compare static vectors alone and with ELMo on the test set."""
    values, rows = compare_gains(
        source, {task: (baseline(task), with_elmo(task)) for task in FILES}
    )
    for row, task in zip(rows, values, strict=True):
        paper = TABLE1[task]
        values[task]["paper"] = paper._asdict()
        row += [f"{paper.baseline}", f"{paper.elmo}", f"{paper.relative:g}%"]
    titles = [*GAIN_TITLES, "Paper: static", "Paper: + ELMo", "Paper: relative error reduction"]
    return {"tasks": values}, list(table(titles, rows))


def tuned(source: RunSource) -> Table:
    """Compare static vectors alone and with ELMo, each with the best settings on the dev set."""
    values, rows = compare_gains(source, {task: tuned_cells(task) for task in TUNED})
    for row, task in zip(rows, values, strict=True):
        settings = [format_settings(cell) for cell in tuned_cells(task)]
        row[1:1] = [settings[0], row.pop(1), settings[1]]
    titles = [GAIN_TITLES[0], "Settings: static", "Static", "Settings: + ELMo", *GAIN_TITLES[2:]]
    return {"tasks": values}, list(table(titles, rows))


def compare_gains(
    source: RunSource, cells: Mapping[str, tuple[Cell, Cell]]
) -> tuple[dict[str, Any], list[list[str]]]:
    """Compare the cells without and with ELMo of each task. Return JSON values and rows."""
    values: dict[str, Any] = {}
    rows = []
    for task, pair in cells.items():
        base, elmo = (CellResults(source, cell) for cell in pair)
        row = [NAMES[task], base.format("test"), elmo.format("test"), NOT_RUN, ""]
        values[task] = {
            "metric": METRIC[task],
            "baseline": base.to_dict(),
            "elmo": elmo.to_dict(),
        }
        difference = gain_over_seeds(base, elmo)
        if difference is not None:
            reduced = error_reduction(base.mean("test"), elmo.mean("test"))
            values[task] |= {
                "difference": difference,
                "relative_error_reduction": round(reduced, 2),
            }
            row[3:] = format_gain(difference), f"**{reduced:.1f}%**"
        rows.append(row)
    return values, rows


def format_settings(cell: Cell) -> str:
    """Format the settings of a trial."""
    return ", ".join(f"`{setting}`" for setting in trial_settings(cell)) or "as in Table 1"


def trials(source: RunSource) -> Table:
    """Compare settings on the dev set, with one seed."""
    rows = []
    values: dict[str, Any] = {}
    for task in TRIALS:
        for side, cells in trial_cells(task).items():
            for name, cell in cells.items():
                run = source.find(Run(cell, SEEDS[0]))
                score = f"{run.dev:.2f}{'*' if run.cut else ''}" if run else NOT_RUN
                rows.append([NAMES[task], SIDES[side], format_settings(cell), score])
                entry = {"cell": cell.name, "runs": [run.to_dict()] if run else []}
                values.setdefault(task, {}).setdefault(side, {})[name] = entry
    return {"tasks": values}, list(table(["Task", "Model", "Settings", "Dev"], rows))


def tasks_of_table(table: str) -> list[str]:
    """Return the tasks of a table, in the order of Table 1."""
    return [task for task in FILES if task in COMPARED[table]]


def compare_cells(
    source: RunSource,
    name: str,
    cells: Callable[[str], dict[str, Cell]],
    paper: Mapping[str, Sequence[float]],
) -> Table:
    """Compare configurations on dev and test, followed by the paper's results."""
    rows, values = [], {}
    for task in tasks_of_table(name):
        results = {column: CellResults(source, cell) for column, cell in cells(task).items()}
        values[task] = {column: result.to_dict() for column, result in results.items()}
        for part in ("dev", "test"):
            rows.append([f"{NAMES[task]}, {part}", *(m.format(part) for m in results.values())])
    for task, scores in paper.items():
        rows.append([f"*paper: {NAMES[task]}, dev*", *(f"{x:.1f}" for x in scores)])
    columns = [column_title(column) for column in cells(next(iter(FILES)))]
    return {"tasks": values, "source": SOURCE}, list(table(["Task", *columns], rows))


def column_title(column: str) -> str:
    """Return the title of a column: capitalized, unless it is the name of a model."""
    return column if column.startswith("english") else column[0].upper() + column[1:]


def finetune(source: RunSource) -> Table:
    """Compare scores and perplexities before and after fine-tuning the biLM on the task's text."""
    rows, perplexities = [], []
    values: dict[str, Any] = {}
    for task in tasks_of_table("finetune"):
        cells = {name: CellResults(source, cell) for name, cell in finetune_cells(task).items()}
        values[task] = {name: result.to_dict() for name, result in cells.items()}
        base, english, tuned = cells.values()
        gain_cells = ["", "", ""]
        difference = gain(english, tuned, source.published.finetune_gains.get(task))
        if base and difference is not None:
            values[task]["tuned_gain"] = difference
            reductions = (
                error_reduction(base.mean("test"), m.mean("test")) for m in (english, tuned)
            )
            gain_cells = [
                format_gain(difference),
                *(f"{reduction:.1f}%" for reduction in reductions),
            ]
        rows.append([f"{NAMES[task]}, dev", *(m.format("dev") for m in cells.values()), *[""] * 4])
        row = [f"{NAMES[task]}, test", *(m.format("test") for m in cells.values()), *gain_cells]
        rows.append([*row, f"{TABLE1[task].relative:g}%"])
        report = source.published.finetune_reports.get(task)
        path = source.folder / SUMMARY.format(task=task)
        if path.is_file():
            report = json.loads(path.read_text("utf-8"))
        perplexity_cells = [NOT_RUN, NOT_RUN]
        if report is not None:
            values[task]["finetune"] = report
            means = (report["perplexity"][when]["mean"] for when in ("before", "after"))
            perplexity_cells = [f"{mean:.1f}" for mean in means]
        paper = [f"{x}" for x in FINE_TUNED.get(task, ("", ""))]
        perplexities.append([NAMES[task].split(",")[0], *perplexity_cells, *paper])
    titles = [
        "Task",
        "Static",
        f"+ {TABLES_MODEL}",
        "+ fine-tuned",
        "Fine-tuning gain (95% interval)",
    ]
    titles += [f"Relative error reduction: {TABLES_MODEL}", "Fine-tuned", "Paper"]
    lines = [*table(titles, rows), ""]
    titles = ["Dev perplexity", "Before", "After", "Paper: before", "Paper: after"]
    return {"tasks": values, "source": SOURCE}, [*lines, *table(titles, perplexities)]


def figure1(source: RunSource) -> Table:
    """Compare scores by epoch and by the fraction of the training data."""
    rows, values = [], {}
    for task in ("srl", "ner"):
        shares = {}
        for share, cells in share_cells(task).items():
            base, elmo = (CellResults(source, cell) for cell in cells)
            shares[f"{share:g}"] = {"baseline": base.to_dict(), "elmo": elmo.to_dict()}
            rows.append(
                [NAMES[task], f"{100 * share:g}%", base.format("test"), elmo.format("test")]
            )
        published = source.published.curves.get(task, {})
        curves = {
            name: dev_curve(CellResults(source, cell), published.get(name, []))
            for name, cell in (
                ("baseline", baseline(task)),
                ("elmo", with_elmo(task, TABLES_MODEL)),
            )
        }
        values[task] = {"shares": shares, "dev_by_epoch": curves, **first_better_epoch(curves)}
    lines = [f"![Dev score by epoch, and test score by amount of training data]({CURVES})\n"]
    lines += table(["Task", "Training data", "Static", "+ ELMo"], rows)
    for task, task_values in values.items():
        if "passed_in_epoch" in task_values:
            epoch = task_values["passed_in_epoch"]
            passed = "does not exceed this score"
            if epoch is not None:
                passed = f"exceeds this score in epoch {epoch}"
            sentence = (
                f"{NAMES[task]} on dev, seed 0: The model with static vectors reaches its best "
                f"score of {task_values['best_baseline']:.2f} in epoch "
                f"{task_values['best_baseline_epoch']}. With ELMo, the model {passed}."
            )
            lines += ["", textwrap.fill(sentence, PAGE_WIDTH)]
    return {"tasks": values}, lines


def first_better_epoch(curves: dict[str, list[float]]) -> dict[str, Any]:
    """Return the first epoch in which ELMo exceeds the best score without ELMo."""
    if not all(curves.values()):
        return {}
    best = max(curves["baseline"])
    later = (epoch for epoch, score in enumerate(curves["elmo"], 1) if score > best)
    return {
        "best_baseline": best,
        "best_baseline_epoch": curves["baseline"].index(best) + 1,
        "passed_in_epoch": next(later, None),
    }


def figure2(source: RunSource) -> Table:
    """Collect the learned weights s_j of every task at input and output."""
    rows: list[list[str]] = []
    values: dict[str, Any] = {}
    for task in FILES:
        cells = [with_elmo(task, TABLES_MODEL)]
        if task in COMPARED["table3"]:
            cells += table3_cells(task).values()
        for cell in dict.fromkeys(cells):
            results = CellResults(source, cell)
            for place, mix in results.mixes().items():
                weights = [f"{s:.2f}" for s in mix["s"]]
                rows.append([task, cell.elmo, place, *weights, f"{mix['gamma']:.2f}"])
                values.setdefault(task, {}).setdefault(cell.elmo, {})[place] = mix
            if not results:
                rows.append([task, cell.elmo, NOT_RUN, "", "", "", ""])
    titles = ["Task", "ELMo at", "Mix at", "s_0", "s_1", "s_2", "gamma"]
    lines = [f"![Learned layer weights of each task]({WEIGHTS})\n", *table(titles, rows)]
    return {"tasks": values}, lines


if __name__ == "__main__":
    main()
