"""The network alone, timed apart from the text: what the device can do, not what the host does."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from elmokit.embed.model import ElmoModel
from elmokit.embed.precision import exact
from elmokit.errors import ConfigError
from elmokit.model.chars import BEGIN_SENTENCE, END_SENTENCE, char_ids_table
from elmokit.model.packing import Packing


class _Ready(NamedTuple):
    """A batch as the network reads it: ids of its distinct tokens, and where they stand."""

    ids: Tensor  # (types, C), on the CPU as engines take them
    numbers: Tensor  # packed token -> row of ids, (N,)
    packing: Packing
    tokens: int  # without the sentence boundaries


def time_parts(
    model: ElmoModel, sentences: Sequence[Sequence[str]], batch: int, times: int
) -> dict[str, Any]:
    """Time the token encoder, the LSTMs and both together over full batches.

    Returns:
        Tokens of one pass (boundaries not counted), distinct tokens that were encoded in it, and
        for `encode`, `contextualize` and `bilm` the seconds of each of `times` passes.
    """
    if model.config.char_cnn is None:
        raise ConfigError("The parts of a word-input model are not timed: it has no encoder.")
    ranked = sorted(sentences, key=len, reverse=True)
    ready = [_prepare(model, ranked[i : i + batch]) for i in range(0, len(ranked), batch)]
    encode, contextualize = model.engine.encode, model.engine.contextualize

    def read_all(encoded: Sequence[Tensor] | None) -> None:
        for i, one in enumerate(ready):
            x = encode(one.ids)[one.numbers] if encoded is None else encoded[i]
            contextualize(x, one.packing, None)

    seconds: dict[str, list[float]] = {"encode": [], "contextualize": [], "bilm": []}
    with torch.inference_mode(), exact(model.device):
        encoded = [encode(one.ids)[one.numbers] for one in ready]
        works: dict[str, Callable[[], object]] = {
            "encode": lambda: [encode(one.ids) for one in ready],
            "contextualize": lambda: read_all(encoded),
            "bilm": lambda: read_all(None),
        }
        for work in works.values():
            work()  # the first pass builds what is built once
        for _ in range(times):
            for name, work in works.items():
                _wait(model.device)
                begin = time.perf_counter()
                work()
                _wait(model.device)
                seconds[name].append(time.perf_counter() - begin)
    return {
        "tokens": sum(one.tokens for one in ready),
        "types": sum(len(one.ids) for one in ready),
        "seconds": seconds,
    }


def _prepare(model: ElmoModel, sentences: Sequence[Sequence[str]]) -> _Ready:
    assert model.config.char_cnn is not None
    types: dict[str, int] = {}
    rows = [
        [types.setdefault(token, len(types)) for token in (BEGIN_SENTENCE, *row, END_SENTENCE)]
        for row in sentences
    ]
    packing = Packing.of([len(row) for row in rows])
    packed = np.empty(packing.n_tokens, dtype=np.int64)
    packed[np.lexsort((packing.steps, packing.rows))] = np.concatenate(rows)
    limit = model.config.char_cnn.max_characters_per_token
    ids = torch.from_numpy(char_ids_table(list(types), limit))
    numbers = torch.from_numpy(packed).to(model.device)
    return _Ready(ids, numbers, packing, sum(map(len, sentences)))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
