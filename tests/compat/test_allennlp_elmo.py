"""The names, arguments, outputs and errors of compat.allennlp."""

from __future__ import annotations

import inspect
import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from elmokit.compat.allennlp import (
    Elmo,
    ElmoEmbedder,
    ElmoTokenEmbedder,
    ScalarMix,
    _ElmoBiLm,
    batch_to_ids,
)
from elmokit.config import BiLMConfig, LstmConfig
from elmokit.convert import bilm_hdf5
from elmokit.errors import ConfigError, DataError, DownloadError, WeightsError
from tests.compat.conftest import Files
from tests.conftest import random_bilm

SENTENCES = [["The", "first", "sentence", "."], ["The", "second"]]
IDS = batch_to_ids(SENTENCES)


def test_arguments_match_allennlp() -> None:
    def arguments(function: Any) -> str:
        return " ".join(
            p.name if p.default is p.empty else f"{p.name}={p.default}"
            for p in inspect.signature(function).parameters.values()
            if p.kind == p.POSITIONAL_OR_KEYWORD and p.name != "self"
        )

    assert arguments(Elmo.__init__) == (
        "options_file weight_file num_output_representations requires_grad=False "
        "do_layer_norm=False dropout=0.5 vocab_to_cache=None keep_sentence_boundaries=False "
        "scalar_mix_parameters=None module=None"
    )
    assert arguments(Elmo.forward) == "inputs word_inputs=None"
    assert arguments(_ElmoBiLm.forward) == "inputs word_inputs=None"
    assert arguments(ScalarMix.__init__) == (
        "mixture_size do_layer_norm=False initial_scalar_parameters=None trainable=True"
    )
    assert arguments(ElmoEmbedder.__init__) == ("options_file=None weight_file=None cuda_device=-1")
    assert arguments(ElmoEmbedder.embed_file) == (
        "input_file output_file_path output_format=all batch_size=64 forget_sentences=False "
        "use_sentence_keys=False"
    )


def test_output_has_the_structure_of_allennlp(tiny: Files) -> None:
    elmo = Elmo(str(tiny.options), str(tiny.weights), 2).eval()
    output = elmo(IDS)
    assert type(output) is dict
    assert list(output) == ["elmo_representations", "mask"]
    assert type(output["elmo_representations"]) is list
    assert [r.shape for r in output["elmo_representations"]] == [(2, 4, 20)] * 2
    assert all(r.is_contiguous() for r in output["elmo_representations"])
    assert output["mask"].tolist() == [[True] * 4, [True, True, False, False]]
    assert elmo.get_output_dim() == 20
    assert elmo.scalar_mix_0 is elmo._scalar_mixes[0]


def test_input_ids_are_not_modified(tiny: Files) -> None:
    ids = IDS.clone()
    Elmo(*tiny, 1)(ids)
    assert torch.equal(ids, IDS)


# ---------------------------------------------------------------------------------- batch_to_ids


@pytest.mark.parametrize(
    "batch",
    [
        (("a", "b"), ("c", "d")),
        (list(row) for row in ("ab", "cd")),
        np.array([["a", "b"], ["c", "d"]]),
    ],
    ids=["tuples", "generator", "array"],
)
def test_batch_to_ids_accepts_tokens_of_various_types(batch: Any) -> None:
    assert torch.equal(batch_to_ids(batch), batch_to_ids([["a", "b"], ["c", "d"]]))


def test_strings_are_not_split_into_characters() -> None:
    with pytest.raises(DataError, match="Sentence 0 is the string 'I read it'; expected a list"):
        batch_to_ids(["I read it"])


def test_batches_without_tokens_have_ids() -> None:
    assert batch_to_ids([]).shape == (0, 0, 50)
    assert batch_to_ids([[]]).shape == (1, 0, 50)
    assert batch_to_ids([["a"], []])[1].tolist() == [[0] * 50]


@pytest.mark.parametrize("token", [7, None, b"a"])
def test_error_identifies_a_token_that_is_not_a_string(token: Any) -> None:
    with pytest.raises(DataError, match=f"Token 1 of sentence 0 has type {type(token).__name__}"):
        batch_to_ids([["a", token]])


# ------------------------------------------------------------------------------------ invalid input


def test_empty_batch_gives_empty_output(tiny: Files) -> None:
    elmo = Elmo(*tiny, 1, do_layer_norm=True)
    for ids, shape in (
        (batch_to_ids([]), (0, 0, 20)),
        (torch.zeros(0, 3, 50, dtype=torch.long), (0, 3, 20)),
        (batch_to_ids([[], []]), (2, 0, 20)),
        (torch.zeros(2, 0, 3, 50, dtype=torch.long), (2, 0, 3, 20)),
    ):
        output = elmo(ids)
        assert output["elmo_representations"][0].shape == shape
        assert output["mask"].shape == shape[:-1]


def test_padding_before_a_token_is_an_error(tiny: Files) -> None:
    elmo = Elmo(*tiny, 1, vocab_to_cache=["The", "second"])
    left = IDS.clone()
    left[1] = left[1].roll(2, dims=0)
    with pytest.raises(DataError, match=r"Row 1 .* before a token.*batch_to_ids"):
        elmo(left)
    with pytest.raises(DataError, match="index 0 of vocab_to_cache means padding"):
        elmo(IDS[1:, :2], torch.tensor([[0, 1]]))


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (torch.zeros(2, 3, 30, dtype=torch.long), r"\(batch, tokens, 50\); got .*\[2, 3, 30\]"),
        (torch.zeros(2, 50, dtype=torch.long), r"shape \[2, 50\]"),
        (torch.zeros(2, 3, 50), "got torch.float32"),
        (torch.full((1, 1, 50), 30000), "between 0 and 261; got 30000"),
        (torch.full((1, 1, 50), -1), "got -1"),
        ([["I", "read", "it"]], "inputs has type list; .*batch_to_ids"),
    ],
)
def test_invalid_character_ids_are_an_error(ids: Any, message: str, tiny: Files) -> None:
    with pytest.raises(DataError, match=message):
        Elmo(*tiny, 1)(ids)


def test_int16_ids_and_views_are_supported(tiny: Files) -> None:
    elmo = Elmo(*tiny, 1, stateful=False).eval()
    expected = elmo(IDS)["elmo_representations"][0]
    assert torch.equal(elmo(IDS.to(torch.int16))["elmo_representations"][0], expected)
    view = IDS.view(1, 2, 4, 50).transpose(0, 1)
    found = elmo(view)["elmo_representations"][0]
    assert found.shape == (2, 1, 4, 20)
    assert torch.equal(found[:, 0], expected)


def test_boundaries_can_be_kept_in_any_number_of_dimensions(tiny: Files) -> None:
    elmo = Elmo(*tiny, 1, keep_sentence_boundaries=True, stateful=False).eval()
    flat, deep = elmo(IDS), elmo(IDS.view(2, 1, 4, 50))
    assert flat["mask"].sum(dim=1).tolist() == [6, 4]
    assert deep["mask"].shape == (2, 1, 6)
    found = deep["elmo_representations"][0]
    assert torch.equal(found[:, 0], flat["elmo_representations"][0])


def test_invalid_settings_are_identified(tiny: Files, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="num_output_representations must be"):
        Elmo(*tiny, 0)
    with pytest.raises(ConfigError, match=r"must contain 3 .* got \[1.0\]"):
        Elmo(*tiny, 1, scalar_mix_parameters=[1])
    with pytest.raises(ConfigError):
        Elmo(None, None, 1)
    with pytest.raises(WeightsError, match=r"nowhere\.json"):
        Elmo(tmp_path / "nowhere.json", tiny.weights, 1)
    words = Files(tmp_path / "options.json", tmp_path / "weights.hdf5")
    config = BiLMConfig(LstmConfig(dim=9, projection_dim=4), None, n_words=5)
    bilm_hdf5.write(random_bilm(config), *words)
    (tmp_path / "vocab.txt").write_text("<S>\n</S>\n<UNK>\na\nb\n")
    with pytest.raises(ConfigError):
        Elmo(*words, 1)


# -------------------------------------------------------------------------------- cached vocabulary


def test_cached_words_have_the_vectors_of_their_characters(tiny: Files) -> None:
    # More words than the encoder processes at once.
    vocabulary = ["<pad>", *(f"w{i}" for i in range(1100)), "The", "second"]
    elmo = Elmo(*tiny, 1, vocab_to_cache=vocabulary, stateful=False).eval()
    words = torch.tensor([[1101, 1102], [700, 0]])
    nothing = torch.zeros(2, 2, 50, dtype=torch.long)
    found = elmo(nothing, words)
    expected = elmo(batch_to_ids([["The", "second"], ["w699"]]))
    assert torch.equal(found["mask"], expected["mask"])
    a, b = found["elmo_representations"][0], expected["elmo_representations"][0]
    assert torch.allclose(a, b, atol=2e-6)
    assert not elmo._elmo_lstm._word_embedding.weight[0].any()


def test_encoder_can_be_discarded_if_words_are_cached(tiny: Files) -> None:
    elmo = Elmo(*tiny, 1, vocab_to_cache=["<pad>", "The"], stateful=False).eval()
    words = torch.tensor([[1]])
    expected = elmo(IDS, words)["elmo_representations"][0]
    del elmo._elmo_lstm._token_embedder
    assert torch.equal(elmo(IDS, words)["elmo_representations"][0], expected)


def test_words_that_are_not_cached_are_encoded_from_their_characters(
    tiny: Files, caplog: pytest.LogCaptureFixture
) -> None:
    elmo = Elmo(*tiny, 1, stateful=False).eval()
    expected = elmo(IDS)["elmo_representations"][0]
    with caplog.at_level(logging.WARNING):
        found = elmo(IDS, torch.tensor([[1, 2, 3, 4], [1, 5, 0, 0]]))
    assert torch.equal(found["elmo_representations"][0], expected)
    assert "vocab_to_cache is not set" in caplog.text


# --------------------------------------------------------------------------------------- components


class Custom(nn.Module):
    num_layers = 2

    def forward(self, inputs: Tensor, word_inputs: Tensor | None) -> dict[str, Any]:
        layer = torch.ones(1, 4, 2)
        return {"activations": [layer, 2 * layer], "mask": torch.tensor([[1, 1, 1, 1]])}

    def get_output_dim(self) -> int:
        return 2


def test_bilm_can_be_replaced_by_another_module(tiny: Files) -> None:
    elmo = Elmo(None, None, 1, module=Custom()).eval()
    output = elmo(torch.ones(1, 2, 50, dtype=torch.long))
    assert output["elmo_representations"][0].tolist() == [[[1.5, 1.5], [1.5, 1.5]]]
    assert output["mask"].tolist() == [[True, True]]
    assert elmo(torch.ones(1, 2))["elmo_representations"][0].shape == (1, 2, 2)
    assert elmo.get_output_dim() == 2
    assert list(elmo.state_dict()) == [
        "scalar_mix_0.gamma",
        "scalar_mix_0.scalar_parameters.0",
        "scalar_mix_0.scalar_parameters.1",
    ]
    with pytest.raises(ConfigError):
        Elmo(*tiny, 1, module=Custom())
    with pytest.raises(ConfigError):
        Elmo(None, None, 1, module=Custom(), stateful=False)


def test_token_embedder_is_one_mix_and_a_projection(tiny: Files) -> None:
    torch.manual_seed(0)
    embedder = ElmoTokenEmbedder(*tiny, projection_dim=5).eval()
    assert embedder.get_output_dim() == 5
    assert list(embedder.state_dict())[-3:] == [
        "_elmo.scalar_mix_0.scalar_parameters.2",
        "_projection.weight",
        "_projection.bias",
    ]
    mixed = Elmo(*tiny, 1).eval()(IDS)["elmo_representations"][0]
    assert torch.allclose(embedder(IDS), embedder._projection(mixed), atol=1e-6)
    plain = ElmoTokenEmbedder(*tiny).eval()
    assert torch.equal(plain(IDS.view(2, 1, 4, 50))[:, 0], mixed)


def test_mix_normalizes_without_an_unnecessary_warning() -> None:
    layers = [torch.randn(2, 4, 3) for _ in range(3)]
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mix = ScalarMix(3, do_layer_norm=True, initial_scalar_parameters=[1.0, -0.5, 0.2])
        found = mix(layers, mask)
    weights = torch.softmax(torch.tensor([1.0, -0.5, 0.2]), 0)
    expected = sum(
        w * (h - h[mask].mean()) / h[mask].std(correction=0)
        for w, h in zip(weights, layers, strict=True)
    )
    assert torch.allclose(found, expected, atol=1e-5)
    with pytest.raises(ConfigError, match=r"expected 3.*got 2"):
        mix(layers[:2], mask)
    mix.scalar_parameters.requires_grad_(False)
    assert [p.requires_grad for p in mix.parameters()] == [True, False, False, False]


def test_published_urls_are_downloaded_to_the_cache(
    tiny: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELMOKIT_HOME", str(tmp_path))
    monkeypatch.setenv("ELMOKIT_ALLENNLP_URL", "http://127.0.0.1:9")  # no server is listening there
    with pytest.raises(DownloadError, match="2x4096_512_2048cnn_2xhighway"):
        ElmoEmbedder()
    name = "2x4096_512_2048cnn_2xhighway"
    base = f"https://allennlp.s3.amazonaws.com/models/elmo/{name}/elmo_{name}_"
    place = tmp_path / "allennlp" / name
    place.mkdir(parents=True, exist_ok=True)
    (place / f"elmo_{name}_options.json").write_bytes(tiny.options.read_bytes())
    (place / f"elmo_{name}_weights.hdf5").write_bytes(tiny.weights.read_bytes())
    elmo = Elmo(base + "options.json", base + "weights.hdf5", 1)
    assert elmo.get_output_dim() == 20
