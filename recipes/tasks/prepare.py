"""Prepare the data of the six tasks in the layout of `runs.py`: TASK/{train,dev,test}.

Needs a directory with the public data: conll2003/ (eng.train, eng.testa, eng.testb), sst5/trees/,
snli/ (dev.txt, test.txt, counterfactual/), squad/ (parts of SQuAD v1.1), propbank_ewt/, and
litbank/conll/. Missing tasks are skipped with a message.

Run as: python recipes/tasks/prepare.py tasks/ -o data/

NER, SST-5 and SRL are copied. The splits of the other tasks are:
    snli    train: SNLI dev without its last 1,000 pairs, and counterfactual train (Kaushik et al.
            2020); dev: the last 1,000 pairs of SNLI dev; test: SNLI test. SNLI's 550,000 training
            pairs are not used.
    squad   train: 44 articles of the official training set, except the last tenth by title, and
            single paragraphs of other articles; dev: the last tenth; test: paragraphs of the
            official dev set
    coref   LitBank's 100 documents by name: 80 train, 10 dev, 10 test
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_SNLI_DEV = 1000


def main() -> None:
    """Prepare all available tasks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tasks", type=Path, help="directory with conll2003/, sst5/, ...")
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args()
    prepare_functions: dict[str, Callable[[Path, Path], None]] = {
        "ner": lambda tasks, folder: copy(
            tasks / "conll2003", folder, "eng.train", "eng.testa", "eng.testb"
        ),
        "sst5": lambda tasks, folder: copy(
            tasks / "sst5" / "trees", folder, "train.txt", "dev.txt", "test.txt"
        ),
        "snli": snli,
        "squad": squad,
        "srl": lambda tasks, folder: copy(
            tasks / "propbank_ewt",
            folder,
            "train.jsonl",
            "dev.jsonl",
            "test.jsonl",
            suffix=".jsonl",
        ),
        "coref": coref,
    }
    for task, prepare_task in prepare_functions.items():
        folder = args.output / task
        folder.mkdir(parents=True, exist_ok=True)
        try:
            prepare_task(args.tasks, folder)
        except FileNotFoundError as error:
            shutil.rmtree(folder)
            sys.stdout.write(f"{task}: skipped because {error.filename} does not exist\n")
        else:
            names = ", ".join(sorted(path.name for path in folder.iterdir()))
            sys.stdout.write(f"{task}: {names}\n")


def copy(source: Path, folder: Path, *names: str, suffix: str = ".txt") -> None:
    """Copy the three files of a task."""
    for part, name in zip(("train", "dev", "test"), names, strict=True):
        shutil.copyfile(source / name, folder / f"{part}{suffix}")


def snli(tasks: Path, folder: Path) -> None:
    """Join most of SNLI's dev set and the counterfactual training data.

    The dev pairs come from SNLI, like the test pairs. Counterfactual pairs are hard by design, and
    on them the scores of early epochs are all close to chance.
    """
    dev_pairs = (tasks / "snli" / "dev.txt").read_text("utf-8").splitlines(keepends=True)
    counterfactual = tasks / "snli" / "counterfactual" / "all_combined" / "train.tsv"
    joined = "".join(dev_pairs[:-_SNLI_DEV]) + counterfactual.read_text("utf-8")
    (folder / "train.txt").write_text(joined, "utf-8")
    (folder / "dev.txt").write_text("".join(dev_pairs[-_SNLI_DEV:]), "utf-8")
    shutil.copyfile(tasks / "snli" / "test.txt", folder / "test.txt")


def squad(tasks: Path, folder: Path) -> None:
    """Join the parts. Dev consists of entire articles, which do not occur in the training data."""
    source = tasks / "squad"
    full_articles = sorted(
        articles(source / "squad_du_test-v1.1.json"), key=lambda a: str(a["title"])
    )
    n_dev = len(full_articles) // 10
    parts = {
        "train": [*full_articles[:-n_dev], *articles(source / "extra_from_train.json")],
        "dev": full_articles[-n_dev:],
        "test": [*articles(source / "xquad.en.json"), *articles(source / "extra_from_dev.json")],
    }
    for part, contents in parts.items():
        values = {"version": "1.1", "data": contents}
        (folder / f"{part}.json").write_text(json.dumps(values, ensure_ascii=False), "utf-8")


def articles(path: Path) -> list[dict[str, Any]]:
    """Return the articles of a SQuAD file."""
    data: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["data"]
    return data


def coref(tasks: Path, folder: Path) -> None:
    """Split LitBank by document name."""
    paths = sorted((tasks / "litbank" / "conll").glob("*.conll"))
    if not paths:
        raise FileNotFoundError(2, "no such file", str(tasks / "litbank" / "conll" / "*.conll"))
    n = len(paths)
    for part, split in (
        ("train", paths[: 8 * n // 10]),
        ("dev", paths[8 * n // 10 : 9 * n // 10]),
        ("test", paths[9 * n // 10 :]),
    ):
        (folder / part).mkdir(exist_ok=True)
        for path in split:
            shutil.copyfile(path, folder / part / path.name)


if __name__ == "__main__":
    main()
