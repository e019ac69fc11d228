"""`python -m elmokit.train` is `elmo train`; with `torchrun -m elmokit.train` in many processes."""

from __future__ import annotations

import os
import runpy
import sys

# Options for output that only rank 0 writes.
_ONCE = ("--json",)


def arguments(options: list[str], rank: int) -> list[str]:
    """Return the arguments of `elmo` on a rank, given those of this module."""
    if rank > 0:
        options = ["--quiet", *(option for option in options if option not in _ONCE)]
    return ["train", *options]


if __name__ == "__main__":
    # This package must not import the command line, so that it is run as a module.
    sys.argv[1:] = arguments(sys.argv[1:], int(os.environ.get("RANK", "0")))
    runpy.run_module("elmokit", run_name="__main__", alter_sys=True)
