"""Analyze a model: neighbors in context, word in context, morphology. Writes JSON and a page.

Needs: pip install 'elmokit[static]', plain English text with one paragraph per line for the
neighbors (a few million tokens are enough), and `training.en-en.data` + `.gold` of MCL-WiC
(SemEval-2021 task 2). Parts without data are skipped and keep their previous results.

Time on 2 CPU cores: morphology takes seconds. Word in context embeds 0.4 million tokens, and
neighbors embed --max-tokens, both at the throughput of `elmo bench embed`.

Run as:
    python recipes/analysis-figures.py --model MODEL --text TEXT.txt --wic training.en-en.data
Writes results/analysis/{neighbors,wic,morphology}.json and docs/analysis.md. Equivalent
commands, each with --json: elmo neighbors TEXT.txt --split --query ..., elmo probe wic DATA, elmo
probe morphology.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

import elmokit
from elmokit.bulk.input import read_sentences
from elmokit.cli.progress import step_bar
from elmokit.embed.static import GLOVE, StaticVectors, load_static
from elmokit.probes.morphology import candidate_words, measure_morphology, read_pairs
from elmokit.probes.reports import json_values
from elmokit.probes.wic import measure_wic, read_wic
from elmokit.progress import plural
from elmokit.search.neighbors import NeighborFilter, Neighbors, Passage, neighbors

# Words with a sense and a sentence. The two queries for "play" are from Table 4 of the paper, and
# the others are our own.
QUERIES = (
    ("play", "sport", "Chico Ruiz made a spectacular [play] on Alusik 's grounder ."),
    ("play", "theatre", "Olivia De Havilland signed to do a Broadway [play] for Garson ."),
    (
        "bank",
        "money",
        "The [bank] lent the company two million dollars at a low rate of interest .",
    ),
    ("bank", "river", "They sat on the grassy [bank] of the river and watched the boats go by ."),
    ("read", "past", "I [read] the book yesterday and liked the last chapter ."),
    ("read", "infinitive", "Can you [read] the letter to me now ?"),
    ("bass", "music", "He plays [bass] and sings in a rock band from London ."),
    ("bass", "fish", "We caught a large [bass] in the lake and cooked it for dinner ."),
    ("light", "lamp", "The [light] of the lamp was too weak to see anything in the room ."),
    ("light", "weight", "The new bicycle is [light] enough to be carried with one hand ."),
    ("right", "side", "Turn [right] at the next street and you will see the church ."),
    ("right", "law", "Every citizen has the [right] to vote in the election ."),
    ("spring", "season", "The birds come back in the [spring] and leave again in the autumn ."),
    ("spring", "water", "The water of the [spring] comes out of the rock and flows to the river ."),
    ("match", "sport", "They won the [match] by two goals to one ."),
    ("match", "fire", "She lit the candle with a [match] and put the box away ."),
    (
        "plant",
        "factory",
        "The company closed its [plant] and five hundred workers lost their jobs .",
    ),
    ("plant", "botany", "The [plant] has small white flowers and grows in wet soil ."),
    ("state", "country", "The governor of the [state] signed the law last week ."),
    ("state", "condition", "The old house was in a bad [state] after the long winter ."),
)
_CONTEXT_WORDS = 9
_STATIC_K = 8


def main() -> None:
    """Run the requested measurements, then write the page from all available results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", help="path or name; default: the bundled model")
    parser.add_argument("--text", nargs="+", default=[], help="plain text, one paragraph per line")
    parser.add_argument("--wic", help="NAME.data of MCL-WiC, next to NAME.gold")
    parser.add_argument("--static", default=GLOVE)
    parser.add_argument("--max-tokens", type=int, default=3_000_000)
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--state", default="reset", choices=["reset", "warm"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="exact", help="exact, or fast: see elmokit.load")
    parser.add_argument("--out", type=Path, default=Path("results/analysis"))
    parser.add_argument("--page", type=Path, default=Path("docs/analysis.md"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    args.page.parent.mkdir(parents=True, exist_ok=True)

    static = load_static(args.static)
    elmo = elmokit.load(args.model, device=args.device, precision=args.precision)
    write(args, elmo, "morphology", morphology_results(elmo, static, args))
    if args.wic:
        write(args, elmo, "wic", wic_results(elmo, static, args))
    if args.text:
        write(args, elmo, "neighbors", neighbor_results(elmo, static, args))
    parts = ("neighbors", "wic", "morphology")
    results = {
        part: json.loads(file.read_text())
        for part in parts
        if (file := results_file(args, part)).exists()
    }
    args.page.write_text("\n".join(page(results)) + "\n", "utf-8")


def results_file(args: argparse.Namespace, part: str) -> Path:
    """Return the results file of a part."""
    return Path(args.out) / f"{part}.json"


def write(
    args: argparse.Namespace, elmo: elmokit.ElmoModel, part: str, results: dict[str, Any]
) -> None:
    """Write the results of a part with the command, settings, machine and date."""
    arguments = [Path(a).name if "/" in a else a for a in sys.argv[1:]]
    gpu = f"one {torch.cuda.get_device_name()}, " if elmo.device.type == "cuda" else ""
    values = {
        "command": " ".join(["python recipes/analysis-figures.py", *arguments]),
        "model": elmo.metadata.get("name") or Path(elmo.source or "model").name,
        "shape": f"{elmo.config.n_layers} layers of {elmo.config.output_dim}",
        "static": args.static if args.static == GLOVE else Path(args.static).name,
        "state": args.state,
        "precision": args.precision,
        "machine": f"{gpu}{os.cpu_count()} CPU cores, {platform.machine()}, "
        f"Python {platform.python_version()}, torch {torch.__version__}",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "seed": args.seed,
        **results,
    }
    results_file(args, part).write_text(
        json.dumps(values, indent=1, ensure_ascii=False) + "\n", "utf-8"
    )


# ---------------------------------------------------------------------------------------- measuring


def morphology_results(
    elmo: elmokit.ElmoModel, static: StaticVectors, args: argparse.Namespace
) -> dict[str, Any]:
    """Measure the bundled list of related words."""
    pairs = read_pairs()
    words = candidate_words(elmo, static)
    values = json_values(measure_morphology(elmo, pairs, words, static=static, seed=args.seed))
    ranks = values.pop("ranks")
    values["static_figures"] = values.pop("static")
    listed = zip(pairs, ranks, strict=True)
    return {**values, "ranks": {f"{p.word} {p.related}": rank for p, rank in listed}}


def wic_results(
    elmo: elmokit.ElmoModel, static: StaticVectors, args: argparse.Namespace
) -> dict[str, Any]:
    """Measure word in context."""
    pairs = read_wic(args.wic)
    with step_bar(enabled=True) as progress:
        report = measure_wic(
            elmo,
            pairs,
            static=static,
            state=args.state,
            seed=args.seed,
            progress=progress,
        )
    return json_values(report)


def neighbor_results(
    elmo: elmokit.ElmoModel, static: StaticVectors, args: argparse.Namespace
) -> dict[str, Any]:
    """Find the neighbors of the queries above: any word, and the same word only."""

    def find(filter: NeighborFilter) -> list[Neighbors]:
        with tqdm(total=args.max_tokens, desc="neighbors", unit=" tokens") as bar:
            return neighbors(
                elmo,
                [sentence for _, _, sentence in QUERIES],
                passages(args.text),
                k=args.k,
                filter=filter,
                state=args.state,
                max_tokens=args.max_tokens,
                on_window=lambda tokens: bar.update(tokens - bar.n),
            )

    any_word = find(NeighborFilter(other_sentences=True))
    same_word = find(NeighborFilter("same", other_sentences=True))
    queries = [
        {
            "word": word,
            "sense": sense,
            "sides": result.query.context(),
            "neighbors": neighbors_by_layer(result),
            "uses_of_the_word": neighbors_by_layer(uses),
        }
        for (word, sense, _), result, uses in zip(QUERIES, any_word, same_word, strict=True)
    ]
    words = dict.fromkeys(word for word, _, _ in QUERIES)
    return {
        "text": [Path(name).name for name in args.text],
        "searched_tokens": any_word[0].searched_tokens,
        "k": args.k,
        "queries": queries,
        "static_neighbors": {
            word: [near for near, _ in static.neighbors(word, _STATIC_K)] for word in words
        },
        "in_both_lists": {
            "any word": shared_fraction(any_word),
            "the same word": shared_fraction(same_word),
        },
    }


def passages(files: list[str]) -> Iterator[Passage]:
    """Yield the sentences of the text with the name of their file and their line."""
    for tokens, file, line in read_sentences(files, split=True):
        yield Passage(tokens, f"{Path(file).name}:{line}")


def neighbors_by_layer(result: Neighbors) -> dict[str, list[dict[str, Any]]]:
    """Return the neighbors of a query, those of the top layer with a few words around each."""
    top = max(layer for layer in result.by_layer if layer.startswith("layer"))
    return {
        layer: [
            {"score": round(n.score, 4), "word": n.word}
            | ({"sides": n.marked.context(_CONTEXT_WORDS)} if layer == top else {})
            for n in nearest
        ]
        for layer, nearest in result.by_layer.items()
    }


def shared_fraction(results: list[Neighbors]) -> dict[str, float]:
    """Return the fraction of neighbors that the two queries of a word share, by layer.

    1 means that the sentence has no influence, as with static vectors. The lower the value, the
    more the neighbors depend on the sentence. The lists show whether they depend on the sense.
    """
    by_layer: dict[str, list[float]] = {}
    for first, second in zip(results[::2], results[1::2], strict=True):
        for layer in first.by_layer:
            a, b = ({n.marked for n in result.by_layer[layer]} for result in (first, second))
            by_layer.setdefault(layer, []).append(len(a & b) / max(1, len(a)))
    return {layer: round(float(np.mean(shares)), 4) for layer, shares in by_layer.items()}


# ----------------------------------------------------------------------------------------- the page


def page(results: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the page."""
    yield "# Analysis: neighbors, senses and morphology"
    yield ""
    yield "For a summary, see [what each layer knows](explanation/what-each-layer-knows.md)."
    yield "This page is generated by `recipes/analysis-figures.py` from `results/analysis/*.json`."
    if "neighbors" in results:
        yield from neighbors_page(results["neighbors"])
    if "wic" in results:
        yield from wic_page(results["wic"])
    if "morphology" in results:
        yield from morphology_page(results["morphology"])


def provenance(values: dict[str, Any]) -> str:
    """Return a line with the model and the command that produced a table."""
    return (
        f"Model: {values['model']} ({values['shape']}, state {values['state']}). "
        f"Date: {values['date']}. Command: `{values['command']}`"
    )


def neighbors_page(values: dict[str, Any]) -> Iterator[str]:
    """Yield our version of Table 4 of the paper."""
    top = max(name for name in values["queries"][0]["neighbors"] if name.startswith("layer"))
    yield "\n## Nearest neighbors in context\n"
    yield (
        "This section reproduces Table 4 of the paper. It shows the nearest neighbors of each "
        f"query among {values['searched_tokens']:,} tokens of {' and '.join(values['text'])}, by "
        f"cosine similarity in {top}. For comparison, the line above each table shows the nearest "
        f"words in {values['static']}, which has one vector for all senses of a word.\n"
    )
    for word, words in values["static_neighbors"].items():
        yield f"**{word}**, {values['static']}: {', '.join(words)}\n"
        yield f"| Query | Nearest tokens | Nearest uses of {word} |\n|---|---|---|"
        for query in (q for q in values["queries"] if q["word"] == word):
            neighbor_lists = (query["neighbors"][top], query["uses_of_the_word"][top])
            near = " | ".join("<br>".join(cell(n) for n in nearest) for nearest in neighbor_lists)
            yield f"| {cell(query)} ({query['sense']}) | {near} |"
        yield ""
    yield (
        "The next table shows the fraction of neighbors that the two queries of a word share. A "
        "value of 1 means that the sentence has no influence, as with static vectors. The lower "
        "the value, the more the neighbors depend on the sentence.\n"
    )
    both = values["in_both_lists"]
    yield from table(
        ["Neighbors", *both["any word"]],
        [[name, *(f"{share:.2f}" for share in by.values())] for name, by in both.items()],
    )
    yield f"\n{provenance(values)}"


def wic_page(values: dict[str, Any]) -> Iterator[str]:
    """Yield the section on word in context."""
    pos = list(values["results"][0]["by_pos"])
    yield "\n## Word in context (WiC)\n"
    yield (
        "The task is to decide whether a word has the same sense in two sentences. The data "
        f"consists of the English training pairs of MCL-WiC: {values['pairs']:,} pairs of "
        f"{values['lemmas']:,} lemmas, half of them with the same sense. Pairs that cannot be "
        f"aligned with our tokens are excluded ({plural(len(values['left_out']), 'pair')}). The "
        "cosine threshold is chosen on one half of the lemmas and tested on the other half, and "
        "vice versa. The 95% confidence intervals are computed with a bootstrap over lemmas.\n"
    )
    rows = []
    for result in values["results"]:
        whole = result["overall"]
        low, high = whole["interval"]
        accuracy = f"{whole['accuracy']:.1%} ({low:.1%} to {high:.1%})"
        by_pos = [f"{result['by_pos'][p]['accuracy']:.1%}" for p in pos]
        rows.append([result["name"], accuracy, f"{whole['auc']:.3f}", *by_pos])
    yield from table(["Vectors", "Accuracy", "AUC", *pos], rows)
    yield f"\n{provenance(values)}"


def morphology_page(values: dict[str, Any]) -> Iterator[str]:
    """Yield the section on morphology."""
    yield "\n## Morphology\n"
    yield (
        "This section measures how similar related words are in layer 0. AUC compares related "
        "words with random pairs. The mean reciprocal rank (MRR) and the share in the top 10 are "
        f"based on the rank of the related word among {values['vocabulary']:,} words. Look-alikes, "
        "which are unrelated words with similar spelling, are the control.\n"
    )
    titles = ["Kind", "Pairs", "AUC", "MRR", "In top 10"]
    static = values["static_figures"]
    rows = []
    for kind, layer_0 in values["layer_0"].items():
        row = [kind, str(layer_0["pairs"]), *morphology_cells(layer_0)]
        known = (values["layer_0_known"] or {}).get(kind)
        in_static = static.get(kind)
        row += [
            str(known["pairs"] if known else 0),
            *morphology_cells(known),
            *morphology_cells(in_static),
        ]
        rows.append(row)
    known_titles = ["Pairs in GloVe", *(f"{t}, these pairs" for t in titles[2:])]
    yield from table([*titles, *known_titles, *(f"{t}, GloVe" for t in titles[2:])], rows)
    yield f"\n{provenance(values)}"


def morphology_cells(scores: dict[str, Any] | None) -> list[str]:
    """Return three cells of the morphology table."""
    if scores is None or scores["auc"] is None:
        return ["-", "-", "-"]
    return [f"{scores['auc']:.3f}", f"{scores['reciprocal_rank']:.3f}", f"{scores['in_ten']:.0%}"]


def table(titles: list[str], rows: list[list[str]]) -> Iterator[str]:
    """Yield a Markdown table."""
    yield f"| {' | '.join(titles)} |"
    yield "|" + "---|" * len(titles)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def cell(match: dict[str, Any]) -> str:
    """Return a sentence for a cell, its word in bold and other Markdown escaped."""
    left, right = match["sides"]
    plain = (re.sub(r"([|`*_<>\[\]\\\\])", r"\\\1", part) for part in (left, match["word"], right))
    return "{} **{}** {}".format(*plain).strip()


if __name__ == "__main__":
    main()
