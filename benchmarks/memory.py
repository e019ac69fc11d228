"""Measure the peak memory of `elmo embed` for texts of different sizes.

    python benchmarks/memory.py TEXT [--tokens 100000,1000000] [--model MODEL] [EMBED OPTIONS]

TEXT has one sentence per line. If it is shorter than the largest size, it is repeated. Each text is
embedded twice, to a directory of shards and to an HDF5 file, each time by a new process. Writes
results/memory.json, where each model has one entry.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from itertools import cycle
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-c", "from elmokit.cli.main import run; run()", "embed"]
OUTPUTS = {"directory of shards": "vectors", "HDF5 file": "vectors.h5"}


def write_text(source: Path, target: Path, n_tokens: int) -> None:
    """Write the first lines of a text, repeated if necessary, up to a number of tokens."""
    lines = [line for line in source.read_text("utf-8").splitlines() if line.strip()]
    tokens = 0
    with target.open("w", encoding="utf-8") as file:
        for line in cycle(lines):
            if tokens >= n_tokens:
                return
            file.write(f"{line}\n")
            tokens += len(line.split())


def measure(text: Path, output: Path, options: list[str]) -> dict[str, Any]:
    """Embed a text in a new process and return its token count, time and peak memory."""
    command = [*COMMAND, str(text), "-o", str(output), "--json", "--quiet", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    summary = json.loads(process.stdout.read())
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed.")
    return {
        "tokens": summary["tokens"],
        "seconds": round(summary["seconds"], 1),
        "peak_mb": round(usage.ru_maxrss / 1024),
    }


def main() -> None:
    """Run all sizes and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("--tokens", default="100000,1000000", help="sizes, separated by commas")
    parser.add_argument("--model", default="english")
    parser.add_argument("--out", type=Path, default=Path("results/memory.json"))
    args, options = parser.parse_known_args()
    rows = []
    for n_tokens in map(int, args.tokens.split(",")):
        for name, output in OUTPUTS.items():
            with tempfile.TemporaryDirectory() as folder:
                text = Path(folder, "text.txt")
                write_text(args.text, text, n_tokens)
                embed = ["--model", args.model, "--tokenized", *options]
                rows.append({"output": name, **measure(text, Path(folder, output), embed)})
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    results = json.loads(args.out.read_text("utf-8")) if args.out.exists() else {"models": {}}
    results["what"] = "peak resident memory of `elmo embed`, one process, by the size of the text"
    results["models"][Path(args.model).name] = {
        "command": f"python benchmarks/memory.py TEXT --tokens {args.tokens} "
        + " ".join(["--model", Path(args.model).name, *options]),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, shared",
        "runs": rows,
    }
    args.out.write_text(json.dumps(results, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
