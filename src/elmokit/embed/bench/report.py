"""What `elmo bench` is asked, and what it reports: plain values, and the machine they are from."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from elmokit.errors import ConfigError


@dataclass(frozen=True)
class BenchSettings:
    """What to measure.

    Attributes:
        model: A model as `elmokit.load` takes it; None is the one that comes with the package.
        weights: The HDF5 file, if `model` is an options.json.
        preset: A shape with random weights instead of a model.
        batches: Sentences per call.
        precisions: By name; empty means all that this model can have on this machine.
        threads: Numbers of CPU threads; empty means torch's own choice.
        device: Where to run.
        tokens: Tokens read before the steady state counts, and tokens per batch size in it.
        rounds: Times that each cell is measured.
        loads: Fresh processes that each load is measured in.
        text: A text file; None is the example text.
        lengths: Tokens of one run each, to show that time grows linearly; empty: not measured.
        long_sentence: Tokens of the one long sentence that goes with `lengths`.
        seed: Of random weights.
    """

    model: str | None = None
    weights: str | None = None
    preset: str | None = None
    batches: tuple[int, ...] = (1, 32, 64, 128)
    precisions: tuple[str, ...] = ()
    threads: tuple[int, ...] = ()
    device: str = "auto"
    tokens: int = 20_000
    rounds: int = 5
    loads: int = 3
    text: Path | None = None
    lengths: tuple[int, ...] = ()
    long_sentence: int = 10_000
    seed: int = 0

    def __post_init__(self) -> None:
        """Find all that is wrong at once."""
        wrong = []
        if self.model is not None and self.preset is not None:
            wrong.append("a model and a preset exclude each other")
        for name in ("batches", "threads", "lengths"):
            if any(value < 1 for value in getattr(self, name)):
                wrong.append(f"{name} should be at least 1, found {list(getattr(self, name))}")
        for name in ("tokens", "rounds", "loads", "long_sentence"):
            if getattr(self, name) < 1:
                wrong.append(f"{name} should be at least 1, found {getattr(self, name)}")
        if not self.batches:
            wrong.append("at least one batch size is needed")
        if wrong:
            raise ConfigError(f"This cannot be measured: {'; '.join(wrong)}.")


class Setup(NamedTuple):
    """A process that is measured."""

    precision: str
    threads: int | None


@dataclass
class BenchReport:
    """What was found. `loads` has a row per set-up, `cells` one per set-up and batch size.

    Rows are plain values, so that the report is its own JSON.
    """

    what: str
    model: dict[str, Any]
    machine: dict[str, Any]
    text: dict[str, Any]
    settings: dict[str, Any]
    loads: list[dict[str, Any]] = field(default_factory=list)
    cells: list[dict[str, Any]] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    network: list[dict[str, Any]] = field(default_factory=list)
    lengths: list[dict[str, Any]] = field(default_factory=list)
    long_sentence: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def machine() -> dict[str, Any]:
    """Describe this machine by what speed depends on, without its name."""
    flags: set[str] = set()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(errors="replace").splitlines():
            if line.startswith(("flags", "Features")):
                flags = set(line.split(":", 1)[1].split())
                break
    known = (
        "avx2",
        "avx512f",
        "avx512_vnni",
        "avx512_bf16",
        "amx_int8",
        "amx_bf16",
        "asimd",
        "sve",
    )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": cores,
        "instruction_sets": [name for name in known if name in flags],
    }
