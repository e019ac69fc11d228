"""A corpus in one file: correct vectors, interruptions, no lost work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from elmokit.bulk.formats import open_vectors
from elmokit.bulk.output import count_finished_sentences
from elmokit.bulk.run import embed_corpus
from elmokit.bulk.settings import EmbedSettings
from elmokit.embed.model import ElmoModel
from elmokit.errors import ConfigError, DataError, ElmoWarning, OutputError
from elmokit.model.lstm import LstmState
from elmokit.progress import Progress
from elmokit.sources.modeldir import ModelParts
from elmokit.text.vocab import Vocabulary
from tests.bulk.runs import SMALL, SUFFIXES, TEXT, Stopped, names, stop_after
from tests.conftest import TINY, random_bilm
from tests.sources.models import make_parts

# ----------------------------------------------------------------------------------- the vectors


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_each_line_is_a_sentence_with_the_vectors_of_embed(
    elmo: ElmoModel, text: Path, folder: Path, suffix: str
) -> None:
    out = folder / f"vectors{suffix}"
    summary = embed_corpus(elmo, [text], out, SMALL)
    expected = elmo.embed(TEXT.split("\n")[:-1])
    with open_vectors(out) as stored:
        assert len(stored) == summary.sentences == 8
        for item, (tokens, vectors) in zip(expected, stored, strict=True):
            assert tokens == item.tokens
            np.testing.assert_allclose(vectors, item.layers, atol=1e-5)
        assert stored.metadata["inputs"] == [str(text)]
    assert summary.tokens == sum(len(item) for item in expected)
    assert names(folder) == [out.name]


def test_lines_match_keys_and_allennlp_readers_find_their_sentences(
    elmo: ElmoModel, text: Path, folder: Path
) -> None:
    embed_corpus(elmo, [text], out := folder / "vectors.h5", SMALL)
    with h5py.File(out) as file:
        assert file["2"].shape == (3, 0, 20)
        index = json.loads(file["sentence_to_index"][0])
    lines = TEXT.split("\n")
    assert index["Can you read the letter now?"] == "1"
    assert index["I read the book yesterday."] == "6"  # of equal sentences, the last one
    assert {int(number) for number in index.values()} == {1, 3, 4, 5, 6, 7}
    assert all(lines[int(number)] == line for line, number in index.items())


def test_tokenized_text_is_split_at_whitespace_only(
    elmo: ElmoModel, folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "tokens.txt"
    path.write_text("  Don't\tstop. now \r\n\u00e9t\u00e9 \u3000 x\n", encoding="utf-8")
    embed_corpus(elmo, [path], out := folder / "v.parquet", EmbedSettings(tokenized=True))
    with open_vectors(out) as stored:
        assert [s.tokens for s in stored] == [["Don't", "stop.", "now"], ["\u00e9t\u00e9", "x"]]
        np.testing.assert_allclose(
            stored[0].vectors, elmo.embed([["Don't", "stop.", "now"]])[0].layers, atol=2e-6
        )


def test_paragraphs_are_split_and_tokens_have_offsets(
    elmo: ElmoModel, text: Path, folder: Path
) -> None:
    settings = EmbedSettings(split=True, chunk_bytes=10)
    embed_corpus(elmo, [text, text], out := folder / "vectors.npz", settings)
    with np.load(out) as arrays:
        places, offsets, spans = arrays["places"], arrays["offsets"], arrays["spans"]
        tokens = arrays["tokens"].tobytes().decode().split("\n")[:-1]
    assert places.tolist() == [[f, line] for f in (0, 1) for line in (1, 2, 4, 5, 7, 8, 8)]
    lines = TEXT.split("\n")
    for sentence, (_, line) in enumerate(places):
        for k in range(offsets[sentence], offsets[sentence + 1]):
            assert lines[line - 1][slice(*spans[k])] == tokens[k]
    assert tokens[-4:] == ["It", "was", "good", "."]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (EmbedSettings(layer="top"), lambda item: item.top),
        (EmbedSettings(layer="average"), lambda item: item.average),
        (
            EmbedSettings(layer="mix", mix=(0.2, 0.3, 0.5), gamma=2.0, dtype="float16"),
            lambda item: item.mix([0.2, 0.3, 0.5], 2.0).astype(np.float16),
        ),
    ],
)
def test_layers_can_be_selected(
    elmo: ElmoModel, text: Path, folder: Path, settings: EmbedSettings, expected: Any
) -> None:
    embed_corpus(elmo, [text], out := folder / "vectors.safetensors", settings)
    with open_vectors(out) as stored:
        for item, found in zip(elmo.embed(TEXT.split("\n")[:-1]), stored, strict=True):
            assert found.vectors.dtype == settings.dtype
            np.testing.assert_allclose(found.vectors, expected(item), atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_carried_state_continues_across_chunks(
    elmo: ElmoModel, text: Path, folder: Path, rows: int
) -> None:
    settings = EmbedSettings(state="carry", rows=rows, chunk_bytes=30)
    embed_corpus(elmo, [text], out := folder / "vectors.h5", settings)
    whole = elmo.embed(TEXT.split("\n")[:-1], state="carry", rows=rows)
    with open_vectors(out) as stored:
        for item, found in zip(whole, stored, strict=True):
            np.testing.assert_allclose(found.vectors, item.layers, atol=1e-5)


def test_warm_state_is_used_and_part_of_the_fingerprint(text: Path, folder: Path) -> None:
    bilm = random_bilm(TINY)
    state = [LstmState(torch.randn(2, 2, 1, 24), torch.randn(2, 2, 1, 10)) for _ in range(2)]
    one, other = (ElmoModel(ModelParts(bilm, warm=warm), device="cpu") for warm in state)
    settings = EmbedSettings(state="warm", chunk_bytes=60)
    out = folder / "vectors.npz"
    with pytest.raises(Stopped):
        embed_corpus(one, [text], out, settings, on_progress=stop_after(2))
    with pytest.raises(ConfigError, match="model was"):
        embed_corpus(other, [text], out, settings, resume=True)
    embed_corpus(one, [text], out, settings, resume=True)
    with open_vectors(out) as stored:
        expected = one.embed("Don't!", state="warm").layers
        np.testing.assert_allclose(stored[3].vectors, expected, atol=1e-5)


def test_missing_warm_state_is_an_error_and_leaves_no_files(
    elmo: ElmoModel, text: Path, folder: Path
) -> None:
    with pytest.raises(ConfigError, match="elmo warm"):
        embed_corpus(elmo, [text], folder / "vectors.npz", EmbedSettings(state="warm"))
    assert names(folder) == []


def test_word_input_models_work_and_their_vocabulary_is_part_of_the_fingerprint(
    tmp_path: Path, folder: Path
) -> None:
    (tmp_path / "text.txt").write_text("the book\nbook the other\n")
    parts = make_parts("words")
    out = folder / "vectors.npz"
    settings = EmbedSettings(chunk_bytes=1)
    with pytest.raises(Stopped):
        embed_corpus(
            ElmoModel(parts, device="cpu"),
            [tmp_path / "text.txt"],
            out,
            settings,
            on_progress=stop_after(2),
        )
    assert parts.vocabulary is not None
    swapped = Vocabulary([*parts.vocabulary.words[:3], "book", "the"])
    other = ElmoModel(ModelParts(parts.bilm, vocabulary=swapped), device="cpu")
    with pytest.raises(ConfigError, match="model was"):
        embed_corpus(other, [tmp_path / "text.txt"], out, settings, resume=True)
    again = ElmoModel(parts, device="cpu")
    assert embed_corpus(again, [tmp_path / "text.txt"], out, settings, resume=True).tokens == 5


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("content", ["", "\n", "\n\n\n\n\n\n\n\n"])
def test_text_without_tokens_gives_a_file_without_vectors(
    elmo: ElmoModel, folder: Path, tmp_path: Path, suffix: str, content: str
) -> None:
    (tmp_path / "empty.txt").write_text(content)
    out = folder / f"vectors{suffix}"
    summary = embed_corpus(elmo, [tmp_path / "empty.txt"], out, EmbedSettings(chunk_bytes=3))
    assert (summary.sentences, summary.tokens) == (len(content), 0)
    with open_vectors(out) as stored:
        assert [s.vectors.shape for s in stored] == [(3, 0, 20)] * len(content)


def test_progress_is_reported_in_bytes_of_input(elmo: ElmoModel, text: Path, folder: Path) -> None:
    reports: list[Progress] = []
    embed_corpus(elmo, [text], folder / "vectors.npz", SMALL, on_progress=reports.append)
    assert reports[0][:3] == (0, 0, len(TEXT))
    assert reports[-1].bottleneck in ("read", "tokenize", "compute", "write")
    assert reports[-1].n_bytes == len(TEXT)
    assert [p.tokens for p in reports] == sorted({p.tokens for p in reports})


# ---------------------------------------------------------------------------------- existing output


def test_output_is_replaced_only_on_request_and_only_at_the_end(
    elmo: ElmoModel, text: Path, folder: Path
) -> None:
    out = folder / "vectors.npz"
    out.write_text("precious")
    with pytest.raises(OutputError):
        embed_corpus(elmo, [text], out, SMALL)
    with pytest.raises(Stopped):
        embed_corpus(elmo, [text], out, SMALL, overwrite=True, on_progress=stop_after(2))
    assert out.read_text() == "precious"
    with pytest.raises(OutputError):
        embed_corpus(elmo, [text], out, SMALL, resume=True)
    summary = embed_corpus(elmo, [text], out, SMALL, resume=True, overwrite=True)
    assert summary.resumed_sentences > 0
    assert len(open_vectors(out)) == 8


def test_unwritable_output_is_reported_before_any_work(
    elmo: ElmoModel, text: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ElmoModel, "compute_block", stop_after(0))
    with pytest.raises(OutputError):
        embed_corpus(elmo, [text], text / "vectors.npz", SMALL)
    (folder / "vectors.npz").mkdir()
    with pytest.raises(OutputError):
        embed_corpus(elmo, [text], folder / "vectors.npz", SMALL)
    with pytest.raises(ConfigError, match=r"\.parquet"):
        embed_corpus(elmo, [text], folder / "vectors.txt", SMALL)
    assert names(folder) == ["vectors.npz"]


@pytest.mark.parametrize("options", [{"overwrite": True}, {"resume": True}])
def test_input_is_never_overwritten(
    elmo: ElmoModel, text: Path, folder: Path, options: dict[str, bool]
) -> None:
    text.rename(same := folder / "text.npz")
    with pytest.raises(OutputError, match="is both input and output"):
        embed_corpus(elmo, [same], folder / ".." / "out" / "text.npz", SMALL, **options)
    assert same.read_text("utf-8") == TEXT


def test_error_for_a_sentence_with_too_many_tokens_states_line_and_limit(
    elmo: ElmoModel, text: Path, folder: Path
) -> None:
    text.write_text("fine\n" + "a " * 65_537 + "\n")
    with pytest.raises(DataError, match=r"text\.txt, line 2: .* 65,537 tokens; .* 65,536.*--split"):
        embed_corpus(elmo, [text], folder / "v.npz", SMALL)
    assert count_finished_sentences(folder / "v.npz") == 0


def test_missing_output_directories_are_created(elmo: ElmoModel, text: Path, folder: Path) -> None:
    embed_corpus(elmo, [text], folder / "new" / "one" / "vectors.npz", SMALL)
    assert names(folder / "new" / "one") == ["vectors.npz"]


# ------------------------------------------------------------------------------------ invalid input


def test_invalid_line_is_reported_and_previous_chunks_are_kept(
    elmo: ElmoModel, text: Path, folder: Path
) -> None:
    text.write_bytes(TEXT.encode() * 50 + b"caf\xe9\nlast\n")
    out = folder / "vectors.npz"
    with pytest.raises(DataError, match=r"text\.txt, line 401"):
        embed_corpus(elmo, [text], out, SMALL)
    assert not out.exists()
    kept = count_finished_sentences(out)
    assert 380 < kept < 401  # all chunks except the one with the invalid line
    with pytest.warns(ElmoWarning, match=r"Skipped 1 line: .* line 401"):
        summary = embed_corpus(elmo, [text], out, SMALL, skip_bad=True, resume=True)
    assert (summary.sentences, summary.skipped_lines) == (401, 1)
    assert summary.resumed_sentences == kept


@pytest.mark.parametrize("bad", ["missing.txt", ".", "-"])
def test_unreadable_files_are_an_error(elmo: ElmoModel, text: Path, folder: Path, bad: str) -> None:
    second = "-" if bad == "-" else str(folder / bad)
    with pytest.raises(DataError):
        embed_corpus(elmo, [second, text, second], folder / "v.npz", SMALL)
    assert names(folder) == []


def test_long_tokens_are_counted_in_one_warning(elmo: ElmoModel, text: Path, folder: Path) -> None:
    text.write_text(("a" * 49 + " fine " + "b" * 48 + " " + "\u00e9" * 25 + "\n") * 30)
    with pytest.warns(ElmoWarning, match="Truncated 60 tokens to 48 bytes") as caught:
        summary = embed_corpus(elmo, [text], folder / "v.npz", SMALL)
    assert summary.truncated_tokens == 60
    assert len(caught) == 1
