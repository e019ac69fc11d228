"""simple_elmo, called as its documentation says; runs in its own environment with TensorFlow.

One session is kept for all calls: without one, simple_elmo reads all weights anew in each call.
"""

from __future__ import annotations

import logging
import os
import time
from typing import Any

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # it needs Keras 2
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import numpy as np
import protocol

held: dict[str, Any] = {}


def load(
    options: str, weights: str, threads: int, vocabulary: list[str] | None = None
) -> dict[str, Any]:
    """Load the model; it finds options.json and the HDF5 file in one folder."""
    import importlib.metadata

    import tensorflow as tf
    from simple_elmo import ElmoModel, weight_layers

    begin = time.perf_counter()
    model = ElmoModel()
    logging.getLogger().setLevel(logging.ERROR)
    model.load(os.path.dirname(weights), max_batch_size=128)  # noqa: PTH120 (its own API is a str)
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads
    )
    session = tf.compat.v1.Session(config=config)
    average = weight_layers("input", model.sentence_embeddings_op, use_layers="average")
    held["all"] = weight_layers("check", model.sentence_embeddings_op, use_layers="all")
    held["start"] = tf.compat.v1.global_variables_initializer()
    session.run(held["start"])
    seconds = time.perf_counter() - begin
    model.elmo_sentence_input = average
    held.update(model=model, session=session)
    names = ("simple_elmo", "tensorflow", "tf_keras")
    return {
        "load_s": seconds,
        "versions": {name: importlib.metadata.version(name) for name in names},
    }


def embed(sentences: list[list[str]]) -> object:
    """Compute one batch, the average of the layers as by default."""
    model = held["model"]
    model.batch_size = len(sentences)
    return model.get_elmo_vectors(sentences, warmup=False, session=held["session"])


def vectors(sentences: list[list[str]], out: str) -> dict[str, Any]:
    """Write all layers of one batch, from a fresh state."""
    session, model = held["session"], held["model"]
    session.run(held["start"])  # bilm-tf carries the state from batch to batch
    ids = model.batcher.batch_sentences(sentences)
    layers = session.run(held["all"]["weighted_op"], {model.sentence_character_ids: ids})
    session.run(held["start"])
    rows = [layers[i, :, : len(row)] for i, row in enumerate(sentences)]
    np.save(out, np.concatenate(rows, axis=1))
    return {"tokens": sum(map(len, sentences))}


if __name__ == "__main__":
    protocol.serve(load=load, time=protocol.timed(embed), vectors=vectors)
