"""Fine-tune the biLM on the text of a task before training the task model, as in the paper.

The labels are not used. The biLM is trained as a language model on the training sentences, and its
perplexity on the dev sentences is measured before and after. The learning rate with the lowest
perplexity is selected from --rates.

Needs: the output directory of `prepare.py`; a model with its language-model head.

Run as: python recipes/tasks/finetune.py data/ ner sst5 -o tuned/ --summaries runs/
Writes the model tuned/english-TASK for `run.py --model english-TASK=tuned/english-TASK`, and the
perplexities in runs/finetune-TASK.json for `tables.py`. `run.py` calls this script for the runs
that need such a model.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from runs import FILES, tuned_model

from elmokit.errors import ElmoWarning
from elmokit.tasks.batches import collect_texts
from elmokit.tasks.registry import load_task

SUMMARY = "finetune-{task}.json"


def main() -> None:
    """Fine-tune one biLM per task."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path, help="output directory of prepare.py")
    parser.add_argument("tasks", nargs="+", choices=list(FILES))
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--summaries", type=Path, required=True, help="output directory of run.py")
    parser.add_argument("--model", default="english")
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--rows", type=int, help="rows of a batch (default: depends on the text)")
    parser.add_argument("--rates", type=float, nargs="+", default=[5e-4, 1e-3, 2e-3])
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    for task in args.tasks:
        summary = fine_tune(task, args)
        args.summaries.mkdir(parents=True, exist_ok=True)
        path = args.summaries / SUMMARY.format(task=task)
        path.write_text(json.dumps(summary, indent=1) + "\n", "utf-8")
        sys.stdout.write(f"{task}: {summary['perplexity']}\n")


def fine_tune(task: str, args: argparse.Namespace) -> dict[str, Any]:
    """Fine-tune the biLM for one task and return a summary."""
    folder: Path = args.output / task
    folder.mkdir(parents=True, exist_ok=True)
    for part, name in zip(("train", "dev"), FILES[task], strict=False):
        text = sentences(task, args.data / name)
        (folder / f"{part}.txt").write_text(text, "utf-8")
    corpus = ["prepare", folder / "train.txt", "--valid-file", folder / "dev.txt", "--tokenized"]
    elmo([*corpus, "--vocab", args.model, "-o", folder / "corpus", "--overwrite"])
    rows = args.rows or rows_for((folder / "train.txt").read_text("utf-8"))
    command = ["finetune", args.model, folder / "corpus", "--epochs", args.epochs, "--json"]
    command += ["--resume", "--device", args.device, "--set", f"step.rows={rows}"]

    def run(rate: float) -> dict[str, Any]:
        setting = f"optimizer.learning_rate={rate:g}"
        out = folder / f"run-{rate:g}"
        report: dict[str, Any] = json.loads(elmo([*command, "-o", out, "--set", setting]))
        return report

    with ThreadPoolExecutor() as pool:  # concurrently, because one run does not fill a GPU
        reports = dict(zip(args.rates, pool.map(run, args.rates), strict=True))
    after = {rate: report["perplexity"]["after"]["mean"] for rate, report in reports.items()}
    best_rate = min(after, key=lambda rate: after[rate])
    best = reports[best_rate]
    model = args.output / tuned_model(task)
    model.unlink(missing_ok=True)
    model.symlink_to(os.path.relpath(best.pop("model"), args.output))
    settings = {"step.rows": rows, "optimizer.learning_rate": best_rate}
    by_rate = {f"{rate:g}": round(value, 2) for rate, value in after.items()}
    about = {"model": args.model, "epochs": args.epochs, "settings": settings}
    return {**about, "after_by_rate": by_rate, **best}


def rows_for(text: str) -> int:
    """Return a number of rows, a power of two, for which an epoch has about 200 steps."""
    tokens_per_row = 20 * 200
    return max(16, 1 << int(math.log2(max(1, len(text.split()) / tokens_per_row))))


def sentences(task: str, path: Path) -> str:
    """Return the distinct sentences of a dataset, one per line."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ElmoWarning)  # shown during training
        examples = load_task(task).read(str(path))
    lines = (" ".join(tokens) for tokens in collect_texts(examples) if tokens)
    return "\n".join(dict.fromkeys(lines)) + "\n"


def elmo(arguments: Sequence[Any]) -> str:
    """Run an `elmo` command and return its standard output."""
    command = [sys.executable, "-m", "elmokit", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
