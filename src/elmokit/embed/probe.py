"""Test which data types this CPU supports in matrix products.

Some virtual machines advertise AMX but kill processes that use it (SIGILL), which cannot be caught.
Therefore, each product is computed in a separate process.
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
class ProbeResult:
    """The result of multiplying two matrices of one data type.

    Attributes:
        works: Whether the process returned a correct product.
        note: The relative error of the product, or the reason why the process failed.
    """

    works: bool
    note: str


def probe_cpu(kind: str) -> ProbeResult:
    """Multiply matrices of one data type on the CPU, in a separate process."""
    output, failure = run_process([sys.executable, "-c", _PROGRAM.format(kind=kind)], 120.0)
    if failure:
        return ProbeResult(False, failure)
    error = float(output)
    return ProbeResult(error < 0.05, f"relative error {error:.1e}")


def run_process(command: list[str], timeout: float) -> tuple[str, str]:
    """Run a process that may crash, and return its output and the reason for its failure or ""."""
    try:
        proc = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as error:
        output = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
        return output, f"{NO_RESULT} within {timeout:.0f} s"
    if proc.returncode < 0:
        return proc.stdout, f"the process was killed by signal {-proc.returncode}"
    if proc.returncode > 0:
        return proc.stdout, (proc.stderr.strip().splitlines() or ["failed"])[-1]
    return proc.stdout, ""
