"""Create the TensorFlow checkpoint of the tests, tests/convert/tf_checkpoint, with TensorFlow.

This builds a tiny biLM with the cells and variable scopes of bilm-tf, so that TensorFlow names the
variables as in bilm-tf, and trains it for a few steps with Adagrad, so that the accumulators are
nontrivial. `tensorflow.npz` contains the variables as TensorFlow reads them, the layers of a verse,
and the weights after one more step.

Needs a separate environment: pip install tensorflow==2.21.0 tf_keras==2.21.0

Run as: python recipes/tf_checkpoint.py OUT       (30 s on any machine)
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # contains the cells of TensorFlow 1

import numpy as np
import tensorflow.compat.v1 as tf

VERSE = "In the beginning God created the heaven and the earth .".split()
WORDS = ["<S>", "</S>", "<UNK>", *sorted(set(VERSE), key=VERSE.index)]
STEPS = 12
RATE = 0.2

OPTIONS: dict[str, Any] = {
    "bidirectional": True,
    "char_cnn": {
        "activation": "relu",
        "embedding": {"dim": 2},
        "filters": [[1, 2], [2, 3]],
        "max_characters_per_token": 14,
        "n_characters": 261,
        "n_highway": 1,
    },
    "dropout": 0.1,
    "lstm": {
        "cell_clip": 3,
        "dim": 4,
        "n_layers": 2,
        "proj_clip": 3,
        "projection_dim": 3,
        "use_skip_connections": True,
    },
    "all_clip_norm_val": 10.0,
    "n_epochs": 1,
    "n_train_tokens": 132,
    "batch_size": 1,
    "n_tokens_vocab": len(WORDS),
    "unroll_steps": len(VERSE) + 1,
    "n_negative_samples_batch": 8,
}


def spell(word: str) -> list[int]:
    """Return character ids: bytes, 256 <S>, 257 </S>, 258 begin, 259 end, 260 padding."""
    inner = {"<S>": [256], "</S>": [257]}.get(word, list(word.encode()))
    ids = [258, *inner, 259]
    return ids + [260] * (OPTIONS["char_cnn"]["max_characters_per_token"] - len(ids))


def token_encoder(ids: tf.Tensor) -> tf.Tensor:
    """Encode characters (T, C) as x (T, D)."""
    cnn, d = OPTIONS["char_cnn"], OPTIONS["lstm"]["projection_dim"]
    e, size = cnn["embedding"]["dim"], sum(n for _, n in cnn["filters"])
    table = tf.get_variable(
        "char_embed", [261, e], initializer=tf.random_uniform_initializer(-1, 1, seed=1)
    )
    characters = tf.nn.embedding_lookup(table, ids)[None]  # (1, T, C, e)
    features = []
    with tf.variable_scope("CNN", reuse=tf.AUTO_REUSE):
        for i, (width, count) in enumerate(cnn["filters"]):
            initializer = tf.random_normal_initializer(stddev=0.5, seed=10 + i)
            w = tf.get_variable(f"W_cnn_{i}", [1, width, e, count], initializer=initializer)
            b = tf.get_variable(f"b_cnn_{i}", [count], initializer=tf.constant_initializer(0.1))
            windows = tf.nn.conv2d(characters, w, strides=[1, 1, 1, 1], padding="VALID") + b
            features.append(tf.nn.relu(tf.reduce_max(windows, axis=2))[0])
    x = tf.concat(features, 1)  # (T, F)
    normal = tf.random_normal_initializer(stddev=size**-0.5, seed=20)
    with tf.variable_scope("CNN_proj"):
        w_proj = tf.get_variable("W_proj", [size, d], initializer=normal)
        b_proj = tf.get_variable("b_proj", [d], initializer=tf.constant_initializer(0.0))
    for k in range(cnn["n_highway"]):
        with tf.variable_scope(f"CNN_high_{k}"):
            weights = [
                tf.get_variable(f"W_{part}", [size, size], initializer=normal)
                for part in ("carry", "transform")
            ]
            biases = [
                tf.get_variable(f"b_{part}", [size], initializer=tf.constant_initializer(value))
                for part, value in (("carry", -2.0), ("transform", 0.0))
            ]
        gate = tf.nn.sigmoid(tf.matmul(x, weights[0]) + biases[0])
        x = gate * tf.nn.relu(tf.matmul(x, weights[1]) + biases[1]) + (1 - gate) * x
    return tf.matmul(x, w_proj) + b_proj


def language_model(x: tf.Tensor, number: int, length: int) -> tf.Tensor:
    """Return the top layer (T, D) of TensorFlow's LSTM cells for the inputs x (T, D)."""
    lstm, cells = OPTIONS["lstm"], []
    for layer in range(lstm["n_layers"]):
        cell = tf.nn.rnn_cell.LSTMCell(
            lstm["dim"],
            num_proj=lstm["projection_dim"],
            cell_clip=lstm["cell_clip"],
            proj_clip=lstm["proj_clip"],
            initializer=tf.random_normal_initializer(stddev=0.7, seed=30 + 10 * number + layer),
        )
        cells.append(tf.nn.rnn_cell.ResidualWrapper(cell) if layer else cell)
    with tf.variable_scope(f"RNN_{number}"):
        steps = [x[k : k + 1] for k in range(length)]
        outputs, _ = tf.nn.static_rnn(tf.nn.rnn_cell.MultiRNNCell(cells), steps, dtype=tf.float32)
    return tf.concat(outputs, 0)


def main(out: Path) -> None:
    """Write the checkpoint and the expected values."""
    tf.disable_v2_behavior()
    tf.set_random_seed(1)
    tokens = ["<S>", *VERSE, "</S>"]
    token_ids = np.array([WORDS.index(word) for word in tokens])
    ids = tf.constant([spell(word) for word in tokens])
    step = tf.get_variable("global_step", [], initializer=tf.zeros_initializer(), trainable=False)
    with tf.variable_scope("lm"):
        x = token_encoder(ids)
        forward = language_model(x, 0, len(tokens))
        backward = language_model(tf.reverse(x, [0]), 1, len(tokens))
        with tf.variable_scope("softmax"):
            d = OPTIONS["lstm"]["projection_dim"]
            normal = tf.random_normal_initializer(stddev=d**-0.5, seed=50)
            w = tf.get_variable("W", [len(WORDS), d], initializer=normal)
            b = tf.get_variable("b", [len(WORDS)], initializer=tf.zeros_initializer())
    losses = [
        tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=targets[1:], logits=tf.matmul(h[:-1], w, transpose_b=True) + b
            )
        )
        for h, targets in ((forward, token_ids), (backward, token_ids[::-1].copy()))
    ]
    optimizer = tf.train.AdagradOptimizer(RATE, initial_accumulator_value=1.0)
    scaled = 0.5 * (losses[0] + losses[1]) * OPTIONS["unroll_steps"]
    gradients, variables = zip(*optimizer.compute_gradients(scaled), strict=True)
    gradients = [tf.convert_to_tensor(g) for g in gradients]
    clipped, _ = tf.clip_by_global_norm(gradients, OPTIONS["all_clip_norm_val"])
    train = optimizer.apply_gradients(zip(clipped, variables, strict=True), global_step=step)
    saver = tf.train.Saver(tf.global_variables(), max_to_keep=1)
    out.mkdir(parents=True, exist_ok=True)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(STEPS):
            session.run(train)
        prefix = str(out / "model.ckpt")
        saver.save(session, prefix, global_step=step, write_meta_graph=False)
        layers = dict(
            zip(("x", "forward", "backward"), session.run([x, forward, backward]), strict=True)
        )
        session.run(train)
        after = session.run({v.op.name: v for v in variables})
    reader = tf.train.load_checkpoint(f"{prefix}-{STEPS}")
    arrays = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    arrays |= {f"says/{name}": value for name, value in layers.items()}
    arrays |= {f"after/{name}": value for name, value in after.items()}
    # A single array, because a hundred small ones would make the file three times as large.
    numbers = np.concatenate([value.ravel() for value in arrays.values()])
    shapes = json.dumps({name: value.shape for name, value in arrays.items()})
    np.savez_compressed(out / "tensorflow.npz", numbers=numbers, shapes=shapes)
    (out / "options.json").write_text(json.dumps(OPTIONS) + "\n", "utf-8")
    (out / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
