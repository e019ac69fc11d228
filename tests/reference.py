"""A simple and slow implementation of ELMo in float64: one sentence and one token at a time.

Written from the description of the original systems, independently of `elmokit.model`. It reads
weights by their names in the original HDF5 files, so it also checks how they are mapped. Needs only
NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Weights = dict[str, np.ndarray]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def char_ids(word: str, size: int) -> list[int]:
    """Return ids before the shift by one: bytes, 256 <S>, 257 </S>, 258 begin, 259 end, 260."""
    if word == "<S>":
        inner = [256]
    elif word == "</S>":
        inner = [257]
    else:
        inner = list(word.encode("utf-8", "ignore"))[: size - 2]
    ids = [258, *inner, 259]
    while len(ids) < size:
        ids.append(260)
    return ids


def token_vector(word: str, options: dict[str, Any], weights: Weights) -> np.ndarray:
    """Return x_k, the context-independent vector of a word."""
    cnn = options["char_cnn"]
    rows = weights["char_embed"][char_ids(word, cnn["max_characters_per_token"])]  # (C, e)
    features = []
    for i, (width, count) in enumerate(cnn["filters"]):
        kernel, bias = weights[f"CNN/W_cnn_{i}"][0], weights[f"CNN/b_cnn_{i}"]
        best = np.full(count, -np.inf)
        for start in range(len(rows) - width + 1):
            value = bias.copy()
            for offset in range(width):
                value = value + rows[start + offset] @ kernel[offset]
            best = np.maximum(best, value)
        features.append(np.maximum(best, 0) if cnn["activation"] == "relu" else np.tanh(best))
    x = np.concatenate(features)
    for k in range(cnn.get("n_highway", 0)):
        name = f"CNN_high_{k}/"
        gate = sigmoid(x @ weights[name + "W_carry"] + weights[name + "b_carry"])
        new = np.maximum(x @ weights[name + "W_transform"] + weights[name + "b_transform"], 0)
        x = gate * new + (1 - gate) * x
    if len(x) != options["lstm"]["projection_dim"]:
        x = x @ weights["CNN_proj/W_proj"] + weights["CNN_proj/b_proj"]
    return x


def run_direction(
    inputs: list[np.ndarray], number: int, options: dict[str, Any], weights: Weights, state: list
) -> list[list[np.ndarray]]:
    """Return one direction's outputs per layer; update `state`, a list of [c, r] per layer."""
    lstm = options["lstm"]
    projected = lstm["projection_dim"] < lstm["dim"]
    layers = []
    for layer in range(lstm["n_layers"]):
        name = f"RNN_{number}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/"
        outputs = []
        for x in inputs:
            c, r = state[layer]
            z = np.concatenate([x, r]) @ weights[name + "W_0"] + weights[name + "B"]
            i, j, f, o = np.split(z, 4)
            c = sigmoid(f + 1.0) * c + sigmoid(i) * np.tanh(j)
            if lstm["cell_clip"] is not None:
                c = np.clip(c, -lstm["cell_clip"], lstm["cell_clip"])
            r = sigmoid(o) * np.tanh(c)
            if projected:
                r = r @ weights[name + "W_P_0"]
                if lstm["proj_clip"] is not None:
                    r = np.clip(r, -lstm["proj_clip"], lstm["proj_clip"])
            state[layer] = [c, r]
            outputs.append(r + x if layer > 0 and lstm["use_skip_connections"] else r)
        layers.append(outputs)
        inputs = outputs
    return layers


def zero_state(options: dict[str, Any]) -> list:
    lstm = options["lstm"]
    return [
        [[np.zeros(lstm["dim"]), np.zeros(lstm["projection_dim"])] for _ in range(lstm["n_layers"])]
        for _ in range(2)
    ]


def elmo_layers(
    words: list[str],
    options: dict[str, Any],
    weights: Weights,
    state: list | None = None,
    vocabulary: list[str] | None = None,
) -> np.ndarray:
    """Return h_{k,j} of a sentence without its boundaries, shape (L + 1, T, 2D)."""
    state = zero_state(options) if state is None else state
    read = ["<S>", *words, "</S>"]
    if "char_cnn" in options:
        x = [token_vector(word, options, weights) for word in read]
    else:
        assert vocabulary is not None
        x = [weights["embedding"][vocabulary.index(word)] for word in read]
    ahead = run_direction(x, 0, options, weights, state[0])
    back = run_direction(x[::-1], 1, options, weights, state[1])
    layers = [[np.concatenate([v, v]) for v in x]]
    for f, b in zip(ahead, back, strict=True):
        layers.append([np.concatenate([p, q]) for p, q in zip(f, b[::-1], strict=True)])
    return np.array(layers)[:, 1:-1]
