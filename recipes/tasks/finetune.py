"""Let the biLM read the text of a task before the task uses it, as the paper did.

No label is looked at: the biLM goes on as a language model on the training sentences, and its
perplexity is measured on those of the dev set, before and after. That chooses among the --rates.

Needs: the folder that `prepare.py` makes; a model with its language-model head.

Run as: python recipes/tasks/finetune.py data/ ner sst5 -o tuned/ --summaries runs/
Makes tuned/english-TASK, a model for `run.py --model english-TASK=tuned/english-TASK`, and
runs/finetune-TASK.json with the perplexities, for `tables.py`. `run.py` calls it for the runs that
need such a model.
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
from elmokit.tasks.batches import texts_of
from elmokit.tasks.registry import load_task

SUMMARY = "finetune-{task}.json"


def main() -> None:
    """Fine-tune for one task after another."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path, help="what prepare.py made")
    parser.add_argument("tasks", nargs="+", choices=list(FILES))
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--summaries", type=Path, required=True, help="the folder of run.py")
    parser.add_argument("--model", default="english")
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--rows", type=int, help="streams of text read side by side")
    parser.add_argument("--rates", type=float, nargs="+", default=[5e-4, 1e-3, 2e-3])
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    for task in args.tasks:
        found = fine_tuned(task, args)
        args.summaries.mkdir(parents=True, exist_ok=True)
        path = args.summaries / SUMMARY.format(task=task)
        path.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
        sys.stdout.write(f"{task}: {found['perplexity']}\n")


def fine_tuned(task: str, args: argparse.Namespace) -> dict[str, Any]:
    """Make the model of one task; return what its training told."""
    folder: Path = args.output / task
    folder.mkdir(parents=True, exist_ok=True)
    for part, name in zip(("train", "dev"), FILES[task], strict=False):
        text = sentences(task, args.data / name)
        (folder / f"{part}.txt").write_text(text, "utf-8")
    corpus = ["prepare", folder / "train.txt", "--valid-files", folder / "dev.txt", "--tokenized"]
    elmo([*corpus, "--vocab", args.model, "-o", folder / "corpus", "--overwrite"])
    rows = args.rows or rows_for((folder / "train.txt").read_text("utf-8"))
    common = ["finetune", args.model, folder / "corpus", "--epochs", args.epochs, "--json"]
    common += ["--resume", "--device", args.device, "--set", f"step.rows={rows}"]

    def tried(rate: float) -> dict[str, Any]:
        setting = f"optimizer.learning_rate={rate:g}"
        out = folder / f"run-{rate:g}"
        found: dict[str, Any] = json.loads(elmo([*common, "-o", out, "--set", setting]))
        return found

    with ThreadPoolExecutor() as pool:  # side by side: one alone does not fill a GPU
        told = dict(zip(args.rates, pool.map(tried, args.rates), strict=True))
    after = {rate: found["perplexity"]["after"]["mean"] for rate, found in told.items()}
    rate = min(after, key=lambda one: after[one])
    best = told[rate]
    model = args.output / tuned_model(task)
    model.unlink(missing_ok=True)
    model.symlink_to(os.path.relpath(best.pop("model"), args.output))
    settings = {"step.rows": rows, "optimizer.learning_rate": rate}
    tries = {f"{one:g}": round(value, 2) for one, value in after.items()}
    about = {"model": args.model, "epochs": args.epochs, "settings": settings}
    return {**about, "after_by_rate": tries, **best}


def rows_for(text: str) -> int:
    """Return how many rows read a text: a power of two, so that a pass has some 200 steps."""
    per_row = 20 * 200  # tokens
    return max(16, 1 << int(math.log2(max(1, len(text.split()) / per_row))))


def sentences(task: str, path: Path) -> str:
    """Return the sentences of a data set, one per line, each once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ElmoWarning)  # said when it is trained on
        examples = load_task(task).read(str(path))
    lines = (" ".join(text) for text in texts_of(examples) if text)
    return "\n".join(dict.fromkeys(lines)) + "\n"


def elmo(arguments: Sequence[Any]) -> str:
    """Run a command of elmokit; return what it printed."""
    command = [sys.executable, "-m", "elmokit", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
