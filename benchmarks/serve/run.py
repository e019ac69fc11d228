"""Measure the service with 200 clients, and compare its throughput with `elmo bench embed`.

The server runs on one core and the clients on another. A bench process runs on the server's core,
alternating with the load in each round, so that other processes on the machine affect both. The
ratio of a round is the throughput under load divided by the mean throughput of the bench runs
before and after it. Afterwards, the load is repeated with JSON responses and with misbehaving
clients.

    python benchmarks/serve/run.py                              one minute per load, 6 in total
    python benchmarks/serve/run.py --rounds 3 --text long.txt   with enough text for all rounds

Writes results/serve.json. Requires two cores, and Linux to pin processes to them.
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
from elmokit.embed.bench import SentenceSupply, machine, read_text

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks" / "peers"))

from child import ELMOKIT_WORKER, Child  # noqa: E402 (the directory must be on the path first)

SERVER_CORE, CLIENT_CORE = 0, 1
BATCH = 128  # sentences per call of the bench, which is fastest with this batch size
WARM_UP_TOKENS = 20_000  # tokens that both processes embed first, as in `elmo bench embed`
PINNED = (
    sys.executable,
    "-c",
    "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); "
    "os.execv(sys.argv[2], sys.argv[2:])",
    str(SERVER_CORE),
)
DESCRIPTION = (
    "Tokens/s of `elmo serve` (bundled model, one thread, one core). Clients on the other core "
    "request the top layer of one sentence per request. The runs alternate with `elmo bench embed "
    f"--threads 1` with batch {BATCH} on the server's core. ratio: median over the rounds of load "
    "/ mean of the bench before and after; cpu_ratio: the same ratio per CPU second."
)


class MemoryMonitor(threading.Thread):
    """Records the memory usage of a process every second."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._status = Path(f"/proc/{pid}/status")
        self._end = threading.Event()
        self.mb: list[float] = []

    def run(self) -> None:
        """Record the memory usage until `stop` is called."""
        while not self._end.wait(1):
            match = re.search(r"VmRSS:\s+(\d+)", self._status.read_text())
            if match:
                self.mb.append(round(int(match[1]) / 1024, 1))

    def stop(self) -> dict[str, Any]:
        """Return a sample of the values, the peak, and the medians of the last two thirds."""
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
    """Return the CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class ServerProcess:
    """`elmo serve` on its own core.

    Args:
        options: Additional options of `elmo serve`.
        path: The source directory to use. Default: the installed version.
    """

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
        self.address = host, int(port)

    def get(self, path: str) -> str:
        """Return the response to a GET request."""
        with urllib.request.urlopen(self.url + path, timeout=60) as response:
            text: str = response.read().decode()
        return text

    def metric(self, name: str) -> float:
        """Return a value of /metrics."""
        match = re.search(rf"^{re.escape(name)} (\S+)$", self.get("/metrics"), re.MULTILINE)
        return float(match[1]) if match else 0.0

    def tokens_and_cpu_seconds(self) -> tuple[float, float]:
        """Return the number of tokens computed so far, and the CPU seconds used."""
        tokens = self.metric('elmo_batch_tokens_sum{work="layers:english"}')
        return tokens, cpu_seconds(self.process.pid)

    def hit_rate(self, before: tuple[float, float] = (0.0, 0.0)) -> float:
        """Return the hit rate of the token cache since `before`."""
        hits, misses = (now - then for now, then in zip(self.cache_counts(), before, strict=True))
        return round(hits / max(1.0, hits + misses), 4)

    def cache_counts(self) -> tuple[float, float]:
        """Return the hits and misses of the token cache so far."""
        return self.metric("elmo_token_cache_hits"), self.metric("elmo_token_cache_misses")

    def warm_up(self, sentences: list[list[str]]) -> None:
        """Embed sentences to fill the token cache, as in the bench process."""
        for first in range(0, len(sentences), BATCH // 2):
            body = {
                "sentences": sentences[first : first + BATCH // 2],
                "layer": "top",
                "pooling": "mean",
            }
            request = urllib.request.Request(
                f"{self.url}/v1/embed",
                json.dumps(body).encode(),
                {"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=300) as response:
                response.read()

    def stop(self) -> int:
        """Stop the process with SIGTERM and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)


class Bench(Child):
    """A bench process that provides its process id."""

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid


def main() -> None:
    """Run the benchmark and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of each load")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--text", type=Path, help="text file. Default: the example text")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--precision", default="exact", choices=("exact", "fast"))
    parser.add_argument(
        "--bench-tokens", type=int, default=10_000, help="tokens per run of the bench"
    )
    parser.add_argument("--output", "-o", type=Path, default=ROOT / "results" / "serve.json")
    options = parser.parse_args()
    os.sched_setaffinity(0, {CLIENT_CORE})
    report = measure(options)
    report["command"] = f"python benchmarks/serve/run.py {shlex.join(sys.argv[1:])}".strip()
    options.output.write_text(json.dumps(report, indent=1) + "\n")
    print(f"ratio {report['ratio']}, written to {options.output}")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run all measurements."""
    load_before = os.getloadavg()[0]
    text = read_text(options.text, 10**9)
    supply = SentenceSupply(text.sentences)
    server = ServerProcess("--precision", options.precision)
    bench = Bench((*PINNED, *ELMOKIT_WORKER), threads=1)
    bench.ask("load", model=None, precision=options.precision, threads=1)
    dim = json.loads(server.get("/v1/models"))["data"][0]["dim"]
    cpu_speeds: list[float] = []
    hits: list[float] = []

    def run_bench() -> float:
        sentences = supply.take(options.bench_tokens, batch=BATCH)
        begin = cpu_seconds(bench.pid)
        result = bench.ask("time", sentences=sentences, batch=BATCH)
        cpu_speeds.append(float(result["tokens"] / (cpu_seconds(bench.pid) - begin)))
        hits.append(round(result["hits"] / (result["hits"] + result["misses"]), 4))
        return float(result["tokens"] / result["seconds"])

    def run_load(accept: str) -> dict[str, Any]:
        cache = server.cache_counts()
        tokens, cpu = server.tokens_and_cpu_seconds()
        tally = asyncio.run(
            load(
                *server.address,
                sentences_of(supply),
                clients=options.clients,
                seconds=options.seconds,
                accept=accept,
                dim=dim,
            )
        )
        more_tokens, more_cpu = server.tokens_and_cpu_seconds()
        speeds.append(run_bench())
        result = tally.to_dict()
        bench_speed = statistics.mean(speeds[-2:])
        result["bench_tokens_per_second"] = round(bench_speed, 1)
        result["ratio"] = round(result["tokens_per_second"] / bench_speed, 3)
        # The same ratio per CPU second.
        speed = (more_tokens - tokens) / (more_cpu - cpu)
        result["tokens_per_cpu_second"] = round(speed, 1)
        result["cache_hits"] = server.hit_rate(cache)
        result["bench_cache_hits"] = hits[-1]
        result["cpu_ratio"] = round(speed / statistics.mean(cpu_speeds[-2:]), 3)
        print(f"{accept}: {result}", flush=True)
        return result

    warm_up = supply.take(WARM_UP_TOKENS, batch=BATCH)
    bench.ask("time", sentences=warm_up, batch=BATCH)
    server.warm_up(warm_up)
    monitor = MemoryMonitor(server.process.pid)
    monitor.start()
    speeds = [run_bench()]
    rounds = [run_load(NPY) for _ in range(options.rounds)]
    memory_usage = monitor.stop()
    as_json = run_load(JSON)
    bench.close()
    abuse = asyncio.run(_run_abuse(server, sentences_of(supply), options.seconds, dim))
    print(f"abuse: {abuse}", flush=True)
    failed = re.findall(
        r'^elmo_requests_total\{.*status="500"\} (\S+)$', server.get("/metrics"), re.M
    )
    return {
        "what": DESCRIPTION,
        "date": datetime.date.today().isoformat(),
        "machine": {**machine(), "load_before": round(load_before, 2)},
        "version": elmokit.__version__,
        "text": {**text.describe(), "begun_again": supply.n_restarts},
        "server": shlex.join(server.command),
        "start_s": server.start_s,
        "clients": options.clients,
        "ratio": round(statistics.median(row["ratio"] for row in rounds), 3),
        "cpu_ratio": round(statistics.median(row["cpu_ratio"] for row in rounds), 3),
        "npy": rounds,
        "json": as_json,
        "bench_tokens_per_second": [round(speed, 1) for speed in speeds],
        "memory": memory_usage,
        "abuse": abuse,
        "failures": sum(map(float, failed)),
        "exit_code": server.stop(),
    }


async def _run_abuse(
    server: ServerProcess, supply: Iterator[list[str]], seconds: float, dim: int
) -> dict[str, Any]:
    """Run 20 well-behaved clients alone, together with misbehaving clients, and alone again."""

    async def run_clients() -> dict[str, Any]:
        tally = await load(
            *server.address, supply, clients=20, seconds=seconds, accept=NPY, dim=dim
        )
        return tally.to_dict()

    async def run_abusers() -> dict[str, int]:
        script = str(Path(__file__).with_name("abuse.py"))
        arguments = [*map(str, server.address), str(seconds)]
        process = await asyncio.create_subprocess_exec(
            sys.executable, script, *arguments, stdout=subprocess.PIPE
        )
        output, _ = await process.communicate()
        counts: dict[str, int] = json.loads(output)
        return counts

    alone = await run_clients()
    among, counts = await asyncio.gather(run_clients(), run_abusers())
    after = await run_clients()
    return {"alone": alone, "among_abusers": among, "after": after, "abusers": counts}


def sentences_of(supply: SentenceSupply) -> Iterator[list[str]]:
    """Yield sentences indefinitely."""
    while True:
        yield supply.take(1)[0]


if __name__ == "__main__":
    main()
