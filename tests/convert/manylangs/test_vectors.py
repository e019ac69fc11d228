"""ELMoForManyLangs models: vectors compared with the reference implementation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import elmokit
from elmokit.convert import elmo_for_many_langs
from elmokit.errors import ElmoWarning, WeightsError
from elmokit.model.lexicon import Lexicon
from elmokit.sources.resolve import load_parts
from tests.convert.manylangs.reference import reference
from tests.convert.manylangs.tiny import (
    CHARACTERS,
    MAX,
    SENTENCES,
    SHAPE,
    SHAPES,
    WORDS,
    shape_with,
    write,
)


@pytest.mark.parametrize("old", [True, False], ids=["stream", "zip"])
@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.filterwarnings("ignore:Truncated . token")
def test_vectors_equal_the_reference(kind: str, old: bool, tmp_path: Path) -> None:
    elmo = elmokit.load(write(tmp_path / "xx.model", SHAPES[kind], old=old))
    for out, tokens in zip(elmo.embed(SENTENCES), SENTENCES, strict=True):
        expected = reference(tokens, SHAPES[kind])
        assert out.layers.shape == expected.shape
        assert np.abs(out.layers - expected).max() < 1e-6
        # output_layer -1 of the original is the mean of the layers, -2 means all of them.
        assert np.abs(out.average - expected.mean(axis=0)).max() < 1e-6
    assert elmo.embed([[]])[0].layers.shape == (elmo.config.n_layers, 0, 12)


@pytest.mark.parametrize("kind", SHAPES)
def test_float64_agrees_to_nine_digits(kind: str, tmp_path: Path) -> None:
    bilm = load_parts(write(tmp_path / "m", SHAPES[kind])).bilm.double()
    encoder = bilm.encoder
    assert isinstance(encoder, elmo_for_many_langs.LexiconEncoder)
    read = [["<S>", *sentence, "</S>"] for sentence in SENTENCES]
    with torch.inference_mode():
        layers = bilm(torch.from_numpy(encoder.required_lexicon.batch_ids(read))).layers.numpy()
    for row, tokens in enumerate(SENTENCES):
        expected = reference(tokens, SHAPES[kind])
        assert np.abs(layers[:, row, 1 : 1 + len(tokens)] - expected).max() < 1e-9


def test_reference_uses_all_clips_and_specials() -> None:
    """Check that the tests above cover all of them."""
    loose = reference(SENTENCES[1], shape_with(cell_clip=0))
    looser = reference(SENTENCES[1], shape_with(proj_clip=0))
    expected = reference(SENTENCES[1], SHAPE)
    assert np.abs(loose - expected).max() > 1e-3
    assert np.abs(looser - expected).max() > 1e-3


def test_forget_bias_of_any_size_stays_within_float32(tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    state = torch.load(folder / "encoder.pkl", weights_only=True)
    for name in state:
        if name.endswith("state_linearity.bias"):
            state[name][10:20] = torch.linspace(-3.3, 4.4, 10)
    torch.save(state, folder / "encoder.pkl")
    bias = load_parts(folder).bilm.state_dict()["forward_lm.layers.0.bias"]
    assert (bias[20:30] + 1 - torch.linspace(-3.3, 4.4, 10)).abs().max() < 3e-7


def test_state_is_carried_on_request(tmp_path: Path) -> None:
    elmo = elmokit.load(write(tmp_path / "m"))
    states: dict[str, list] = {}
    sentences = [SENTENCES[0][:1], SENTENCES[1], SENTENCES[2]]
    for out, tokens in zip(elmo.embed(sentences, state="carry"), sentences, strict=True):
        expected = reference(tokens, SHAPE, states=states)
        assert np.abs(out.layers - expected).max() < 1e-6
    alone = elmo.embed([sentences[2]])[0].layers
    assert np.abs(alone - expected).max() > 1e-3


def test_long_tokens_are_truncated_and_reported(tmp_path: Path) -> None:
    elmo = elmokit.load(write(tmp_path / "m"))
    with pytest.warns(ElmoWarning, match="Truncated 1 token to 9 characters"):
        long = elmo.embed([["beginnings"]])[0].layers
    assert np.array_equal(long, elmo.embed([["beginning"]])[0].layers)


def test_case_matters_and_unknown_words_and_characters_are_mapped(tmp_path: Path) -> None:
    elmo = elmokit.load(write(tmp_path / "m"))
    the, capital, other = (elmo.embed([[t]])[0].layers for t in ("the", "The", "Zhe"))
    assert not np.allclose(the, capital)
    assert np.array_equal(capital, other)  # T and Z are both <oov>, and neither word is known


def test_elmo_module_accepts_tokens(tmp_path: Path) -> None:
    elmo = elmokit.load(write(tmp_path / "m"))
    layer = elmokit.Elmo(elmo.bilm, s=[0.0, 0.0, 1.0]).eval()
    sentences = [SENTENCES[0], SENTENCES[2]]
    found = layer(sentences).representations[0].numpy()
    assert np.abs(found[0] - elmo.embed([sentences[0]])[0].layers[2]).max() < 1e-6
    assert np.abs(found[1, :1] - elmo.embed([sentences[1]])[0].layers[2]).max() < 1e-6
    assert not found[1, 1:].any()


# -------------------------------------------------------------------------------------- the lexicon


def test_word_boundary_markers_are_swapped_as_in_the_original() -> None:
    lexicon = Lexicon(WORDS, CHARACTERS, MAX)
    mark_before, mark_after = (CHARACTERS.index(mark) + 1 for mark in ("<eow>", "<bow>"))
    row = lexicon.token_ids(["the"])[0].tolist()
    letters = [CHARACTERS.index(c) + 1 for c in "the"]
    pad = CHARACTERS.index("<pad>") + 1
    assert row == [WORDS.index("the") + 1, mark_before, *letters, mark_after, *[pad] * 6]
    boundary = lexicon.token_ids(["<S>"])[0].tolist()
    assert boundary[:4] == [WORDS.index("<bos>") + 1, mark_before, 16, mark_after]
    assert np.array_equal(lexicon.token_ids(["</S>"]), lexicon.token_ids(["<eos>"]))


def test_blank_entry_is_the_ideographic_space(tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    text = (folder / "char.dic").read_text("utf-8").replace("書\t", "\u3000\t")
    (folder / "char.dic").write_text(text, "utf-8")
    encoder = load_parts(folder).bilm.encoder
    assert isinstance(encoder, elmo_for_many_langs.LexiconEncoder)
    assert encoder.required_lexicon.characters is not None
    assert encoder.required_lexicon.characters[CHARACTERS.index("書")] == "\u3000"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("char.dic", ("a\t0\n", ""), r"Invalid indices in .*char\.dic"),
        ("char.dic", ("a\t0\n", "a\t1\n"), r"Invalid indices in .*char\.dic"),
        ("char.dic", ("a\t0\n", "b\t0\n"), "characters contains 'b' more than once"),
        ("char.dic", ("<pad>\t", "<gap>\t"), "characters does not contain <pad>"),
        ("char.dic", ("a\t0\n", "a\tb\tc\n"), r"char\.dic:21: .* Expected an entry, a tab"),
        ("word.dic", ("beginning\t8\n", ""), "8 words; expected 9"),
        ("word.dic", ("<oov>\t", "oov\t"), "words does not contain <oov>"),
    ],
)
def test_damaged_lexicon_is_rejected(
    name: str, change: tuple[str, str], message: str, tmp_path: Path
) -> None:
    folder = write(tmp_path / "m")
    text = (folder / name).read_text("utf-8")
    assert change[0] in text
    (folder / name).write_text(text.replace(*change), "utf-8")
    with pytest.raises(WeightsError, match=message):
        load_parts(folder)


def test_missing_lexicon_and_invalid_encoding_are_rejected(tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    (folder / "char.dic").write_bytes(b"\xff\t0\n")
    with pytest.raises(WeightsError, match=r"char\.dic is not valid UTF-8 at byte 0"):
        load_parts(folder)
    (folder / "word.dic").unlink()
    with pytest.raises(WeightsError, match=r"lexicon .*word\.dic does not exist"):
        load_parts(folder)
