"""compat.allennlp, compared with recorded results of AllenNLP for each call and state."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from elmokit.compat.allennlp import Elmo, ElmoEmbedder, _ElmoBiLm, batch_to_ids
from tests.compat.conftest import Files

# Numbers of sentences, as in the recording.
A, B, C = (3, 5, 9), (19, 11), (29, 24, 3, 13, 5)
S6 = (3, 5, 9, 19, 11, 29)
ODD = [["café", "日本語", "x" * 100, "<S>", "</S>", ""], ["ok"]]
TOLERANCE = 2e-6


def check(found: Tensor | np.ndarray, recorded: list[Any]) -> None:
    """Compare a tensor with its record: shape, sum, weighted sum, and sometimes five values."""
    values = np.asarray(found.detach() if isinstance(found, Tensor) else found, dtype=np.float64)
    assert list(values.shape) == recorded[0]
    flat = values.ravel()
    weighted = flat * np.cos(np.arange(flat.size))
    scale = TOLERANCE * max(1.0, float(np.abs(flat).max(initial=0))) * (1 + flat.size**0.5)
    assert flat.sum() == pytest.approx(recorded[1], abs=scale, rel=1e-6)
    assert weighted.sum() == pytest.approx(recorded[2], abs=scale, rel=1e-6)
    if len(recorded) > 3 and flat.size:
        picked = flat[np.linspace(0, flat.size - 1, 5).astype(int)]
        np.testing.assert_allclose(picked, recorded[3], atol=TOLERANCE, rtol=1e-6)


class Play:
    """Makes the calls of a recorded case and compares each result."""

    def __init__(
        self,
        module: nn.Module,
        recorded: dict[str, Any],
        sentences: list[list[str]],
    ) -> None:
        self.module = module
        self.recorded = recorded
        self.sentences = sentences

    @property
    def lstm(self) -> Any:
        lstm: Any = self.module._elmo_lstm
        return getattr(lstm, "_elmo_lstm", lstm)

    def ids(self, numbers: tuple[int, ...]) -> Tensor:
        return batch_to_ids([self.sentences[i] for i in numbers])

    def words(self, numbers: tuple[int, ...], vocabulary: list[str]) -> Tensor:
        rows = [[vocabulary.index(t) for t in self.sentences[i]] for i in numbers]
        longest = max(map(len, rows))
        return torch.tensor([row + [0] * (longest - len(row)) for row in rows])

    def __call__(
        self, call: int, ids: Tensor | tuple[int, ...], words: Tensor | None = None
    ) -> Any:
        ids = self.ids(ids) if isinstance(ids, tuple) else ids
        output = self.module(ids, words) if words is not None else self.module(ids)
        expected = self.recorded[str(call)]
        if "token_embedding" in output:
            found = [output["token_embedding"]]
        else:
            found = output.get("elmo_representations") or output["activations"]
        assert len(found) == len(expected["out"])
        for tensor, record in zip(found, expected["out"], strict=True):
            check(tensor, record)
        assert output["mask"].dtype == torch.bool
        check(output["mask"], expected["mask"])
        for tensor, record in zip(self._states(), expected.get("states", []), strict=True):
            check(tensor, record)
        return found

    def _states(self) -> tuple[Tensor, ...]:
        return self.lstm._states if hasattr(self.module, "_elmo_lstm") else ()


def state_3d(play: Play) -> None:
    play(0, A)
    play(1, A)
    play(2, B)  # a smaller batch does not change the state of the third row
    play(3, A)
    play(4, C)  # a larger batch starts its new rows from zero
    play(5, A)
    play.lstm.reset_states()
    play(6, A)
    play.lstm.reset_states(torch.tensor([False, True, False]))
    play(7, A)


def state_permutation(play: Play) -> None:
    play(0, A)
    play(1, (9, 3, 5))


def one_by_one(play: Play) -> None:
    for call, number in enumerate((5, 3, 3)):
        play(call, (number,))
    play(3, batch_to_ids([["one"]]))


def stateful_false(play: Play) -> None:
    play.lstm.stateful = False
    play(0, A)
    play(1, A)
    play(2, B)


def padding_wider(play: Play) -> None:
    play(0, nn.functional.pad(play.ids(A), (0, 0, 0, 5)))


def input_4d(play: Play) -> None:
    ids = play.ids(S6)
    play(0, ids.view(3, 2, -1, 50))
    play(1, ids)
    play.lstm.reset_states()
    play(3, ids.view(1, 3, 2, -1, 50))


def input_4d_padding_rows(play: Play) -> None:
    ids = play.ids(S6).view(3, 2, -1, 50)
    some = ids.clone()
    some[0, 1] = 0
    some[2, 0] = 0
    play(0, some)
    play(1, ids)


def once(play: Play) -> None:
    play(0, A)


def twice(play: Play) -> None:
    play(0, A)
    play(1, A)


def set_mix(play: Play) -> None:
    mix: Any = play.module.scalar_mix_0
    with torch.no_grad():
        for parameter, value in zip(mix.scalar_parameters, (0.5, -1.0, 2.0), strict=True):
            parameter.fill_(value)
        mix.gamma.fill_(1.7)
    play(0, A)


def dropout(play: Play) -> None:
    play.module.train()
    torch.manual_seed(7)  # the random zeros are also AllenNLP's
    play(0, A)


def vocab_cache(play: Play) -> None:
    vocabulary = ["<pad>", *sorted({t for i in S6 for t in play.sentences[i]})]
    elmo: Any = play.module
    elmo._elmo_lstm.create_cached_cnn_embeddings(vocabulary)
    unknown = play.words(A, vocabulary)
    unknown[0, 0] = len(vocabulary) + 5
    in_4d = play.words(S6, vocabulary).view(3, 2, -1)
    words = play.words(A, vocabulary)
    for call, ids, given in (
        (0, play.ids(A), words),
        (1, play.ids(A), None),
        (2, torch.zeros(3, 20, 50, dtype=torch.long), words),
        (3, play.ids(A), unknown),
        (5, play.ids(S6).view(3, 2, -1, 50), in_4d),
        (6, torch.zeros(3, 2, 20, 50, dtype=torch.long), in_4d),
        (7, words, words),
    ):
        play.lstm.reset_states()
        play(call, ids, given)


def empty_sentence(play: Play) -> None:
    ids = batch_to_ids([play.sentences[3], [], play.sentences[5]])
    play(0, ids)
    if "1" in play.recorded:
        play(1, ids)
        play(2, A)


def only_empty(play: Play) -> None:
    play(2, torch.zeros(2, 3, 50, dtype=torch.long))
    play(3, torch.zeros(2, 0, 50, dtype=torch.long))


def double(play: Play) -> None:
    play.module.double()
    play(0, A)


def odd_tokens(play: Play) -> None:
    play(0, batch_to_ids(ODD))


def gradients(play: Play) -> None:
    play.module.train()
    with torch.enable_grad():
        play.module(play.ids(A))  # the next call uses its state, but not its graph
        found = play(1, play.ids((*B, 3)))
        weights = [torch.cos(torch.arange(t.numel(), dtype=t.dtype)).view_as(t) for t in found]
        loss = sum((r + 1) * (t * weights[r]).sum() for r, t in enumerate(found))
        loss.backward()
    found = recorded_gradients(play.module)
    for name, record in play.recorded["gradients"].items():
        if record is None:
            assert name not in found
        else:
            check(found[name], record)


def recorded_gradients(module: nn.Module) -> dict[str, Tensor]:
    """Return the gradients in AllenNLP's layout, which is an affine function of ours."""

    def state(scale: float) -> dict[str, Tensor]:
        replica = copy.deepcopy(module)
        with torch.no_grad():
            for twin_parameter, parameter in zip(
                replica.parameters(), module.parameters(), strict=True
            ):
                gradient = parameter.grad
                twin_parameter.copy_(
                    torch.full_like(parameter, torch.nan) if gradient is None else scale * gradient
                )
        return replica.state_dict()

    ones, zeros = state(1.0), state(0.0)
    return {name: ones[name] - zeros[name] for name in ones if not zeros[name].isnan().all()}


CASES: dict[str, tuple[dict[str, Any], Callable[[Play], None]]] = {
    "state_3d": ({"n": 2}, state_3d),
    "state_permutation": ({}, state_permutation),
    "one_by_one": ({}, one_by_one),
    "stateful_false": ({}, stateful_false),
    "padding_wider": ({}, padding_wider),
    "input_4d": ({"n": 2}, input_4d),
    "input_4d_padding_rows": ({}, input_4d_padding_rows),
    "keep_boundaries": ({"n": 2, "keep_sentence_boundaries": True}, once),
    "layer_norm": ({"n": 2, "do_layer_norm": True}, twice),
    "layer_norm_keep_boundaries": (
        {"do_layer_norm": True, "keep_sentence_boundaries": True},
        once,
    ),
    "scalar_mix": ({"n": 2, "scalar_mix_parameters": [0.1, 0.3, 0.5]}, once),
    "scalar_mix_layer1_only": ({"scalar_mix_parameters": [-9e10, 1, -9e10]}, once),
    "gamma_and_weights_set": ({"n": 2}, set_mix),
    "dropout_half_train": ({"n": 2}, dropout),
    "vocab_cache": ({"n": 2, "vocab_to_cache": []}, vocab_cache),
    "empty_sentence": ({"n": 2}, empty_sentence),
    "empty_sentence_keep_boundaries": ({"keep_sentence_boundaries": True}, empty_sentence),
    "only_empty": ({}, only_empty),
    "double": ({}, double),
    "long_tokens": ({}, odd_tokens),
    "grad_frozen": ({"n": 2, "dropout": 0.0}, gradients),
    "grad_requires_grad": ({"n": 2, "dropout": 0.0, "requires_grad": True}, gradients),
    "grad_requires_grad_layer_norm": (
        {"n": 2, "dropout": 0.0, "requires_grad": True, "do_layer_norm": True},
        gradients,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_elmo_equals_allennlp(
    name: str, theirs: Files, sentences: list[list[str]], recorded: dict[str, Any]
) -> None:
    settings, play = CASES[name]
    settings = dict(settings)
    elmo = Elmo(*theirs, settings.pop("n", 1), **settings).eval()
    with torch.no_grad():
        play(Play(elmo, recorded["cases"][name], sentences))


def test_bilm_and_encoder_equal_allennlp(
    theirs: Files, sentences: list[list[str]], recorded: dict[str, Any]
) -> None:
    bilm = _ElmoBiLm(*theirs)
    assert bilm.training
    assert (bilm.num_layers, bilm.get_output_dim()) == (3, 32)
    twice(Play(bilm, recorded["cases"]["bilm"], sentences))
    # For the encoder, this includes padding positions, which are not zero.
    once(Play(bilm._token_embedder, recorded["cases"]["char_encoder"], sentences))


def test_state_dict_has_the_names_order_and_values_of_allennlp(
    theirs: Files, recorded: dict[str, Any]
) -> None:
    words = ["<pad>", "hello", "world", "Don", "'t", "!"]
    models = {
        "n2": Elmo(*theirs, 2),
        "n1_vocab_cache": Elmo(*theirs, 1, vocab_to_cache=words),
    }
    for name, elmo in models.items():
        table = recorded["state_dicts"][name]
        state = elmo.state_dict()
        assert list(state) == [row[0] for row in table]
        for row in table:
            if len(row) > 2:
                check(state[row[0]], row[2])


def test_character_ids_equal_allennlp(recorded: dict[str, Any]) -> None:
    for token, ids in recorded["ids"].items():
        row = batch_to_ids([[token]])[0, 0].tolist()
        assert row == ids + [261] * (50 - len(ids))


def test_embedder_equals_allennlp(
    theirs: Files, sentences: list[list[str]], recorded: dict[str, Any]
) -> None:
    found = ElmoEmbedder(*theirs).embed_sentences(iter(sentences[:7]), batch_size=3)
    for layers, record in zip(found, recorded["embedder"]["embed_sentences_bs3"], strict=True):
        assert layers.dtype == np.float32
        check(layers, record)
    embedder = ElmoEmbedder(*theirs)
    embedder.embed_sentence(sentences[5])
    check(embedder.embed_sentence(sentences[5]), recorded["embedder"]["embed_sentence_again"][0])


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("file_all_bs2", {"batch_size": 2}),
        ("file_top", {"output_format": "top"}),
        ("file_average", {"output_format": "average"}),
    ],
)
def test_embed_file_equals_allennlp(
    name: str,
    settings: dict[str, Any],
    theirs: Files,
    sentences: list[list[str]],
    recorded: dict[str, Any],
    tmp_path: Any,
) -> None:
    source = tmp_path / "in.txt"
    source.write_text("".join(" ".join(sentences[i]) + "\n" for i in (*A, 3)), "utf-8")
    with source.open(encoding="utf-8") as file:
        ElmoEmbedder(*theirs).embed_file(file, tmp_path / "out.h5", **settings)
    with h5py.File(tmp_path / "out.h5") as file:
        assert set(file) == {"0", "1", "2", "3", "sentence_to_index"}
        for key, record in recorded["embedder"][name].items():
            check(file[key][()], record)
