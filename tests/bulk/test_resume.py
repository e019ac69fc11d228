"""Interruptions of all kinds: finished work is kept, validated and never recomputed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmokit.bulk.formats import open_vectors
from elmokit.bulk.formats.block import open_block
from elmokit.bulk.output import count_finished_sentences
from elmokit.bulk.run import embed_corpus
from elmokit.bulk.settings import EmbedSettings
from elmokit.bulk.store import ChunkStore
from elmokit.embed.blocks import TokenIds
from elmokit.embed.model import ElmoModel
from elmokit.errors import ConfigError, DataError, ElmoWarning, OutputError
from elmokit.progress import Progress
from elmokit.sources.modeldir import ModelParts
from elmokit.text.tokenize import words
from tests.bulk.runs import (
    SMALL,
    SUFFIXES,
    TEXT,
    Stdin,
    Stopped,
    names,
    stop_after,
    work_path,
)
from tests.conftest import TINY, random_bilm


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    "settings",
    [
        SMALL,
        EmbedSettings(chunk_bytes=20, split=True),
        EmbedSettings(chunk_bytes=20, state="carry", rows=2, tokenized=True),
    ],
    ids=["lines", "split", "carry"],
)
def test_run_interrupted_after_every_chunk_gives_the_same_bytes(
    elmo: ElmoModel, text: Path, folder: Path, suffix: str, settings: EmbedSettings
) -> None:
    texts = [text] * 3
    whole = folder / f"whole{suffix}"
    embed_corpus(elmo, texts, whole, settings)
    out = folder / f"pieces{suffix}"
    stops = 0
    while not out.exists():
        # A new object each time, so that nothing depends on the contents of its caches.
        fresh = ElmoModel(ModelParts(elmo.bilm), device="cpu")
        try:
            embed_corpus(fresh, texts, out, settings, resume=stops > 0, on_progress=stop_after(2))
        except Stopped:
            stops += 1
    assert stops > 2
    assert whole.read_bytes() == out.read_bytes()
    assert names(folder) == sorted([whole.name, out.name])


def test_finished_chunks_are_not_recomputed(
    elmo: ElmoModel, text: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    compute = ElmoModel.compute_block

    def counting(self: ElmoModel, tokens: TokenIds, *args: Any, **kwargs: Any) -> Any:
        ends = np.cumsum(tokens.lengths)
        for ids in np.split(tokens.ids, ends[:-1]):
            seen.append([tokens.words[i] for i in ids])
        return compute(self, tokens, *args, **kwargs)

    monkeypatch.setattr(ElmoModel, "compute_block", counting)
    with pytest.raises(Stopped):
        embed_corpus(elmo, [text], folder / "v.npz", SMALL, on_progress=stop_after(2))
    embed_corpus(elmo, [text], folder / "v.npz", SMALL, resume=True)
    assert seen == [words(line) for line in TEXT.split("\n")[:-1]]


def test_resume_without_a_previous_run_starts_from_scratch_with_a_warning(
    elmo: ElmoModel, text: Path, folder: Path
) -> None:
    with pytest.warns(ElmoWarning, match="No interrupted run found for"):
        summary = embed_corpus(elmo, [text], folder / "v.npz", SMALL, resume=True)
    assert summary.resumed_sentences == 0


@pytest.fixture
def interrupted(elmo: ElmoModel, text: Path, folder: Path) -> Path:
    out = folder / "vectors.npz"
    with pytest.raises(Stopped):
        embed_corpus(elmo, [text], out, SMALL, on_progress=stop_after(2))
    assert names(folder) == [".vectors.npz.chunks"]
    return out


def test_interrupted_run_is_never_deleted_without_a_request(
    elmo: ElmoModel, text: Path, interrupted: Path
) -> None:
    with pytest.raises(OutputError, match=r"continue it with --resume"):
        embed_corpus(elmo, [text], interrupted, SMALL)
    summary = embed_corpus(elmo, [text], interrupted, SMALL, overwrite=True)
    assert summary.resumed_sentences == 0
    assert names(interrupted.parent) == [interrupted.name]


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"layer": "top"}, "layer was 'all' and is now 'top'"),
        ({"dtype": "float16"}, "dtype was 'float32'"),
        ({"tokenized": True, "chunk_bytes": 20}, "tokenized was False"),
        ({"chunk_bytes": 21}, "chunk_bytes was 20 and is now 21"),
    ],
)
def test_changed_settings_are_rejected_and_named(
    elmo: ElmoModel, text: Path, interrupted: Path, changed: dict[str, Any], named: str
) -> None:
    settings = EmbedSettings(**{"chunk_bytes": 20, **changed})
    with pytest.raises(ConfigError, match=named):
        embed_corpus(elmo, [text], interrupted, settings, resume=True)
    assert embed_corpus(elmo, [text], interrupted, SMALL, resume=True).sentences == 8


def test_resume_with_another_model_is_rejected(text: Path, interrupted: Path) -> None:
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
def test_text_that_changed_before_the_interruption_is_rejected(
    elmo: ElmoModel, text: Path, interrupted: Path, change: Callable[[str], str]
) -> None:
    text.write_text(change(TEXT), encoding="utf-8")
    with pytest.raises(DataError, match=r"(up to line \d of .*text.txt|is empty: it) differs"):
        embed_corpus(elmo, [text], interrupted, SMALL, resume=True)
    text.write_text(TEXT, encoding="utf-8")
    assert embed_corpus(elmo, [text], interrupted, SMALL, resume=True).sentences == 8


def test_text_that_changed_after_the_interruption_is_accepted(
    elmo: ElmoModel, text: Path, interrupted: Path
) -> None:
    text.write_text(TEXT.replace("was good", "was fixed"), encoding="utf-8")
    embed_corpus(elmo, [text], interrupted, SMALL, resume=True)
    embed_corpus(elmo, [text], other := interrupted.with_name("other.npz"), SMALL)
    assert interrupted.read_bytes() == other.read_bytes()


def test_text_that_grew_after_its_end_was_embedded_is_rejected(
    elmo: ElmoModel, text: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = folder / "vectors.npz"
    with monkeypatch.context() as patch:
        patch.setattr("elmokit.bulk.run.Run._description", stop_after(0))
        with pytest.raises(Stopped):
            embed_corpus(elmo, [text], out)
    text.write_text(TEXT + "More.\n", encoding="utf-8")
    with pytest.raises(DataError):
        embed_corpus(elmo, [text], out, resume=True)
    text.write_text(TEXT, encoding="utf-8")
    assert embed_corpus(elmo, [text], out, resume=True).resumed_sentences == 8


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("left", [True, False])
def test_run_interrupted_just_before_the_last_step_is_recognized(
    elmo: ElmoModel,
    text: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    left: bool,
    overwrite: bool,
) -> None:
    out = folder / "vectors.h5"
    with monkeypatch.context() as patch:
        patch.setattr(ChunkStore, "clear", stop_after(1))
        with pytest.raises(Stopped):
            embed_corpus(elmo, [text], out, SMALL)
    assert names(folder) == [".vectors.h5.chunks", "vectors.h5"]
    if not left:
        work_path(out).rename(folder.parent / "elsewhere")
    before = out.stat().st_mtime_ns
    summary = embed_corpus(elmo, [text], out, SMALL, resume=True, overwrite=overwrite)
    assert (summary.sentences, summary.resumed_sentences) == (8, 8)
    assert out.stat().st_mtime_ns == before
    assert names(folder) == ["vectors.h5"]


def test_two_processes_cannot_write_the_same_output(
    elmo: ElmoModel, text: Path, interrupted: Path
) -> None:
    def again(progress: Progress) -> None:
        with pytest.raises(OutputError):
            embed_corpus(elmo, [text], interrupted, SMALL, resume=True)
        with pytest.raises(OutputError):
            embed_corpus(elmo, [text], interrupted, SMALL, overwrite=True)

    embed_corpus(elmo, [text], interrupted, SMALL, resume=True, on_progress=again)


def test_error_for_damaged_chunks_says_what_to_do(
    elmo: ElmoModel, text: Path, interrupted: Path
) -> None:
    part = work_path(interrupted) / "000000.safetensors"
    part.write_bytes(part.read_bytes()[:-8])
    with pytest.raises(DataError, match=r"000000.* --overwrite"):
        embed_corpus(elmo, [text], interrupted, SMALL, resume=True)
    manifest = work_path(interrupted) / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"version": 3', '"version": 9'))
    with pytest.raises(DataError, match="version 9"):
        embed_corpus(elmo, [text], interrupted, SMALL, resume=True)
    manifest.write_text("{")
    with pytest.raises(DataError, match=r"manifest\.json"):
        embed_corpus(elmo, [text], interrupted, SMALL, resume=True)
    assert embed_corpus(elmo, [text], interrupted, SMALL, overwrite=True).sentences == 8


@pytest.mark.parametrize("part", ["vectors", "lengths", "words", "record"])
def test_changed_bytes_of_a_finished_chunk_are_detected(
    elmo: ElmoModel, text: Path, interrupted: Path, part: str
) -> None:
    chunk = work_path(interrupted) / "000000.safetensors"
    whole = chunk.read_bytes()
    values = b"truncated_tokens" if part == "record" else open_block(chunk).read(part).tobytes()
    at = whole.index(values)
    chunk.write_bytes(whole[: at + 7] + bytes([whole[at + 7] ^ 1]) + whole[at + 8 :])
    with pytest.raises(DataError, match=r"000000\.safetensors is damaged"):
        embed_corpus(elmo, [text], interrupted, SMALL, resume=True)
    chunk.unlink()
    embed_corpus(elmo, [text], interrupted, SMALL, resume=True)


def test_exchanged_chunks_are_detected(elmo: ElmoModel, text: Path, interrupted: Path) -> None:
    first, second = sorted(work_path(interrupted).glob("*.safetensors"))[:2]
    first.rename(first.with_name("first"))
    second.rename(first)
    first.with_name("first").rename(second)
    with pytest.raises(DataError, match=r"000000\.safetensors contains chunk 1,"):
        embed_corpus(elmo, [text], interrupted, SMALL, resume=True)


@pytest.mark.parametrize("name", ["manifest.json", "000000.safetensors"])
def test_pipes_are_rejected(elmo: ElmoModel, text: Path, interrupted: Path, name: str) -> None:
    (work_path(interrupted) / name).unlink()
    os.mkfifo(work_path(interrupted) / name)
    with pytest.raises(DataError, match="is not a regular file"):
        embed_corpus(elmo, [text], interrupted, SMALL, resume=True)


# ---------------------------------------------------------------------------- standard input


def test_standard_input_resumes_if_the_same_text_is_passed_again(
    elmo: ElmoModel, text: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed_corpus(elmo, [text], folder / "file.npz", SMALL)
    out = folder / "stdin.npz"
    monkeypatch.setattr(sys, "stdin", Stdin(TEXT.encode()))
    with pytest.raises(Stopped):
        embed_corpus(elmo, ["-"], out, SMALL, on_progress=stop_after(2))
    monkeypatch.setattr(sys, "stdin", Stdin(b"Something else\n"))
    with pytest.raises(DataError, match="standard input differs"):
        embed_corpus(elmo, ["-"], out, SMALL, resume=True)
    monkeypatch.setattr(sys, "stdin", Stdin(TEXT.encode()))
    reports: list[Progress] = []
    summary = embed_corpus(elmo, ["-"], out, SMALL, resume=True, on_progress=reports.append)
    assert 0 < summary.resumed_sentences < summary.sentences == 8
    assert reports[0].total_bytes is None
    with open_vectors(out) as stored, open_vectors(folder / "file.npz") as expected:
        assert stored.metadata["digest"] == expected.metadata["digest"]
        for found, item in zip(stored, expected, strict=True):
            np.testing.assert_array_equal(found.vectors, item.vectors)
    monkeypatch.setattr(sys, "stdin", Stdin(TEXT.encode()))
    assert embed_corpus(elmo, ["-"], out, SMALL, resume=True).resumed_sentences == 8


def test_invalid_line_of_standard_input_keeps_previous_chunks(
    elmo: ElmoModel, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = TEXT.encode() + b"\xff\n" + TEXT.encode()
    out = folder / "vectors.npz"
    monkeypatch.setattr(sys, "stdin", Stdin(data))
    with pytest.raises(DataError, match="standard input, line 9"):
        embed_corpus(elmo, ["-"], out, SMALL)
    assert count_finished_sentences(out) > 0
    monkeypatch.setattr(sys, "stdin", Stdin(data))
    with pytest.warns(ElmoWarning, match="Skipped 1 line"):
        summary = embed_corpus(elmo, ["-"], out, SMALL, resume=True, skip_bad=True)
    assert (summary.sentences, summary.skipped_lines) == (16, 1)
