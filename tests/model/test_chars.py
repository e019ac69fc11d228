from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import DataError
from elmokit.model.chars import (
    batch_ids,
    char_ids_table,
    is_truncated,
    unpadded_length,
)

PAD = 261


def char_ids(token: str, max_characters: int = 50) -> list[int]:
    ids: list[int] = char_ids_table([token], max_characters)[0].tolist()
    return ids


def test_sentence_boundaries_have_the_ids_of_the_original_systems() -> None:
    assert char_ids("<S>") == [259, 257, 260] + [PAD] * 47
    assert char_ids("</S>") == [259, 258, 260] + [PAD] * 47


def test_character_ids_equal_bilm_tf() -> None:
    # The literal rows of bilm-tf's test_data.py (max 5), shifted by one for prediction.
    assert char_ids("th", 5) == [i + 1 for i in (258, 116, 104, 259, 260)]
    assert char_ids("thhhhh", 5) == [i + 1 for i in (258, 116, 104, 104, 259)]
    assert char_ids("\u0100t", 5) == [i + 1 for i in (258, 196, 128, 116, 259)]


def test_unknown_word_marker_is_spelled_out() -> None:
    assert char_ids("<UNK>")[1:6] == [b + 1 for b in b"<UNK>"]


def test_truncation_may_split_a_character() -> None:
    word = "a" * 47 + "\u20ac"  # the euro sign has three bytes, one of which fits
    ids = char_ids(word)
    assert len(ids) == 50
    assert ids[48] == 0xE2 + 1
    assert ids[49] == 260


def test_lone_surrogates_are_omitted() -> None:
    assert char_ids("a\ud800b") == char_ids("ab")
    assert char_ids("\ud800") == char_ids("")


@given(st.text())
def test_every_token_has_begin_bytes_end_and_padding(token: str) -> None:
    ids = char_ids(token)
    assert len(ids) == 50
    assert ids[0] == 259
    assert ids.count(260) == 1
    end = ids.index(260)
    assert all(i == PAD for i in ids[end + 1 :])
    if token not in ("<S>", "</S>"):
        assert bytes(i - 1 for i in ids[1:end]) == token.encode("utf-8", "ignore")[:48]
        assert is_truncated(token) == (len(token.encode("utf-8", "ignore")) > 48)
    assert unpadded_length(np.array([ids]))[0] == end + 1


def test_batch_is_padded_with_rows_of_zeros() -> None:
    ids = batch_ids([["a", "b"], ["c"], []])
    assert ids.shape == (3, 2, 50)
    assert np.array_equal(ids[0], char_ids_table(["a", "b"]))
    assert not ids[1, 1].any()
    assert not ids[2].any()


def test_empty_batches_have_the_right_shape() -> None:
    assert batch_ids([]).shape == (0, 0, 50)
    assert char_ids_table([]).shape == (0, 50)


def test_batch_of_bilm_tfs_batcher_test() -> None:
    sentences = [["The", "first", "sentence"], ["Second", "."]]
    ids = batch_ids([["<S>", *s, "</S>"] for s in sentences])
    assert ids.shape == (2, 5, 50)
    assert ids[0, 1].tolist() == [259, 85, 105, 102, 260] + [PAD] * 45
    assert ids[0, 2].tolist() == [259, 103, 106, 115, 116, 117, 260] + [PAD] * 43
    first = [259, 116, 102, 111, 117, 102, 111, 100, 102, 260]
    assert ids[0, 3].tolist() == first + [PAD] * 40
    assert ids[0, 4].tolist() == ids[1, 3].tolist() == [259, 258, 260] + [PAD] * 47
    assert ids[1, 1].tolist() == [259, 84, 102, 100, 112, 111, 101, 260] + [PAD] * 42
    assert ids[1, 2].tolist() == [259, 47, 260] + [PAD] * 47
    assert not ids[1, 4].any()


@pytest.mark.parametrize("sentences", [["I read it"], "I read it", [["I"], "read it"]])
def test_string_is_not_treated_as_a_list_of_characters(sentences: list[str]) -> None:
    with pytest.raises(DataError, match="expected a list of tokens"):
        batch_ids(sentences)


def test_error_identifies_a_token_that_is_not_a_string() -> None:
    with pytest.raises(DataError, match=r"Token 1 of sentence 0 has type int \(5\)"):
        batch_ids([["I", 5]])  # type: ignore[list-item]
