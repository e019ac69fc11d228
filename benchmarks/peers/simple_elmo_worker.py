"""Worker for simple_elmo, used as documented. Runs in its own environment with TensorFlow.

All calls use the same session. Without it, simple_elmo would load all weights in each call.
"""

from __future__ import annotations

import logging
import os
import time
from typing import Any

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # simple_elmo requires Keras 2
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import numpy as np
import protocol

state: dict[str, Any] = {}


def load(
    options: str, weights: str, threads: int, vocabulary: list[str] | None = None
) -> dict[str, Any]:
    """Load the model from the directory that contains options.json and the weights."""
    import importlib.metadata

    import tensorflow as tf
    from simple_elmo import ElmoModel, weight_layers

    begin = time.perf_counter()
    model = ElmoModel()
    logging.getLogger().setLevel(logging.ERROR)
    model.load(os.path.dirname(weights), max_batch_size=128)  # noqa: PTH120 (simple_elmo expects a str)
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads
    )
    session = tf.compat.v1.Session(config=config)
    average = weight_layers("input", model.sentence_embeddings_op, use_layers="average")
    state["all"] = weight_layers("check", model.sentence_embeddings_op, use_layers="all")
    state["initializer"] = tf.compat.v1.global_variables_initializer()
    session.run(state["initializer"])
    seconds = time.perf_counter() - begin
    model.elmo_sentence_input = average
    state.update(model=model, session=session)
    names = ("simple_elmo", "tensorflow", "tf_keras")
    return {
        "load_s": seconds,
        "versions": {name: importlib.metadata.version(name) for name in names},
    }


def embed(sentences: list[list[str]]) -> object:
    """Embed one batch. The result is the average of the layers, which is the default."""
    model = state["model"]
    model.batch_size = len(sentences)
    return model.get_elmo_vectors(sentences, warmup=False, session=state["session"])


def vectors(sentences: list[list[str]], out: str) -> dict[str, Any]:
    """Write all layers of one batch, starting from the zero state."""
    session, model = state["session"], state["model"]
    session.run(state["initializer"])  # bilm-tf keeps the state between batches
    ids = model.batcher.batch_sentences(sentences)
    layers = session.run(state["all"]["weighted_op"], {model.sentence_character_ids: ids})
    session.run(state["initializer"])
    rows = [layers[i, :, : len(row)] for i, row in enumerate(sentences)]
    np.save(out, np.concatenate(rows, axis=1))
    return {"tokens": sum(map(len, sentences))}


if __name__ == "__main__":
    protocol.serve(load=load, time=protocol.timed(embed), vectors=vectors)
