"""What several workers gain on one machine: `elmo embed` with `--workers 1`, 2, ... in turn.

    python benchmarks/workers.py TEXT [--workers 1,2] [--rounds 3] [--out results/workers.json]

Every round runs each number of workers once, so that what else the machine does falls on all of
them alike. It is measured, too: the share of the processors that others used meanwhile. A result is
written only if that share stays below `--others`; a ratio between runs that were disturbed would
say more about the neighbors than about the workers.
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

START = [sys.executable, "-c", "from elmokit.cli.main import run; run()"]


def busy_seconds() -> float:
    """Return the CPU seconds that all processes of the machine have used."""
    user, nice, system, _, _, *rest = (
        int(n) for n in Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    )
    return (user + nice + system + sum(rest[:3])) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """Return the CPU seconds of the commands that have ended, and of this process."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def measure(text: Path, n_workers: int, options: list[str]) -> dict[str, Any]:
    """Embed the text once."""
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "vectors.npz")
        work = ["embed", str(text), "-o", out, "--workers", str(n_workers), "--json", "-q"]
        before, own, busy = time.monotonic(), own_seconds(), busy_seconds()
        done = subprocess.run([*START, *work, *options], capture_output=True, text=True, check=True)
        seconds = time.monotonic() - before
        others = (busy_seconds() - busy) - (own_seconds() - own)
    told = json.loads(done.stdout)
    return {
        "workers": n_workers,
        "tokens": told["tokens"],
        "tokens_per_second": told["tokens_per_second"],
        "seconds_with_start": round(seconds, 1),
        "others": round(max(0.0, others) / (seconds * (os.cpu_count() or 1)), 3),
    }


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("text", type=Path)
    arguments.add_argument("--workers", default="1,2", help="numbers of workers to compare")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--others", type=float, default=0.1, help="share that others may use")
    arguments.add_argument("--out", type=Path)
    given, options = arguments.parse_known_args()
    numbers = [int(n) for n in given.workers.split(",")]
    load = os.getloadavg()
    runs = []
    for number in range(given.rounds):
        for n in numbers if number % 2 == 0 else numbers[::-1]:
            runs.append(measure(given.text, n, options))
            print(json.dumps(runs[-1]), file=sys.stderr, flush=True)
    speed = {
        n: statistics.median(run["tokens_per_second"] for run in runs if run["workers"] == n)
        for n in numbers
    }
    most = max(run["others"] for run in runs)
    result = {
        "what": "tokens per second of `elmo embed --workers N` with the bundled model, median of "
        "the rounds, all numbers in turn; `others` is the share of the processors that other "
        "processes used meanwhile",
        "command": " ".join(["python benchmarks/workers.py TEXT", *options]),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "load_before": [round(value, 2) for value in load],
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
        "tokens_per_second": {str(n): value for n, value in speed.items()},
        "ratio": {str(n): round(value / speed[numbers[0]], 3) for n, value in speed.items()},
        "others_at_most": most,
        "runs": runs,
    }
    text = json.dumps(result, indent=1) + "\n"
    sys.stdout.write(text)
    if most > given.others:
        sys.exit(
            f"others used up to {most:.0%} of the processors, more than {given.others:.0%}: "
            "nothing is written. Try again when the machine is quiet."
        )
    if given.out:
        given.out.write_text(text)


if __name__ == "__main__":
    main()
