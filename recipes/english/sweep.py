"""Select the settings of a long run with short concurrent runs on one GPU, and write a table.

All runs start, and their throughput is measured for a minute. They are then stopped and resumed
from their checkpoints with the number of steps that the time limit allows. Each run is evaluated by
register when it ends. To continue an interrupted sweep, start it again.

Run as: python recipes/english/sweep.py CORPORA -o OUT --minutes 16 --texts valid.txt held/*.txt
        python recipes/english/sweep.py CORPORA -o OUT --table table.json  (only write the table)

CORPORA contains one prepared corpus for each mix of sources: CORPORA/natural, CORPORA/balanced.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tasks"))
from pool import mps, print_line  # noqa: E402

STEPS_FILE = "length.json"
REGISTERS = "registers.json"


@dataclass(frozen=True)
class Run:
    """A run and its differences from the common settings."""

    name: str
    settings: tuple[str, ...] = ()
    corpus: str = "natural"


#: In the first version of `english`, gradients had norms of about 0.25 and spikes of up to 1e8.
COMMON = ("restart=0.5", "optimizer.clip=0.5", "log_every=100", "evaluate_every=0")
COMMON += ("checkpoint_every=0", "keep=1")
#: Most important first. `--runs 6` selects the first six.
RUNS = (
    Run("drop0", ("step.dropout=0",)),
    Run("drop0.1"),
    Run("drop0-linear", ("step.dropout=0", "optimizer.decay=linear", "optimizer.final=0")),
    Run("drop0-lr6", ("step.dropout=0", "optimizer.learning_rate=6e-3")),
    Run("drop0-lr2.5", ("step.dropout=0", "optimizer.learning_rate=2.5e-3")),
    Run("drop0-balanced", ("step.dropout=0",), "balanced"),
    Run("drop0-steps40", ("step.dropout=0", "step.steps=40", "step.rows=512")),
    Run("drop0.05", ("step.dropout=0.05",)),
    Run("drop0-negatives16k", ("step.dropout=0", "step.negatives=16384")),
    Run("drop0-decay", ("step.dropout=0", "optimizer.weight_decay=0.05")),
    Run("drop0.1-clip10", ("optimizer.clip=10",)),
)


class Sweep:
    """The runs of a sweep in an output directory.

    Args:
        runs: The runs.
        args: The command-line arguments.
        environment: The environment variables of the processes.
    """

    def __init__(
        self, runs: list[Run], args: argparse.Namespace, environment: dict[str, str]
    ) -> None:
        self.runs, self.args, self.environment = runs, args, environment

    def folder(self, run: Run) -> Path:
        """Return the directory of a run."""
        return Path(self.args.output) / run.name

    def train_command(self, run: Run, steps: int) -> list[str]:
        """Return the command that starts or resumes a run."""
        command = [sys.executable, "-m", "elmokit", "train", str(self.args.corpora / run.corpus)]
        command += ["-o", str(self.folder(run)), "--preset", self.args.preset, "--resume"]
        command += ["--max-steps", str(steps), "--device", self.args.device]
        for setting in (*COMMON, *run.settings, *self.args.settings):
            command += ["--set", setting]
        return command

    def evaluate_command(self, run: Run) -> list[str]:
        """Return the command that evaluates a run."""
        command = [sys.executable, str(HERE / "registers.py"), str(self.folder(run) / "model")]
        command += [str(self.folder(run) / REGISTERS), *map(str, self.args.texts)]
        return [*command, "--device", self.args.device]

    def start(self, run: Run, command: list[str]) -> subprocess.Popen[bytes]:
        """Start a process in a new session. Its output is appended to RUN.log."""
        with (self.args.output / f"{run.name}.log").open("ab") as log:
            return subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=self.environment,
                start_new_session=True,
            )

    def measure_speed(self) -> float:
        """Start all runs, wait until each has reported its throughput, and return the sum."""
        jobs = [self.start(run, self.train_command(run, 10_000_000)) for run in self.runs]
        end = time.monotonic() + self.args.speed_seconds
        while time.monotonic() < end and any(job.poll() is None for job in jobs):
            if all(
                len(_loss_metrics(self.folder(run))) >= self.args.speed_lines for run in self.runs
            ):
                break
            time.sleep(0.5)
        _stop(jobs)
        last = {run.name: _loss_metrics(self.folder(run))[-1:] for run in self.runs}
        for name, lines in last.items():
            rate = f"{lines[0]['tokens_per_second']:,} tokens/s" if lines else "no metrics yet"
            print_line(f"   {name}: {rate}")
        return float(sum(lines[0]["tokens_per_second"] for lines in last.values() if lines))

    def choose_steps(self, deadline: float) -> int:
        """Return the number of steps of each run, from an earlier start or measured now."""
        path = self.args.output / STEPS_FILE
        if self.args.steps:
            return int(self.args.steps)
        if path.exists():
            return int(json.loads(path.read_text("utf-8"))["steps"])
        speed = self.measure_speed()
        seconds = deadline - time.monotonic() - self.args.reserve_seconds
        steps_so_far = min(
            (_loss_metrics(self.folder(run)) or [{"step": 0}])[-1]["step"] for run in self.runs
        )
        steps = steps_so_far + int(speed * seconds / len(self.runs) / self.args.tokens_per_step)
        steps = max(steps // 100 * 100, self.args.least_steps)
        path.write_text(json.dumps({"steps": steps, "tokens_per_second": speed}) + "\n", "utf-8")
        print_line(f"{speed:,.0f} tokens/s in total, {seconds:.0f} s left: {steps:,} steps each")
        return steps

    def run(self, deadline: float) -> None:
        """Train and evaluate all runs, and stop unfinished runs at the deadline."""
        steps = self.choose_steps(deadline)
        unfinished = [run for run in self.runs if not (self.folder(run) / REGISTERS).exists()]
        jobs = {run: self.start(run, self.train_command(run, steps)) for run in unfinished}
        evaluated: set[Run] = set()
        reported = time.monotonic()
        while jobs and time.monotonic() < deadline:
            for run, job in list(jobs.items()):
                if job.poll() is None:
                    continue
                del jobs[run]
                if job.returncode == 0 and run not in evaluated:
                    evaluated.add(run)
                    jobs[run] = self.start(run, self.evaluate_command(run))
                else:
                    outcome = "failed (see the log)" if job.returncode else "done"
                    print_line(f"{run.name}: {outcome}")
            if time.monotonic() - reported > 20:
                reported = time.monotonic()
                self.report(steps)
            time.sleep(0.5)
        if jobs:
            print_line(f"Time limit reached, stopping {', '.join(run.name for run in jobs)}")
            _stop(list(jobs.values()))

    def report(self, steps: int) -> None:
        """Print the progress of all runs."""
        for run in self.runs:
            lines = _loss_metrics(self.folder(run))
            if lines:
                last = lines[-1]
                print_line(
                    f"   {run.name}: step {last['step']:,}/{steps:,}, loss {_loss(last):.3f}, "
                    f"{last['tokens_per_second']:,} tokens/s"
                )

    def table(self) -> dict[str, Any]:
        """Return the results of all runs."""
        rows = []
        for run in self.runs:
            lines = _loss_metrics(self.folder(run))
            if not lines:
                continue
            row: dict[str, Any] = {"name": run.name, "corpus": run.corpus}
            row |= {"settings": [*COMMON, *run.settings, *self.args.settings]}
            row |= {"steps": lines[-1]["step"], "tokens": lines[-1]["tokens"]}
            row["sampled_loss"] = round(sum(map(_loss, lines[-5:])) / len(lines[-5:]), 4)
            row["largest_gradient_norm"] = max(
                line["gradient_norm"] for line in lines[10:] or lines
            )
            row["median_gradient_norm"] = lines[-1].get("gradient_norm_median")
            row["curve"] = [[line["step"], round(_loss(line), 4)] for line in lines[9::10]]
            path = self.folder(run) / REGISTERS
            if path.exists():
                row["registers"] = json.loads(path.read_text("utf-8"))["registers"]
                row |= _means(row["registers"])
            rows.append(row)
        steps_file = self.args.output / STEPS_FILE
        common = json.loads(steps_file.read_text("utf-8")) if steps_file.exists() else {}
        return {"preset": self.args.preset, **common, "runs": rows}


def _means(registers: dict[str, Any]) -> dict[str, float]:
    """Return the perplexity of valid.txt and the geometric mean of all other registers."""
    values = {}
    for state in ("carry", "reset"):
        perplexities = {name: states[state]["mean"] for name, states in registers.items()}
        if "valid" in perplexities:
            values[f"valid_{state}"] = round(perplexities.pop("valid"), 2)
        if perplexities:
            mean = sum(map(math.log, perplexities.values())) / len(perplexities)
            values[f"registers_{state}"] = round(math.exp(mean), 2)
    return values


def _loss_metrics(folder: Path) -> list[dict[str, Any]]:
    """Return the metrics that contain a training loss."""
    lines = []
    with contextlib.suppress(OSError):
        for text in (folder / "metrics.jsonl").read_text("utf-8").splitlines():
            with contextlib.suppress(ValueError):  # an incomplete line
                line = json.loads(text)
                if "sampled_loss_forward" in line:
                    lines.append(line)
    return lines


def _loss(line: dict[str, Any]) -> float:
    return float(line["sampled_loss_forward"] + line["sampled_loss_backward"]) / 2


def _stop(jobs: list[subprocess.Popen[bytes]]) -> None:
    """Let processes write their checkpoints and exit. Kill them after a minute."""
    for job in jobs:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGTERM)
    end = time.monotonic() + 60
    for job in jobs:
        try:
            job.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()


def print_table(table: dict[str, Any]) -> None:
    """Print the results of a table."""
    names = ("valid_carry", "valid_reset", "registers_carry", "registers_reset", "sampled_loss")
    print_line(
        f"{'run':20} {'Mtokens':>8} " + " ".join(f"{name:>15}" for name in names) + "  grad max"
    )
    for row in table["runs"]:
        cells = " ".join(f"{row.get(name, float('nan')):15.3f}" for name in names)
        norm = row["largest_gradient_norm"]
        print_line(f"{row['name']:20} {row['tokens'] / 1e6:8.1f} {cells}  {norm:.3g}")


def main() -> None:
    """Run the sweep, or only write its table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("corpora", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True, help="directory for all runs")
    parser.add_argument("--minutes", type=float, default=16.0, help="time limit")
    parser.add_argument("--texts", type=Path, nargs="+", default=[], help="held-out texts")
    parser.add_argument("--table", type=Path, help="only write the results so far to this file")
    parser.add_argument("--runs", type=int, default=8, help="number of runs, most important first")
    parser.add_argument("--only", default=".", help="regular expression for names of runs")
    parser.add_argument("--preset", default="medium")
    parser.add_argument("--set", dest="settings", action="append", default=[])
    parser.add_argument(
        "--steps", type=int, help="steps of each run (default: depends on the time limit)"
    )
    parser.add_argument("--speed-seconds", type=float, default=110.0, help="time to measure speed")
    parser.add_argument("--speed-lines", type=int, default=3, help="lines of metrics to wait for")
    parser.add_argument(
        "--reserve-seconds",
        type=float,
        default=150.0,
        help="time reserved for startup and evaluation",
    )
    parser.add_argument("--tokens-per-step", type=int, default=20_480)
    parser.add_argument("--least-steps", type=int, default=2_000)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--no-mps", action="store_true", help="do not start NVIDIA MPS")
    args = parser.parse_args()
    deadline = time.monotonic() + 60 * args.minutes
    args.output.mkdir(parents=True, exist_ok=True)
    runs = [run for run in RUNS if re.search(args.only, run.name)][: args.runs]
    if args.table:
        table = Sweep(runs, args, {}).table()
        args.table.write_text(json.dumps(table, indent=1) + "\n", "utf-8")
        print_table(table)
        return
    with mps(enabled=not args.no_mps) as shared:
        environment = {"OMP_NUM_THREADS": "2", **os.environ, **shared}
        sweep = Sweep(runs, args, environment)
        sweep.run(deadline)
    table = sweep.table()
    (args.output / "table.json").write_text(json.dumps(table, indent=1) + "\n", "utf-8")
    print_table(table)


if __name__ == "__main__":
    main()
