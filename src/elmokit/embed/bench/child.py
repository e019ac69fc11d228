"""A model in a process of its own that is told, in lines of JSON, what to time.

Only a fresh process knows its load time and its peak of memory: one that has held a larger model
cannot take its peak back. And only processes that live side by side can be timed in turn, so that a
noisy machine disturbs all of them alike. `Child` is the end that asks (also of programs of other
systems, see benchmarks/peers), `python -m elmokit.embed.bench.child` the end that holds a model.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from elmokit.errors import ElmoError

if TYPE_CHECKING:
    from elmokit.embed.model import ElmoModel

_OWN = (sys.executable, "-m", "elmokit.embed.bench.child")


class ChildError(ElmoError):
    """A measuring process that died, took too long or could not do what it was asked."""


class Child:
    """The asking end: one request at a time, one answer each.

    Args:
        command: The program; nothing means our own.
        threads: Threads that the libraries in it may use.
        limit: Seconds that an answer may take.
        environment: Variables to set beside.
    """

    def __init__(
        self,
        command: Sequence[str] = _OWN,
        *,
        threads: int | None = None,
        limit: float = 900.0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        variables = dict(os.environ) | dict(environment or {})
        if threads is not None:
            for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
                variables[name] = str(threads)
        self._limit = limit
        self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 (see close)
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=variables,
        )

    def ask(self, do: str, **values: Any) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        late = threading.Event()

        def stop() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(self._limit, stop)
        timer.start()
        try:
            process.stdin.write(json.dumps({"do": do, **values}) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if late.is_set():
            raise ChildError(f"The measuring process gave no answer to '{do}' in {self._limit} s.")
        if not line:
            code = process.wait()
            raise ChildError(
                f"The measuring process ended at '{do}' (exit code {code}): {self._last_words()}"
            )
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ChildError(str(answer["error"]))
        return answer

    def close(self) -> None:
        """End the process."""
        process = self._process
        if process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.close()  # the end of its input is the end of its work
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._log.close()

    def _last_words(self) -> str:
        self._log.seek(0)
        return " ".join(self._log.read().strip().splitlines()[-3:]) or "it said nothing."

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._process.kill()
        self.close()


# ------------------------------------------------------------------------------ the holding end


def memory_gib() -> dict[str, float]:
    """Return the memory that this process holds, and the most it ever held."""
    status = Path("/proc/self/status")
    if status.is_file():
        # VmHWM begins anew with each program; what getrusage tells is inherited from the parent.
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        held, peak = (int(lines[key].split()[0]) * 1024 for key in ("VmRSS", "VmHWM"))
    else:
        import resource  # not on Windows

        unit = 1 if sys.platform == "darwin" else 1024
        held = peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return {"rss_gib": round(held / 2**30, 3), "peak_gib": round(peak / 2**30, 3)}


class Holder:
    """Holds one model and times what it is asked to; each method answers one kind of request."""

    def __init__(self) -> None:
        self._model: ElmoModel | None = None

    @property
    def model(self) -> ElmoModel:
        """The model, after `load`."""
        if self._model is None:
            raise ElmoError("No model is loaded.")
        return self._model

    def load(
        self,
        model: str | None,
        weights: str | None = None,
        precision: str = "exact",
        device: str = "auto",
        threads: int | None = None,
    ) -> dict[str, Any]:
        """Load a model; what importing torch takes is told apart."""
        begin = time.perf_counter()
        import torch

        from elmokit.embed.model import load

        imported = time.perf_counter()
        if threads is not None:
            torch.set_num_threads(threads)
        self._model = load(model, weights, device, precision)
        self._wait()
        done = time.perf_counter()
        return {
            "import_s": imported - begin,
            "load_s": done - imported,
            "device": str(self.model.device),
            "threads": torch.get_num_threads(),
            **memory_gib(),
        }

    def describe(self) -> dict[str, Any]:
        """Say what was loaded and by which versions."""
        import platform

        import torch

        import elmokit

        on_gpu = self.model.device.type == "cuda"
        name = torch.cuda.get_device_name(self.model.device) if on_gpu else "CPU"
        config = self.model.config
        return {
            "parameters": sum(p.numel() for p in self.model.bilm.parameters()),
            "shape": f"{config.lstm.n_layers} x {config.lstm.dim}/{config.lstm.projection_dim}",
            "device": name,
            "on_gpu": on_gpu,
            "versions": {
                "elmokit": elmokit.__version__,
                "torch": torch.__version__,
                "python": platform.python_version(),
            },
        }

    def time(
        self, sentences: list[Any], batch: int, cold: bool = False, stream: bool = False
    ) -> dict[str, Any]:
        """Embed sentences, `batch` per call; cold begins with an empty cache of tokens.

        With `stream` they go through `ElmoModel.stream`, which chooses the batches itself.
        """
        model = self.model
        if cold:
            model.cache.clear()
        hits, misses = model.cache.hits, model.cache.misses
        tokens = 0
        begin = time.perf_counter()
        if stream:
            for found in model.stream(sentences):
                tokens += len(found.tokens)
        else:
            for start in range(0, len(sentences), batch):
                tokens += sum(len(s.tokens) for s in model.embed(sentences[start : start + batch]))
        seconds = time.perf_counter() - begin
        return {
            "seconds": seconds,
            "tokens": tokens,
            "hits": model.cache.hits - hits,
            "misses": model.cache.misses - misses,
        }

    def run(self, text: str | None, tokens: int) -> dict[str, Any]:
        """Stream so many tokens of a text file, read while it goes: nothing of it is held."""
        from elmokit.embed.bench.text import running

        model = self.model
        model.cache.clear()
        hits, misses, read = model.cache.hits, model.cache.misses, 0
        begin = time.perf_counter()
        for found in model.stream(running(None if text is None else Path(text), tokens)):
            read += len(found.tokens)
        seconds = time.perf_counter() - begin
        hits, misses = model.cache.hits - hits, model.cache.misses - misses
        return {"seconds": seconds, "tokens": read, "hits": hits, "misses": misses}

    def latency(self, sentence: list[str], times: int) -> dict[str, Any]:
        """Time single sentences, one call each."""
        seconds = []
        for _ in range(times):
            begin = time.perf_counter()
            self.model.embed([sentence])
            seconds.append(time.perf_counter() - begin)
        return {"seconds": seconds}

    def parts(self, sentences: list[list[str]], batch: int, times: int) -> dict[str, Any]:
        """Time the network alone, character ids already made: encoder, LSTMs, both together.

        Sentences are sorted by length, as bulk work sorts them, and every batch is full.
        """
        from elmokit.embed.bench.parts import time_parts

        return time_parts(self.model, sentences, batch, times)

    def vectors(self, sentences: list[list[str]], out: str) -> dict[str, Any]:
        """Write the layers of some sentences, one after the other, shape (L + 1, N, 2D)."""
        import numpy as np

        found = [vectors.layers for vectors in self.model.embed(sentences)]
        np.save(out, np.concatenate(found, axis=1))
        return {"tokens": sum(layers.shape[1] for layers in found)}

    def memory(self) -> dict[str, Any]:
        """Tell the memory of the process and, on a GPU, of the device."""
        found: dict[str, Any] = memory_gib()
        if self.model.device.type == "cuda":
            import torch

            found["device_peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 3)
        return found

    def _wait(self) -> None:
        if self.model.device.type == "cuda":
            import torch

            torch.cuda.synchronize()


def serve(requests: Mapping[str, Callable[..., dict[str, Any]]]) -> None:
    """Answer requests until the input ends. Whatever a library prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        values = json.loads(line)
        do = values.pop("do")
        try:
            answer = requests[do](**values)
        except ElmoError as error:
            answer = {"error": str(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def main() -> None:
    """Hold a model for the process that started this one."""
    holder = Holder()
    names = ("load", "describe", "time", "run", "latency", "parts", "vectors", "memory")
    serve({name: getattr(holder, name) for name in names})


if __name__ == "__main__":
    main()
