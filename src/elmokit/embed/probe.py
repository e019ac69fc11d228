"""Test which data types this CPU can multiply.

Some virtual machines advertise AMX but kill a process that uses it (SIGILL), which cannot be
caught. Therefore, each product is computed in a separate process.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

# Large enough to use the same kernels as actual layers.
_PROGRAM = """
import torch
kind = {kind!r}
generator = torch.Generator().manual_seed(0)
a = torch.rand(128, 1024, generator=generator) * 2 - 1
b = torch.rand(1024, 1024, generator=generator) * 2 - 1
exact = a.double() @ b.double()
if kind == "int8":
    product = torch._int_mm((a * 127).round().to(torch.int8), (b * 127).round().to(torch.int8))
    product = product.double() / 127**2
else:
    dtype = getattr(torch, kind)
    product = (a.to(dtype) @ b.to(dtype)).double()
print(((product - exact).norm() / exact.norm()).item())
"""

NO_RESULT = "no result"
KINDS = ("float32", "float16", "bfloat16", "int8")


@dataclass(frozen=True)
class Probe:
    """The result of multiplying two matrices of one type.

    Attributes:
        works: Whether the process returned a correct product.
        note: The relative error of the product, or the reason why the process failed.
    """

    works: bool
    note: str


def probe_cpu(kind: str) -> Probe:
    """Multiply matrices of one data type on the CPU, in a separate process."""
    output, failure = run_process([sys.executable, "-c", _PROGRAM.format(kind=kind)], 120.0)
    if failure:
        return Probe(False, failure)
    error = float(output)
    return Probe(error < 0.05, f"relative error {error:.1e}")


def run_process(command: list[str], timeout: float) -> tuple[str, str]:
    """Run a process that may crash; return its output and the reason why it failed, or ""."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as error:
        output = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
        return output, f"{NO_RESULT} within {timeout:.0f} s"
    if done.returncode < 0:
        return done.stdout, f"the process was killed by signal {-done.returncode}"
    if done.returncode > 0:
        return done.stdout, (done.stderr.strip().splitlines() or ["failed"])[-1]
    return done.stdout, ""
