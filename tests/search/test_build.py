"""Building a token index: contents, appending, replacing, interruptions and damage."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lance", reason="the extra 'search' is not installed")

import elmokit
from elmokit.embed.layer_choice import ALL_AND_AVERAGE, LayerChoice
from elmokit.embed.model import ElmoModel
from elmokit.errors import ConfigError, DataError, ElmoWarning, OutputError
from elmokit.search.build import IndexSettings, build_index, count_finished_tokens
from elmokit.search.files import MANIFEST
from elmokit.search.index import TokenIndex
from tests.conftest import TINY_MODEL
from tests.process_utils import Pause, kill_when
from tests.search.conftest import QUERIES, TOKENIZED, WORDS, rows


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("the cat sat\n\na play on words\nthe end .\n")
    return path


def test_tokens_have_their_sentence_position_and_offsets(elmo: ElmoModel, tmp_path: Path) -> None:
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_text("  He said: “Don't!”  It was 5 o'clock.\n\n")
    second.write_text("\nÄpfel 🍎 und Birnen.\n")
    summary = build_index(elmo, [first, second], tmp_path / "i", IndexSettings(split=True))
    index = TokenIndex.open(tmp_path / "i")
    assert summary.written_bytes > index.n_tokens * index.meta.dim  # at least two layers, float16
    lines = {str(p): p.read_text().split("\n") for p in (first, second)}
    assert index.n_sentences == 3
    for token in index.read_tokens(range(index.n_tokens)):
        assert token.span is not None
        assert token.text[slice(*token.span)] == token.word
        assert token.text in lines[token.file][token.line - 1]
        assert token.where == f"{token.file}:{token.line}"
    assert index.token(index.n_tokens - 1).line == 2


def test_layer_0_is_stored_once_per_word(index: TokenIndex) -> None:
    assert index.tables["words"].count_rows() == len(set(WORDS))
    assert "layer_0" in index.tables["words"].schema.names
    assert "layer_0" not in index.tables["tokens"].schema.names


@pytest.mark.parametrize(
    ("layers", "stored", "searched"),
    [
        (("all",), ["layer 0", "layer 1", "layer 2"], [*"012", "average"]),
        (("top",), ["layer 2"], ["2"]),
        (("average",), ["average"], ["average"]),
        (("0", "2"), ["layer 0", "layer 2"], ["0", "2"]),
    ],
)
def test_selected_layers_are_stored_and_others_rejected(
    elmo: ElmoModel,
    text: Path,
    tmp_path: Path,
    layers: tuple[str, ...],
    stored: list[str],
    searched: list[str],
) -> None:
    build_index(elmo, [text], tmp_path / "i", IndexSettings(layer=layers))
    index = TokenIndex.open(tmp_path / "i")
    assert list(index.meta.stored) == stored
    labels = [choice.label for choice in LayerChoice.parse_all(searched, 3)]
    assert [choice.label for choice in index.default_choices] == labels
    assert list(index.neighbors(QUERIES[:1], elmo)[0].by_layer) == labels
    for choice in LayerChoice.parse_all(ALL_AND_AVERAGE, 3):
        if choice.label not in labels:
            with pytest.raises(ConfigError, match=choice.label):
                index.neighbors(QUERIES[:1], elmo, layer=choice)
    if layers == ("0", "2"):  # a mix of the stored layers
        index.neighbors(QUERIES[:1], elmo, layer="mix", mix=(0.5, 0, 0.5))


def test_memory_of_a_build_does_not_grow_with_the_text(
    elmo: ElmoModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat .\n" * 100)
    held = []
    compute = elmo.compute_block

    def watched(tokens: Any, *rest: Any, **options: Any) -> Any:
        held.append(len(tokens.ids))
        return compute(tokens, *rest, **options)

    monkeypatch.setattr(elmo, "compute_block", watched)
    build_index(elmo, [text], tmp_path / "i", TOKENIZED)
    assert len(held) > 2
    assert max(held) <= 310


# ------------------------------------------------------------------- existing directories and files


def test_index_is_replaced_only_on_request(elmo: ElmoModel, tmp_path: Path) -> None:
    text, out = tmp_path / "text.txt", tmp_path / "i"
    text.write_text("a b c\n")
    build_index(elmo, [text], out, TOKENIZED)
    text.write_text("a b c d\n")
    for options in ({}, {"resume": True}):  # it contains another text
        with pytest.raises(OutputError, match="already exists"):
            build_index(elmo, [text], out, TOKENIZED, **options)
    assert TokenIndex.open(out).n_tokens == 3
    settings = IndexSettings(layer=("top",), tokenized=True)
    build_index(elmo, [text], out, settings, overwrite=True)
    index = TokenIndex.open(out)
    assert (index.n_tokens, list(index.meta.stored)) == (4, ["layer 2"])
    done = build_index(elmo, [text], out, settings, resume=True)  # no work is left
    assert done.tokens == done.resumed_tokens == 4
    build_index(elmo, [text], tmp_path / "alone", settings)
    assert rows(index) == rows(TokenIndex.open(tmp_path / "alone"))
    sizes = [sum(f.stat().st_size for f in p.rglob("*.lance")) for p in (out, tmp_path / "alone")]
    assert sizes[0] == sizes[1]  # nothing of the old index is left


def test_text_can_be_appended_to_an_index(elmo: ElmoModel, text: Path, tmp_path: Path) -> None:
    out, more = tmp_path / "i", tmp_path / "more.txt"
    more.write_text("a new play\nthe cat sat\n")
    with pytest.raises(DataError):
        build_index(elmo, [more], out, TOKENIZED, append=True)
    build_index(elmo, [text], out, TOKENIZED)
    before = TokenIndex.open(out)
    other = IndexSettings(layer=("top",), tokenized=True, chunk_bytes=1000)
    with pytest.raises(ConfigError, match="layer was"):
        build_index(elmo, [more], out, other, append=True)
    with pytest.raises(OutputError):
        build_index(elmo, [more], out, TOKENIZED, append=True, overwrite=True)
    done = build_index(elmo, [more], out, TOKENIZED, append=True)
    assert (done.resumed_tokens, done.tokens) == (before.n_tokens, before.n_tokens + 6)
    assert build_index(elmo, [more], out, TOKENIZED, append=True, resume=True).tokens == done.tokens
    index = TokenIndex.open(out)
    build_index(elmo, [text, more], tmp_path / "together", TOKENIZED)
    together = TokenIndex.open(tmp_path / "together")
    assert rows(index)["sentences"] == rows(together)["sentences"]
    assert rows(index)["words"] == rows(together)["words"]
    assert index.token(index.n_tokens - 1).where == f"{more}:2"
    # A reader of the old version is not affected.
    assert len(before.neighbors([0])[0].by_layer) == 4


def test_directories_with_other_files_are_never_changed(
    elmo: ElmoModel, text: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    for how in ({}, {"resume": True}, {"overwrite": True}):
        with pytest.raises(OutputError, match="do not belong"):
            build_index(elmo, [text], tmp_path / "mine", TOKENIZED, **how)
    with pytest.raises(OutputError, match="is a file"):
        build_index(elmo, [text], text, TOKENIZED)
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["letter.txt"]


def test_text_without_tokens_is_rejected_and_leaves_no_files(
    elmo: ElmoModel, tmp_path: Path
) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(DataError, match="no tokens"):
        build_index(elmo, [tmp_path / "empty.txt"], tmp_path / "i")
    assert [p.name for p in tmp_path.iterdir()] == ["empty.txt"]


def test_build_that_is_refused_keeps_the_files_of_the_other_process(
    elmo: ElmoModel, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "i" / "tokens.lance"

    def other_process_is_faster(directory: Path) -> None:
        table.mkdir(parents=True)
        raise OutputError(f"{directory} is in use")

    monkeypatch.setattr("elmokit.search.build.run_lock", other_process_is_faster)
    with pytest.raises(OutputError, match="in use"):
        build_index(elmo, [text], tmp_path / "i", TOKENIZED)
    assert table.exists()


def test_full_disk_is_reported(
    elmo: ElmoModel, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("LanceError(IO): No space left on device (os error 28), /src/writer.rs:190:9")

    monkeypatch.setattr("lance.write_dataset", fail)
    with pytest.raises(OutputError, match=r"Cannot write .*i: no space left on the device\. Free"):
        build_index(elmo, [text], tmp_path / "i", TOKENIZED)
    assert [p.name for p in tmp_path.iterdir()] == ["text.txt"]


def test_invalid_lines_are_reported_or_counted(elmo: ElmoModel, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes(b"a b\n\xff\xfe\nc d\n")
    with pytest.raises(DataError, match="line 2"):
        build_index(elmo, [text], tmp_path / "i", TOKENIZED)
    with pytest.warns(ElmoWarning, match="Skipped 1 line: .* line 2"):
        done = build_index(elmo, [text], tmp_path / "i", TOKENIZED, skip_bad=True)
    assert (done.tokens, done.skipped_lines) == (4, 1)


# --------------------------------------------------------------------------------- interruptions


def test_interrupted_build_only_resumes_with_the_same_settings_and_text(
    elmo: ElmoModel, folder: Path, tmp_path: Path
) -> None:
    text, out = tmp_path / "text.txt", tmp_path / "i"
    shutil.copy(folder / "text.txt", text)

    def stop(progress: Any) -> None:
        if progress.tokens:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_index(elmo, [text], out, TOKENIZED, on_progress=stop)
    assert count_finished_tokens(out) > 0
    with pytest.raises(DataError, match="--resume"):
        TokenIndex.open(out)
    with pytest.raises(OutputError, match="--resume"):
        build_index(elmo, [text], out, TOKENIZED)
    other = IndexSettings(tokenized=True, chunk_bytes=1000, layer=("top",))
    with pytest.raises(ConfigError, match="layer was"):
        build_index(elmo, [text], out, other, resume=True)
    text.write_text("another beginning\n" + text.read_text())
    with pytest.raises(DataError, match="differs from the text"):
        build_index(elmo, [text], out, TOKENIZED, resume=True)
    build_index(elmo, [text], out, TOKENIZED, overwrite=True)
    assert TokenIndex.open(out).meta.inputs == [str(text)]


def build_in_child(inputs: list[str], out: str, how: dict[str, bool]) -> None:
    model = elmokit.load(TINY_MODEL, device="cpu")
    build_index(model, inputs, out, TOKENIZED, **how)


def test_kill_9_loses_nothing(
    folder: Path, index: TokenIndex, tmp_path: Path, elmo: ElmoModel
) -> None:
    text, out = str(folder / "text.txt"), tmp_path / "i"
    kept = 0
    for pause in (
        Pause("lance.write_dataset", call=2),  # between the tables of the first part
        Pause("lance.write_dataset", call=5, after=True),  # ... of the second part
        Pause("elmokit.search.files.write_json"),  # before the part is recorded
        Pause("elmokit.search.files.publish"),  # before the index is visible
    ):
        assert kill_when(pause, build_in_child, [text], str(out), {"resume": True})
        assert not (out / MANIFEST).exists()
        assert count_finished_tokens(out) >= kept
        kept = count_finished_tokens(out)
    assert kept == index.n_tokens
    # ... and after it
    last = Pause("elmokit.search.files.publish", after=True)
    assert kill_when(last, build_in_child, [text], str(out), {"resume": True})
    done = build_index(elmo, [text], out, TOKENIZED, resume=True)
    assert done.resumed_tokens == done.tokens
    assert rows(TokenIndex.open(out)) == rows(index)


def test_kill_9_during_append_does_not_change_the_index(
    elmo: ElmoModel, text: Path, folder: Path, tmp_path: Path
) -> None:
    out, more = tmp_path / "i", str(folder / "text.txt")
    build_index(elmo, [text], out, TOKENIZED)
    before = rows(TokenIndex.open(out))
    pause = Pause("lance.write_dataset", call=5)
    assert kill_when(pause, build_in_child, [more], str(out), {"append": True})
    assert rows(TokenIndex.open(out)) == before
    build_index(elmo, [more], out, TOKENIZED, append=True, resume=True)
    build_index(elmo, [text], tmp_path / "other", TOKENIZED)
    build_index(elmo, [more], tmp_path / "other", TOKENIZED, append=True)
    assert rows(TokenIndex.open(out)) == rows(TokenIndex.open(tmp_path / "other"))


# ---------------------------------------------------------------------------------------- damage


def test_other_directories_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name, message in (("none", "not exist"), ("file", "a file")):
        with pytest.raises(DataError, match=message):
            TokenIndex.open(tmp_path / name)
    with pytest.raises(DataError, match="is not an index"):
        TokenIndex.open(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "something else"},
        {"format_version": 99},
        {"tokens": "many"},
        {"tokens": 5},
        {"dim": 16},
        {"state": "carry"},
        {"stored": {"layer 1": ["x", 1, 0]}},
        {"stored": {"layer 9": [0, 1, 0]}},
        {"versions": {}},
        {"versions": {"tokens": 99, "words": 99, "sentences": 99}},
        {"inputs": "text.txt"},
        {"surprise": 1},
    ],
)
def test_invalid_manifest_is_rejected(
    index: TokenIndex, tmp_path: Path, changes: dict[str, Any]
) -> None:
    shutil.copytree(index.folder, tmp_path / "i")
    values = json.loads((index.folder / MANIFEST).read_text())
    (tmp_path / "i" / MANIFEST).write_text(json.dumps({**values, **changes}))
    with pytest.raises(DataError, match=str(tmp_path)):
        TokenIndex.open(tmp_path / "i")


def test_damaged_tables_are_reported(index: TokenIndex, tmp_path: Path) -> None:
    shutil.copytree(index.folder, tmp_path / "i")
    for file in (tmp_path / "i" / "tokens.lance" / "data").iterdir():
        file.write_bytes(file.read_bytes()[:500])
    with pytest.raises(DataError, match="damaged"):
        TokenIndex.open(tmp_path / "i").neighbors([3])
    shutil.rmtree(tmp_path / "i")
    shutil.copytree(index.folder, tmp_path / "i")
    shutil.rmtree(tmp_path / "i" / "sentences.lance")
    with pytest.raises(DataError, match="sentences"):
        TokenIndex.open(tmp_path / "i")


@pytest.mark.parametrize("word", [-(10**6), 10**6, None, "cat"])
@pytest.mark.parametrize("min_count", [1, 2])
def test_invalid_values_in_tables_are_reported(
    index: TokenIndex, tmp_path: Path, word: object, min_count: int
) -> None:
    import lance
    import pyarrow as pa

    shutil.copytree(index.folder, tmp_path / "i")
    path = tmp_path / "i" / "tokens.lance"
    table = index.tables["tokens"].to_table()
    column = table.column_names.index("word")
    table = table.set_column(column, "word", pa.array([word] * len(table)))
    shutil.rmtree(path)
    version = lance.write_dataset(table, path).version
    manifest = json.loads((tmp_path / "i" / MANIFEST).read_text())
    manifest["versions"]["tokens"] = version
    (tmp_path / "i" / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="is damaged"):
        TokenIndex.open(tmp_path / "i").neighbors([3], min_count=min_count)


def test_manifest_that_makes_lance_panic_is_reported(index: TokenIndex, tmp_path: Path) -> None:
    shutil.copytree(index.folder, tmp_path / "i")
    for file in (tmp_path / "i" / "sentences.lance" / "_versions").iterdir():
        content = file.read_bytes()
        file.write_bytes(content[:8] + b"\r" + content[8:])
    with pytest.raises(DataError, match="damaged"):
        TokenIndex.open(tmp_path / "i")
