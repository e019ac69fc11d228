"""What a token index stores, and bad input and output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmokit.embed.model import ElmoModel
from elmokit.embed.spaces import choose_spaces, every_space
from elmokit.errors import ConfigError, DataError, ElmoWarning, OutputError
from elmokit.search.index import Query, TokenIndex, mark
from elmokit.search.index_build import (
    IndexSettings,
    build_index,
    check_index_output,
)
from elmokit.search.index_files import META
from elmokit.sources.modeldir import ModelParts
from elmokit.text.marked import Marked
from tests.conftest import TINY, random_bilm
from tests.search.conftest import QUERIES, TOKENIZED, WORDS, build


def test_tokens_know_their_sentence_its_place_and_their_offsets(
    elmo: ElmoModel, tmp_path: Path
) -> None:
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_text("  He said: “Don't!”  It was 5 o'clock.\n\n")
    second.write_text("\nÄpfel 🍎 und Birnen.\n")
    build_index(elmo, [first, second], tmp_path / "i", IndexSettings(split=True))
    index = TokenIndex.open(tmp_path / "i")
    lines = {str(p): p.read_text().split("\n") for p in (first, second)}
    assert index.sentences == 3
    for number in range(index.tokens):
        token = index.token(number)
        assert token.span is not None
        assert token.text[slice(*token.span)] == token.word
        assert token.text in lines[token.file][token.line - 1]
        assert token.where == f"{token.file}:{token.line}"
    assert index.token(index.tokens - 1).line == 2


def test_layer_0_is_stored_once_for_each_word(index: TokenIndex) -> None:
    assert index.arrays["vectors-layer-0"].shape == (len(set(WORDS)), 32)
    assert index.arrays["vectors-layer-1"].shape == (index.tokens, 32)


@pytest.mark.parametrize(
    ("layers", "stored", "searched"),
    [
        (("all",), ["layer 0", "layer 1", "layer 2"], [*"012", "average"]),
        (("top",), ["layer 2"], ["2"]),
        (("average",), ["average"], ["average"]),
        (("0", "2"), ["layer 0", "layer 2"], ["0", "2"]),
    ],
)
def test_the_chosen_layers_are_stored_and_others_are_refused(
    elmo: ElmoModel,
    folder: Path,
    layers: tuple[str, ...],
    stored: list[str],
    searched: list[str],
) -> None:
    index = build(elmo, folder, "-".join(layers), layers=layers)
    assert list(index.meta.stored) == stored
    assert index.spaces == choose_spaces(searched, 3)
    assert index.neighbors(QUERIES[:1], elmo)[0].lists.keys() == {s.name for s in index.spaces}
    for space in every_space(3):
        if space not in index.spaces:
            with pytest.raises(ConfigError, match=f"cannot be searched in {space.name}"):
                index.neighbors(QUERIES[:1], elmo, spaces=[space])
    if layers == ("0", "2"):  # a mix of what is there
        index.neighbors(QUERIES[:1], elmo, spaces=choose_spaces(["mix"], 3, (0.5, 0, 0.5)))


def test_the_memory_of_a_build_does_not_grow_with_the_text(elmo: ElmoModel, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat .\n" * 100)
    held = []
    compute = elmo.compute

    def watched(sentences: Any, *rest: Any) -> Any:
        held.append(sum(map(len, sentences)))
        return compute(sentences, *rest)

    elmo.compute = watched  # type: ignore[method-assign]
    try:
        build_index(elmo, [text], tmp_path / "i", TOKENIZED)
    finally:
        del elmo.compute  # type: ignore[method-assign]
    assert len(held) > 6
    assert max(held) <= 110


# --------------------------------------------------------------------------- bad input and output


def test_other_models_are_refused(elmo: ElmoModel, index: TokenIndex) -> None:
    index.check(elmo)
    other = ElmoModel(ModelParts(random_bilm(TINY)), device="cpu")
    with pytest.raises(ConfigError, match="made with another model"):
        index.check(other)
    with pytest.raises(ConfigError, match="made with another model"):
        index.neighbors(QUERIES, other)
    wrong = np.zeros((3, 20), dtype=np.float32)
    with pytest.raises(ConfigError, match=r"vectors of shape \(3, 32\), found \(3, 20\)"):
        index.search([Query(QUERIES[0], wrong)])


def test_what_is_no_index_is_said(tmp_path: Path, folder: Path, index: TokenIndex) -> None:
    with pytest.raises(DataError, match="does not exist"):
        TokenIndex.open(tmp_path / "none")
    with pytest.raises(DataError, match="is not an index"):
        TokenIndex.open(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="is a file"):
        TokenIndex.open(tmp_path / "file")
    values = json.loads((folder / "float16" / META).read_text())
    (tmp_path / META).write_text(json.dumps({**values, "format_version": 99}))
    with pytest.raises(DataError, match="another version"):
        TokenIndex.open(tmp_path)
    (tmp_path / META).write_text(json.dumps(values))
    with pytest.raises(DataError, match=r"not a whole index \(words.npy"):
        TokenIndex.open(tmp_path)
    values.pop("tokens")
    (tmp_path / META).write_text(json.dumps(values))
    with pytest.raises(DataError, match="tokens"):
        TokenIndex.open(tmp_path)


def test_an_array_of_another_shape_is_said(elmo: ElmoModel, folder: Path) -> None:
    index = build(elmo, folder, "damaged")
    np.save(index.folder / "ends.npy", np.zeros(3, dtype=np.int64))
    with pytest.raises(DataError, match=r"ends.npy is int64 of shape \(3,\)"):
        TokenIndex.open(index.folder)
    np.save(index.folder / "ends.npy", np.zeros(index.sentences, dtype=np.int64))
    with pytest.raises(DataError, match=r"ends.npy does not rise to 660"):
        TokenIndex.open(index.folder)


@pytest.mark.parametrize(
    "wrong",
    [
        {"tokens": "many"},
        {"dim": 0},
        {"numbers": "int4"},
        {"state": "carry"},
        {"stored": {}},
        {"stored": {"layer 1": [1]}},
        {"stored": {"../layer 1": [0, 1, 0]}},
        {"stored": {"layer 1": ["x", 1, 0]}},
        {"inputs": "text.txt"},
    ],
)
def test_a_meta_file_of_strangers_is_looked_at(
    index: TokenIndex, tmp_path: Path, wrong: dict[str, Any]
) -> None:
    values = json.loads((index.folder / META).read_text())
    (tmp_path / META).write_text(json.dumps({**values, **wrong}))
    with pytest.raises(DataError, match=r"not a whole index \(meta.json"):
        TokenIndex.open(tmp_path)


def test_a_text_without_tokens_is_refused_and_leaves_nothing(
    elmo: ElmoModel, tmp_path: Path
) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(DataError, match="not one token"):
        build_index(elmo, [tmp_path / "empty.txt"], tmp_path / "i")
    assert [p.name for p in tmp_path.iterdir()] == ["empty.txt"]


def test_folders_with_other_things_are_never_replaced(elmo: ElmoModel, folder: Path) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "letter.txt").write_text("dear")
    for how in ({}, {"resume": True}, {"overwrite": True}):
        with pytest.raises(OutputError, match="other things in it"):
            build_index(elmo, [folder / "text.txt"], folder / "mine", TOKENIZED, **how)
    with pytest.raises(OutputError, match="is a file"):
        check_index_output(folder / "text.txt")
    assert (folder / "mine" / "letter.txt").read_text() == "dear"


def test_an_index_is_replaced_only_when_asked(elmo: ElmoModel, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a b c\n")
    build_index(elmo, [text], tmp_path / "i", TOKENIZED)
    text.write_text("a b c d\n")
    with pytest.raises(OutputError, match="there already"):
        build_index(elmo, [text], tmp_path / "i", TOKENIZED)
    with pytest.raises(OutputError, match="there already"):
        build_index(elmo, [text], tmp_path / "i", TOKENIZED, resume=True)  # it is of another text
    assert TokenIndex.open(tmp_path / "i").tokens == 3
    build_index(elmo, [text], tmp_path / "i", TOKENIZED, overwrite=True)
    assert TokenIndex.open(tmp_path / "i").tokens == 4
    done = build_index(elmo, [text], tmp_path / "i", TOKENIZED, resume=True)  # nothing left to do
    assert done.tokens == done.resumed_tokens == 4
    assert sorted(p.name for p in tmp_path.iterdir()) == ["i", "text.txt"]


def test_bad_lines_are_named_or_counted(elmo: ElmoModel, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes(b"a b\n\xff\xfe\nc d\n")
    with pytest.raises(DataError, match="line 2"):
        build_index(elmo, [text], tmp_path / "i", TOKENIZED)
    with pytest.warns(ElmoWarning, match="1 lines were left out"):
        done = build_index(elmo, [text], tmp_path / "i", TOKENIZED, skip_bad=True)
    assert (done.tokens, done.skipped_lines) == (4, 1)


def test_a_word_is_marked_by_its_name_or_place() -> None:
    sentence = "He will play, and play again."
    assert mark(sentence, "play") == Marked.read("He will [play], and play again.")
    assert mark(sentence, "play", occurrence=1).position == 5
    assert mark(sentence, position=0).word == "He"
    with pytest.raises(DataError, match=r"'plays' is not a token .* Did you mean 'play'"):
        mark(sentence, "plays")
    with pytest.raises(DataError, match="stands 2 times"):
        mark(sentence, "play", occurrence=2)
    with pytest.raises(ConfigError, match=r"by word= or by position="):
        mark(sentence)
    with pytest.raises(DataError, match="position is 99"):
        mark(sentence, position=99)
