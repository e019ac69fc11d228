from __future__ import annotations

import pytest
import torch

from elmokit.config import BiLMConfig, LstmConfig
from elmokit.errors import ConfigError
from elmokit.model.bilm import BiLM
from elmokit.model.chars import batch_ids
from elmokit.model.elmo import Elmo
from tests.conftest import random_bilm

SENTENCES = [["The", "first", "sentence", "."], ["The", "second"], ["Third"]]


def test_each_output_is_a_separate_mix_of_the_same_layers(tiny_bilm: BiLM) -> None:
    elmo = Elmo(tiny_bilm, outputs=2).eval()
    with torch.no_grad():
        elmo.mixes[1].w.copy_(torch.tensor([0.0, 0.0, 50.0]))
    out = elmo(SENTENCES)
    assert out.mask.tolist() == [[True] * 4, [True] * 2 + [False] * 2, [True] + [False] * 3]
    ids = torch.from_numpy(batch_ids([["<S>", *s, "</S>"] for s in SENTENCES]))
    layers = tiny_bilm(ids).layers
    for row, sentence in enumerate(SENTENCES):
        n = len(sentence)
        inner = layers[:, row, 1 : n + 1]
        assert torch.allclose(out.representations[0][row, :n], inner.mean(dim=0), atol=1e-5)
        assert torch.allclose(out.representations[1][row, :n], inner[-1], atol=1e-5)
        assert not out.representations[0][row, n:].any()


def test_ids_and_tokens_give_the_same_vectors(tiny_bilm: BiLM) -> None:
    elmo = Elmo(tiny_bilm).eval()
    ids = torch.from_numpy(batch_ids(SENTENCES))
    assert torch.equal(elmo(ids).representations[0], elmo(SENTENCES).representations[0])


def test_biLM_is_frozen_by_default(tiny_bilm: BiLM) -> None:
    elmo = Elmo(tiny_bilm, outputs=2).train()
    assert not tiny_bilm.training
    sum(r.sum() for r in elmo(SENTENCES).representations).backward()
    assert all(p.grad is None for p in tiny_bilm.parameters())
    assert all(m.w.grad is not None and m.gamma.grad is not None for m in elmo.mixes)
    tuned = Elmo(tiny_bilm, finetune=True).train()
    tuned(SENTENCES).representations[0].square().sum().backward()
    assert all(p.grad is not None for p in tiny_bilm.parameters())


def test_dropout_applies_to_the_mixed_vector(tiny_bilm: BiLM) -> None:
    elmo = Elmo(tiny_bilm, dropout=0.5).train()
    out = elmo([["a", "b", "c"]]).representations[0]
    assert (out == 0).float().mean() > 0.2


def test_cached_layers_can_be_mixed_without_the_biLM(tiny_bilm: BiLM) -> None:
    elmo = Elmo(tiny_bilm, dropout=0.0)
    layers = torch.randn(3, 2, 5, 20)
    assert torch.allclose(elmo.mix(layers)[0], layers.mean(dim=0), atol=1e-6)


def test_state_is_passed_in_and_returned(tiny_bilm: BiLM) -> None:
    elmo = Elmo(tiny_bilm).eval()
    first = elmo(SENTENCES)
    second = elmo(SENTENCES, first.state)
    assert (first.representations[0] - second.representations[0]).abs().max() > 1e-3


def test_word_input_accepts_ids() -> None:
    bilm = random_bilm(BiLMConfig(LstmConfig(dim=9, projection_dim=4), None, n_words=7))
    elmo = Elmo(bilm, word_boundaries=(5, 6)).eval()
    out = elmo(torch.tensor([[1, 2, 3], [2, 0, 0]]))
    assert out.representations[0].shape == (2, 3, 8)
    ids = torch.tensor([[6, 2, 7]])
    expected = bilm(ids).layers.mean(dim=0)[0, 1]
    assert torch.allclose(out.representations[0][1, 0], expected, atol=1e-5)
    with pytest.raises(ConfigError):
        elmo([["a"]])


def test_state_dict_round_trip(tiny_bilm: BiLM) -> None:
    elmo = Elmo(tiny_bilm, outputs=2)
    with torch.no_grad():
        elmo.mixes[0].w.normal_()
    second = Elmo(random_bilm(tiny_bilm.config, seed=5), outputs=2)
    second.load_state_dict(elmo.state_dict())
    a, b = elmo.eval()(SENTENCES), second.eval()(SENTENCES)
    assert torch.equal(a.representations[0], b.representations[0])


def test_model_name_instead_of_a_biLM_is_rejected() -> None:
    with pytest.raises(ConfigError, match="expected a BiLM"):
        Elmo("english")  # type: ignore[arg-type]
