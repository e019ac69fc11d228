"""Compute ELMo's layers of a task's data in advance, so that concurrent runs can share them.

Run as: python recipes/tasks/layers.py TASK TRAIN DEV TEST --cache-dir DIR [--model MODEL] ...
`run.py` calls this script before the first run that needs the layers.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from elmokit.device import choose_device
from elmokit.embed.layer_cache import GIB, LayerCache
from elmokit.embed.loading import load
from elmokit.settings import with_settings
from elmokit.tasks.data import load_data
from elmokit.tasks.registry import load_task


def main() -> None:
    """Read the data as a run does, and store the layers in the cache."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("task")
    parser.add_argument("files", nargs=3, metavar="FILE")
    parser.add_argument("--model")
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--set", dest="settings", action="append", default=[])
    parser.add_argument("--cache-dir", type=Path, required=True)
    parser.add_argument("--cache-gb", type=float, default=40.0)
    parser.add_argument("--precision", default="exact")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()

    def log(line: str) -> None:
        sys.stderr.write(f"{line}\n")

    task = load_task(args.task)
    config = with_settings(task.presets[args.preset], [*args.settings, "static.source=none"])
    device = choose_device(args.device)
    options: dict[str, Any] = {"device": device, "precision": args.precision}
    cache = LayerCache(args.cache_dir, max_bytes=round(args.cache_gb * GIB), log=log)
    # The layers are only written to disk. No task model is created on the GPU.
    load_data(task, config, *args.files, elmo=load(args.model, **options), cache=cache, log=log)


if __name__ == "__main__":
    main()
