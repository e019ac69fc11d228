"""AllenNLP's `Elmo`, called as its documentation says; runs in its own Python 3.9.

With a vocabulary its character encoder runs once per word when it loads (`vocab_to_cache`), and
batches are word ids. Gradients are off, which not all of its users know of.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import protocol

held: dict[str, Any] = {}


def load(
    options: str, weights: str, threads: int, vocabulary: list[str] | None = None
) -> dict[str, Any]:
    """Load the model; the words of `vocabulary` are encoded at once."""
    import allennlp
    import torch
    from allennlp.modules.elmo import Elmo

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    # Word 0 is padding to AllenNLP: an input of 0 is masked.
    cached = None if vocabulary is None else ["<pad>", *vocabulary]
    begin = time.perf_counter()
    held["elmo"] = Elmo(options, weights, 1, dropout=0.0, vocab_to_cache=cached).eval()
    seconds = time.perf_counter() - begin
    held["places"] = None if cached is None else {word: i for i, word in enumerate(cached)}
    versions = {"allennlp": allennlp.__version__, "torch": torch.__version__}
    return {"load_s": seconds, "versions": versions}


def inputs(sentences: list[list[str]]) -> tuple[Any, ...]:
    """Turn tokens into what the model reads: character ids, or word ids if words are cached."""
    import torch
    from allennlp.modules.elmo import batch_to_ids

    places = held["places"]
    if places is None:
        return (batch_to_ids(sentences),)
    ids = torch.zeros(len(sentences), max(map(len, sentences)), dtype=torch.long)
    for row, sentence in enumerate(sentences):
        ids[row, : len(sentence)] = torch.tensor([places[token] for token in sentence])
    return ids, ids


def embed(sentences: list[list[str]]) -> object:
    """Compute one batch."""
    return held["elmo"](*inputs(sentences))["elmo_representations"][0]


def vectors(sentences: list[list[str]], out: str) -> dict[str, Any]:
    """Write all layers of one batch, from a fresh state."""
    bilm = held["elmo"]._elmo_lstm
    bilm._elmo_lstm._states = None  # AllenNLP carries the state from batch to batch
    layers = np.stack([layer.numpy() for layer in bilm(*inputs(sentences))["activations"]])
    bilm._elmo_lstm._states = None
    rows = [layers[:, i, 1 : len(row) + 1] for i, row in enumerate(sentences)]
    np.save(out, np.concatenate(rows, axis=1))
    return {"tokens": sum(map(len, sentences))}


if __name__ == "__main__":
    protocol.serve(load=load, time=protocol.timed(embed), vectors=vectors)
