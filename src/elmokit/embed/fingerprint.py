"""The fingerprint of a model: a digest of its weights."""

from __future__ import annotations

import heapq
import json
from operator import itemgetter
from typing import TYPE_CHECKING

from elmokit.storage.fingerprint import fingerprint_model

if TYPE_CHECKING:
    from elmokit.embed.embedder import Embedder


def fingerprint(elmo: Embedder, state: str = "reset") -> str:
    """Return a digest of everything that determines the layers of a model, except its location.

    A torch model and its ONNX conversion have different fingerprints, because their vectors are not
    bit-identical.
    """
    # Merge the weights and the warm state by name, with only one array in memory at a time.
    warm = elmo.state_arrays(elmo.warm) if state == "warm" and elmo.warm is not None else {}
    arrays = heapq.merge(elmo.weights(), sorted(warm.items()), key=itemgetter(0))
    texts = []
    if elmo.lexicon is not None:
        texts.append(json.dumps([elmo.lexicon.words, elmo.lexicon.characters]))
    if elmo.config.n_words is not None and elmo.vocabulary is not None:
        texts.append("\n".join(elmo.vocabulary.words))
    return fingerprint_model(elmo.config.to_dict(), arrays, *texts)
