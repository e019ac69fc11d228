"""ELMoForManyLangs in NumPy, one token at a time.

Written from the description of that system; tensors are read by their original names.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.convert.manylangs.tiny import CHARACTERS, WORDS, make


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def token_vector(token: str, shape: dict[str, Any], w: dict[str, np.ndarray]) -> np.ndarray:
    cnn = shape["token_embedder"]
    limit = cnn["max_characters_per_token"]
    if len(token) + 2 > limit:
        token = token[: limit - 2]
    parts = []
    if cnn["word_dim"]:
        place = WORDS.index(token) if token in WORDS else WORDS.index("<oov>")
        parts.append(w["word_emb_layer.embedding.weight"][place])
    if cnn["char_dim"]:
        inner = [token] if token in ("<bos>", "<eos>") else list(token)
        spelled = ["<eow>", *(c if c in CHARACTERS else "<oov>" for c in inner), "<bow>"]
        spelled += ["<pad>"] * (limit - len(spelled))
        rows = w["char_emb_layer.embedding.weight"][[CHARACTERS.index(c) for c in spelled]]
        found = []
        for i, (width, count) in enumerate(cnn["filters"]):
            kernel, best = w[f"convolutions.{i}.weight"], np.full(count, -np.inf)
            for start in range(limit - width + 1):
                value = w[f"convolutions.{i}.bias"].copy()
                for offset in range(width):
                    value += kernel[:, :, offset] @ rows[start + offset]
                best = np.maximum(best, value)
            found.append(np.maximum(best, 0) if cnn["activation"] == "relu" else np.tanh(best))
        x = np.concatenate(found)
        for i in range(cnn["n_highway"]):
            both = w[f"highways._layers.{i}.weight"] @ x + w[f"highways._layers.{i}.bias"]
            new, gate = np.maximum(both[: len(x)], 0), sigmoid(both[len(x) :])
            x = gate * x + (1 - gate) * new
        parts.append(x)
    return w["projection.weight"] @ np.concatenate(parts) + w["projection.bias"]


def read_layer(
    inputs: list[np.ndarray], name: str, lstm: dict[str, Any], w: dict[str, np.ndarray], state: list
) -> list[np.ndarray]:
    outputs = []
    for x in inputs:
        c, r = state
        z = w[name + "input_linearity.weight"] @ x + w[name + "state_linearity.weight"] @ r
        i, f, j, o = np.split(z + w[name + "state_linearity.bias"], 4)
        c = sigmoid(i) * np.tanh(j) + sigmoid(f) * c
        if lstm["cell_clip"]:
            c = np.clip(c, -lstm["cell_clip"], lstm["cell_clip"])
        r = w[name + "state_projection.weight"] @ (sigmoid(o) * np.tanh(c))
        if lstm["proj_clip"]:
            r = np.clip(r, -lstm["proj_clip"], lstm["proj_clip"])
        state[:] = [c, r]
        outputs.append(r)
    return outputs


def reference(
    tokens: list[str], shape: dict[str, Any], seed: int = 0, states: dict[str, list] | None = None
) -> np.ndarray:
    """Return all layers of a sentence in float64, without <bos> and <eos>, shape (L + 1, T, 2D)."""
    tensors = make(shape, seed)
    w = {name: t.double().numpy() for part in tensors for name, t in part.items()}
    lstm = shape["encoder"]
    states = {} if states is None else states
    x = [token_vector(token, shape, w) for token in ("<bos>", *tokens, "<eos>")]
    layers = [[np.concatenate([v, v]) for v in x]]
    ahead, back = x, x[::-1]
    for layer in range(lstm["n_layers"]):
        outputs = []
        for direction, inputs in (("forward", ahead), ("backward", back)):
            name = f"{direction}_layer_{layer}."
            start = [np.zeros(lstm["dim"]), np.zeros(lstm["projection_dim"])]
            out = read_layer(inputs, name, lstm, w, states.setdefault(name, start))
            outputs.append([o + i for o, i in zip(out, inputs, strict=True)] if layer else out)
        ahead, back = outputs
        layers.append([np.concatenate(pair) for pair in zip(ahead, back[::-1], strict=True)])
    return np.array(layers)[:, 1:-1]
