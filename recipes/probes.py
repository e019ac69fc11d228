"""Probe each layer for parts of speech and word senses. Writes JSON and a page.

Needs: pip install 'elmokit[static]'; a treebank of Universal Dependencies (for our results: English
EWT); SemCor 3.0 as JSON lines (see elmokit.probes.wordnet), Evaluation_Datasets of Raganato et
al. (2017), and WordNet 3.0 (apt-get install wordnet-base wordnet-sense-index). Parts without
data are skipped and keep their previous results.

Time with the bundled model, one CPU thread: 1 minute (fast) or 2.5 (exact) to read EWT, 10 seconds
per probe (30 for concat), 2.7 minutes for SemCor (fast). --cache stores the treebank's vectors.

Run as:
    python recipes/probes.py --ud ud_ewt/ --precision exact fast --tags xpos upos --runs 3
    python recipes/probes.py --semcor semcor.jsonl --wsd Evaluation_Datasets/ --precision fast
Writes results/probes/{pos,wsd}.json and docs/probes.md. Equivalent commands, each with --json:
elmo probe pos ud_ewt/, elmo probe wsd semcor.jsonl Evaluation_Datasets/.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from published_probes import POS_LAYERS, POS_SOURCE, WSD_LAYERS, WSD_SETS, WSD_SOURCE

import elmokit
from elmokit.cli.progress import step_bar
from elmokit.embed.layer_choice import LayerChoice
from elmokit.embed.static import GLOVE, StaticVectors, load_static
from elmokit.probes.conllu import Treebank, read_treebank
from elmokit.probes.pos import Correct, PosResult, collect_words, measure_pos
from elmokit.probes.raganato import read_sets
from elmokit.probes.reports import json_values
from elmokit.probes.statistics import difference
from elmokit.probes.wordnet import read_semcor, read_wordnet
from elmokit.probes.wsd import measure_wsd
from elmokit.progress import plural


def main() -> None:
    """Run the requested probes, then write the page from all available results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", help="path or name; default: the bundled model")
    parser.add_argument("--ud", type=Path, help="directory with *train.conllu, *dev.conllu, ...")
    parser.add_argument("--tags", nargs="+", default=["xpos"], choices=["xpos", "upos"])
    parser.add_argument("--runs", type=int, default=3, help="probes per layer")
    parser.add_argument("--semcor", type=Path, help="SemCor as JSON lines")
    parser.add_argument("--wsd", type=Path, help="Evaluation_Datasets")
    parser.add_argument("--wordnet", type=Path, help="index.sense or its directory")
    parser.add_argument("--layer", nargs="+", default=["all", "average", "concat"])
    parser.add_argument("--static", default=GLOVE)
    parser.add_argument("--state", default="reset", choices=["reset", "warm"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", nargs="+", default=["exact"], choices=["exact", "fast"])
    parser.add_argument("--cache", type=Path, help="directory for the vectors of the treebank")
    parser.add_argument("--out", type=Path, default=Path("results/probes"))
    parser.add_argument("--page", type=Path, default=Path("docs/probes.md"))
    args = parser.parse_args()
    if (args.semcor is None) != (args.wsd is None):
        parser.error("--semcor and --wsd must be used together")
    args.out.mkdir(parents=True, exist_ok=True)
    args.page.parent.mkdir(parents=True, exist_ok=True)

    static = load_static(args.static)
    if args.ud:
        run_pos_probes(args, static)
    if args.semcor:
        run_wsd_probes(args, static)
    results = {
        part: json.loads(file.read_text())
        for part in PARTS
        if (file := results_file(args, part)).exists()
    }
    args.page.write_text("\n".join(page(results)) + "\n", "utf-8")


def results_file(args: argparse.Namespace, part: str) -> Path:
    """Return the results file of a part."""
    return Path(args.out) / f"{part}.json"


def write(args: argparse.Namespace, part: str, **results: list[dict[str, Any]]) -> None:
    """Write the results of a part and keep those of other runs."""
    file = results_file(args, part)
    old = json.loads(file.read_text()) if file.exists() else {}
    values = dict(old)
    for kind, items in results.items():
        new_names = {item["name"] for item in items}
        kept = [item for item in old.get(kind, []) if item["name"] not in new_names]
        values[kind] = [*kept, *items]
    file.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", "utf-8")


def load(args: argparse.Namespace, precision: str) -> elmokit.ElmoModel:
    """Load the model in a precision."""
    return elmokit.load(args.model, device=args.device, precision=precision)


def state_suffix(args: argparse.Namespace) -> str:
    """Return the suffix of a run's name for a state other than the default."""
    return "" if args.state == "reset" else f", state {args.state}"


def run_metadata(args: argparse.Namespace, elmo: elmokit.ElmoModel) -> dict[str, Any]:
    """Return the command, model, settings and machine of a run."""
    arguments = [Path(a).name if "/" in a else a for a in sys.argv[1:]]
    gpu = f"one {torch.cuda.get_device_name()}, " if elmo.device.type == "cuda" else ""
    return {
        "command": " ".join(["python recipes/probes.py", *arguments]),
        "model": elmo.metadata.get("name") or Path(elmo.source or "model").name,
        "shape": f"{elmo.config.n_layers} layers of {elmo.config.output_dim}",
        "precision": elmo.precision,
        "state": args.state,
        "static": args.static if args.static == GLOVE else Path(args.static).name,
        "machine": f"{gpu}{os.cpu_count()} CPU cores, {platform.machine()}, "
        f"Python {platform.python_version()}, torch {torch.__version__}",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "seed": args.seed,
    }


# ---------------------------------------------------------------------------------------- measuring


def run_pos_probes(args: argparse.Namespace, static: StaticVectors) -> None:
    """Probe for parts of speech with each tag set and precision. Write the results of each run."""
    costs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        args.cache = args.cache or temporary
        correct: dict[str, Correct] = {}
        for precision in args.precision:
            elmo = load(args, precision)
            for tags in args.tags:
                treebank = read_treebank(args.ud, tags)
                run, by_name = run_pos_probe(args, elmo, treebank, tags, static)
                write(args, "pos", runs=[run])
                correct |= {
                    f"{tags}, {name}, {precision}": array for name, array in by_name.items()
                }
        for tags in args.tags if len(args.precision) == 2 else ():
            treebank = read_treebank(args.ud, tags)
            words = collect_words(treebank)
            clusters = words.clusters[words.rows[2]]
            for name in (c.label for c in LayerChoice.parse_all(args.layer, elmo.config.n_layers)):
                pair = (f"{tags}, {name}, fast", f"{tags}, {name}, exact")
                cost = difference(correct, clusters, *pair, seed=args.seed)
                assert cost is not None
                costs.append({"name": f"{tags}, {name}", **json_values(cost)})
    if costs:
        write(args, "pos", fast_less_exact=costs)


def run_pos_probe(
    args: argparse.Namespace,
    elmo: elmokit.ElmoModel,
    treebank: Treebank,
    tags: str,
    static: StaticVectors,
) -> tuple[dict[str, Any], dict[str, Correct]]:
    """Run a probe. Return its results, and whether it tagged each word correctly, by layer."""
    correct: dict[str, Correct] = {}
    with step_bar(enabled=True) as progress:

        def on_result(result: PosResult, is_correct: Correct) -> None:
            correct[result.name] = is_correct
            print(f"{result.name}: {result.accuracy:.2%}", file=sys.stderr)  # noqa: T201

        report = measure_pos(
            elmo,
            treebank,
            tags=tags,
            layer=args.layer,
            static=static,
            state=args.state,
            seeds=range(args.seed, args.seed + args.runs),
            cache=args.cache,
            progress=progress,
            on_result=on_result,
        )
    name = f"{tags.upper()}, precision {elmo.precision}{state_suffix(args)}"
    return {"name": name, **run_metadata(args, elmo), **json_values(report)}, correct


def run_wsd_probes(args: argparse.Namespace, static: StaticVectors) -> None:
    """Probe for word senses in each precision. Write the results of each run."""
    wordnet = read_wordnet(args.wordnet)
    sets = read_sets(args.wsd)
    training = read_semcor(args.semcor)
    for precision in args.precision:
        elmo = load(args, precision)
        with step_bar(enabled=True) as progress:
            report = measure_wsd(
                elmo,
                training,
                sets,
                wordnet,
                layer=args.layer,
                static=static,
                state=args.state,
                seed=args.seed,
                progress=progress,
            )
        name = f"Precision {precision}{state_suffix(args)}"
        run = {"name": name, **run_metadata(args, elmo), **json_values(report)}
        write(args, "wsd", runs=[run])


# ----------------------------------------------------------------------------------------- the page

PARTS = ("pos", "wsd")


def page(results: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the page."""
    yield "# Probes: syntax and word senses"
    yield ""
    yield "For a summary, see [what each layer knows](explanation/what-each-layer-knows.md)."
    yield "This page is generated by `recipes/probes.py` from `results/probes/*.json`."
    if "pos" in results:
        yield from pos_page(results["pos"])
    if "wsd" in results:
        yield from wsd_page(results["wsd"])


def provenance(run: dict[str, Any]) -> str:
    """Return a line with the model, the machine and the command that produced a table."""
    return (
        f"Model: {run['model']} ({run['shape']}, state {run['state']}). Machine: "
        f"{run['machine']}. Date: {run['date']}. Command: `{run['command']}`"
    )


def pos_page(values: dict[str, Any]) -> Iterator[str]:
    """Yield the section on parts of speech."""
    yield "\n## Parts of speech: linear probes\n"
    yield (
        "The probe is a softmax regression on the frozen vectors of the words in UD EWT. The words "
        "are syntactic words, so that \"didn't\" is split into `did` and `n't`. The results for "
        "Penn Treebank tags (XPOS) can be compared with the paper. The 95% confidence intervals "
        "are computed with a bootstrap over sentences. The standard deviations are computed over "
        "seeds."
    )
    for run in sorted(values["runs"], key=lambda run: run["tags"], reverse=True):  # XPOS first
        train, dev, test = run["words"]
        n_seeds = len(run["results"][-1]["by_seed"])
        yield (
            f"\n### {run['name']}\n\nThe data has {run['classes']} tags, {train:,} training "
            f"words, {dev:,} words for early stopping and {test:,} test words. Of the test words, "
            f"{run['unseen']:,} do not occur in the training data. For each layer, we trained "
            f"one probe per seed ({plural(n_seeds, 'seed')}).\n"
        )
        rows = []
        for result in run["results"]:
            low, high = result["interval"]
            published = POS_LAYERS.get(result["name"]) if run["tags"] == "xpos" else None
            paper_and_cove = ["", ""] if published is None else [f"{p:.1f}" for p in published]
            accuracy = f"{100 * result['accuracy']:.2f} ({100 * low:.2f} to {100 * high:.2f})"
            rows.append(
                [
                    result["name"],
                    accuracy,
                    deviation(result["by_seed"]),
                    f"{100 * result['unseen']:.2f}" if result["unseen"] is not None else "-",
                    *paper_and_cove,
                ]
            )
        titles = ["Vectors", "Accuracy", "Std. dev.", "Unseen words", "Paper (PTB)", "CoVe (PTB)"]
        yield from table(titles, rows)
        yield from layer_difference(run, "+0.5" if run["tags"] == "xpos" else None)
        yield f"\n{provenance(run)}"
    if values.get("fast_less_exact"):
        yield '\n### Accuracy loss with `precision="fast"`\n'
        rows = []
        for cost in values["fast_less_exact"]:
            tags, name = cost["name"].split(", ")
            low, high = cost["interval"]
            interval = f"{100 * low:+.2f} to {100 * high:+.2f}"
            rows.append([tags.upper(), name, f"{100 * cost['value']:+.2f}", interval])
        yield from table(["Tags", "Vectors", "fast - exact", "95% interval"], rows)
    yield f"\n{POS_SOURCE}"


def deviation(by_seed: list[float]) -> str:
    """Return the standard deviation over seeds, in percent."""
    if len(by_seed) < 2:
        return ""
    mean = sum(by_seed) / len(by_seed)
    return f"{100 * (sum((a - mean) ** 2 for a in by_seed) / (len(by_seed) - 1)) ** 0.5:.2f}"


def layer_difference(run: dict[str, Any], in_the_paper: str | None) -> Iterator[str]:
    """Yield a line on the difference between the two layers that the paper compares."""
    if run["difference"] is not None:
        difference = run["difference"]
        low, high = difference["interval"]
        paper = "" if in_the_paper is None else f" In the paper, it is {in_the_paper}."
        yield (
            f"\nThe difference between {difference['first']} and {difference['second']} is "
            f"**{100 * difference['value']:+.2f}** (95% interval {100 * low:+.2f} to "
            f"{100 * high:+.2f}).{paper}"
        )


def wsd_page(values: dict[str, Any]) -> Iterator[str]:
    """Yield the section on word senses."""
    yield "\n## Word senses: nearest sense vectors\n"
    yield (
        "Among the senses of its lemma and part of speech, each word gets the sense whose mean "
        "vector in SemCor 3.0 is nearest by cosine similarity. Lemmas that do not occur in SemCor "
        "get WordNet's first sense. If a use in SemCor is annotated with several senses, it "
        "counts for each of them. The vector of a multiword expression is the mean over its "
        "words. The score is F1 on the test sets of Raganato et al. (2017), computed as by their "
        "scorer. The 95% confidence intervals are for the last test set and are computed with a "
        "bootstrap over sentences."
    )
    for run in values["runs"]:
        sets = list(run["instances"])
        last = sets[-1]
        yield (
            f"\n### {run['name']}\n\nThere are {run['senses']:,} senses from {run['uses']:,} "
            f"uses. Of these uses, {run['alternatives']:,} have several senses. We skipped "
            f"{run['unknown']:,} sense keys that are not in WordNet 3.0. Of the "
            f"{run['instances'][last]:,} instances in {last}, {run['backed_off'][last]:,} back off "
            f"to the first sense, and {run['unanswered'][last]:,} get no sense.\n"
        )
        rows = []
        for result in run["results"]:
            low, high = result["interval"]
            published = WSD_LAYERS.get(result["name"])
            paper_and_cove = ["", ""] if published is None else [f"{p:.1f}" for p in published]
            f1 = [f"{100 * result['f1'][name]:.1f}" for name in sets]
            rows.append(
                [result["name"], *f1, f"{100 * low:.1f} to {100 * high:.1f}", *paper_and_cove]
            )
        for name, scores in WSD_SETS.items():
            cells = [f"{scores[s]:.1f}" if s in scores else "" for s in sets]
            rows.append([f"*published: {name}*", *cells, "", "", ""])
        yield from table(["Vectors", *sets, "95% interval", "Paper, ALL", "CoVe, ALL"], rows)
        yield from layer_difference(run, "+1.6")
        pos = list(run["results"][0]["by_pos"])
        yield f"\nF1 by part of speech on {last}:\n"
        yield from table(
            ["Vectors", *pos],
            [[r["name"], *(f"{100 * r['by_pos'][p]:.1f}" for p in pos)] for r in run["results"]],
        )
        yield f"\n{provenance(run)}"
    first = values["runs"][0]["results"][0]["f1"]
    theirs = WSD_SETS["first sense of WordNet (Raganato et al. 2017)"]
    if all(round(100 * first[name], 1) == theirs.get(name) for name in first):
        yield (
            "\nOn every test set, our first-sense baseline is equal to that of Raganato et al. "
            "Peters et al. report 65.9 for ALL, and we do not know how they computed it. Our "
            "most-frequent-sense baseline breaks ties by WordNet's order, which may explain why it "
            "is slightly better than that of Raganato et al."
        )
    yield f"\n{WSD_SOURCE}"


def table(titles: list[str], rows: list[list[str]]) -> Iterator[str]:
    """Yield a Markdown table."""
    yield f"| {' | '.join(titles)} |"
    yield "|" + "---|" * len(titles)
    for row in rows:
        yield f"| {' | '.join(row)} |"


if __name__ == "__main__":
    main()
