"""A corpus in one file: the right vectors, any order of interruptions, nothing lost."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from elmokit.embed import bulk
from elmokit.embed.bulk import embed_corpus
from elmokit.embed.bulk_settings import EmbedSettings, Progress
from elmokit.embed.bulk_work import WorkDirectory, work_path
from elmokit.embed.files import open_vectors
from elmokit.embed.model import ElmoModel
from elmokit.errors import ConfigError, DataError, ElmoWarning, OutputError
from elmokit.model.lstm import LstmState
from elmokit.sources.modeldir import ModelParts
from elmokit.text.tokenize import words
from elmokit.text.vocab import Vocabulary
from tests.conftest import TINY, random_bilm
from tests.sources.models import make_parts

SUFFIXES = [".h5", ".npz", ".safetensors", ".parquet"]
TEXT = """I read the book yesterday.
Can you read the letter now?

Don't!
The children play in the garden, and then they read: "It's mine."

I read the book yesterday.
The play was long. It was good.
"""
SMALL = EmbedSettings(part_tokens=20)


@pytest.fixture(scope="module")
def elmo() -> ElmoModel:
    return ElmoModel(ModelParts(random_bilm(TINY)), device="cpu")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


class Stopped(Exception):
    """Stands for anything that ends a run."""


def stop_after(calls_before: int) -> Callable[..., Any]:
    calls = iter(range(calls_before))

    def report(*_: object) -> None:
        if next(calls, None) is None:
            raise Stopped

    return report


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ----------------------------------------------------------------------------------- the vectors


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_line_is_a_sentence_and_its_vectors_are_those_of_embed(
    elmo: ElmoModel, text: Path, folder: Path, suffix: str
) -> None:
    out = folder / f"vectors{suffix}"
    summary = embed_corpus(elmo, [text], out, SMALL)
    expected = elmo.embed(TEXT.split("\n")[:-1])
    with open_vectors(out) as stored:
        assert len(stored) == summary.sentences == 8
        for item, (tokens, vectors) in zip(expected, stored, strict=True):
            assert tokens == item.tokens
            np.testing.assert_allclose(vectors, item.layers, atol=2e-6)
        assert stored.about["inputs"] == [str(text)]
    assert summary.tokens == sum(len(item) for item in expected)
    assert names(folder) == [out.name]


def test_lines_and_keys_agree_and_readers_of_allennlp_find_their_sentences(
    elmo: ElmoModel, text: Path, folder: Path
) -> None:
    embed_corpus(elmo, [text], out := folder / "vectors.h5", SMALL)
    with h5py.File(out) as file:
        assert file["2"].shape == (3, 0, 20)
        index = json.loads(file["sentence_to_index"][0])
    lines = TEXT.split("\n")
    assert index["Can you read the letter now?"] == "1"
    assert index["I read the book yesterday."] == "6"  # of equal sentences the last
    assert {int(number) for number in index.values()} == {1, 3, 4, 5, 6, 7}
    assert all(lines[int(number)] == line for line, number in index.items())


def test_tokenised_text_is_cut_at_whitespace_only(
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


def test_paragraphs_are_split_and_tokens_know_where_they_stood(
    elmo: ElmoModel, text: Path, folder: Path
) -> None:
    settings = EmbedSettings(split=True, part_tokens=5)
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
        (EmbedSettings(layers="top"), lambda item: item.top),
        (EmbedSettings(layers="average"), lambda item: item.average),
        (
            EmbedSettings(layers="mix", mix=(0.2, 0.3, 0.5), gamma=2.0, dtype="float16"),
            lambda item: item.mix([0.2, 0.3, 0.5], 2.0).astype(np.float16),
        ),
    ],
)
def test_layers_can_be_chosen(
    elmo: ElmoModel, text: Path, folder: Path, settings: EmbedSettings, expected: Any
) -> None:
    embed_corpus(elmo, [text], out := folder / "vectors.safetensors", settings)
    with open_vectors(out) as stored:
        for item, found in zip(elmo.embed(TEXT.split("\n")[:-1]), stored, strict=True):
            assert found.vectors.dtype == settings.dtype
            np.testing.assert_allclose(found.vectors, expected(item), atol=2e-6, rtol=1e-3)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_carried_state_goes_on_from_part_to_part(
    elmo: ElmoModel, text: Path, folder: Path, rows: int
) -> None:
    settings = EmbedSettings(state="carry", rows=rows, part_tokens=12)
    embed_corpus(elmo, [text], out := folder / "vectors.h5", settings)
    whole = elmo.embed(TEXT.split("\n")[:-1], state="carry", rows=rows)
    with open_vectors(out) as stored:
        for item, found in zip(whole, stored, strict=True):
            np.testing.assert_allclose(found.vectors, item.layers, atol=2e-6)


def test_warm_state_is_used_and_is_part_of_the_model(text: Path, folder: Path) -> None:
    bilm = random_bilm(TINY)
    state = [LstmState(torch.randn(2, 2, 1, 24), torch.randn(2, 2, 1, 10)) for _ in range(2)]
    one, other = (ElmoModel(ModelParts(bilm, warm=warm), device="cpu") for warm in state)
    settings = EmbedSettings(state="warm", part_tokens=20)
    out = folder / "vectors.npz"
    with pytest.raises(Stopped):
        embed_corpus(one, [text], out, settings, on_progress=stop_after(2))
    with pytest.raises(ConfigError, match="model was"):
        embed_corpus(other, [text], out, settings, resume=True)
    embed_corpus(one, [text], out, settings, resume=True)
    with open_vectors(out) as stored:
        expected = one.embed("Don't!", state="warm").layers
        np.testing.assert_allclose(stored[3].vectors, expected, atol=2e-6)


def test_a_model_without_warm_state_says_so_and_leaves_nothing(
    elmo: ElmoModel, text: Path, folder: Path
) -> None:
    with pytest.raises(ConfigError, match="elmo warm"):
        embed_corpus(elmo, [text], folder / "vectors.npz", EmbedSettings(state="warm"))
    assert names(folder) == []


def test_word_models_work_and_their_words_are_part_of_the_model(
    tmp_path: Path, folder: Path
) -> None:
    (tmp_path / "text.txt").write_text("the book\nbook the other\n")
    parts = make_parts("words")
    out = folder / "vectors.npz"
    settings = EmbedSettings(part_tokens=4)
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
    summary = embed_corpus(elmo, [tmp_path / "empty.txt"], out, EmbedSettings(part_tokens=3))
    assert (summary.sentences, summary.tokens) == (len(content), 0)
    with open_vectors(out) as stored:
        assert [s.vectors.shape for s in stored] == [(3, 0, 20)] * len(content)


def test_progress_is_told_in_bytes_of_input(elmo: ElmoModel, text: Path, folder: Path) -> None:
    told: list[Progress] = []
    embed_corpus(elmo, [text], folder / "vectors.npz", SMALL, on_progress=told.append)
    assert told[0] == (0, 0, len(TEXT))
    assert told[-1].n_bytes == len(TEXT)
    assert [p.tokens for p in told] == sorted({p.tokens for p in told})


# ------------------------------------------------------------------------------ interruptions


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    "settings",
    [
        SMALL,
        EmbedSettings(part_tokens=8, split=True),
        EmbedSettings(part_tokens=8, state="carry", rows=2, tokenized=True),
    ],
    ids=["lines", "split", "carry"],
)
def test_a_run_interrupted_after_every_part_gives_the_same_bytes(
    elmo: ElmoModel, text: Path, folder: Path, suffix: str, settings: EmbedSettings
) -> None:
    texts = [text] * 3
    whole = folder / f"whole{suffix}"
    embed_corpus(elmo, texts, whole, settings)
    out = folder / f"pieces{suffix}"
    stops = 0
    while not out.exists():
        # A new object each time: nothing may depend on what a cache has seen.
        fresh = ElmoModel(ModelParts(elmo.bilm), device="cpu")
        try:
            embed_corpus(fresh, texts, out, settings, resume=stops > 0, on_progress=stop_after(2))
        except Stopped:
            stops += 1
    assert stops > 5
    assert whole.read_bytes() == out.read_bytes()
    assert names(folder) == sorted([whole.name, out.name])


def test_nothing_finished_is_computed_again(
    elmo: ElmoModel, text: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    compute = ElmoModel.compute

    def counting(self: ElmoModel, sentences: Any, *args: Any, **kwargs: Any) -> Any:
        seen.extend(sentences)
        return compute(self, sentences, *args, **kwargs)

    monkeypatch.setattr(ElmoModel, "compute", counting)
    with pytest.raises(Stopped):
        embed_corpus(elmo, [text], folder / "v.npz", SMALL, on_progress=stop_after(2))
    embed_corpus(elmo, [text], folder / "v.npz", SMALL, resume=True)
    assert seen == [words(line) for line in TEXT.split("\n")[:-1]]


def test_resuming_nothing_starts_anew_and_says_so(
    elmo: ElmoModel, text: Path, folder: Path
) -> None:
    with pytest.warns(ElmoWarning, match="no interrupted run to resume"):
        summary = embed_corpus(elmo, [text], folder / "v.npz", SMALL, resume=True)
    assert summary.resumed_sentences == 0


@pytest.fixture
def interrupted(elmo: ElmoModel, text: Path, folder: Path) -> Path:
    out = folder / "vectors.npz"
    with pytest.raises(Stopped):
        embed_corpus(elmo, [text], out, SMALL, on_progress=stop_after(2))
    assert names(folder) == [".vectors.npz.parts"]
    return out


def test_an_interrupted_run_is_never_thrown_away_unasked(
    elmo: ElmoModel, text: Path, interrupted: Path
) -> None:
    with pytest.raises(OutputError, match=r"Go on with it by --resume"):
        embed_corpus(elmo, [text], interrupted, SMALL)
    summary = embed_corpus(elmo, [text], interrupted, SMALL, overwrite=True)
    assert summary.resumed_sentences == 0
    assert names(interrupted.parent) == [interrupted.name]


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"layers": "top"}, "layers was 'all' and is now 'top'"),
        ({"dtype": "float16"}, "dtype was 'float32'"),
        ({"tokenized": True, "part_tokens": 20}, "tokenized was False"),
        ({"part_tokens": 21}, "part_tokens was 20 and is now 21"),
    ],
)
def test_other_settings_are_refused_and_named(
    elmo: ElmoModel, text: Path, interrupted: Path, changed: dict[str, Any], named: str
) -> None:
    settings = EmbedSettings(**{"part_tokens": 20, **changed})
    with pytest.raises(ConfigError, match=named):
        embed_corpus(elmo, [text], interrupted, settings, resume=True)
    assert embed_corpus(elmo, [text], interrupted, SMALL, resume=True).sentences == 8


def test_another_model_is_refused(text: Path, interrupted: Path) -> None:
    other = ElmoModel(ModelParts(random_bilm(TINY, seed=1)), device="cpu")
    with pytest.raises(ConfigError, match="model was"):
        embed_corpus(other, [text], interrupted, SMALL, resume=True)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("book", "look", 1),
        lambda text: "One more line.\n" + text,
        lambda text: text.replace("I read", "", 1),
        lambda text: text[:10],
        lambda text: "",
    ],
)
def test_text_that_changed_before_the_interruption_is_refused(
    elmo: ElmoModel, text: Path, interrupted: Path, change: Callable[[str], str]
) -> None:
    text.write_text(change(TEXT), encoding="utf-8")
    with pytest.raises(DataError, match=r"up to line \d of .*text.txt is not what"):
        embed_corpus(elmo, [text], interrupted, SMALL, resume=True)
    text.write_text(TEXT, encoding="utf-8")
    assert embed_corpus(elmo, [text], interrupted, SMALL, resume=True).sentences == 8


def test_text_that_changed_after_the_interruption_is_taken_as_it_is(
    elmo: ElmoModel, text: Path, interrupted: Path
) -> None:
    text.write_text(TEXT.replace("was good", "was mended"), encoding="utf-8")
    embed_corpus(elmo, [text], interrupted, SMALL, resume=True)
    embed_corpus(elmo, [text], other := interrupted.with_name("other.npz"), SMALL)
    assert interrupted.read_bytes() == other.read_bytes()


def test_text_that_grew_after_its_end_was_embedded_is_refused(
    elmo: ElmoModel, text: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = folder / "vectors.npz"
    with monkeypatch.context() as patch:
        patch.setattr(bulk, "check_space", stop_after(0))
        with pytest.raises(Stopped):
            embed_corpus(elmo, [text], out, SMALL)
    text.write_text(TEXT + "More.\n", encoding="utf-8")
    with pytest.raises(DataError, match="has grown"):
        embed_corpus(elmo, [text], out, SMALL, resume=True)
    text.write_text(TEXT, encoding="utf-8")
    assert embed_corpus(elmo, [text], out, SMALL, resume=True).resumed_sentences == 8


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("left", [True, False])
def test_a_run_that_ended_just_before_the_last_step_is_recognised(
    elmo: ElmoModel,
    text: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    left: bool,
    overwrite: bool,
) -> None:
    out = folder / "vectors.h5"
    with monkeypatch.context() as patch:
        patch.setattr(WorkDirectory, "discard", stop_after(0))
        with pytest.raises(Stopped):
            embed_corpus(elmo, [text], out, SMALL)
    assert names(folder) == [".vectors.h5.parts", "vectors.h5"]
    if not left:
        work_path(out).rename(folder.parent / "elsewhere")
    before = out.stat().st_mtime_ns
    summary = embed_corpus(elmo, [text], out, SMALL, resume=True, overwrite=overwrite)
    assert (summary.sentences, summary.resumed_sentences) == (8, 8)
    assert out.stat().st_mtime_ns == before
    assert names(folder) == ["vectors.h5"]


def test_two_processes_never_work_on_one_output(
    elmo: ElmoModel, text: Path, interrupted: Path
) -> None:
    def again(progress: Progress) -> None:
        with pytest.raises(OutputError, match="Another process is working"):
            embed_corpus(elmo, [text], interrupted, SMALL, resume=True)
        with pytest.raises(OutputError, match="Another process is working"):
            embed_corpus(elmo, [text], interrupted, SMALL, overwrite=True)

    embed_corpus(elmo, [text], interrupted, SMALL, resume=True, on_progress=again)


def test_damaged_work_is_an_error_that_says_what_to_do(
    elmo: ElmoModel, text: Path, interrupted: Path
) -> None:
    part = work_path(interrupted) / "part-000000.safetensors"
    part.write_bytes(part.read_bytes()[:-8])
    with pytest.raises(DataError, match=r"part-000000.* is damaged .* --overwrite"):
        embed_corpus(elmo, [text], interrupted, SMALL, resume=True)
    manifest = work_path(interrupted) / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"version": 1', '"version": 9'))
    with pytest.raises(DataError, match="version 9"):
        embed_corpus(elmo, [text], interrupted, SMALL, resume=True)
    manifest.write_text("{")
    with pytest.raises(DataError, match=r"manifest\.json cannot be read"):
        embed_corpus(elmo, [text], interrupted, SMALL, resume=True)
    assert embed_corpus(elmo, [text], interrupted, SMALL, overwrite=True).sentences == 8


# ------------------------------------------------------------------------- output in the way


def test_an_output_is_replaced_only_when_asked_and_only_at_the_end(
    elmo: ElmoModel, text: Path, folder: Path
) -> None:
    out = folder / "vectors.npz"
    out.write_text("precious")
    with pytest.raises(OutputError, match="is there already"):
        embed_corpus(elmo, [text], out, SMALL)
    with pytest.raises(Stopped):
        embed_corpus(elmo, [text], out, SMALL, overwrite=True, on_progress=stop_after(2))
    assert out.read_text() == "precious"
    with pytest.raises(OutputError, match="is there already"):
        embed_corpus(elmo, [text], out, SMALL, resume=True)
    summary = embed_corpus(elmo, [text], out, SMALL, resume=True, overwrite=True)
    assert summary.resumed_sentences > 0
    assert len(open_vectors(out)) == 8


def test_an_output_that_cannot_be_written_is_known_before_any_work(
    elmo: ElmoModel, text: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ElmoModel, "compute", stop_after(0))
    with pytest.raises(OutputError, match="Cannot write"):
        embed_corpus(elmo, [text], text / "vectors.npz", SMALL)
    (folder / "vectors.npz").mkdir()
    with pytest.raises(OutputError, match="is a directory"):
        embed_corpus(elmo, [text], folder / "vectors.npz", SMALL)
    with pytest.raises(ConfigError, match=r"\.parquet"):
        embed_corpus(elmo, [text], folder / "vectors.txt", SMALL)
    assert names(folder) == ["vectors.npz"]


def test_folders_of_the_output_are_made(elmo: ElmoModel, text: Path, folder: Path) -> None:
    embed_corpus(elmo, [text], folder / "new" / "one" / "vectors.npz", SMALL)
    assert names(folder / "new" / "one") == ["vectors.npz"]


# ----------------------------------------------------------------------------------- bad input


def test_a_bad_line_is_named_before_any_work(
    elmo: ElmoModel, text: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text.write_bytes(TEXT.encode() * 50 + b"caf\xe9\nlast\n")
    with monkeypatch.context() as patch:
        patch.setattr(ElmoModel, "compute", stop_after(0))
        with pytest.raises(DataError, match=r"text\.txt, line 401"):
            embed_corpus(elmo, [text], folder / "vectors.npz", SMALL)
    assert names(folder) == []
    with pytest.warns(ElmoWarning, match=r"1 lines were left out, .* line 401"):
        summary = embed_corpus(elmo, [text], folder / "v.npz", SMALL, skip_bad=True)
    assert (summary.sentences, summary.skipped_lines) == (401, 1)


@pytest.mark.parametrize("bad", ["missing.txt", ".", "-"])
def test_files_that_cannot_be_read_are_an_error(
    elmo: ElmoModel, text: Path, folder: Path, bad: str
) -> None:
    second = "-" if bad == "-" else str(folder / bad)
    with pytest.raises(DataError, match=r"does not exist|is a directory|only once"):
        embed_corpus(elmo, [second, text, second], folder / "v.npz", SMALL)
    assert names(folder) == []


def test_long_tokens_are_counted_and_warned_of_once(
    elmo: ElmoModel, text: Path, folder: Path
) -> None:
    text.write_text(("a" * 49 + " fine " + "b" * 48 + " " + "\u00e9" * 25 + "\n") * 30)
    with pytest.warns(ElmoWarning, match="60 tokens are longer than 48 bytes") as caught:
        summary = embed_corpus(elmo, [text], folder / "v.npz", SMALL)
    assert summary.cut_tokens == 60
    assert len(caught) == 1


class Stdin:
    """Standard input with given bytes."""

    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)


def test_standard_input_resumes_when_it_is_given_again(
    elmo: ElmoModel, text: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed_corpus(elmo, [text], folder / "file.npz", SMALL)
    out = folder / "stdin.npz"
    monkeypatch.setattr(sys, "stdin", Stdin(TEXT.encode()))
    with pytest.raises(Stopped):
        embed_corpus(elmo, ["-"], out, SMALL, on_progress=stop_after(2))
    monkeypatch.setattr(sys, "stdin", Stdin(b"Something else\n"))
    with pytest.raises(DataError, match="standard input is not what"):
        embed_corpus(elmo, ["-"], out, SMALL, resume=True)
    monkeypatch.setattr(sys, "stdin", Stdin(TEXT.encode()))
    told: list[Progress] = []
    summary = embed_corpus(elmo, ["-"], out, SMALL, resume=True, on_progress=told.append)
    assert 0 < summary.resumed_sentences < summary.sentences == 8
    assert told[0].total_bytes is None
    with open_vectors(out) as stored, open_vectors(folder / "file.npz") as expected:
        assert stored.about["digest"] == expected.about["digest"]
        for found, item in zip(stored, expected, strict=True):
            np.testing.assert_array_equal(found.vectors, item.vectors)
    monkeypatch.setattr(sys, "stdin", Stdin(TEXT.encode()))
    assert embed_corpus(elmo, ["-"], out, SMALL, resume=True).resumed_sentences == 8


def test_a_bad_line_of_standard_input_keeps_what_came_before_it(
    elmo: ElmoModel, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = TEXT.encode() + b"\xff\n" + TEXT.encode()
    out = folder / "vectors.npz"
    monkeypatch.setattr(sys, "stdin", Stdin(data))
    with pytest.raises(DataError, match="standard input, line 9"):
        embed_corpus(elmo, ["-"], out, SMALL)
    assert bulk.kept_sentences(out) > 0
    monkeypatch.setattr(sys, "stdin", Stdin(data))
    with pytest.warns(ElmoWarning, match="1 lines were left out"):
        summary = embed_corpus(elmo, ["-"], out, SMALL, resume=True, skip_bad=True)
    assert (summary.sentences, summary.skipped_lines) == (16, 1)
