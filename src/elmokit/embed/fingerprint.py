"""The fingerprint of a model: a digest of its configuration, weights and vocabulary."""

from __future__ import annotations

import heapq
import json
from operator import itemgetter
from typing import TYPE_CHECKING

from elmokit.storage.fingerprint import fingerprint_model

if TYPE_CHECKING:
    from elmokit.embed.embedder import Embedder


def fingerprint(model: Embedder, state: str = "reset") -> str:
    """Return a digest of everything that determines the layers of a model.

    Copies of a model in different directories have the same fingerprint. A torch model and its ONNX
    conversion have different fingerprints, because their vectors are not bit-identical.

    Args:
        model: The model.
        state: The initial state of each sentence. With "warm", the digest includes the warm state.
    """
    # Merge the weights and the warm state in the order of their names, one array at a time.
    warm = model.state_arrays(model.warm) if state == "warm" and model.warm is not None else {}
    arrays = heapq.merge(model.weights(), sorted(warm.items()), key=itemgetter(0))
    texts = []
    if model.lexicon is not None:
        texts.append(json.dumps([model.lexicon.words, model.lexicon.characters]))
    if model.config.n_words is not None and model.vocabulary is not None:
        texts.append("\n".join(model.vocabulary.words))
    return fingerprint_model(model.config.to_dict(), arrays, *texts)
