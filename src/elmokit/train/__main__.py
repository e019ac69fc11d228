"""`python -m elmokit.train` is `elmo train`; with `torchrun -m elmokit.train` in many processes."""

from __future__ import annotations

import os
import runpy
import sys

# What a run should say or write once: rank 0 does.
_ONCE = ("--json", "--export-hdf5")


def arguments(given: list[str], rank: int) -> list[str]:
    """Return the arguments of `elmo` on a rank, given those of this module."""
    if rank > 0:
        given = ["--quiet", *(argument for argument in given if argument not in _ONCE)]
    return ["train", *given]


if __name__ == "__main__":
    # This package must not import the command line, so that it is run as a module.
    sys.argv[1:] = arguments(sys.argv[1:], int(os.environ.get("RANK", "0")))
    runpy.run_module("elmokit", run_name="__main__", alter_sys=True)
