"""Which number types a CPU can really multiply, found out without risk.

Some virtual machines advertise AMX and kill a process that uses it (SIGILL); no exception can be
caught then. So each product is tried in a process of its own, which may die.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

# A product large enough to take the path that real layers take.
_PROGRAM = """
import torch
kind = {kind!r}
generator = torch.Generator().manual_seed(0)
a = torch.rand(128, 1024, generator=generator) * 2 - 1
b = torch.rand(1024, 1024, generator=generator) * 2 - 1
exact = a.double() @ b.double()
if kind == "int8":
    found = torch._int_mm((a * 127).round().to(torch.int8), (b * 127).round().to(torch.int8))
    found = found.double() / 127**2
else:
    dtype = getattr(torch, kind)
    found = (a.to(dtype) @ b.to(dtype)).double()
print(((found - exact).norm() / exact.norm()).item())
"""

KINDS = ("float32", "float16", "bfloat16", "int8")


@dataclass(frozen=True)
class Probe:
    """What came of multiplying two matrices of one type.

    Attributes:
        works: Whether the process survived with a right result.
        note: The relative error of the product, or how the process ended.
    """

    works: bool
    note: str


def probe_cpu(kind: str, timeout: float = 120.0) -> Probe:
    """Multiply matrices of one number type on the CPU, in a process that may die of it."""
    program = _PROGRAM.format(kind=kind)
    try:
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Probe(False, f"no answer within {timeout:.0f} s")
    if done.returncode < 0:
        return Probe(False, f"the process was killed by signal {-done.returncode}")
    if done.returncode > 0:
        return Probe(False, (done.stderr.strip().splitlines() or ["failed"])[-1])
    error = float(done.stdout)
    return Probe(error < 0.05, f"relative error {error:.1e}")
