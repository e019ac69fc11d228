"""Write golden vectors: tests/embed/english_golden.json, tests/embed/english-original_golden.json.

Create them only once per model. If they no longer match, the vectors that users get have changed.

Run as: python recipes/english_golden.py MODEL OUT.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

import elmokit

SENTENCES = [
    "I read the book yesterday .",
    "Can you read the letter now ?",
    "She deposited the money in the bank .",
    "They walked along the bank of the river .",
    "The children play in the garden .",
    "The play was a success on Broadway in 1957 .",
    "In 1998 , Dr. Okonkwo-Smith 's team measured 3.75 % more rainfall .",
    "Why ?",
    "Antidisestablishmentarianism and flibbertigibbets are loooong words",
    "Das Straßenfest in São Paulo war 日本 genug .",
]
DIMENSIONS = 6


def main(name: str, out: Path) -> None:
    """Write the norm of every vector, and the first dimensions of both halves."""
    elmo = elmokit.load(name, device="cpu")
    golden = []
    for sentence in SENTENCES:
        tokens = sentence.split()
        layers = elmo.embed([tokens])[0].layers
        half = layers.shape[2] // 2
        kept = np.concatenate([layers[..., :DIMENSIONS], layers[..., half : half + DIMENSIONS]], -1)
        golden.append(
            {
                "tokens": tokens,
                "first": np.round(kept.astype(float), 6).tolist(),
                "norms": np.round(np.linalg.norm(layers, axis=-1).astype(float), 5).tolist(),
            }
        )
    out.write_text(json.dumps(golden, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
