"""Run `elmo train` in each of several processes, which torchrun starts from this module."""

from __future__ import annotations

import os
import runpy
import sys


def arguments(options: list[str], rank: int) -> list[str]:
    """Return the arguments of `elmo` for a rank. Only rank 0 writes to standard output."""
    if rank > 0:
        options = ["--quiet", *(option for option in options if option != "--json")]
    return ["train", *options]


if __name__ == "__main__":
    # Use runpy, because this package must not import elmokit.cli.
    sys.argv[1:] = arguments(sys.argv[1:], int(os.environ.get("RANK", "0")))
    runpy.run_module("elmokit", run_name="__main__", alter_sys=True)
