"""ElmoEmbedder: sentences to arrays, files to HDF5."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from elmokit.compat.allennlp import ElmoEmbedder
from elmokit.errors import ConfigError, DataError, OutputError
from tests.compat.conftest import Files

TEXT = "Don 't !\n  Why   not ?  \ncaf\u00e9 \u65e5\u672c .\nDon 't !\n"


@pytest.fixture
def embedder(tiny: Files) -> ElmoEmbedder:
    return ElmoEmbedder(*tiny)


def test_arrays_contain_all_layers_without_padding(embedder: ElmoEmbedder) -> None:
    arrays = embedder.embed_batch([["a"], ["b", "c", "d"]])
    assert [a.shape for a in arrays] == [(3, 1, 20), (3, 3, 20)]
    assert all(a.dtype == np.float32 for a in arrays)
    layers, mask = embedder.batch_to_embeddings([["a"], ["b", "c", "d"]])
    assert layers.shape == (2, 3, 3, 20)
    assert mask.tolist() == [[1, 0, 0], [1, 1, 1]]
    assert not layers[0, :, 1:].any()


def test_sentences_are_read_lazily(embedder: ElmoEmbedder, tiny: Files) -> None:
    asked = 0

    def supply() -> Any:
        nonlocal asked
        for n in range(5):
            asked += 1
            yield ["w"] * (n + 1)

    found = embedder.embed_sentences(supply(), batch_size=2)
    assert asked == 0
    assert next(found).shape[1] == 1
    assert asked == 2
    rest = list(found)
    assert [a.shape[1] for a in rest] == [2, 3, 4, 5]
    # Batches of the given size, in the given order, one after another.
    second = ElmoEmbedder(*tiny)
    second.embed_batch([["w"], ["w"] * 2])
    assert np.array_equal(second.embed_batch([["w"] * 3, ["w"] * 4])[1], rest[2])


def test_state_is_kept_for_the_lifetime_of_the_object(embedder: ElmoEmbedder, tiny: Files) -> None:
    first, second = (embedder.embed_sentence(["a", "b"]) for _ in range(2))
    assert np.array_equal(first[0], second[0])
    assert np.abs(first[1:] - second[1:]).max() > 1e-3
    embedder.elmo_bilm._elmo_lstm.reset_states()
    assert np.array_equal(embedder.embed_sentence(["a", "b"]), first)
    still = ElmoEmbedder(*tiny, stateful=False)
    assert np.array_equal(still.embed_sentence(["a", "b"]), still.embed_sentence(["a", "b"]))


def test_empty_sentences_have_the_shape_of_the_model(embedder: ElmoEmbedder) -> None:
    assert embedder.embed_batch([]) == []
    for arrays in (embedder.embed_batch([[], []]), [embedder.embed_sentence([])]):
        assert all(a.shape == (3, 0, 20) and a.dtype == np.float32 for a in arrays)
    assert embedder.elmo_bilm._elmo_lstm._states is None
    assert [a.shape[1] for a in embedder.embed_batch([["a"], []])] == [1, 0]
    assert embedder.elmo_bilm._elmo_lstm._states[0].shape[1] == 2


def test_invalid_settings_are_identified(embedder: ElmoEmbedder, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="batch_size must be at least 1"):
        list(embedder.embed_sentences([["a"]], batch_size=0))
    with pytest.raises(ConfigError, match=r"Invalid layer 'bogus': expected .*top, average"):
        embedder.embed_file(io.StringIO("a\n"), tmp_path / "x.h5", output_format="bogus")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("output_format", ["all", "top", "average"])
def test_embedded_file_can_be_read_back(
    output_format: str, embedder: ElmoEmbedder, tiny: Files, tmp_path: Path
) -> None:
    source = io.StringIO(TEXT)
    embedder.embed_file(source, str(tmp_path / "x.h5"), output_format, batch_size=3)
    assert source.closed
    expected = ElmoEmbedder(*tiny).embed_sentences([line.split() for line in TEXT.splitlines()], 3)
    with h5py.File(tmp_path / "x.h5") as file:
        assert set(file) == {"0", "1", "2", "3", "sentence_to_index"}
        for number, layers in enumerate(expected):
            wanted = {"all": layers, "top": layers[-1], "average": layers.mean(axis=0)}
            dataset = file[str(number)]
            assert dataset.dtype == np.float32
            assert np.array_equal(dataset[()], wanted[output_format])
        assert file["sentence_to_index"].shape == (1,)
        index = json.loads(file["sentence_to_index"][0])
    assert index == {"Don 't !": "3", "Why   not ?": "1", "caf\u00e9 \u65e5\u672c .": "2"}


def test_sentences_can_be_omitted_or_used_as_keys(
    embedder: ElmoEmbedder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    embedder.embed_file(io.StringIO(TEXT), tmp_path / "x.h5", forget_sentences=True)
    with h5py.File(tmp_path / "x.h5") as file:
        assert set(file) == set("0123")
    with caplog.at_level(logging.WARNING):
        embedder.embed_file(
            io.StringIO("7-6 ( 7 / 4 )\na:b\n"), tmp_path / "y.h5", use_sentence_keys=True
        )
    assert "slashes" in caplog.text
    with h5py.File(tmp_path / "y.h5") as file:
        assert set(file) == {"7-6 ( 7 ", "a:b"}
        assert file["7-6 ( 7 / 4 )"].shape == (3, 6, 20)


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("a\n\nb\n  \n", {}, "Line 2 of the input is blank"),
        ("a\nb\na\n", {"use_sentence_keys": True}, "'a' cannot be used as the name"),
        ("a\na/b\n", {"use_sentence_keys": True}, "'a/b' cannot be used as the name"),
        (".\n", {"use_sentence_keys": True}, "'.' cannot be used as the name"),
    ],
)
def test_input_that_cannot_be_stored_leaves_no_files(
    text: str, settings: dict[str, Any], message: str, embedder: ElmoEmbedder, tmp_path: Path
) -> None:
    (tmp_path / "x.h5").write_text("what was there before")
    with pytest.raises(DataError, match=message):
        embedder.embed_file(io.StringIO(text), tmp_path / "x.h5", **settings)
    assert [p.name for p in tmp_path.iterdir()] == ["x.h5"]
    assert (tmp_path / "x.h5").read_text() == "what was there before"


def test_empty_file_has_an_empty_index(embedder: ElmoEmbedder, tmp_path: Path) -> None:
    embedder.embed_file(io.StringIO(""), tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5") as file:
        assert set(file) == {"sentence_to_index"}
        assert json.loads(file["sentence_to_index"][0]) == {}


def test_unwritable_path_is_identified(embedder: ElmoEmbedder, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="file"):
        embedder.embed_file(io.StringIO("a\n"), tmp_path / "file" / "x.h5")
