"""Run a mixed load: small and large requests to several routes, and abusive clients.

    python benchmarks/serve/soak.py                         200 clients for 10 minutes
    python benchmarks/serve/soak.py --scenario large        1,000 sentences among single sentences
    python benchmarks/serve/soak.py --rounds 2 --version before=OLD/src --version after=src

The last command compares two versions, which run alternately. The benchmark counts the statuses of
all responses and reports the latencies of successful requests by kind, and the memory usage and
open files of the server. It writes results/serve-soak.json.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import os
import random
import shlex
import struct
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from clients import JSON, NPY, Connection, request
from run import CLIENT_CORE, ROOT, ServerProcess

from elmokit.embed.bench import machine, read_text

Body = Callable[[list[list[str]]], dict[str, Any]]


@dataclass(frozen=True)
class Kind:
    """A kind of request.

    Attributes:
        weight: Relative frequency.
        path: The route.
        sentences: Number of sentences.
        body: Creates the body from sentences.
        accept: The format of the response.
    """

    weight: float
    path: str
    sentences: int
    body: Body
    accept: str = JSON


def _embed(**options: Any) -> Body:
    return lambda sentences: {"sentences": sentences, **options}


#: Kinds of requests by name, and the number of clients that only send large requests.
SCENARIOS: dict[str, tuple[dict[str, Kind], int]] = {
    "mixed": (
        {
            "single": Kind(0.50, "/v1/embed", 1, _embed(layer="top"), NPY),
            "several": Kind(0.15, "/v1/embed", 10, _embed()),
            "large": Kind(0.10, "/v1/embed", 200, _embed(layer="average", pooling="mean")),
            "score": Kind(0.10, "/v1/score", 3, _embed()),
            "substitutes": Kind(0.10, "/v1/substitutes", 1, lambda s: {"sentence": s[0][:20]}),
            "similarity": Kind(0.05, "/v1/similarity", 2, lambda s: _embed()([w[:50] for w in s])),
        },
        0,
    ),
    "large": (
        {
            "single": Kind(1.0, "/v1/embed", 1, _embed(layer="top"), NPY),
            "large": Kind(1e-9, "/v1/embed", 1000, _embed(layer="top", pooling="mean"), NPY),
        },
        1,
    ),
}
#: Options of the server that allow the largest requests of the scenarios.
OPTIONS = ("--max-sentences", "1000", "--max-tokens", "40000")


@dataclass
class Tally:
    """The statuses and latencies that the clients have measured, by kind of request."""

    statuses: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    latencies: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def to_dict(self) -> dict[str, Any]:
        """Return the statuses of all requests, and the latencies of successful ones."""
        total: Counter[str] = Counter()
        for counts in self.statuses.values():
            total += counts
        kinds = {}
        for kind, counts in sorted(self.statuses.items()):
            times = np.array(self.latencies[kind] or [0.0])
            quantiles = {f"p{p}_s": round(float(np.percentile(times, p)), 2) for p in (50, 95, 99)}
            longest = round(float(times.max()), 2)
            kinds[kind] = {"statuses": dict(sorted(counts.items())), **quantiles, "max_s": longest}
        return {"statuses": dict(sorted(total.items())), "kinds": kinds}


async def client(
    address: tuple[str, int],
    sentences: Iterator[list[str]],
    kinds: dict[str, Kind],
    end: float,
    tally: Tally,
    seed: int,
) -> None:
    """Send one request after another, and wait if the service rejects one."""
    draw = random.Random(seed)
    connection = Connection(*address)
    while time.perf_counter() < end:
        [name] = draw.choices(list(kinds), [kind.weight for kind in kinds.values()])
        kind = kinds[name]
        body = json.dumps(kind.body([next(sentences) for _ in range(kind.sentences)])).encode()
        begin = time.perf_counter()
        try:
            response = await connection.post(kind.path, body, kind.accept)
        except (OSError, asyncio.IncompleteReadError) as error:
            tally.statuses[name][type(error).__name__] += 1
            await connection.close()
            continue
        tally.statuses[name][str(response.status)] += 1
        if response.status == 200:
            tally.latencies[name].append(time.perf_counter() - begin)
        elif response.retry:
            await asyncio.sleep(min(response.retry, max(0.0, end - time.perf_counter())))
    await connection.close()


_HOSTILE = (
    b'{"sentences": [' + b"1," * 500_000 + b"1]}",
    b'{"sentences": [["a"]], "layer": [' + b"0," * 1000 + b"0]}",
    b"[" * 100_000,
    json.dumps({"sentences": [["word"] * 20] * 100}).encode(),  # followed by a disconnect
)


async def abuser(address: tuple[str, int], end: float, tally: Tally, n: int) -> None:
    """Send expensive invalid requests, disconnect during responses, and open idle connections."""
    draw = random.Random(-n)
    while time.perf_counter() < end:
        with suppress(OSError, asyncio.IncompleteReadError):
            _, writer = await asyncio.open_connection(*address)
            body = draw.choice(_HOSTILE)
            writer.write(request("/v1/embed", body) + body)
            idle = [await asyncio.open_connection(*address) for _ in range(20)]
            await asyncio.sleep(2 * draw.random())
            tally.statuses["abuse"]["sent"] += 1
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(1, 13, linger)  # SOL_SOCKET, SO_LINGER
            for connection in (writer, *(w for _, w in idle)):
                connection.close()


async def load(address: tuple[str, int], sentences: Iterator[list[str]], options: Any) -> Tally:
    """Run all clients."""
    tally = Tally()
    end = time.perf_counter() + options.seconds
    kinds, n_large = SCENARIOS[options.scenario]
    n_abusers = round(options.abusive * options.clients)
    n_good = options.clients - n_abusers
    large = {"large": kinds["large"]}
    await asyncio.gather(
        *(client(address, sentences, large, end, tally, n) for n in range(n_large)),
        *(client(address, sentences, kinds, end, tally, n) for n in range(n_large, n_good)),
        *(abuser(address, end, tally, n) for n in range(n_abusers)),
    )
    return tally


class ResourceMonitor:
    """Records the memory usage and the number of open files of a process."""

    def __init__(self, pid: int) -> None:
        self._proc = Path(f"/proc/{pid}")
        self.mb: list[float] = []
        self.files: list[int] = []

    async def run(self) -> None:
        """Record the values every second."""
        while True:
            pages = int((self._proc / "statm").read_text().split()[1])
            self.mb.append(round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1))
            self.files.append(len(list((self._proc / "fd").iterdir())))
            await asyncio.sleep(1)

    def to_dict(self) -> dict[str, Any]:
        """Return a sample of the values, and the maxima."""
        step = max(1, len(self.mb) // 20)
        return {
            "mb": self.mb[::step],
            "max_mb": max(self.mb),
            "files": self.files[::step],
            "max_files": max(self.files),
        }


async def measure(
    server: ServerProcess, sentences: Iterator[list[str]], options: Any
) -> dict[str, Any]:
    """Run the load on a server."""
    monitor = ResourceMonitor(server.process.pid)
    monitoring = asyncio.ensure_future(monitor.run())
    tally = await load(server.address, sentences, options)
    monitoring.cancel()
    begin = time.perf_counter()
    server.get("/healthz")
    return {
        **tally.to_dict(),
        "server": monitor.to_dict(),
        "healthz_after_s": round(time.perf_counter() - begin, 3),
    }


def endless(sentences: list[list[str]]) -> Iterator[list[str]]:
    """Yield the sentences repeatedly."""
    while True:
        yield from sentences


def main() -> None:
    """Run the benchmark and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument(
        "--abusive", type=float, default=0.05, help="fraction of clients that are abusive"
    )
    parser.add_argument("--scenario", choices=SCENARIOS, default="mixed")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--version", action="append", metavar="NAME=SRC", default=[])
    parser.add_argument("--output", "-o", type=Path, default=ROOT / "results" / "serve-soak.json")
    options = parser.parse_args()
    versions = dict(text.split("=", 1) for text in options.version) or {"now": str(ROOT / "src")}
    os.sched_setaffinity(0, {CLIENT_CORE})
    sentences = endless([s for s in read_text(None, 200_000).sentences if 2 < len(s) < 100])
    rounds: list[dict[str, Any]] = []
    for n in range(options.rounds):
        for name, path in versions.items():
            server = ServerProcess(*OPTIONS, path=path)
            load_before = os.getloadavg()[0]
            result = asyncio.run(measure(server, sentences, options))
            row = {"version": name, "round": n, "load_before": round(load_before, 2), **result}
            row["exit_code"] = server.stop()
            print(json.dumps({k: row[k] for k in row if k != "server"}), flush=True)
            rounds.append(row)
    report = {
        "what": "Mixed load on `elmo serve` (bundled model, one thread, one core), see soak.py.",
        "command": f"python benchmarks/serve/soak.py {shlex.join(sys.argv[1:])}".strip(),
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "rounds": rounds,
    }
    options.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
