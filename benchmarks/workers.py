"""Measure the speedup of `elmo embed` with several workers on one machine.

    python benchmarks/workers.py TEXT [--workers 1,2] [--rounds 3] [--out results/workers.json]

Every round runs each number of workers once, so that other processes on the machine affect all of
them. The benchmark also measures the fraction of the CPU time that other processes use. It writes
the results only if this fraction is below `--others`, because the ratios would otherwise be
unreliable.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-c", "from elmokit.cli.main import run; run()"]


def busy_seconds() -> float:
    """Return the CPU seconds used by all processes on the machine."""
    user, nice, system, _, _, *rest = (
        int(n) for n in Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    )
    return (user + nice + system + sum(rest[:3])) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """Return the CPU seconds used by this process and its finished child processes."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def measure(text: Path, n_workers: int, options: list[str]) -> dict[str, Any]:
    """Embed the text once and return the speed."""
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "vectors.npz")
        arguments = ["embed", str(text), "-o", out, "--workers", str(n_workers), "--json", "-q"]
        before, own, busy = time.monotonic(), own_seconds(), busy_seconds()
        completed = subprocess.run(
            [*COMMAND, *arguments, *options], capture_output=True, text=True, check=True
        )
        seconds = time.monotonic() - before
        others = (busy_seconds() - busy) - (own_seconds() - own)
    summary = json.loads(completed.stdout)
    return {
        "workers": n_workers,
        "tokens": summary["tokens"],
        "tokens_per_second": summary["tokens_per_second"],
        "seconds_with_start": round(seconds, 1),
        "others": round(max(0.0, others) / (seconds * (os.cpu_count() or 1)), 3),
    }


def main() -> None:
    """Run the benchmark and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=Path)
    parser.add_argument("--workers", default="1,2", help="numbers of workers to compare")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--others",
        type=float,
        default=0.1,
        help="maximum fraction of the CPU time that other processes may use",
    )
    parser.add_argument("--out", type=Path)
    settings, options = parser.parse_known_args()
    numbers = [int(n) for n in settings.workers.split(",")]
    load = os.getloadavg()
    runs = []
    for number in range(settings.rounds):
        for n in numbers if number % 2 == 0 else numbers[::-1]:
            runs.append(measure(settings.text, n, options))
            print(json.dumps(runs[-1]), file=sys.stderr, flush=True)
    speed = {
        n: statistics.median(run["tokens_per_second"] for run in runs if run["workers"] == n)
        for n in numbers
    }
    max_others = max(run["others"] for run in runs)
    result = {
        "what": "tokens per second of `elmo embed --workers N` with the bundled model, median over "
        "rounds that run each number of workers once; `others` is the fraction of the CPU time "
        "that other processes used",
        "command": " ".join(["python benchmarks/workers.py TEXT", *options]),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "load_before": [round(value, 2) for value in load],
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
        "tokens_per_second": {str(n): value for n, value in speed.items()},
        "ratio": {str(n): round(value / speed[numbers[0]], 3) for n, value in speed.items()},
        "others_at_most": max_others,
        "runs": runs,
    }
    text = json.dumps(result, indent=1) + "\n"
    sys.stdout.write(text)
    if max_others > settings.others:
        sys.exit(
            f"Other processes used up to {max_others:.0%} of the CPU time, more than "
            f"{settings.others:.0%}. The results were not written. Repeat the benchmark on an idle "
            "machine."
        )
    if settings.out:
        settings.out.write_text(text)


if __name__ == "__main__":
    main()
