"""Create the tiny model of the tests (tests/models/tiny). Its weights are random.

Run as: python recipes/tiny_model.py OUT       (a few seconds; the result is deterministic)
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from elmokit.config import BiLMConfig, CharCnnConfig, LstmConfig
from elmokit.model.bilm import BiLM
from elmokit.sources.modeldir import ModelParts, save

CONFIG = BiLMConfig(
    lstm=LstmConfig(dim=64, projection_dim=16),
    char_cnn=CharCnnConfig(filters=((1, 16), (2, 16), (3, 32)), n_highway=1),
)
SEED = 1
CARD = """# tiny

A tiny biLM with **random weights** (2 layers with 64 cells, projected to 16 dimensions), created by
`recipes/tiny_model.py`. It is intended only for tests and for trying out commands. Its vectors are
not meaningful.
"""


def main(out: Path) -> None:
    """Write the model directory."""
    torch.manual_seed(SEED)
    bilm = BiLM(CONFIG)
    with torch.no_grad():
        for name, parameter in bilm.named_parameters():
            if "lm.layers" in name and parameter.dim() > 1:
                parameter.mul_(2.0)  # so that the vectors clearly depend on the context
    metadata = {"name": "tiny", "test_model": True, "language": None}
    save(ModelParts(bilm, card=CARD, metadata=metadata), out, overwrite=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
