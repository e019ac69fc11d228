"""Choose the implementation of precision="fast" on this CPU, and check its accuracy for a model.

Both results are computed once and stored in the user's cache directory:

*   Which kernel is fastest? The candidates are timed on a small model in a separate process, which
    may crash if the CPU lacks an instruction that it advertises.
*   Is it accurate enough for this model? The model reads a few sentences with both precisions; if
    the mean cosine of any layer with the exact vectors is below 0.999, an error is raised.

A candidate that times out is skipped only in this process, because the machine may have been busy.
If the cache directory cannot be written, every process repeats the trial, which takes seconds.
"""

from __future__ import annotations

import functools
import json
import platform
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit import __version__
from elmokit.embed.precision import exact as exact_products
from elmokit.embed.probe import NO_ANSWER, run_process
from elmokit.errors import ConfigError, ElmoError, ElmoWarning
from elmokit.model import quantize
from elmokit.model.bilm import BiLM
from elmokit.model.chars import BEGIN_SENTENCE, END_SENTENCE, char_ids_table
from elmokit.model.engine import Engine
from elmokit.model.kernels.cpu_native import (
    LANES,
    NativeError,
    NativeHead,
    build,
    fits,
    library_path,
    native_reader,
    open_library,
)
from elmokit.model.kernels.cpu_reader import TorchReader
from elmokit.model.lexicon_encoder import LexiconEncoder
from elmokit.model.packing import Packing
from elmokit.model.scoring import Head
from elmokit.model.softmax import LMHead
from elmokit.sources.download import cache_dir
from elmokit.storage.fingerprint import fingerprint_model, fingerprint_texts
from elmokit.storage.manifest import read_json, write_json

# The code that determines rounding: if it changes, the accuracy is measured again.
_ROUNDING = tuple(
    Path(quantize.__file__).parent / name
    for name in ("quantize.py", "kernels/cpu_linear.py", "kernels/int8_lstm.c")
)

#: Minimum mean cosine with the exact vectors, for every layer.
LEAST_COSINE = 0.999
# Minimum speedup over exact products.
_GAIN = 1.1
_KINDS = ("exact", "int8", "native")  # the riskiest last
_TIMEOUT = 120.0
_PASSING = re.compile(rf"^{NO_ANSWER}|killed by signal (2|9|15)\b")  # SIGINT, SIGKILL, SIGTERM

#: Sentences to measure the accuracy of vectors with.
SENTENCES = (
    "The children play in the garden , and then they read a book .",
    "In 1998 , Dr. Okonkwo-Smith 's team measured 3.75 % more rainfall than expected .",
    "Why would anyone leave ?",
    "Der alte Mann wohnt seit Jahren in São Paulo ; http://example.org/?q=1 says so .",
)


@dataclass(frozen=True)
class FastChoice:
    """The implementation of "fast" on this machine.

    Attributes:
        kind: "native" (int8 by the C kernel), "int8" (int8 by torch) or "exact" (nothing faster).
        seconds: The time of each working candidate for the same small task.
        failed: Why the others failed.
    """

    kind: str
    seconds: dict[str, float]
    failed: dict[str, str]

    @property
    def is_lasting(self) -> bool:
        """Whether the next process would get the same result.

        A candidate that timed out or was killed may work then.
        """
        return not any(_PASSING.search(why) for why in self.failed.values())

    def describe(self) -> str:
        """Return a one-line description."""
        names = {
            "native": "int8 by elmokit's own kernel",
            "int8": "int8 by torch's integer product",
            "exact": "the same as exact",
        }
        text = names[self.kind]
        if self.kind != "exact" and "exact" in self.seconds:
            gain = self.seconds["exact"] / self.seconds[self.kind]
            text += f", {gain:.1f} times as fast as exact on a small model"
        for kind, why in self.failed.items():
            text += f"; {names[kind]} does not work: {why}"
        return text


def fast_reader(bilm: BiLM) -> Engine:
    """Return the fastest reader of a biLM on this CPU.

    Raises:
        ConfigError: It is not accurate enough for this model.
    """
    choice = fast_choice()
    # If the kernel does not support the shape, torch's product is the next best.
    kinds = ("native", "int8") if choice.kind == "native" else (choice.kind,)
    for kind in kinds:
        if kind == "exact" or kind in choice.failed or (kind == "native" and not fits(bilm)):
            continue
        try:
            reader = reader_of(kind, bilm)
        except (NativeError, ElmoError):
            continue  # the compiled kernel was removed and cannot be made again
        check_model(bilm, reader, kind)
        return reader
    warnings.warn(
        f"precision='fast' is {choice.describe()} on this machine.", ElmoWarning, stacklevel=4
    )
    return TorchReader(bilm)


def fast_head(head: LMHead) -> Head:
    """Return the fastest softmax of an LM head on this CPU."""
    if fast_choice().kind == "native" and head.weight.shape[1] % LANES == 0:
        with suppress(NativeError, ElmoError):
            return NativeHead(head, open_library(build(_folder())))
    return head


def reader_of(kind: str, bilm: BiLM) -> Engine:
    """Return the reader of one kind; a `NativeError` explains why there is none."""
    if kind == "native":
        return native_reader(bilm, _folder())
    return TorchReader(bilm, int8=kind == "int8")


# ------------------------------------------------------------------------------------ the machine


@functools.cache
def fast_choice() -> FastChoice:
    """Return the implementation of "fast" on this machine, from the cache if possible."""
    path = _folder() / f"fast-{_machine()}.json"
    with suppress(ElmoError, TypeError, KeyError):
        cached = FastChoice(**read_json(path))
        cached.describe()  # raises if an entry is missing
        if cached.is_lasting:
            return cached
    choice = probe_fast()
    if choice.is_lasting:
        _remember(path, asdict(choice))
    return choice


def probe_fast() -> FastChoice:
    """Try all candidates in separate processes, which may crash."""
    seconds: dict[str, float] = {}
    failed: dict[str, str] = {}
    left = list(_KINDS)
    while left:
        answers, end = _try(left)
        for kind, answer in zip(left, answers, strict=False):
            if "seconds" in answer:
                seconds[kind] = float(answer["seconds"])
            else:
                failed[kind] = str(answer["failed"])
        left = left[len(answers) :]
        if left:  # the process ended while it tried the next one
            failed[left.pop(0)] = end
    exact = seconds.get("exact", float("inf"))
    fastest = min(seconds, key=lambda kind: seconds[kind], default="exact")
    if seconds.get(fastest, 0.0) * _GAIN > exact:
        fastest = "exact"
    return FastChoice(fastest, seconds, failed)


def _try(kinds: list[str]) -> tuple[list[dict[str, Any]], str]:
    """Try candidates in another process; return its results and how it ended."""
    output, failure = run_process(_command(kinds), _TIMEOUT)
    answers = [json.loads(line) for line in output.splitlines() if line.endswith("}")]
    return answers, failure or "no answer"


def _command(kinds: list[str]) -> list[str]:
    return [sys.executable, "-m", "elmokit.embed.fast_trial", *kinds]


def _folder() -> Path:
    return cache_dir() / "machine"


def _machine() -> str:
    """Return a digest of what the choice depends on: the CPU, torch and elmokit's version."""
    about = [platform.machine(), platform.processor(), torch.__version__, __version__]
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
        about += sorted({line for line in lines if line.startswith(("model name", "flags"))})
    about.append(library_path(Path()).name)
    return fingerprint_texts(about)


def _remember(path: Path, values: dict[str, Any]) -> None:
    with suppress(ElmoError):
        write_json(path, values)


# -------------------------------------------------------------------------------------- the model


def check_model(bilm: BiLM, reader: Engine, kind: str) -> None:
    """Raise if a kind of product is not accurate enough for a model; cache the measurement."""
    path = _folder() / f"cosines-{kind}-{_fingerprint(bilm)}.json"
    cosines: list[float] = []
    with suppress(ElmoError, ValueError, TypeError, KeyError):
        cosines = [float(c) for c in read_json(path)["mean_cosines"]]
    if len(cosines) != bilm.config.n_layers:
        cosines = mean_cosines(bilm, reader)
        _remember(path, {"mean_cosines": cosines})
    worst = min(range(len(cosines)), key=lambda j: cosines[j])
    if not cosines[worst] >= LEAST_COSINE:
        raise ConfigError(
            f"precision='fast' is not accurate enough for this model: the mean cosine of layer "
            f"{worst} with the exact vectors is {cosines[worst]:.4f}; expected at least "
            f"{LEAST_COSINE}. Use precision='exact'."
        )


def mean_cosines(bilm: BiLM, reader: Engine) -> list[float]:
    """Embed a few sentences and return the mean cosine with the exact vectors, per layer."""
    sentences = [[BEGIN_SENTENCE, *text.split(), END_SENTENCE] for text in SENTENCES]
    types = sorted({token for sentence in sentences for token in sentence})
    number = {token: i for i, token in enumerate(types)}
    if bilm.config.char_cnn is not None:
        ids = char_ids_table(types, bilm.config.char_cnn.max_characters_per_token)
    elif isinstance(bilm.encoder, LexiconEncoder):
        ids = bilm.encoder.known.spell(types)
    else:
        assert bilm.config.n_words is not None
        ids = np.arange(len(types)) % bilm.config.n_words + 1  # any words
    packing = Packing.of([len(sentence) for sentence in sentences])
    packed = [
        number[sentences[row][step]]
        for row, step in zip(packing.rows.tolist(), packing.steps.tolist(), strict=True)
    ]
    device = next(bilm.parameters()).device
    with torch.inference_mode(), exact_products(device):
        x = reader.encode(torch.from_numpy(ids))[torch.tensor(packed, device=device)]
        exact, _ = bilm.contextualize(x, packing)
        fast, _ = reader.contextualize(x, packing)
        both = exact.float(), fast.float()
        cosines: list[float] = torch.cosine_similarity(*both, dim=-1).mean(dim=1).tolist()
    return cosines


def _fingerprint(bilm: BiLM) -> str:
    """Return the fingerprint of a sample of each weight, which takes milliseconds for any size."""

    def samples() -> Iterator[tuple[str, NDArray[Any]]]:
        for name, parameter in bilm.named_parameters():
            flat = parameter.detach().flatten()
            yield name, flat[:: max(1, len(flat) // 1024)].cpu().numpy()

    code = (file.read_text("utf-8") for file in _ROUNDING)
    return fingerprint_model(bilm.config.to_dict(), samples(), *code)
