"""The service under load: 200 clients on one core, the server on another, and `elmo bench` beside.

A bench process and the server take the first core in turn, round by round, so that whatever else
the machine does falls on both; the ratio of a round is that of the load to the mean of the bench
before and after it. Then the same with JSON, and with clients that mean no good.

    python benchmarks/serve/run.py                      a minute of each, about 6 minutes
    python benchmarks/serve/run.py --rounds 3 --text long.txt       text that is new to the end

Writes results/serve.json. Needs two cores, and Linux to tie processes to them.
"""

from __future__ import annotations

import argparse
import asyncio
import atexit
import datetime
import json
import os
import re
import shlex
import signal
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clients import JSON, NPY, load

import elmokit
from elmokit.embed.bench import Supply, machine, read_text

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks" / "peers"))

from child import OURS, Child  # noqa: E402 (the folder must be on the path first)

SERVER_CORE, CLIENT_CORE = 0, 1
BATCH = 128  # sentences per call of the bench: where it is fastest
FILLING = 20_000  # tokens that both have read before anything counts, as in `elmo bench embed`
PINNED = (
    sys.executable,
    "-c",
    "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); "
    "os.execv(sys.argv[2], sys.argv[2:])",
    str(SERVER_CORE),
)
WHAT = (
    "Tokens/s through `elmo serve` (bundled model, one thread, one core), asked by clients on the "
    "other core for the top layer of one sentence per request; beside it `elmo bench embed "
    f"--threads 1` at batch {BATCH} on the server's core, in turn. Ratio: median over the rounds "
    "of load / mean of the bench before and after; cpu_ratio: the same by the time that each had "
    "its core."
)


class Memory(threading.Thread):
    """Watches the memory of a process."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._status = Path(f"/proc/{pid}/status")
        self._end = threading.Event()
        self.mb: list[float] = []

    def run(self) -> None:
        """Read it every second."""
        while not self._end.wait(1):
            found = re.search(r"VmRSS:\s+(\d+)", self._status.read_text())
            if found:
                self.mb.append(round(int(found[1]) / 1024, 1))

    def stop(self) -> dict[str, Any]:
        """Return what was seen, thinned out, and what became of it from a third to the end."""
        self._end.set()
        self.join()
        third = max(1, len(self.mb) // 3)
        early, late = (
            statistics.median(part) for part in (self.mb[third : 2 * third], self.mb[-third:])
        )
        return {
            "mb": self.mb[:: max(1, len(self.mb) // 30)],
            "second_third_mb": early,
            "last_third_mb": late,
            "peak_mb": max(self.mb),
        }


def cpu_seconds(pid: int) -> float:
    """Return the time that a process has had a core, whatever else the machine did."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Served:
    """`elmo serve` on its core; `path` is the source to run, by default the installed one."""

    def __init__(self, *options: str, path: str | None = None) -> None:
        command = [sys.executable, "-c", "from elmokit.cli.main import run; run()", "serve"]
        self.command = ["elmo", "serve", "--port", "0", "--threads", "1", *options]
        variables = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        if path is not None:
            variables["PYTHONPATH"] = path
        begin = time.perf_counter()
        self.process = subprocess.Popen(
            [*PINNED, *command, *self.command[2:], "--json"],
            stdout=subprocess.PIPE,
            env=variables,
            text=True,
        )
        atexit.register(self.process.kill)
        assert self.process.stdout is not None
        self.url: str = json.loads(self.process.stdout.readline())["url"]
        self.start_s = round(time.perf_counter() - begin, 2)
        host, port = self.url.removeprefix("http://").rsplit(":", 1)
        self.at = host, int(port)

    def get(self, path: str) -> str:
        """Ask for something."""
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            text: str = answer.read().decode()
        return text

    def figure(self, name: str) -> float:
        """Return a figure of /metrics."""
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.get("/metrics"), re.MULTILINE)
        return float(found[1]) if found else 0.0

    def work(self) -> tuple[float, float]:
        """Return the tokens computed so far, and the seconds of its core that they took."""
        tokens = self.figure('elmo_batch_tokens_sum{work="layers:english"}')
        return tokens, cpu_seconds(self.process.pid)

    def hit_rate(self, before: tuple[float, float] = (0.0, 0.0)) -> float:
        """Return the share of tokens since `before` that the cache knew."""
        hits, misses = (now - then for now, then in zip(self.cache(), before, strict=True))
        return round(hits / max(1.0, hits + misses), 4)

    def cache(self) -> tuple[float, float]:
        """Return hits and misses of the cache of tokens so far."""
        return self.figure("elmo_token_cache_hits"), self.figure("elmo_token_cache_misses")

    def fill(self, sentences: list[list[str]]) -> None:
        """Let it read some text, as the bench has."""
        for first in range(0, len(sentences), BATCH // 2):
            body = {
                "sentences": sentences[first : first + BATCH // 2],
                "layer": "top",
                "pooling": "mean",
            }
            asked = urllib.request.Request(
                f"{self.url}/v1/embed",
                json.dumps(body).encode(),
                {"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(asked, timeout=300) as answer:
                answer.read()

    def stop(self) -> int:
        """End it as systems do, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)


class Bench(Child):
    """A measuring process whose number is known."""

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="of each load")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--text", type=Path, help="a text file; nothing: the example text")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--precision", default="exact", choices=("exact", "fast"))
    parser.add_argument("--bench-tokens", type=int, default=10_000, help="of each bench")
    parser.add_argument("--output", "-o", type=Path, default=ROOT / "results" / "serve.json")
    given = parser.parse_args()
    os.sched_setaffinity(0, {CLIENT_CORE})
    report = measure(given)
    report["command"] = f"python benchmarks/serve/run.py {shlex.join(sys.argv[1:])}".strip()
    given.output.write_text(json.dumps(report, indent=1) + "\n")
    print(f"ratio {report['ratio']}, written to {given.output}")


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Run everything."""
    busy = os.getloadavg()[0]
    text = read_text(given.text, 10**9)
    supply = Supply(text.sentences)
    served = Served("--precision", given.precision)
    bench = Bench((*PINNED, *OURS), threads=1)
    bench.ask("load", model=None, precision=given.precision, threads=1)
    dim = json.loads(served.get("/v1/models"))["data"][0]["dim"]
    cpu_speeds: list[float] = []
    hits: list[float] = []

    def timed() -> float:
        piece = supply.take(given.bench_tokens, batch=BATCH)
        begin = cpu_seconds(bench.pid)
        said = bench.ask("time", sentences=piece, batch=BATCH)
        cpu_speeds.append(float(said["tokens"] / (cpu_seconds(bench.pid) - begin)))
        hits.append(round(said["hits"] / (said["hits"] + said["misses"]), 4))
        return float(said["tokens"] / said["seconds"])

    def loaded(accept: str) -> dict[str, Any]:
        cache = served.cache()
        tokens, cpu = served.work()
        tally = asyncio.run(
            load(
                *served.at,
                sentences_of(supply),
                clients=given.clients,
                seconds=given.seconds,
                accept=accept,
                dim=dim,
            )
        )
        more_tokens, more_cpu = served.work()
        speeds.append(timed())
        found = tally.to_dict()
        beside = statistics.mean(speeds[-2:])
        found["bench_tokens_per_second"] = round(beside, 1)
        found["ratio"] = round(found["tokens_per_second"] / beside, 3)
        # The same by the time that each process had its core.
        speed = (more_tokens - tokens) / (more_cpu - cpu)
        found["tokens_per_cpu_second"] = round(speed, 1)
        found["cache_hits"] = served.hit_rate(cache)
        found["bench_cache_hits"] = hits[-1]
        found["cpu_ratio"] = round(speed / statistics.mean(cpu_speeds[-2:]), 3)
        print(f"{accept}: {found}", flush=True)
        return found

    first = supply.take(FILLING, batch=BATCH)
    bench.ask("time", sentences=first, batch=BATCH)
    served.fill(first)
    memory = Memory(served.process.pid)
    memory.start()
    speeds = [timed()]
    rounds = [loaded(NPY) for _ in range(given.rounds)]
    held = memory.stop()
    as_json = loaded(JSON)
    bench.close()
    rough = asyncio.run(_rough(served, sentences_of(supply), given.seconds, dim))
    print(f"abuse: {rough}", flush=True)
    failed = re.findall(
        r'^elmo_requests_total\{.*status="500"\} (\S+)$', served.get("/metrics"), re.M
    )
    return {
        "what": WHAT,
        "date": datetime.date.today().isoformat(),
        "machine": {**machine(), "load_before": round(busy, 2)},
        "version": elmokit.__version__,
        "text": {**text.describe(), "begun_again": supply.rewound},
        "server": shlex.join(served.command),
        "start_s": served.start_s,
        "clients": given.clients,
        "ratio": round(statistics.median(one["ratio"] for one in rounds), 3),
        "cpu_ratio": round(statistics.median(one["cpu_ratio"] for one in rounds), 3),
        "npy": rounds,
        "json": as_json,
        "bench_tokens_per_second": [round(speed, 1) for speed in speeds],
        "memory": held,
        "abuse": rough,
        "failures": sum(map(float, failed)),
        "exit_code": served.stop(),
    }


async def _rough(
    served: Served, supply: Iterator[list[str]], seconds: float, dim: int
) -> dict[str, Any]:
    """Let twenty clients go on alone, then among abusers."""

    async def good() -> dict[str, Any]:
        tally = await load(*served.at, supply, clients=20, seconds=seconds, accept=NPY, dim=dim)
        return tally.to_dict()

    async def bad() -> dict[str, int]:
        script = str(Path(__file__).with_name("abuse.py"))
        arguments = [*map(str, served.at), str(seconds)]
        process = await asyncio.create_subprocess_exec(
            sys.executable, script, *arguments, stdout=subprocess.PIPE
        )
        told, _ = await process.communicate()
        found: dict[str, int] = json.loads(told)
        return found

    alone = await good()
    among, seen = await asyncio.gather(good(), bad())
    after = await good()
    return {"alone": alone, "among_abusers": among, "after": after, "abusers": seen}


def sentences_of(supply: Supply) -> Iterator[list[str]]:
    """Yield the next sentence, and the next."""
    while True:
        yield supply.take(1)[0]


if __name__ == "__main__":
    main()
