"""compat.allennlp, compared with the golden vectors of bilm-tf, with carried state."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from elmokit.compat.allennlp import Elmo, batch_to_ids

MODELS = {
    "skip": ("allenai-allennlp/test_fixtures/elmo", "sentences.json"),
    # AllenNLP rejects this model, which has no skip connections.
    "no-skip": ("allenai-bilm-tf/fixtures/model", "lm_embeddings_sentences.json"),
}


@pytest.mark.parametrize("name", MODELS)
def test_top_layer_equals_bilm_tf(name: str, shared: Path) -> None:
    folder = shared / "fixtures" / MODELS[name][0]
    texts = json.loads((folder / MODELS[name][1]).read_text("utf-8"))
    top_only = [-9e10, -9e10, 1.0]
    elmo = Elmo(
        folder / "options.json", folder / "lm_weights.hdf5", 1, scalar_mix_parameters=top_only
    ).eval()
    worst = 0.0
    for i in range(10):
        batch = [text[i].split() for text in texts]
        with torch.no_grad():
            output = elmo(batch_to_ids(batch))
        for k, sentence in enumerate(batch):
            with h5py.File(folder / f"lm_embeddings_{k}.hdf5") as file:
                expected = np.concatenate(list(file[str(i)][()]), axis=-1)
            found = output["elmo_representations"][0][k, : len(sentence)].numpy()
            assert found.shape == expected.shape
            worst = max(worst, float(np.abs(found - expected).max()))
    assert worst < 1e-5
