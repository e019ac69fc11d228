"""Store results of elmokit, or compare them with the results stored before a refactoring.

results/refactoring-baseline.json was written at the commit tagged `before-refactoring`. It holds
vectors, perplexities, substitutes, neighbors, output files, a short training run, a task model and
a probe. A refactoring must not change any of these numbers.

    python recipes/refactoring_baseline.py --check          compare; exit code 1 if anything differs
    python recipes/refactoring_baseline.py                  write the file again
    python recipes/refactoring_baseline.py --only vectors   compute only one section

Hashes of files are stored, too. The metadata in a file may change without changing a vector, so a
different hash is listed, but is an error only with --strict. If you replace a model, check the
code with the old model first, then write the file again.

Everything goes through the public Python API and the command line, in this process and with one
thread. It takes about a minute on one core.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import hashlib
import io
import json
import os
import platform
import random
import runpy
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

import elmokit
from elmokit.progress import plural

ROOT = Path(__file__).resolve().parents[1]
STORED = ROOT / "results" / "refactoring-baseline.json"
TINY = ROOT / "tests" / "models" / "tiny"
MODELS = {"english": "english", "english-original": "english-original", "tiny": str(TINY)}

SENTENCES = [
    "Stop",
    "... !? ( ) -- ''",
    "Das Straßenfest in São Paulo war 日本 genug , сказал он .",
    "She sat on the bank of the river and watched the water .",
    "In 1998 , Dr. Okonkwo-Smith 's team measured 3.75 % more rainfall .",
    "When the old man had read the letter for the third time , he put it down on the table beside "
    "the lamp , looked out of the window at the snow that had begun to fall on the empty road , "
    "and said to nobody in particular that he would leave the house , the garden , and the village "
    "on the next morning , before anyone was awake .",
]
QUERIES = ["They walked along the [bank] of the river .", "The children [play] in the garden ."]

# Relative to the largest number in the compared list.
TOLERANCES = {
    "vectors": 2e-6,
    "fast": 2e-4,
    "perplexity": 1e-4,  # the old float32 softmax was off by 1e-5
    "substitutes": 1e-4,
    "neighbors": 1e-5,
    "files": 2e-6,
    "training": 1e-5,
    "task": 1e-6,
    "probe": 1e-6,
}


# ----------------------------------------------------------------------------------------- helpers


def elmo(*arguments: object) -> str:
    """Run an `elmo` command in this process and return its standard output."""
    out, err = io.StringIO(), io.StringIO()
    argv, show = sys.argv, warnings.showwarning
    sys.argv = ["elmo", *(str(argument) for argument in arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            runpy.run_module("elmokit", run_name="__main__")
    except SystemExit as stop:
        if stop.code:
            raise RuntimeError(
                f"{' '.join(sys.argv)}: exit {stop.code}\n{err.getvalue()}"
            ) from None
    finally:
        sys.argv, warnings.showwarning = argv, show
    return out.getvalue()


def sha256(path: Path) -> str:
    """Hash a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def corpus_lines(n: int) -> list[str]:
    """Return the first sentences of the example corpus, one per line."""
    text = (ROOT / "examples" / "corpus.txt").read_text("utf-8")
    return text.replace("\n\n", "\n").replace(". ", ".\n").split("\n")[:n]


def numbers(values: Any) -> list[Any]:
    """Return an array as lists of floats with nine digits, enough to identify each float32."""

    def rounded(value: Any) -> Any:
        return [rounded(v) for v in value] if isinstance(value, list) else float(f"{value:.9g}")

    result: list[Any] = rounded(np.asarray(values, dtype=np.float64).tolist())
    return result


# ---------------------------------------------------------------------------------------- sections


def summary(layers: np.ndarray) -> dict[str, Any]:
    """Reduce h_{k,j} of a sentence, (L + 1, T, 2D), to the stored values."""
    half = layers.shape[2] // 2
    tokens = sorted({0, layers.shape[1] // 2, layers.shape[1] - 1})
    selected = layers[:, tokens]
    wide = layers.astype(np.float64)
    return {
        "shape": list(layers.shape),
        "tokens": tokens,
        # Four dimensions of the forward LM, four of the backward LM.
        "first": numbers(
            np.concatenate([selected[..., :4], selected[..., half : half + 4]], axis=-1)
        ),
        "norms": numbers(np.linalg.norm(selected, axis=-1)),
        "layer_norms": numbers(np.sqrt((wide**2).sum(axis=(1, 2)))),
    }


def vectors() -> dict[str, Any]:
    """Embed the sentences with each model, from each state."""
    models = {name: elmokit.load(path, device="cpu") for name, path in MODELS.items()}
    return {name: vectors_of(model) for name, model in models.items()}


def vectors_of(model: elmokit.ElmoModel) -> dict[str, Any]:
    """Embed the sentences from each state. Models without a warm state have only two states."""
    states = ("reset", "carry") if model.warm is None else ("reset", "warm", "carry")
    return {
        state: [summary(vectors.layers) for vectors in model.embed(SENTENCES, state)]
        for state in states
    }


def fast() -> dict[str, Any]:
    """Compare fast vectors with exact ones by cosine, for each layer."""
    result: dict[str, Any] = {}
    for name, model_path in MODELS.items():
        exact = elmokit.load(model_path, device="cpu").embed(SENTENCES)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # without int8 instructions, fast is the same as exact
            rounded = elmokit.load(model_path, device="cpu", precision="fast").embed(SENTENCES)
        cosines = []
        for a, b in zip(exact, rounded, strict=True):
            norms = np.linalg.norm(a.layers, axis=-1) * np.linalg.norm(b.layers, axis=-1)
            cosines.append((a.layers * b.layers).sum(axis=-1) / norms)
        joined = np.concatenate(cosines, axis=1)
        result[name] = {
            "mean_cosine": numbers(joined.mean(axis=1)),
            "min_cosine": numbers(joined.min(axis=1)),
        }
    return result


def perplexity(folder: Path) -> dict[str, Any]:
    """Measure the perplexity of the bundled model on a running text and on single sentences."""
    text = folder / "running.txt"
    text.write_text(" ".join(corpus_lines(8)) + "\n", "utf-8")
    directions = ("forward", "backward", "mean", "known")
    measured = json.loads(elmo("perplexity", text, "--state", "all", *JSON_ON_CPU, "-q"))
    result: dict[str, Any] = {
        "running": {
            values["state"]: {
                "perplexity": numbers([values[key] for key in directions]),
                "tokens": [values["targets"], values["unknown"]],
            }
            for values in measured
        }
    }
    sentences = folder / "sentences.txt"
    sentences.write_text("\n".join(SENTENCES) + "\n", "utf-8")
    for state in ("reset", "warm"):
        lines = elmo("score", sentences, "--state", state, *JSON_ON_CPU).splitlines()
        keys = ("forward_perplexity", "backward_perplexity", "perplexity")
        result[f"score_{state}"] = [
            numbers([json.loads(line)[key] for key in keys]) for line in lines
        ]
    return result


JSON_ON_CPU = ("--json", "--device", "cpu")


def substitutes() -> dict[str, Any]:
    """List the words that the language models expect."""
    result: dict[str, Any] = {}
    for query in QUERIES:
        lists = json.loads(elmo("substitutes", query, "-k", 5, *JSON_ON_CPU))
        result[query] = {
            key: {c["word"]: float(f"{c['probability']:.9g}") for c in lists[key]}
            for key in ("forward", "backward", "combined")
        }
    return result


def neighbors(folder: Path) -> dict[str, Any]:
    """Search the nearest tokens of a text, without an index."""
    text = folder / "searched.txt"
    sentences = (ROOT / "examples" / "sentences.txt").read_text("utf-8").splitlines()
    text.write_text("\n".join([*sentences, *corpus_lines(30)]) + "\n", "utf-8")
    options = [part for query in QUERIES for part in ("--query", query)]
    lines = elmo("neighbors", text, *options, "-k", 4, *JSON_ON_CPU, "-q").splitlines()
    result: dict[str, Any] = {}
    for query, line in zip(QUERIES, lines, strict=True):
        result[query] = {
            layer: [
                [n["word"], n["position"], n["where"].rpartition(":")[2], float(n["score"])]
                for n in nearest
            ]
            for layer, nearest in json.loads(line)["neighbors"].items()
        }
    return result


def files(folder: Path) -> dict[str, Any]:
    """Write vector files in every format with every layer choice, and prepare a corpus."""
    text = folder / "lines.txt"
    text.write_text("\n".join(["", *corpus_lines(200)]) + "\n", "utf-8")
    shutil.copytree(TINY, folder / "tiny")
    runs: dict[str, tuple[str, list[object]]] = {}
    for suffix in ("h5", "npz", "safetensors", "parquet"):
        for layers in ("all", "top", "average", "mix"):
            mix = ["--mix", "0.2,0.3,0.5", "--gamma", 2] if layers == "mix" else []
            runs[f"{layers}.{suffix}"] = (f"{layers}.{suffix}", ["--layer", layers, *mix])
    runs["float16.h5"] = ("float16.h5", ["--dtype", "float16"])
    runs["carry.h5"] = ("carry.h5", ["--state", "carry", "--rows", 3])
    runs["shards"] = ("shards", ["--chunk-bytes", 8192])
    result: dict[str, Any] = {}
    for name, (out, options) in runs.items():
        path = folder / out
        with contextlib.chdir(folder):  # files contain the paths of their inputs
            elmo(
                "embed", text.name, "-o", out, "--model", "tiny", "--device", "cpu", "-q", *options
            )
        result[name] = stored_vectors(path)
        if path.is_file():
            result[name]["sha256"] = sha256(path)
    prepared = folder / "prepared"
    source = ROOT / "examples" / "corpus.txt"
    elmo("prepare", source, "-o", prepared, "--valid", 0.05, "--workers", 1, "-q")
    result["prepare"] = {
        "sha256": {path.name: sha256(path) for path in sorted(prepared.iterdir())},
        "bytes": {path.name: path.stat().st_size for path in sorted(prepared.glob("*.bin"))},
        "vocabulary": len((prepared / "vocab.txt").read_text("utf-8").splitlines()),
    }
    return result


def stored_vectors(path: Path) -> dict[str, Any]:
    """Return the numbers of sentences and tokens in a vector file, and parts of three sentences."""
    with contextlib.closing(elmokit.open_vectors(path)) as stored:
        sentences = [(list(sentence.tokens), np.asarray(sentence.vectors)) for sentence in stored]
    tokens = [len(words) for words, _ in sentences]
    result: dict[str, Any] = {"sentences": len(sentences), "tokens": sum(tokens)}
    for i in (1, len(sentences) // 2, len(sentences) - 1):
        words, layers = sentences[i]
        result[f"sentence {i}"] = {
            "first_token": words[0],
            "shape": list(layers.shape),
            "first": numbers(layers.reshape(-1)[:8]),
            "last": numbers(layers.reshape(-1)[-8:]),
        }
    return result


def training(folder: Path) -> dict[str, Any]:
    """Train a toy model for 20 steps and evaluate it from each state."""
    data, run = folder / "data", folder / "run"
    source = ROOT / "examples" / "corpus.txt"
    elmo("prepare", source, "-o", data, "--valid", 0.05, "--workers", 1, "-q")
    sizes = ("lstm.dim=64", "lstm.projection_dim=16", "step.negatives=128", "log_every=5")
    changes = [part for size in sizes for part in ("--set", size)]
    elmo(
        *("train", data, "-o", run, "--max-steps", 20, "--set", "checkpoint_every=10", "--seed", 1),
        *("--device", "cpu", "-q", "--warm-state", *changes),
    )
    log = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    measured = json.loads(
        elmo("perplexity", data, "--model", run / "model", "--state", "all", *JSON_ON_CPU)
    )
    vector = elmokit.load(run / "model", device="cpu").embed([SENTENCES[3]], "warm")[0]
    return {
        "losses": [
            numbers([entry["sampled_loss_forward"], entry["sampled_loss_backward"]])
            for entry in log
            if "sampled_loss_forward" in entry
        ],
        "perplexity": {m["state"]: numbers([m["forward"], m["backward"]]) for m in measured},
        "vectors": summary(vector.layers),
        "sha256": {p.name: sha256(p) for p in sorted((run / "model").glob("*.safetensors"))},
    }


def synthetic_sentence(rng: random.Random) -> list[tuple[str, str]]:
    """Return words with tags: people meet people in places."""
    names = ["Ann", "Bob", "Carla", "Dave", "Smith", "Jones"]
    rows = [(rng.choice(names), "B-PER")]
    if rng.random() < 0.4:
        rows.append((rng.choice(names), "I-PER"))
    rows.append((rng.choice(["saw", "met", "left", "may"]), "O"))
    rows.append((rng.choice([*names, "May", "Paris"]), "B-PER"))
    if rng.random() < 0.6:
        rows += [("in", "O"), (rng.choice(["Paris", "Oslo", "May", "Smith"]), "B-LOC")]
    return [*rows, (".", "O")]


def synthetic_data(path: Path, n: int, seed: int, line: str) -> Path:
    """Write sentences, one word per line in the given form."""
    rng = random.Random(seed)
    blocks = [
        "".join(
            line.format(i=i, word=word, tag=tag) + "\n"
            for i, (word, tag) in enumerate(synthetic_sentence(rng), 1)
        )
        for _ in range(n)
    ]
    path.write_text("\n".join(blocks) + "\n", "utf-8")
    return path


def task(folder: Path) -> dict[str, Any]:
    """Train an entity tagger on 100 made-up sentences for two epochs."""
    column = "{word} x {tag}"
    train = synthetic_data(folder / "ner-train.txt", 100, 1, column)
    dev = synthetic_data(folder / "ner-dev.txt", 40, 2, column)
    settings = (
        *("static.source=none", "static.dim=16", "model.char_dim=8", "model.char_filters=16"),
        *("model.hidden=24", "model.layers=1", "train.batch_size=16", "train.learning_rate=0.01"),
        *("train.epochs=2",),
    )
    changes = [part for setting in settings for part in ("--set", setting)]
    run = folder / "ner"
    scores = json.loads(
        elmo(
            *("task", "ner", "train", train, dev, dev, "-o", run, "--model", TINY, "--seed", 3),
            *("--cache-dir", folder / "cache", "-q", *JSON_ON_CPU, *changes),
        )
    )
    predicted = elmo("task", "ner", "predict", run, dev, "--input", "conll", "--device", "cpu")
    return {
        "dev": numbers(scores["dev"]["f1"]),
        "test": numbers(scores["test"]["f1"]),
        "predictions": hashlib.sha256(predicted.encode()).hexdigest(),
        "first_predictions": predicted.splitlines()[:8],
    }


def probe(folder: Path) -> dict[str, Any]:
    """Probe the layers of the tiny model for the tags of the same sentences."""
    row = "{i}\t{word}\t_\t{tag}\t{tag}\t_\t0\t_\t_\t_"
    parts = {"train": 100, "dev": 30, "test": 30}
    for seed, (part, n) in enumerate(parts.items(), 1):
        synthetic_data(folder / f"{part}.conllu", n, seed, row)
    options = ("--model", TINY, "--max-epochs", 5, *JSON_ON_CPU, "-q")
    report = elmo("probe", "pos", folder, *options)
    results = json.loads(report)["results"]
    return {result["name"]: numbers(result["accuracy"]) for result in results}


def sections(folder: Path) -> dict[str, Callable[[], dict[str, Any]]]:
    """Return the functions that compute the sections, by name."""
    return {
        "vectors": vectors,
        "fast": fast,
        "perplexity": lambda: perplexity(folder),
        "substitutes": substitutes,
        "neighbors": lambda: neighbors(folder),
        "files": lambda: files(folder),
        "training": lambda: training(folder),
        "task": lambda: task(folder),
        "probe": lambda: probe(folder),
    }


# -------------------------------------------------------------------------------------- comparison


def differences(name: str, stored: Any, now: Any) -> list[tuple[str, str, str, str]]:
    """Compare a section: (place, stored, now, difference) for all values outside the tolerance."""
    return list(_differences(name, stored, now, TOLERANCES[name.split("/")[0]]))


def _differences(
    place: str, stored: Any, now: Any, tolerance: float
) -> Iterator[tuple[str, str, str, str]]:
    if isinstance(stored, dict) and isinstance(now, dict):
        for key in [*stored, *(key for key in now if key not in stored)]:
            if key in stored and key in now:
                yield from _differences(f"{place}/{key}", stored[key], now[key], tolerance)
            else:
                yield f"{place}/{key}", _short(stored.get(key)), _short(now.get(key)), "missing"
    elif _is_numeric(stored) and _is_numeric(now):
        a, b = np.asarray(stored, dtype=float), np.asarray(now, dtype=float)
        if a.shape != b.shape:
            yield place, f"shape {a.shape}", f"shape {b.shape}", "shape"
            return
        # The cosine of fast vectors may rise: on a CPU without int8 instructions it is 1.
        error = np.maximum(a - b, 0) if place.startswith("fast/") else np.abs(a - b)
        relative = error / (np.abs(a).max(initial=0.0) or 1.0)
        if not relative.max(initial=0.0) <= tolerance:
            worst = int(np.argmax(relative))
            pair = (f"{a.reshape(-1)[worst]:.9g}", f"{b.reshape(-1)[worst]:.9g}")
            yield place, *pair, f"{relative.reshape(-1)[worst]:.1e}"
    elif isinstance(stored, list) and isinstance(now, list) and len(stored) == len(now):
        for i, (a, b) in enumerate(zip(stored, now, strict=True)):
            yield from _differences(f"{place}[{i}]", a, b, tolerance)
    elif stored != now:
        yield place, _short(stored), _short(now), "hash" if "sha256" in place else "value"


def _is_numeric(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(_is_numeric(item) for item in value)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _short(value: Any) -> str:
    return str(value)[:32]


# --------------------------------------------------------------------------------------------- run


def environment() -> dict[str, Any]:
    """Describe the code and the machine."""

    def git(*arguments: str) -> str:
        completed = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
        )
        return completed.stdout.strip()

    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    return {
        "command": "python recipes/refactoring_baseline.py",
        "commit": git("log", "-1", "--format=%H", "--", "src"),  # the last one that changed src/
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "cpu": names[0] if names else platform.processor(),
        "vnni": any("vnni" in flag for flag in flags),
        "weights": {
            "english": sha256(ROOT / "src/elmokit/models/english/model.safetensors"),
            "english-original": sha256(ROOT / "weights/english-original/model.safetensors"),
            "tiny": sha256(TINY / "model.safetensors"),
        },
    }


def measure(names: list[str]) -> dict[str, Any]:
    """Compute the named sections."""
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, section in sections(Path(folder)).items():
            if name in names:
                started = datetime.datetime.now(datetime.UTC)
                result[name] = section()
                seconds = (datetime.datetime.now(datetime.UTC) - started).total_seconds()
                sys.stderr.write(f"{name}: {seconds:.1f} s\n")
    return result


def check(stored: dict[str, Any], now: dict[str, Any], *, strict: bool) -> bool:
    """Print the differences. Return whether all values are within tolerance."""
    rows = [row for name in now for row in differences(name, stored["sections"][name], now[name])]
    width = max((len(row[0]) for row in rows), default=0)
    for place, before, after, kind in rows:
        sys.stdout.write(f"{place:<{width}}  {before} -> {after}  ({kind})\n")
    hashes = sum(kind == "hash" for *_, kind in rows)
    weights = environment()["weights"]
    for name, digest in stored["environment"]["weights"].items():
        if weights[name] != digest:
            sys.stdout.write(f"The weights of {name} differ from the stored weights.\n")
    commit = stored["environment"]["commit"][:7]
    sys.stdout.write(
        f"{plural(len(now), 'section')} compared with commit {commit}: "
        f"{len(rows) - hashes} values and {hashes} hashes of files differ\n"
    )
    return not rows if strict else len(rows) == hashes


def main() -> int:
    """Write the results file, or compare with it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="compare with the stored file")
    parser.add_argument("--strict", action="store_true", help="treat a different hash as an error")
    parser.add_argument(
        "--only",
        action="append",
        choices=list(TOLERANCES),
        help="compute only this section; can be repeated",
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    now = measure(options.only or list(TOLERANCES))
    stored = json.loads(STORED.read_text("utf-8")) if STORED.exists() else {"sections": {}}
    if options.check:
        return 0 if check(stored, now, strict=options.strict) else 1
    result = {"environment": environment(), "sections": stored["sections"] | now}
    STORED.write_text(json.dumps(result, ensure_ascii=False, indent=0) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
