"""Lexicons, the token encoder that uses them, and its configuration."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from elmokit.config import BiLMConfig, LexiconConfig, LstmConfig
from elmokit.errors import ConfigError, DataError, WeightsError
from elmokit.model.bilm import BiLM
from elmokit.model.elmo import Elmo
from elmokit.model.engine import PlainEngine
from elmokit.model.lexicon import Lexicon
from elmokit.model.lexicon_encoder import LexiconEncoder

CHARACTERS = ["<pad>", *"abc", "<bos>", "<eos>", "<oov>", "<bow>", "<eow>"]
WORDS = ["<oov>", "<bos>", "<eos>", "<pad>", "ab"]
SHAPE = LexiconConfig(
    n_words=5,
    word_dim=16,
    n_characters=9,
    embedding_dim=4,
    filters=((1, 16), (3, 32)),
    n_highway=1,
    max_characters_per_token=12,
)
CONFIG = BiLMConfig(LstmConfig(dim=32, projection_dim=16), None, None, SHAPE)


def encoder(config: LexiconConfig = SHAPE) -> LexiconEncoder:
    torch.manual_seed(0)
    made = LexiconEncoder(config, 16)
    made.lexicon = Lexicon(
        WORDS if config.n_words else None, CHARACTERS if config.n_characters else None, 12
    )
    return made


def test_config_round_trip_through_json() -> None:
    assert BiLMConfig.from_dict(json.loads(json.dumps(CONFIG.to_dict()))) == CONFIG
    assert "lexicon" not in BiLMConfig().to_dict()  # as in files of earlier versions
    assert BiLMConfig.from_dict(BiLMConfig().to_dict() | {"lexicon": None}) == BiLMConfig()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_words": 0}, r"lexicon\.word_dim"),
        ({"n_characters": -1}, r"lexicon\.n_characters: -1"),
        ({"filters": []}, r"lexicon\.filters"),
        ({"filters": [[13, 1]]}, r"lexicon\.filters: .*13"),
        ({"activation": "gelu"}, r"lexicon\.activation: 'gelu'"),
        ({"n_characters": 0, "embedding_dim": 0}, r"lexicon\.filters"),
        ({"hight": 1}, r"lexicon\.hight"),
        (
            dict.fromkeys(("n_words", "word_dim", "n_characters", "embedding_dim", "n_highway"), 0)
            | {"filters": []},
            r"lexicon\.n_words: 0",
        ),
    ],
)
def test_invalid_config_error_states_the_reason(change: dict[str, Any], message: str) -> None:
    values = CONFIG.to_dict()
    values["lexicon"] |= change
    with pytest.raises(ConfigError, match=message):
        BiLMConfig.from_dict(values)


def test_only_one_kind_of_input_is_accepted() -> None:
    with pytest.raises(ConfigError, match="char_cnn, n_words, lexicon"):
        BiLMConfig(n_words=None, lexicon=SHAPE)


def test_padding_positions_are_rows_of_zeros() -> None:
    ids = Lexicon(WORDS, CHARACTERS, 12).batch_ids([["ab", "c"], [], ["ab"]])
    assert ids.shape == (3, 2, 13)
    assert not ids[1].any()
    assert not ids[2, 1].any()
    assert (ids[0] > 0).any(axis=-1).all()


@pytest.mark.parametrize(
    ("words", "characters", "message"),
    [
        (["a", "a", "<oov>"], None, "words contains 'a' more than once"),
        (["a"], None, "words does not contain <oov>"),
        (None, ["a", "<pad>"], "characters does not contain <bos>, <eos>, <oov>, <eow>, <bow>"),
    ],
)
def test_lexicon_without_its_specials_is_rejected(
    words: Any, characters: Any, message: str
) -> None:
    with pytest.raises(WeightsError, match=message):
        Lexicon(words, characters, 12)


@pytest.mark.parametrize("tables", ["both", "words", "characters"])
def test_token_is_bit_identical_alone_and_in_a_batch(tables: str) -> None:
    config = SHAPE
    if tables == "words":
        config = LexiconConfig(n_words=5, word_dim=16, max_characters_per_token=12)
    if tables == "characters":
        config = LexiconConfig(**(SHAPE.__dict__ | {"n_words": 0, "word_dim": 0}))
    bilm = BiLM(BiLMConfig(LstmConfig(dim=32, projection_dim=16), None, lexicon=config))
    made = encoder(config)
    bilm.encoder = made
    engine = PlainEngine(bilm)
    tokens = [
        "ab",
        "c",
        "<S>",
        "</S>",
        "",
        "xxxxxxxxxxxxxxxx",
        *("abc"[i % 3] * i for i in range(40)),
    ]
    ids = torch.from_numpy(made.required_lexicon.token_ids(tokens))
    with torch.inference_mode():
        together = engine.encode(ids)
        plain = made(ids)
        alone = torch.cat([engine.encode(row[None]) for row in ids])
    assert torch.equal(together, alone)
    assert (together - plain).abs().max() < 1e-6  # trimming loses nothing


def test_model_without_its_lexicon_is_an_error() -> None:
    bilm = BiLM(CONFIG)
    with pytest.raises(WeightsError):
        Elmo(bilm)([["ab"]])


def test_gradients_reach_both_tables() -> None:
    made = encoder()
    made(torch.from_numpy(made.required_lexicon.token_ids(["ab", "c"]))).sum().backward()
    for parameter in made.parameters():
        assert parameter.grad is not None
        assert np.abs(parameter.grad.numpy()).max() > 0


def test_padding_before_the_last_token_is_rejected() -> None:
    bilm = BiLM(CONFIG)
    ids = Lexicon(WORDS, CHARACTERS, 12).batch_ids([["ab", "c", "ab"]])
    ids[0, 1] = 0
    with pytest.raises(DataError, match="Row 0 of the batch has padding"):
        bilm(torch.from_numpy(ids))
