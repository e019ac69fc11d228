"""Select the engine for precision="fast" on this CPU, and check its accuracy for a model.

The results of both steps are stored in the user's cache directory:

*   Select the fastest kernel. The candidates are timed on a small model in a separate process,
    because they may crash on a CPU that advertises instructions that it does not support.
*   Check the accuracy for a model, by embedding a few sentences with both precisions. If the mean
    cosine similarity to the exact vectors is below 0.999 in any layer, an error is raised.

If a candidate times out, the selection is not stored, because the machine may have been busy. If
the cache directory is not writable, every process repeats both steps, which takes a few seconds.
"""

from __future__ import annotations

import functools
import itertools
import json
import platform
import re
import subprocess
import sys
import timeit
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit import __version__
from elmokit.config import BiLMConfig, LstmConfig
from elmokit.embed.precision import exact_products
from elmokit.errors import ConfigError, ElmoError, warn
from elmokit.model import quantize
from elmokit.model.bilm import BiLM
from elmokit.model.chars import BEGIN_SENTENCE, END_SENTENCE
from elmokit.model.engine import Engine
from elmokit.model.kernels.cpu_engine import TorchEngine
from elmokit.model.kernels.cpu_native import (
    LANES,
    NativeError,
    NativeHead,
    build,
    library_path,
    native_engine,
    open_library,
    supports,
)
from elmokit.model.lexicon import encoder_ids
from elmokit.model.packing import Packing
from elmokit.model.scoring import Head
from elmokit.model.softmax import LMHead
from elmokit.sources.download import cache_dir
from elmokit.storage.fingerprint import fingerprint_model, fingerprint_texts
from elmokit.storage.manifest import read_json, write_json

# The source files that determine rounding. If they change, the accuracy is measured again.
_ROUNDING_SOURCES = tuple(
    Path(quantize.__file__).parent / name
    for name in ("quantize.py", "kernels/cpu_linear.py", "kernels/int8_lstm.c")
)

#: Minimum mean cosine similarity to the exact vectors, in every layer.
MIN_COSINE = 0.999
# Minimum speedup over the exact engine.
_MIN_SPEEDUP = 1.1
_TIMEOUT = 120.0  # seconds
_NO_RESULT = "no result"
# Failures that may not occur again: timeouts, SIGINT, SIGKILL and SIGTERM.
_TRANSIENT = re.compile(rf"^{_NO_RESULT}|killed by signal (2|9|15)\b")

# The candidates and their descriptions. The candidate that is most likely to crash is last.
_CANDIDATES = {
    "exact": "the same as exact",
    "int8": "int8 with PyTorch's integer matrix product",
    "native": "int8 with elmokit's own kernel",
}
# The model for the trials: large enough to use the same kernels as actual models, and small enough
# for a trial to take only a tenth of a second.
_TRIAL_MODEL = BiLMConfig(LstmConfig(dim=1024, projection_dim=256), None, n_words=4)
_TRIAL_LENGTHS = (12, 9) * 16

#: Sentences for measuring the accuracy of vectors.
SENTENCES = (
    "The children play in the garden , and then they read a book .",
    "In 1998 , Dr. Okonkwo-Smith 's team measured 3.75 % more rainfall than expected .",
    "Why would anyone leave ?",
    "Der alte Mann wohnt seit Jahren in São Paulo ; http://example.org/?q=1 says so .",
)


@dataclass(frozen=True)
class FastChoice:
    """The engine that "fast" uses on this machine.

    Attributes:
        kind: "native" (int8, C kernel), "int8" (int8, torch) or "exact" (nothing is faster).
        seconds: The time that each working candidate took for the same small batch.
        failed: Why each of the other candidates failed.
    """

    kind: str
    seconds: dict[str, float]
    failed: dict[str, str]

    @property
    def is_final(self) -> bool:
        """Whether another trial would give the same result.

        A candidate that timed out or was killed may work the next time.
        """
        return not any(_TRANSIENT.search(reason) for reason in self.failed.values())

    def describe(self) -> str:
        """Return a one-line description."""
        text = _CANDIDATES[self.kind]
        if self.kind != "exact" and "exact" in self.seconds:
            speedup = self.seconds["exact"] / self.seconds[self.kind]
            text += f", {speedup:.1f} times as fast as exact on a small model"
        for kind, reason in self.failed.items():
            text += f"; {_CANDIDATES[kind]} does not work: {reason}"
        return text


def fast_engine(bilm: BiLM) -> Engine:
    """Return the fastest engine for a biLM on this CPU.

    Raises:
        ConfigError: The engine is not accurate enough for this model.
    """
    choice = fast_choice()
    # If the native kernel does not support the sizes of the model, use the next best candidate.
    kinds = ("native", "int8") if choice.kind == "native" else (choice.kind,)
    for kind in kinds:
        if kind == "exact" or kind in choice.failed or (kind == "native" and not supports(bilm)):
            continue
        try:
            engine = make_engine(kind, bilm)
        except (NativeError, ElmoError):
            continue  # the compiled kernel was removed and cannot be built again
        check_accuracy(bilm, engine, kind)
        return engine
    if choice.kind == "exact":
        warn(f"On this machine, precision='fast' is {choice.describe()}.", stacklevel=5)
    else:
        warn(
            "For this model, precision='fast' is the same as exact: the faster kernels do not "
            "support it or cannot be built on this machine.",
            stacklevel=5,
        )
    return TorchEngine(bilm)


def fast_head(head: LMHead) -> Head:
    """Return the fastest implementation of an LM head on this CPU."""
    if fast_choice().kind == "native" and head.weight.shape[1] % LANES == 0:
        with suppress(NativeError, ElmoError):
            return NativeHead(head, open_library(build(_cache_folder())))
    return head


def make_engine(kind: str, bilm: BiLM) -> Engine:
    """Return an engine of the given kind.

    Raises:
        NativeError: The native kernel is not available.
    """
    if kind == "native":
        return native_engine(bilm, _cache_folder())
    return TorchEngine(bilm, int8=kind == "int8")


# ------------------------------------------------------------------------------------ the machine


@functools.cache
def fast_choice() -> FastChoice:
    """Return the selected engine for this machine, from the cache if possible."""
    path = _cache_folder() / f"fast-{_fingerprint_machine()}.json"
    with suppress(ElmoError, TypeError, KeyError):
        cached = FastChoice(**read_json(path))
        cached.describe()  # raises an error if an entry is missing
        return cached
    choice = probe_fast()
    if choice.is_final:
        _write_cache(path, asdict(choice))
    return choice


def probe_fast() -> FastChoice:
    """Time all candidates in separate processes, which may crash."""
    seconds: dict[str, float] = {}
    failed: dict[str, str] = {}
    remaining = list(_CANDIDATES)
    while remaining:
        output, failure = run_process(_trial_command(remaining), _TIMEOUT)
        results = [json.loads(line) for line in output.splitlines() if line.endswith("}")]
        for kind, result in zip(remaining, results, strict=False):
            if "seconds" in result:
                seconds[kind] = float(result["seconds"])
            else:
                failed[kind] = str(result["failed"])
        remaining = remaining[len(results) :]
        if remaining:  # the process ended during the trial of the next candidate
            failed[remaining.pop(0)] = failure or _NO_RESULT
    fastest = min(seconds, key=lambda kind: seconds[kind], default="exact")
    if seconds.get(fastest, 0.0) * _MIN_SPEEDUP > seconds.get("exact", float("inf")):
        fastest = "exact"
    return FastChoice(fastest, seconds, failed)


def run_process(command: list[str], timeout: float) -> tuple[str, str]:
    """Run a process that may crash, and return its output and the reason for failure, if any."""
    try:
        proc = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as error:
        output = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
        return output, f"{_NO_RESULT} within {timeout:.0f} s"
    if proc.returncode < 0:
        return proc.stdout, f"the process was killed by signal {-proc.returncode}"
    if proc.returncode > 0:
        reason = f"the process exited with code {proc.returncode}"
        return proc.stdout, (proc.stderr.strip().splitlines() or [reason])[-1]
    return proc.stdout, ""


def _trial_command(kinds: list[str]) -> list[str]:
    return [sys.executable, "-m", __name__, *kinds]


def run_trials(kinds: list[str]) -> None:
    """Time candidates in this process, which may crash, and print a line of JSON for each."""
    torch.manual_seed(0)
    bilm = BiLM(_TRIAL_MODEL).eval().requires_grad_(False)
    packing = Packing.of(_TRIAL_LENGTHS)
    x = torch.randn(packing.n_tokens, _TRIAL_MODEL.lstm.projection_dim)
    with torch.inference_mode():
        for kind in kinds:
            sys.stdout.write(json.dumps(_run_trial(kind, bilm, x, packing)) + "\n")
            sys.stdout.flush()


def _run_trial(kind: str, bilm: BiLM, x: Tensor, packing: Packing) -> dict[str, Any]:
    """Return the time of a candidate, or the reason for its failure."""
    try:
        engine = make_engine(kind, bilm)
    except NativeError as error:
        return {"failed": str(error)}
    cosine = _compute_cosines(bilm, engine, x, packing).min().item()
    if not cosine >= MIN_COSINE:
        return {"failed": f"its results are wrong (cosine {cosine:.4f})"}
    times = timeit.repeat(lambda: engine.contextualize(x, packing), number=1, repeat=5)
    return {"seconds": min(times)}


def _cache_folder() -> Path:
    return cache_dir() / "machine"


def _fingerprint_machine() -> str:
    """Return a digest of the CPU and of the versions of torch and elmokit."""
    texts = [platform.machine(), platform.processor(), torch.__version__, __version__]
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
        texts += sorted({line for line in lines if line.startswith(("model name", "flags"))})
    texts.append(library_path(Path()).name)
    return fingerprint_texts(texts)


def _write_cache(path: Path, values: dict[str, Any]) -> None:
    with suppress(ElmoError):
        write_json(path, values)


# -------------------------------------------------------------------------------------- the model


def check_accuracy(bilm: BiLM, engine: Engine, kind: str) -> None:
    """Raise an error if an engine is not accurate enough for a model. The accuracy is cached."""
    path = _cache_folder() / f"cosines-{kind}-{_fingerprint_weights(bilm)}.json"
    cosines: list[float] = []
    with suppress(ElmoError, ValueError, TypeError, KeyError):
        cosines = [float(c) for c in read_json(path)["mean_cosines"]]
    if len(cosines) != bilm.config.n_layers:
        cosines = mean_cosines(bilm, engine)
        _write_cache(path, {"mean_cosines": cosines})
    check_cosines(cosines, "precision='fast'", "Use precision='exact'.")


def check_cosines(mean_cosines: list[float], name: str, hint: str) -> None:
    """Raise an error if the mean cosine similarity to the exact vectors is too low in any layer.

    Args:
        mean_cosines: The mean cosine of each layer.
        name: The name of the precision, for the message.
        hint: A sentence of advice.
    """
    worst = int(np.argmin(mean_cosines))
    if not mean_cosines[worst] >= MIN_COSINE:
        raise ConfigError(
            f"{name} is not accurate enough for this model: in layer {worst}, the mean cosine "
            f"similarity to the exact vectors is {mean_cosines[worst]:.4f}; expected at least "
            f"{MIN_COSINE}. {hint}"
        )


def mean_cosines(bilm: BiLM, engine: Engine) -> list[float]:
    """Embed sentences, and return each layer's mean cosine similarity to the exact vectors."""
    sentences = [[BEGIN_SENTENCE, *text.split(), END_SENTENCE] for text in SENTENCES]
    packing = Packing.of([len(sentence) for sentence in sentences])
    positions = zip(packing.rows.tolist(), packing.steps.tolist(), strict=True)
    tokens = [sentences[row][step] for row, step in positions]
    arbitrary_ids = itertools.cycle(range(bilm.config.n_words or 1))
    ids = encoder_ids(tokens, bilm.config, bilm.lexicon, lambda _: next(arbitrary_ids))
    with torch.inference_mode(), exact_products(next(bilm.parameters()).device):
        x = engine.encode(torch.from_numpy(ids))
        means: list[float] = _compute_cosines(bilm, engine, x, packing).mean(dim=1).tolist()
    return means


def _compute_cosines(bilm: BiLM, engine: Engine, x: Tensor, packing: Packing) -> Tensor:
    """Return the cosine similarity of each vector to the exact vector, shape (L + 1, n)."""
    exact, _ = bilm.contextualize(x, packing)
    fast, _ = engine.contextualize(x, packing)
    return torch.cosine_similarity(exact.float(), fast.float(), dim=-1)


def _fingerprint_weights(bilm: BiLM) -> str:
    """Return the fingerprint of a model and of the code that determines rounding.

    Only a sample of the weights is read, so that this takes only milliseconds.
    """

    def samples() -> Iterator[tuple[str, NDArray[Any]]]:
        for name, parameter in bilm.named_parameters():
            flat = parameter.detach().flatten()
            yield name, flat[:: max(1, len(flat) // 1024)].cpu().numpy()

    code = (path.read_text("utf-8") for path in _ROUNDING_SOURCES)
    return fingerprint_model(bilm.config.to_dict(), samples(), *code)


if __name__ == "__main__":
    run_trials(sys.argv[1:])
