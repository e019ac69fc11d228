"""Measure the held-out perplexity of a model by register, with one text file per register.

All files are scored in one pass, in batches that mix registers, so that short files are fast. The
results are the same as those of `elmo perplexity FILE` for each file.

Run as: python recipes/english/registers.py MODEL OUT.json FILE.txt... [--against EARLIER.json]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.data.layout import END_ID
from elmokit.data.reading import read_sentences
from elmokit.embed.loading import load
from elmokit.embed.scoring import language_model
from elmokit.progress import plural
from elmokit.train.evaluate import LossSums, make_text_types, split_sequences
from elmokit.train.text import group_sentences

STATES = ("carry", "reset")


def measure(model: str, files: list[Path], device: str) -> dict[str, dict[str, Any]]:
    """Return the perplexities of each file for each state, by file name."""
    elmo = load(model, device=device)
    scorer, (_, vocabulary) = elmo.scorer(), language_model(elmo)
    names: list[str] = []  # the register of each document
    sentences = []
    for file in files:
        last_document = None
        for sentence in read_sentences([file]):
            if sentence.document != last_document:
                names.append(file.stem)
                last_document = sentence.document
            sentences.append(sentence._replace(document=len(names) - 1))
    (group,) = group_sentences(sentences, vocabulary, sys.maxsize)
    encode = group.make_encoder(elmo.bilm, scorer.engine, vocabulary)
    types = make_text_types(encode, len(vocabulary))
    ends = np.flatnonzero(group.tokens == END_ID)
    by_sentence = np.searchsorted(group.documents, ends, side="right") - 1
    perplexities: dict[str, dict[str, Any]] = {file.stem: {} for file in files}
    for state in STATES:
        tallies = {file.stem: LossSums() for file in files}
        units = split_sequences(group.tokens, group.documents, state)
        documents = range(len(names)) if state == "carry" else by_sentence
        for i, losses in scorer.losses(types, units):
            tallies[names[documents[i]]].add(losses)
        for name, sums in tallies.items():
            perplexities[name][state] = sums.perplexity(state).to_dict()
    return perplexities


def compare(
    perplexities: dict[str, dict[str, Any]], earlier: dict[str, dict[str, Any]]
) -> list[str]:
    """Return a table that compares two models on the same tokens and vocabulary."""
    lines = [
        "| register | targets | `<UNK>` | carry | reset | change (reset) |",
        "|---|---|---|---|---|---|",
    ]
    for name, now in perplexities.items():
        then = earlier.get(name)
        if then is None:
            continue
        for state in STATES:
            for key in ("targets", "unknown"):
                if now[state][key] != then[state][key]:
                    raise SystemExit(
                        f"{name}: the models were not scored on the same tokens. "
                        "Use the same text and models with the same vocabulary."
                    )
        reset = now["reset"]
        cells = [f"{then[state]['mean']:.1f} -> {now[state]['mean']:.1f}" for state in STATES]
        change = reset["mean"] / then["reset"]["mean"] - 1
        unknown = reset["unknown"] / reset["targets"]
        cells = [f"{reset['targets']:,}", f"{unknown:.2%}", *cells, f"{change:+.1%}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Measure, write the results, and compare them with an earlier measurement."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", help="path or name of a model with a language-model head")
    parser.add_argument("output", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--against", type=Path, help="output of this recipe for another model")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    start = time.perf_counter()
    perplexities = measure(args.model, args.files, args.device)
    part = args.output.with_suffix(".part")
    part.write_text(
        json.dumps({"model": args.model, "registers": perplexities}, indent=1) + "\n", "utf-8"
    )
    part.replace(args.output)
    seconds = time.perf_counter() - start
    lines = [f"{args.output}: {plural(len(perplexities), 'register')}, {seconds:.0f} s"]
    if args.against:
        lines += compare(perplexities, json.loads(args.against.read_text("utf-8"))["registers"])
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
