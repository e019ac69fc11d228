"""Show that ELMo gives the same word different vectors in different sentences.

Usage: make demo, or python examples/demo.py [MODEL]
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

import elmokit

SENTENCES = Path(__file__).with_name("sentences.txt")
OUT = Path("out") / "vectors.h5"
WORDS = ("read", "bank", "play")


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Return the cosine similarity of two vectors."""
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def main() -> None:
    """Print a table of similarities, then write a vector file with `elmo embed`."""
    model = sys.argv[1] if len(sys.argv) > 1 else None
    elmo = elmokit.load(model)
    print(f"\nModel: {elmo}")
    if elmo.metadata.get("test_model"):
        print(
            "Note: This is a tiny test model, not a trained English ELMo. The values below are\n"
            "      not meaningful."
        )
    sentences = [line.split() for line in SENTENCES.read_text("utf-8").splitlines()]
    vectors = elmo.embed(sentences)

    layers = [f"layer {j}" for j in range(elmo.config.n_layers)]
    print("\nCosine similarity of a word in two sentences (1.00 = same vector):\n")
    print(f"  {'word':6}" + "".join(f"{name:>9}" for name in [*layers, "mix"]) + "   sentences")
    for word in WORDS:
        first, second = (v for v in vectors if word in v.tokens)
        a, b = first.word(word), second.word(word)
        values = [cosine(x, y) for x, y in zip(a, b, strict=True)]
        # A task model would learn the weights of the mix. Here, all layers have equal weights.
        values.append(cosine(*(v.mix()[v.tokens.index(word)] for v in (first, second))))
        cells = "".join(f"{value:9.2f}" for value in values)
        print(f"  {word:6}{cells}   {' '.join(first.tokens)}")
        print(f"  {'':6}{'':{9 * len(values)}}   {' '.join(second.tokens)}")
    print("\nLayer 0 depends only on the word. The higher layers depend on the sentence.\n")

    command = ["elmo", "embed", str(SENTENCES), "--tokenized", "-o", str(OUT), "--overwrite"]
    command += [] if model is None else ["--model", model]
    print("$ " + " ".join(command), flush=True)
    program = [str(Path(sys.executable).with_name("elmo")), *command[1:]]
    subprocess.run(program, check=True)
    print(f"\nWrote the vectors to {OUT}.")


if __name__ == "__main__":
    main()
