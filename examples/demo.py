"""What ELMo is for, in one table: the same word has another vector in another sentence.

Run as: make demo, or: python examples/demo.py [MODEL]
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
    """The cosine of two vectors."""
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def main() -> None:
    """Show the table, then write a vector file with the command."""
    model = sys.argv[1] if len(sys.argv) > 1 else None
    elmo = elmokit.load(model)
    print(f"\nModel: {elmo}")
    if elmo.metadata.get("test_model"):
        print(
            "NOTE: this is a tiny model for tests, not a trained English ELMo. It shows that the\n"
            "      machinery works; the numbers below mean nothing about English."
        )
    sentences = [line.split() for line in SENTENCES.read_text("utf-8").splitlines()]
    vectors = elmo.embed(sentences)

    layers = [f"layer {j}" for j in range(elmo.config.n_layers)]
    print("\nCosine of one word in two sentences (1.00 = the same vector):\n")
    print(f"  {'word':6}" + "".join(f"{name:>9}" for name in [*layers, "mix"]) + "   sentences")
    for word in WORDS:
        first, second = (v for v in vectors if word in v.tokens)
        a, b = first.word(word), second.word(word)
        values = [cosine(x, y) for x, y in zip(a, b, strict=True)]
        # A task would learn the weights of the mix; without one all layers count the same.
        values.append(cosine(*(v.mix()[v.tokens.index(word)] for v in (first, second))))
        cells = "".join(f"{value:9.2f}" for value in values)
        print(f"  {word:6}{cells}   {' '.join(first.tokens)}")
        print(f"  {'':6}{'':{9 * len(values)}}   {' '.join(second.tokens)}")
    print("\nLayer 0 sees the word alone; the layers above it see the sentence.\n")

    command = ["elmo", "embed", str(SENTENCES), "--tokenized", "-o", str(OUT), "--overwrite"]
    command += [] if model is None else ["--model", model]
    print("$ " + " ".join(command), flush=True)
    program = [str(Path(sys.executable).with_name("elmo")), *command[1:]]
    subprocess.run(program, check=True)
    print(f"\nThe vectors are in {OUT}.")


if __name__ == "__main__":
    main()
