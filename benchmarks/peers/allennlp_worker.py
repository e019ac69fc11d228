"""Worker for AllenNLP's `Elmo`, used as documented. Runs in its own environment with Python 3.9.

With a vocabulary (`vocab_to_cache`), AllenNLP encodes each word once when the model is loaded, and
batches contain word ids. Gradients are disabled, which is not AllenNLP's default.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import protocol

state: dict[str, Any] = {}


def load(
    options: str, weights: str, threads: int, vocabulary: list[str] | None = None
) -> dict[str, Any]:
    """Load the model, and encode the words of `vocabulary`."""
    import allennlp
    import torch
    from allennlp.modules.elmo import Elmo

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    # AllenNLP uses word 0 for padding, so inputs with id 0 are masked.
    cached = None if vocabulary is None else ["<pad>", *vocabulary]
    begin = time.perf_counter()
    state["elmo"] = Elmo(options, weights, 1, dropout=0.0, vocab_to_cache=cached).eval()
    seconds = time.perf_counter() - begin
    state["word_ids"] = None if cached is None else {word: i for i, word in enumerate(cached)}
    versions = {"allennlp": allennlp.__version__, "torch": torch.__version__}
    return {"load_s": seconds, "versions": versions}


def inputs(sentences: list[list[str]]) -> tuple[Any, ...]:
    """Convert tokens to character ids, or to word ids if the words are cached."""
    import torch
    from allennlp.modules.elmo import batch_to_ids

    word_ids = state["word_ids"]
    if word_ids is None:
        return (batch_to_ids(sentences),)
    ids = torch.zeros(len(sentences), max(map(len, sentences)), dtype=torch.long)
    for row, sentence in enumerate(sentences):
        ids[row, : len(sentence)] = torch.tensor([word_ids[token] for token in sentence])
    return ids, ids


def embed(sentences: list[list[str]]) -> object:
    """Embed one batch."""
    return state["elmo"](*inputs(sentences))["elmo_representations"][0]


def vectors(sentences: list[list[str]], out: str) -> dict[str, Any]:
    """Write all layers of one batch, starting from the zero state."""
    bilm = state["elmo"]._elmo_lstm
    bilm._elmo_lstm._states = None  # AllenNLP keeps the state between batches
    layers = np.stack([layer.numpy() for layer in bilm(*inputs(sentences))["activations"]])
    bilm._elmo_lstm._states = None
    rows = [layers[:, i, 1 : len(row) + 1] for i, row in enumerate(sentences)]
    np.save(out, np.concatenate(rows, axis=1))
    return {"tokens": sum(map(len, sentences))}


if __name__ == "__main__":
    protocol.serve(load=load, time=protocol.timed(embed), vectors=vectors)
