"""Execute the runs of `runs.py`, several at a time on one GPU or CPU, most important first.

Needs: the output directory of `prepare.py`. Each run is a process, `elmo task ... train --resume`.
Finished runs are skipped and interrupted runs are resumed, so you can stop and restart this script
at any time. Fine-tuned biLMs and the layers of a dataset are computed once, before the first run
that needs them.

Run as:
    python recipes/tasks/run.py data/ -o runs/ --processes 16 --minutes 20 --measure \
        --static glove=glove.txt --static word2vec=word2vec.txt --model english-original=original/
    python recipes/tasks/run.py data/ -o runs/ --only '^ner' --seeds 0 --list
Converged runs that are published in results/tasks are not repeated (except with --again or --set),
and `tables.py` includes them in addition to the new ones.
After --minutes, all runs write a checkpoint and stop. --measure then evaluates the best epoch of
each run on the test data. These runs count as finished and are marked in the tables. --pack
writes the files that the tables need (no weights) to an archive. If NVIDIA MPS is installed, the
processes use the GPU concurrently (disable with --no-mps).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from finetune import SUMMARY
from finished import MACHINES
from pool import RESULT_FILE, Job, Pool, mps, print_line
from published_runs import RESULTS, PublishedRuns
from runs import FILES, Run, all_runs, preset_and_settings, tuned_model

from elmokit.progress import plural

HERE = Path(__file__).parent
#: The files of a run that the tables need.
PACKED_FILES = (RESULT_FILE, "metrics.jsonl", "test.jsonl")


def main() -> None:
    """Execute runs until all are finished or the time is up."""
    args = parse_arguments()
    runs = [run for run in all_runs() if is_selected(run, args)]
    states = run_states(runs, args)
    pending = [run for run, state in states.items() if state == "pending"]
    counts = Counter(states.values())
    print_line(
        f"{plural(len(runs), 'run')}, {counts['done']} finished, {counts['published']} published"
    )
    if args.list:
        for run, state in states.items():
            print_line(f"{state:9}  {run.name}")
        return
    deadline = time.monotonic() + 60 * args.minutes
    args.output.mkdir(parents=True, exist_ok=True)
    record_machine(args)
    shared_gpu = args.device != "cpu" and args.processes > 1 and not args.no_mps
    with mps(enabled=shared_gpu) as mps_variables:
        environment = {**os.environ, "OMP_NUM_THREADS": str(args.threads), **mps_variables}
        Pool(args.output, args.processes, environment).run(make_jobs(pending, args), deadline)
        if args.measure:
            folders = {run: args.output / run.name for run in pending}
            stopped = [
                run
                for run, folder in folders.items()
                if (folder / "checkpoints").is_dir() and not (folder / RESULT_FILE).is_file()
            ]
            jobs = [Job(run.name, task_command(run, args, "train.epochs=1")) for run in stopped]
            Pool(args.output, args.processes, environment).run(
                jobs, time.monotonic() + 60 * args.measure_minutes
            )
    done = [run for run in pending if (args.output / run.name / RESULT_FILE).is_file()]
    print_line(f"{len(done)} of {len(pending)} runs finished")
    if args.pack:
        pack(args.output, args.pack)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path, help="output directory of prepare.py")
    parser.add_argument("-o", "--output", type=Path, required=True, help="directory for all runs")
    parser.add_argument("--processes", type=int, default=1, help="concurrent runs")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of each run")
    parser.add_argument("--minutes", type=float, default=1e6, help="time limit")
    parser.add_argument(
        "--measure", action="store_true", help="afterwards, evaluate the stopped runs"
    )
    parser.add_argument("--measure-minutes", type=float, default=3.0)
    parser.add_argument("--pack", type=Path, help="finally, write the results to this .tar.xz file")
    parser.add_argument("--only", default=".", help="regular expression for names of runs")
    parser.add_argument(
        "--table", nargs="+", help="only runs of table1, table2, table3, models, ..."
    )
    parser.add_argument("--seeds", type=int, nargs="+")
    parser.add_argument("--static", action="append", default=[], metavar="NAME=SOURCE")
    parser.add_argument("--model", action="append", default=[], metavar="NAME=MODEL")
    parser.add_argument("--set", dest="settings", action="append", default=[])
    parser.add_argument("--cache-dir", type=Path, help="layer cache (default: OUTPUT/.layers)")
    parser.add_argument("--cache-gb", type=float, default=40.0)
    parser.add_argument("--precision", default="exact")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--no-mps", action="store_true", help="do not start NVIDIA MPS")
    parser.add_argument("--results", type=Path, default=RESULTS, help="published results")
    parser.add_argument("--again", action="store_true", help="repeat published runs, too")
    parser.add_argument("--list", action="store_true", help="list the runs and exit")
    args = parser.parse_args()
    args.cache_dir = args.cache_dir or args.output / ".layers"
    args.static = {"glove": "glove-6b-50d", **dict(text.split("=", 1) for text in args.static)}
    args.model = {"english": None, **dict(text.split("=", 1) for text in args.model)}
    return args


def is_selected(run: Run, args: argparse.Namespace) -> bool:
    """Return whether a run is selected and its inputs are available."""
    return (
        re.search(args.only, run.name) is not None
        and (args.seeds is None or run.seed in args.seeds)
        and (args.table is None or all_runs()[run] in args.table)
        and run.cell.static in args.static
        and (run.cell.model in args.model or is_tuned(run))
    )


def is_tuned(run: Run) -> bool:
    """Return whether a run uses a biLM that was fine-tuned on the text of its task."""
    return run.cell.model == tuned_model(run.cell.task)


def run_states(runs: Sequence[Run], args: argparse.Namespace) -> dict[Run, str]:
    """Return the state of each run: "done" (in the directory), "published" or "pending"."""
    # With --set, the settings differ from those of the published runs.
    published = PublishedRuns(None if args.again or args.settings else args.results)
    for line in published.outdated:
        print_line(line)
    states = {}
    for run in runs:
        states[run] = "published" if published.has(run) else "pending"
        if (args.output / run.name / RESULT_FILE).is_file():
            states[run] = "done"
    return states


def record_machine(args: argparse.Namespace) -> None:
    """Append a description of this machine to the file of machines, for the tables."""
    import torch

    import elmokit

    gpu = torch.cuda.is_available() and args.device != "cpu"
    values = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "device": torch.cuda.get_device_name(0) if gpu else platform.machine(),
        "cores": os.cpu_count(),
        "processes": args.processes,
        "minutes": args.minutes,
        "precision": args.precision,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "elmokit": elmokit.__version__,
    }
    with (args.output / MACHINES).open("a", encoding="utf-8") as file:
        file.write(json.dumps(values) + "\n")


# ------------------------------------------------------------------------------------------- jobs


def make_jobs(runs: Sequence[Run], args: argparse.Namespace) -> list[Job]:
    """Return the jobs of the runs. Jobs for biLMs and layers precede the runs that need them."""
    jobs: dict[str, Job] = {}

    def add(name: str, command: list[str], needs: str | None) -> str:
        jobs.setdefault(name, Job(name, command, needs))
        return name

    for run in runs:
        needs, cell = None, run.cell
        if is_tuned(run) and cell.model not in args.model and not tuned_path(run, args).exists():
            needs = add(f"biLM {cell.model}", tune_command(run, args), None)
        if cell.elmo != "none":
            name = f"layers of {cell.task} {cell.model} {cell.share}"
            needs = add(name, layers_command(run, args), needs)
        add(run.name, task_command(run, args), needs)
    return list(jobs.values())


def task_command(run: Run, args: argparse.Namespace, *extra_settings: str) -> list[str]:
    """Return the command of a run."""
    cell = run.cell
    command = [sys.executable, "-m", "elmokit", "task", cell.task, "train", *_files(run, args)]
    command += ["-o", str(args.output / run.name), "--resume", "--elmo", cell.elmo]
    command += ["--static", args.static[cell.static], "--seed", str(run.seed)]
    command += ["--set", f"train.share={cell.share}"]
    if cell.layers != "all":
        setting = "layer=top" if cell.layers == "top" else f"mix={cell.layers}"
        command += ["--set", f"elmo.{setting}"]
    if cell.penalty is not None:
        command += ["--set", f"elmo.penalty={cell.penalty}"]
    return [*command, *_common_options(run, args, *extra_settings)]


def tuned_path(run: Run, args: argparse.Namespace) -> Path:
    """Return the path of a run's fine-tuned biLM."""
    return Path(args.output / ".tuned" / run.cell.model)


def tune_command(run: Run, args: argparse.Namespace) -> list[str]:
    """Return the command that fine-tunes the biLM of a run."""
    command = [sys.executable, str(HERE / "finetune.py"), str(args.data), run.cell.task]
    command += ["-o", str(tuned_path(run, args).parent), "--summaries", str(args.output)]
    return [*command, "--device", args.device]


def layers_command(run: Run, args: argparse.Namespace) -> list[str]:
    """Return the command that computes the layers of a run's data."""
    command = [sys.executable, str(HERE / "layers.py"), run.cell.task, *_files(run, args)]
    return [*command, "--set", f"train.share={run.cell.share}", *_common_options(run, args)]


def _files(run: Run, args: argparse.Namespace) -> list[str]:
    return [str(args.data / name) for name in FILES[run.cell.task]]


def _common_options(run: Run, args: argparse.Namespace, *extra_settings: str) -> list[str]:
    preset, settings = preset_and_settings(run.cell)
    options = ["--preset", preset, "--device", args.device, "--precision", args.precision]
    options += ["--cache-dir", str(args.cache_dir), "--cache-gb", str(args.cache_gb)]
    model = args.model.get(run.cell.model, str(tuned_path(run, args)))
    if model is not None and run.cell.elmo != "none":
        options += ["--model", model]
    for setting in (*settings, *args.settings, *extra_settings):
        options += ["--set", setting]
    return options


# ---------------------------------------------------------------------------------------- archive


def pack(out: Path, path: Path) -> None:
    """Write the files that the tables need to an archive, sorted by task."""
    with tarfile.open(path, "w:xz", preset=1) as archive:
        for file in (out / MACHINES, *sorted(out.glob(SUMMARY.format(task="*")))):
            archive.add(file, file.name)
        for folder in sorted(p.parent for p in out.glob(f"*/{PACKED_FILES[1]}")):
            for name in PACKED_FILES:
                if (folder / name).is_file():
                    archive.add(folder / name, f"{folder.name}/{name}")
    print_line(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
