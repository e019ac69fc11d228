"""The fingerprint of a model: a digest of its weights."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from elmokit.storage.fingerprint import fingerprint_model

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from elmokit.embed.embedder import Embedder


def fingerprint(elmo: Embedder, state: str = "reset") -> str:
    """Return a digest of everything that determines the layers of a model, except its location.

    A torch model and its ONNX conversion have different fingerprints, because their vectors are not
    bit-identical.
    """
    # Sorted by name, with the warm state among the weights; one array in memory at a time.
    arrays = heapq.merge(elmo.weights(), _warm(elmo, state), key=itemgetter(0))
    texts = []
    if elmo.lexicon is not None:
        texts.append(json.dumps([elmo.lexicon.words, elmo.lexicon.characters]))
    if elmo.config.n_words is not None and elmo.vocabulary is not None:
        texts.append("\n".join(elmo.vocabulary.words))
    return fingerprint_model(elmo.config.to_dict(), arrays, *texts)


def _warm(elmo: Embedder, state: str) -> Iterator[tuple[str, NDArray[Any]]]:
    if state == "warm" and elmo.warm is not None:
        yield from sorted(elmo.state_arrays(elmo.warm).items())
