"""Tasks on a GPU: cached layers stay there, a model learns, and it can move back."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from elmokit.embed.layer_cache import LayerCache, StoredLayers
from elmokit.embed.loading import load
from elmokit.tasks.data import load_data
from elmokit.tasks.loop import train
from elmokit.tasks.ner import Ner
from elmokit.tasks.saved import load_saved
from tests.conftest import TINY_MODEL
from tests.tasks.conftest import settings

TASK = Ner()


@pytest.mark.gpu
def test_tagger_trains_on_a_gpu_and_predicts_on_gpu_and_cpu(
    files: tuple[str, str], cache: LayerCache, tmp_path: Path
) -> None:
    config = settings("elmo.place=both", "train.epochs=12", "train.patience=4")
    elmo = load(TINY_MODEL, device="cuda")
    data = load_data(
        TASK, config, *files, elmo=elmo, model=str(TINY_MODEL), cache=cache, device="cuda"
    )
    whole = cache.layers(elmo, [("a", "b")], torch.device("cuda"))
    assert isinstance(whole, StoredLayers)
    assert whole._on_device is not None
    assert whole.padded([0]).device.type == "cuda"
    state = torch.cuda.get_rng_state()
    result = train(TASK, config, data, tmp_path / "run")
    assert torch.equal(torch.cuda.get_rng_state(), state)
    assert result.dev is not None
    assert result.dev["f1"] > 98
    examples = TASK.read(files[1])
    predicted = [
        load_saved(tmp_path / "run", TASK, device=device).predict(examples)
        for device in ("cuda", "cpu")
    ]
    assert predicted[0] == predicted[1]
