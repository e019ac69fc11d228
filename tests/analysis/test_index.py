"""A token index against plain numpy over all vectors, and against everything that may go wrong."""

from __future__ import annotations

import json
import multiprocessing
import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elmokit
from elmokit.analysis import index_search
from elmokit.analysis.index import Query, TokenIndex, mark
from elmokit.analysis.index_build import (
    IndexSettings,
    build_index,
    check_index_output,
    kept_tokens,
)
from elmokit.analysis.index_files import META, IndexMeta, rounded
from elmokit.analysis.neighbors import Neighbors, Rules, neighbors
from elmokit.analysis.spaces import choose_spaces, every_space, unit
from elmokit.embed.bulk_work import work_path
from elmokit.embed.model import ElmoModel
from elmokit.errors import ConfigError, DataError, ElmoWarning, OutputError
from elmokit.sources.modeldir import ModelParts
from elmokit.text.marked import Marked
from tests.conftest import TINY, TINY_MODEL, random_bilm

WORDS = "the cat Play play plays bank river read a dog on of . ,".split()
QUERIES = [
    Marked(("the", "play", "on", "a", "bank"), 1),
    Marked(("a", "cat", "."), 1),
    Marked(("Play", "on", "."), 0),
]
TOKENIZED = IndexSettings(tokenized=True, part_tokens=100)


@pytest.fixture(scope="module")
def elmo() -> ElmoModel:
    return elmokit.load(TINY_MODEL, device="cpu")


@pytest.fixture(scope="module")
def sentences() -> list[list[str]]:
    draw = random.Random(0)
    text = [draw.choices(WORDS, k=draw.randint(0, 9)) for _ in range(120)]
    return [*text, ["the", "play", "on", "a", "bank"], *text[:30]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, sentences: list[list[str]]) -> Path:
    path = tmp_path_factory.mktemp("index")
    (path / "text.txt").write_text("".join(" ".join(words) + "\n" for words in sentences))
    return path


def build(elmo: ElmoModel, folder: Path, name: str, **settings: Any) -> TokenIndex:
    given = IndexSettings(**{"tokenized": True, "part_tokens": 100, **settings})
    if not (folder / name).is_dir():
        build_index(elmo, [folder / "text.txt"], folder / name, given)
    return TokenIndex.open(folder / name)


@pytest.fixture(scope="module")
def index(elmo: ElmoModel, folder: Path) -> TokenIndex:
    return build(elmo, folder, "float16")


# ------------------------------------------------------------------------------------ the search


def assert_same(
    found: Neighbors, expected: Neighbors, tolerance: float, *, by_word: bool = False
) -> None:
    """The same scores; the same tokens too, where no tie leaves a choice."""
    assert list(found.lists) == list(expected.lists)
    for name, listed in expected.lists.items():
        scores = [n.score for n in found.lists[name]]
        np.testing.assert_allclose(scores, [n.score for n in listed], atol=tolerance)
        last = listed[-1].score if listed else 0
        clear = [n for n in listed if n.score > last + 3 * tolerance]
        if by_word or name == "layer 0":  # where any token of a word is as near as any other
            assert {n.word for n in clear} <= {n.word for n in found.lists[name]}
        else:
            assert {n.at for n in clear} <= {n.at for n in found.lists[name]}


@pytest.mark.parametrize(
    "rules",
    [
        Rules(distinct="token"),
        Rules(),
        Rules(distinct="word"),
        Rules(words="same"),
        Rules(words="other", distinct="token"),
        Rules(other_sentences=True),
    ],
)
def test_the_index_finds_what_the_search_of_the_text_finds(
    elmo: ElmoModel,
    index: TokenIndex,
    sentences: list[list[str]],
    rules: Rules,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(index_search, "_BLOCK", 50)  # many blocks
    expected = neighbors(elmo, QUERIES, sentences, k=7, rules=rules)
    found = index.neighbors(QUERIES, elmo, k=7, rules=rules)
    for got, wanted in zip(found, expected, strict=True):
        assert_same(got, wanted, 1e-3, by_word=rules.distinct == "word")
        assert got.tokens == wanted.tokens == sum(map(len, sentences))


def cosines(elmo: ElmoModel, sentences: Sequence[Sequence[str]], weights: Any) -> np.ndarray:
    """Brute force: the cosine of the first query with every token, in float32."""
    layers, _ = elmo.compute([list(words) for words in sentences])
    every = unit(np.tensordot(np.array(weights, np.float32), np.concatenate(layers, 1), axes=1))
    (own,), _ = elmo.compute([QUERIES[0].tokens])
    return every @ unit(np.tensordot(np.array(weights, np.float32), own[:, 1], axes=1))


@pytest.mark.parametrize("numbers", ["float16", "int8"])
@pytest.mark.parametrize(
    "weights", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1 / 3, 1 / 3, 1 / 3), (0.2, -0.1, 0.7)]
)
def test_rounded_vectors_rank_as_exact_ones_do(
    elmo: ElmoModel,
    folder: Path,
    sentences: list[list[str]],
    numbers: str,
    weights: tuple[float, ...],
) -> None:
    index = build(elmo, folder, numbers, numbers=numbers)
    spaces = choose_spaces(["mix"], 3, weights)
    exact = cosines(elmo, sentences, spaces[0].weights)
    all_of_them = Rules(distinct="token")
    found = index.neighbors(QUERIES[:1], elmo, k=index.tokens, spaces=spaces, rules=all_of_them)
    got = np.empty(index.tokens)
    for hit in found[0].lists["mix"]:
        got[hit.token] = hit.score  # type: ignore[attr-defined]
    error = {"float16": 1e-3, "int8": 2e-2}[numbers]
    np.testing.assert_allclose(got, exact, atol=error)
    top = set(np.argsort(-exact)[:20].tolist())
    assert exact[np.argsort(-got)[:20]].min() > exact[sorted(top)].min() - 2 * error


def test_int8_vectors_have_length_1_and_point_where_they_did() -> None:
    vectors = unit(np.random.default_rng(0).normal(size=(50, 32)).astype(np.float32))
    for numbers, worst in (("float16", 1e-6), ("int8", 3e-4)):
        small, scales = rounded(vectors, numbers)  # type: ignore[arg-type]
        again = small.astype(np.float32) * scales[:, None]
        np.testing.assert_allclose(np.linalg.norm(again, axis=1), 1, atol=1e-6)
        assert (1 - (again * vectors).sum(axis=1)).max() < worst
    small, scales = rounded(np.zeros((1, 4), np.float32), "int8")
    assert not small.any()
    assert np.isfinite(scales).all()


def test_a_token_of_the_index_is_a_query_and_needs_no_model(
    elmo: ElmoModel, index: TokenIndex
) -> None:
    number = index.find("PLAYS")[0]
    token = index.token(number)
    assert token.word == "plays"
    (by_number,) = index.neighbors([number], k=6, rules=Rules(distinct="token"))
    (by_words,) = index.neighbors([token.at], elmo, k=7, rules=Rules(distinct="token"))
    for name, listed in by_number.lists.items():
        assert number not in [n.token for n in listed]  # type: ignore[attr-defined]
        others = [n for n in by_words.lists[name] if n.token != number][:6]  # type: ignore[attr-defined]
        np.testing.assert_allclose([n.score for n in listed], [n.score for n in others], atol=2e-3)
    assert by_number.to_dict()["query"]["token"] == number
    with pytest.raises(DataError, match="no token 999999"):
        index.neighbors([999999])
    with pytest.raises(ConfigError, match="needs the model"):
        index.neighbors(["a [cat] ."])


def test_only_frequent_words_are_listed_if_asked(elmo: ElmoModel, folder: Path) -> None:
    (folder / "rare.txt").write_text("a a a\na A b\nb c d\n")
    build_index(elmo, [folder / "rare.txt"], folder / "rare", TOKENIZED)
    index = TokenIndex.open(folder / "rare")
    for least, words in ((1, {"a", "A", "b", "c", "d"}), (2, {"a", "A", "b"}), (5, {"a", "A"})):
        (found,) = index.neighbors(["[a] x"], elmo, k=50, min_count=least)
        assert {n.word for n in found.lists["layer 1"]} == words
    with pytest.raises(ConfigError, match="min_count"):
        index.neighbors(["[a] x"], elmo, min_count=0)


def test_a_model_asks_an_index(elmo: ElmoModel, index: TokenIndex) -> None:
    (expected,) = index.neighbors(["the [play] was on ."], elmo, k=3, rules=Rules(words="other"))
    found = elmo.neighbors("the [play] was on .", index, 3, rules=Rules(words="other"))
    assert found.to_dict() == expected.to_dict()


def test_several_queries_share_a_pass_and_do_not_matter_to_each_other(
    elmo: ElmoModel, index: TokenIndex
) -> None:
    together = index.neighbors([QUERIES[0], 5, QUERIES[1]], elmo, k=4)
    for query, found in zip([QUERIES[0], 5, QUERIES[1]], together, strict=True):
        assert_same(found, index.neighbors([query], elmo, k=4)[0], 2e-6)


# ------------------------------------------------------------------------------- what is stored


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


# ------------------------------------------------------------------------------------ interruption


def files_of(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name != META}


def test_an_interrupted_build_goes_on_and_gives_the_same_bytes(
    elmo: ElmoModel, folder: Path, index: TokenIndex, tmp_path: Path
) -> None:
    text, out = folder / "text.txt", tmp_path / "i"
    calls = 0

    def stop(_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls % 3 == 0:
            raise KeyboardInterrupt

    for _ in range(30):
        try:
            done = build_index(elmo, [text], out, TOKENIZED, resume=True, on_progress=stop)
            break
        except KeyboardInterrupt:
            assert not out.exists()
            assert kept_tokens(out) > 0
            with pytest.raises(OutputError, match="--resume"):
                build_index(elmo, [text], out, TOKENIZED)
            other = IndexSettings(tokenized=True, part_tokens=100, numbers="int8")
            with pytest.raises(ConfigError, match="was another one: numbers"):
                build_index(elmo, [text], out, other, resume=True)
    assert done.resumed_tokens > 0
    assert files_of(out) == files_of(index.folder)
    assert not work_path(out).exists()
    assert IndexMeta.read(out) == index.meta


def test_a_build_that_was_cut_short_refuses_another_text(
    elmo: ElmoModel, folder: Path, tmp_path: Path
) -> None:
    text = tmp_path / "text.txt"
    text.write_text((folder / "text.txt").read_text())
    seen: list[int] = []

    def stop(progress: Any) -> None:
        seen.append(progress.tokens)
        if len(seen) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_index(elmo, [text], tmp_path / "i", TOKENIZED, on_progress=stop)
    text.write_text("another beginning\n" + text.read_text())
    with pytest.raises(DataError, match="not what the interrupted"):
        build_index(elmo, [text], tmp_path / "i", TOKENIZED, resume=True)
    build_index(elmo, [text], tmp_path / "i", TOKENIZED, overwrite=True)
    assert not work_path(tmp_path / "i").exists()


def build_slowly(text: str, out: str) -> None:
    """Run in a process of its own, so slowly that it can be killed in time."""
    torch.set_num_threads(1)
    model = elmokit.load(TINY_MODEL, device="cpu")
    build_index(model, [text], out, TOKENIZED, resume=True, on_progress=lambda _: time.sleep(0.1))


def test_kill_9_loses_nothing(folder: Path, index: TokenIndex, tmp_path: Path) -> None:
    # A process that has imported everything and is copied: starting one takes no time.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    out = tmp_path / "i"
    draw = random.Random(1)
    kept = 0
    for kill in (True, True, True, False):
        process = context.Process(target=build_slowly, args=(str(folder / "text.txt"), str(out)))
        process.start()
        while kill and kept_tokens(out) <= kept and process.is_alive():
            time.sleep(0.005)
        if kill:
            time.sleep(draw.random() * 0.06)  # while it computes, writes or sleeps
            process.kill()
        process.join(60)
        assert process.exitcode == (-signal.SIGKILL if kill else 0)
        if kill:
            assert not out.exists()
            assert kept < kept_tokens(out) < index.tokens
            kept = kept_tokens(out)
    assert files_of(out) == files_of(index.folder)
    assert [p.name for p in tmp_path.iterdir()] == ["i"]


# ------------------------------------------------------------------------------------------ faiss


def test_a_faiss_index_says_its_recall_and_keeps_to_the_filters(
    elmo: ElmoModel, folder: Path
) -> None:
    pytest.importorskip("faiss")
    from elmokit.analysis.index_ann import add_ann

    index = build(elmo, folder, "with-ann")
    spaces = choose_spaces(["top", "average"], 3)
    with pytest.raises(ConfigError, match="no faiss index for layer 2"):
        index.neighbors([3], spaces=spaces, ann=True)
    told = add_ann(index, spaces, recall=0.9)
    index = TokenIndex.open(index.folder)
    assert index.meta.ann == told
    assert told["layer 2"]["recall_at_10"] >= 0.9
    numbers = list(range(0, index.tokens, 9))
    for rules in (Rules(distinct="token"), Rules(words="other", distinct="word")):
        exact = index.neighbors(numbers, spaces=spaces, rules=rules, k=5)
        found = index.neighbors(numbers, spaces=spaces, rules=rules, k=5, ann=True)
        right = total = 0
        for a, b in zip(exact, found, strict=True):
            for name, listed in a.lists.items():
                got = [n.score for n in b.lists[name]]
                assert got == sorted(got, reverse=True)
                total += len(listed)
                right += sum(score >= listed[-1].score - 1e-6 for score in got)
                if rules.words == "other":
                    words = [n.word.casefold() for n in b.lists[name]]
                    assert a.query.word.casefold() not in words
                    assert len(set(words)) == len(words)
        assert right / total > 0.85
    with pytest.raises(ConfigError, match="recall"):
        add_ann(index, spaces, recall=1.5)


def test_threads_may_search_at_once(elmo: ElmoModel, index: TokenIndex) -> None:
    from concurrent.futures import ThreadPoolExecutor

    expected = [index.neighbors([n])[0].to_dict() for n in range(12)]
    fresh = TokenIndex.open(index.folder)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: fresh.neighbors([n])[0].to_dict(), range(12)))
    assert found == expected


def test_an_index_shows_itself(index: TokenIndex, elmo: ElmoModel) -> None:
    assert f"{index.tokens:,} tokens: layer 0, layer 1" in repr(index)
    assert "float16" in index._repr_html_()
    found = index.neighbors([Marked(("a", "<b>", "&", "."), 1)], elmo)[0]
    assert "&lt;b&gt;" in found._repr_html_()
    assert "<b><b>" not in found._repr_html_()
    assert len(found._repr_html_()) < 30_000
