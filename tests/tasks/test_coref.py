"""Coreference from documents to clusters: what is read, what is learned, what is refused."""

from __future__ import annotations

import json
import os
import random
import re
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from elmokit.embed.model import ElmoModel
from elmokit.errors import ConfigError, DataError, ElmoWarning
from elmokit.tasks import coref, documents
from elmokit.tasks.batches import Dataset
from elmokit.tasks.config import TaskConfig, with_settings
from elmokit.tasks.conll2012 import columns_of, read_columns
from elmokit.tasks.coref import Coref, CorefModel, clusters_of
from elmokit.tasks.data import Data, load_data
from elmokit.tasks.documents import LONGEST, Document, Mention, Oddities
from elmokit.tasks.layers import LayerCache
from elmokit.tasks.loop import train
from elmokit.tasks.nn import antecedents as pairing
from elmokit.tasks.nn.antecedents import PairScorer, antecedents, marginal_loss
from elmokit.tasks.nn.spans import SpanEncoder, all_spans, keep_best
from elmokit.tasks.saved import load_saved
from elmokit.text.lines import Line
from tests.conftest import TINY_MODEL
from tests.tasks.test_commands import elmo as command
from tests.tasks.test_commands import error

TASK = Coref()
CPU = torch.device("cpu")
WOMEN, MEN = ["Ann", "Carla", "Mary"], ["Bob", "Dave", "Tom"]
SMALL = [
    "static.source=none",
    "static.dim=24",
    "static.trainable=true",
    "model.char_filters=8",
    "model.char_widths=3",
    "model.hidden=24",
    "model.scorer=40",
    "model.feature_dim=8",
    "model.width=4",
    "model.kept=0.6",
    "model.antecedents=20",
    "model.dropout=0.1",
    "model.word_dropout=0.1",
    "elmo.dropout=0.1",
    "train.learning_rate=0.005",
]


def settings(*changes: str) -> TaskConfig:
    return with_settings(TASK.presets["paper"], [*SMALL, *changes])


def story(draw: random.Random, name: str) -> str:
    """Tell of a woman, of a man, and of a dog that nobody speaks of again."""
    woman, man = draw.choice(WOMEN), draw.choice(MEN)
    rows = [[f"{woman} (1)", "met -", f"{man} (2)", ". -"]]
    for _ in range(draw.randrange(2, 5)):
        she = draw.choice([woman, "she"])
        he = draw.choice([man, "he"])
        first, second = draw.choice([(f"{she} (1)", f"{he} (2)"), (f"{he} (2)", f"{she} (1)")])
        rows.append([first, "saw -", second, ". -"])
    rows.insert(1, ["the (3", "old -", "dog 3)", "slept -", ". -"])
    body = "\n\n".join(
        "\n".join(f"{name} 0 {k} {row.split()[0]} - - - - - - - {row.split()[1]}" for k, row in r)
        for r in (enumerate(sentence) for sentence in rows)
    )
    return f"#begin document ({name}); part 000\n{body}\n\n#end document\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("coref")
    for name, n, seed in (("train.conll", 40, 1), ("dev.conll", 10, 2)):
        draw = random.Random(seed)
        (folder / name).write_text("".join(story(draw, f"{name}{i}") for i in range(n)))
    return str(folder / "train.conll"), str(folder / "dev.conll")


def read(tmp_path: Path, text: str, name: str = "data.conll") -> list[Document]:
    path = tmp_path / name
    path.write_text(text)
    return TASK.read(str(path))


# ------------------------------------------------------------------------------------------- data

ONTONOTES = """#begin document (bc/x/00/x_0001); part 002
bc/x/00/x_0001  2  0  Ann   NNP (S* - - - Ann_B * (ARG0*) * (3)
bc/x/00/x_0001  2  1  met   VBD *   meet 01 1 Ann_B * (V*) * -
bc/x/00/x_0001  2  2  her   PRP *   - - - Ann_B * * * (5|(3)
bc/x/00/x_0001  2  3  son   NN  *)  - - - Ann_B * * * 5)

bc/x/00/x_0001  2  0  He    PRP (S* - - - - * * (5)
bc/x/00/x_0001  2  1  left  VBD *)  - - - - * * -

#end document
"""
THREE = "0\tAnn\t(3)\n1\tmet\t_\n2\ther\t(5(3)\n3\tson\t5)\n\n0\tHe\t(5)\n1\tleft\t_\n"
CLUSTERS = (((0, 1), (2, 3)), ((2, 4), (4, 5)))


def test_the_columns_of_conll_2012(tmp_path: Path) -> None:
    [found] = read(tmp_path, ONTONOTES)
    assert found.sentences == (("Ann", "met", "her", "son"), ("He", "left"))
    assert found.clusters == CLUSTERS
    assert (found.name, found.part, found.genre) == ("bc/x/00/x_0001", 2, "bc")
    assert found.speakers == ("Ann_B",) * 4 + ("", "")
    assert found.speaker_numbers.tolist() == [1, 1, 1, 1, 0, 0]


@pytest.mark.parametrize(
    "text",
    [
        THREE,
        "# begin document \n" + THREE + "# end document\n",
        "".join(line.split("\t", 1)[-1] for line in THREE.splitlines(keepends=True)),  # two columns
        # LitBank's: thirteen columns, the last empty where no mention begins or ends
        re.sub(r"(?m)^(.)\t(\w+)\t(.*)$", r"x\t0\t\1\t\2" + 8 * r"\t_" + r"\t\3", THREE).replace(
            "_\n", "\n"
        ),
    ],
)
def test_other_columns(tmp_path: Path, text: str) -> None:
    [found] = read(tmp_path, text)
    assert found.sentences == (("Ann", "met", "her", "son"), ("He", "left"))
    assert found.clusters == CLUSTERS
    assert found.speakers is None
    assert (found.name, found.genre) == ("data", "")


def test_a_folder_is_its_files_by_name(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name in ("b/GUM_news_one.conll", "a.conll", "notes.txt"):
        (tmp_path / name).write_text(THREE)
    found = TASK.read(str(tmp_path))
    assert [d.name for d in found] == ["a", "GUM_news_one"]
    assert [d.genre for d in found] == ["", "news"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="a folder without files"):
        TASK.read(str(tmp_path / "empty"))


def test_what_is_written_is_read_again(files: tuple[str, str]) -> None:
    nested = Document(
        (("a", "b", "c", "d"), ("e",)),
        (
            (Mention(0, 4), Mention(0, 1), Mention(3, 4), Mention(4, 5)),
            (Mention(0, 2), Mention(1, 2), Mention(2, 4)),
        ),
        "n",
        speakers=("x", "x", "", "y", "y"),
    )
    for document in [nested, *TASK.read(files[1])]:
        assert document.clusters is not None
        text = columns_of(document, document.clusters)
        lines = [Line("f", i + 1, line) for i, line in enumerate(text.split("\n"))]
        [again] = read_columns(lines, Oddities(), labelled=True)
        assert again.clusters is not None
        assert set(map(frozenset, again.clusters)) == set(map(frozenset, document.clusters))
        assert (again.sentences, again.speakers) == (document.sentences, document.speakers)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\t(1)\nb\t1)\n", r"data.conll, line 2: 1\) closes a mention that was not opened. Mend"),
        ("a\t(1\nb\t-\n", r"data.conll, line 1: the mention that \(1 opens is not closed"),
        ("#begin document (x); part 0\na\t(1\n#begin document (y); part 0\n", "line 2: .*closed"),
        ("a\t(1\nb\t1\n", "line 2: '1' does not open or close"),
        ("a\t((1)\n", r"'\(\(1\)' does not"),
        ("a\t-\nb\n", "line 2: found 1 columns"),
        ("a\tb\tc\td\n", "line 1: found 4 columns"),
        ("0\ta\t-\nb\t-\n", "line 2: found 2 columns, other than"),
        ("# text = a\na\t-\n#\t-\n", "line 3: '#.*' is no comment"),
    ],
)
def test_bad_columns_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\t(1)|(1)\nb\t(1)\n", "1 mentions that were marked twice"),
        ("a\t(1)|(2)\nb\t(1)\n", "1 mentions in two clusters, kept in the first"),
        (
            "#begin document (x); part 0\n#end document\na\t(1)\nb\t(1)\n",
            "1 documents without text",
        ),
        (
            "#begin document (x); part 0\n__\t(1)\n_\t-\n#end document\na\t(1)\nb\t(1)\n",
            "1 .*blanked",
        ),
        ("a\t(1)\nb\t(1)\nc\t(2\n\nd\t2)\n", "1 mentions that reach into another sentence"),
        ("\t(1)\nb\t(1)\n", "1 empty tokens, read as '_'"),
        ("a\t(1)\nb\t(1)\n" + "w\t-\n" * LONGEST, "1 cuts in sentences of more than 512"),
    ],
)
def test_odd_columns_are_counted(tmp_path: Path, text: str, message: str) -> None:
    with pytest.warns(ElmoWarning, match=rf"data.conll: {message}"):
        [found] = read(tmp_path, text)
    assert found.clusters is not None
    assert {Mention(0, 1), Mention(1, 2)} <= {m for cluster in found.clusters for m in cluster}
    assert all(m.end - m.start == 1 for m in map(Mention._make, found.gold[:, :2].tolist()))


def test_sentences_are_found_where_no_empty_line_shows_them(tmp_path: Path) -> None:
    tokens = ["Ann", "left", ".", "She", "met", "Mr.", "Hill", "!", "Why", "?"]
    rows = [f"{k}\t{token}\t{'(1)' if k in (0, 3) else '_'}" for k, token in enumerate(tokens)]
    with pytest.warns(ElmoWarning, match="1 documents without empty lines"):
        [found] = read(tmp_path, "\n".join(["# begin document", *rows, "# end document"]))
    assert [len(sentence) for sentence in found.sentences] == [3, 5, 2]
    assert found.clusters == (((0, 1), (3, 4)),)


def test_a_very_long_document_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "LONGEST_DOCUMENT", 10)
    with pytest.warns(ElmoWarning, match="1 documents of more than 10 tokens"):
        [found] = read(tmp_path, "a\t(1)\nb\t-\nc\t(2)\n\n" * 5)
    assert [len(sentence) for sentence in found.sentences] == [3, 3, 3]
    assert found.clusters is not None
    assert [len(cluster) for cluster in found.clusters] == [3, 3]


def test_text_json_and_columns_can_be_predicted_on() -> None:
    raw = [Line("x", i, t) for i, t in enumerate(["Ann saw Bob. He", "left.", "", " ", "No."], 1)]
    first, second = TASK.parse(raw, "text")
    assert first.sentences == (("Ann", "saw", "Bob", "."), ("He", "left", "."))
    assert first.offsets is not None
    assert first.offsets[4:] == ((13, 15), (16, 20), (20, 21))
    assert second.sentences == (("No", "."),)
    given = ['{"sentences": [["Ann", "left"], []], "name": "n"}', "", '{"text": "No. Why?"}']
    found = list(TASK.parse([Line("x", 1, text) for text in given], "jsonl"))
    assert [d.sentences for d in found] == [(("Ann", "left"), ()), (("No", "."), ("Why", "?"))]
    for bad in ("[]", "{", '{"sentences": ["Ann"]}', '{"text": "a", "name": 3}'):
        with pytest.raises(DataError, match="x, line 7"):
            list(TASK.parse([Line("x", 7, bad)], "jsonl"))
    lines = [Line("x", i, text) for i, text in enumerate(ONTONOTES.splitlines(), 1)]
    [columns] = TASK.parse(lines, "conll")
    assert columns.clusters is None
    assert columns.speakers is not None
    with pytest.warns(ElmoWarning, match="the text: 1 cuts"):
        list(TASK.parse([Line("x", 1, "a " * (LONGEST + 1))], "text"))


def test_what_cannot_be_learned_is_told() -> None:
    with pytest.raises(DataError, match="no mentions"):
        TASK.learn([Document((("a",),), ())])
    for bad in ("model.width=0", "model.kept=0", "model.char_widths=3;4", "model.antecedents=0"):
        with pytest.raises(ConfigError, match=bad.split("=")[0]):
            settings(bad)
    one = Document((("a", "b"),), ((Mention(0, 1),),), "GUM_news_x")
    told = TASK.notes([one], {"genres": ["bio"]})
    assert told[0].startswith("1 mentions that nothing else refers to")
    assert told[1] == "1 documents of genres that the model does not know (news)."


# ------------------------------------------------------------------------------------------ spans


@hypothesis_settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 7), max_size=4), st.integers(1, 4))
def test_all_spans_are_those_inside_sentences(lengths: list[int], width: int) -> None:
    wanted, first = [], 0
    for length in lengths:
        wanted += [
            (first + start, first + end)
            for start in range(length)
            for end in range(start + 1, length + 1)
            if end - start <= width
        ]
        first += length
    assert list(zip(*(t.tolist() for t in all_spans(lengths, width)), strict=True)) == wanted


@hypothesis_settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=3), st.integers(0, 30), st.randoms())
def test_the_best_spans_that_do_not_cross(lengths: list[int], n: int, draw: random.Random) -> None:
    starts, ends = all_spans(lengths, 5)
    order = list(range(len(starts)))
    draw.shuffle(order)
    spans = list(zip(starts.tolist(), ends.tolist(), strict=True))

    def cross(one: int, other: int) -> bool:
        (a, b), (c, d) = spans[one], spans[other]
        return a < c < b < d or c < a < d < b

    wanted: list[int] = []
    for number in order:
        if len(wanted) < n and not any(cross(number, other) for other in wanted):
            wanted.append(number)
    assert keep_best(starts, ends, order, n) == sorted(wanted)


def test_the_vector_of_a_span() -> None:
    torch.manual_seed(0)
    encode, h, x = SpanEncoder(6, 5, 3, 2), torch.randn(8, 6), torch.randn(8, 5)
    starts, ends = all_spans([5, 3], 3)
    for g, start, end in zip(encode(h, x, starts, ends), starts, ends, strict=True):
        weights = encode.attend(h[start:end]).softmax(dim=0)
        head = (weights * x[start:end]).sum(dim=0)
        wanted = [h[start], h[end - 1], head, encode.widths.weight[end - start - 1]]
        assert torch.allclose(g, torch.cat(wanted), atol=1e-6)


# ------------------------------------------------------------------------------------ antecedents


def test_candidates_are_the_nearest_spans_before() -> None:
    index, there = antecedents(5, 3, CPU)
    found = [row[on].tolist() for row, on in zip(index, there, strict=True)]
    assert found == [[], [0], [1, 0], [2, 1, 0], [3, 2, 1]]
    assert antecedents(1, 3, CPU)[0].shape == (1, 0)
    assert antecedents(0, 3, CPU)[0].shape == (0, 0)


def test_the_loss_is_an_explicit_sum_over_antecedents() -> None:
    torch.manual_seed(0)
    index, there = antecedents(7, 4, CPU)
    scores = torch.randn(7, 4).masked_fill(~there, -torch.inf).requires_grad_()
    cluster = [0, 1, 1, 2, 1, 0, 2]
    same = torch.tensor(
        [[cluster[j] == c and c > 0 for j in row] for row, c in zip(index, cluster, strict=True)]
    )
    loss = marginal_loss(scores, same & there)
    wanted = torch.tensor(0.0)
    for i in range(7):
        odds, right = [torch.tensor(1.0)], []
        for k in range(4):
            j = i - 1 - k
            if j >= 0:
                odds.append(scores[i, k].exp())
                if cluster[i] > 0 and cluster[j] == cluster[i]:
                    right.append(scores[i, k].exp())
        wanted = wanted - torch.log(sum(right or odds[:1], torch.tensor(0.0)) / sum(odds))
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-5)
    loss.backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None
    assert torch.isfinite(scores.grad).all()
    assert marginal_loss(torch.zeros(0, 0), torch.zeros(0, 0, dtype=torch.bool)) == 0


def explicit(pairs: PairScorer, g: Tensor, said: Tensor, genre: int, i: int, j: int) -> Tensor:
    """Score one pair by the formula."""
    low = [1, 2, 3, 4, 5, 8, 16, 32, 64]
    distance = max(k for k, least in enumerate(low) if i - j >= least)
    speaker = 0 if 0 in (said[i], said[j]) else 2 if said[i] == said[j] else 1
    phi = [pairs.distances.weight[distance], pairs.speakers.weight[speaker]]
    read = torch.cat([g[i], g[j], g[i] * g[j], *phi, pairs.genres.weight[genre]])
    parts = [pairs.anaphor, pairs.antecedent, pairs.product, pairs.features]
    weight = torch.cat([part.weight for part in parts], dim=1)
    score: Tensor = pairs.rest(weight @ read + pairs.anaphor.bias)
    return score.squeeze()


@pytest.mark.parametrize(("at_once", "kept"), [(1 << 16, 1 << 27), (64, 1 << 27), (64, 0)])
def test_pairs_are_scored_by_the_formula_whatever_fits_into_memory(
    monkeypatch: pytest.MonkeyPatch, at_once: int, kept: int
) -> None:
    monkeypatch.setattr(pairing, "_PAIRS_AT_ONCE", at_once)
    monkeypatch.setattr(pairing, "_KEPT_NUMBERS", kept)
    torch.manual_seed(0)
    pairs, g = PairScorer(6, 5, 2, 3, dropout=0.0), torch.randn(72, 6, requires_grad=True)
    said = torch.randint(0, 3, (72,))
    index, there = antecedents(72, 66, CPU)
    asked = there.nonzero()[::9]
    scores = pairs(g, said, torch.tensor(2), index)[asked[:, 0], asked[:, 1]]
    wanted = torch.stack([explicit(pairs, g, said, 2, i, i - 1 - k) for i, k in asked])
    assert torch.allclose(scores, wanted, atol=1e-5)
    found, true = (torch.autograd.grad(s.sin().sum(), g)[0] for s in (scores, wanted))
    assert torch.allclose(found, true, atol=1e-4)


def test_gold_clusters_of_spans() -> None:
    starts, ends = torch.tensor([0, 0, 2, 5]), torch.tensor([1, 2, 4, 6])
    gold = np.array([[0, 2, 3], [1, 2, 1], [5, 6, 2]])
    assert clusters_of(starts, ends, gold).tolist() == [0, 3, 0, 2]
    assert clusters_of(starts, ends, gold[:0]).tolist() == [0, 0, 0, 0]


# ------------------------------------------------------------------------------------------ model


def make(data: Data[Document], config: TaskConfig) -> CorefModel:
    torch.manual_seed(0)
    shape = None if data.elmo is None else data.elmo.shape
    return TASK.model(config, data.facts, data.words, shape)


@pytest.mark.parametrize(
    "changes",
    [["elmo.place=none"], ["elmo.place=both"], ["elmo.place=none", "model.singletons=true"]],
)
def test_the_network_learns_and_predicts_from_its_folder(
    files: tuple[str, str], elmo: ElmoModel, cache: LayerCache, tmp_path: Path, changes: list[str]
) -> None:
    config = settings(*changes, "train.epochs=10", "train.patience=3")
    given = elmo if config.elmo.place == "both" else None
    data = load_data(
        TASK, config, *files, files[1], elmo=given, model="tests/models/tiny", cache=cache
    )
    result = train(TASK, config, data, tmp_path / "run")
    assert result.dev is not None
    assert result.dev["conll"] > 97
    assert result.dev["measures"]["mentions"]["f1"] > 97
    saved = load_saved(tmp_path / "run", TASK, device="cpu")
    examples = TASK.read(files[1])
    predicted = saved.predict(examples)
    assert TASK.score(examples, predicted) == result.dev
    assert [saved.predict([e])[0] for e in examples] == predicted
    told = [json.loads(line) for line in (tmp_path / "run" / "test.jsonl").read_text().splitlines()]
    assert [len(line["gold"]) for line in told] == [3] * len(examples)
    asked = [*TASK.parse([Line("x", 1, "Ann met Tom. He saw her old dog.")], "text")]
    shown = json.loads(TASK.show(asked[0], saved.predict(asked)[0], as_json=True))
    named = {m["text"]: m for cluster in shown["clusters"] for m in cluster}
    assert {"Tom"} <= named.keys()
    assert (
        named["Tom"] | {"sentence": 0, "start": 2, "end": 3, "characters": [8, 11]} == named["Tom"]
    )
    if config.model.singletons:
        assert result.dev["conll_without_singletons"] > 97
        assert result.dev["gold_clusters"] == 3 * len(examples)
        assert "muc without singletons" in result.dev["measures"]
    else:
        assert result.dev["gold_clusters"] == 2 * len(examples)


@pytest.mark.parametrize("singletons", ["false", "true"])
def test_gradients_reach_the_mixes_and_not_the_biLM(
    files: tuple[str, str], elmo: ElmoModel, cache: LayerCache, singletons: str
) -> None:
    config = settings("elmo.place=both", f"model.singletons={singletons}")
    data = load_data(TASK, config, *files, elmo=elmo, cache=cache)
    model = make(data, config)
    model.loss(data.train.batch([0, 1, 2])).backward()  # type: ignore[no-untyped-call]
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
    for mix in model.elmo.mixes.values():
        found: Any = mix
        assert found.w.grad.abs().sum() > 0
        assert found.gamma.grad.abs().sum() > 0
    assert all(p.grad is None and not p.requires_grad for p in elmo.bilm.parameters())


def test_clusters_follow_the_best_antecedents(files: tuple[str, str]) -> None:
    config = settings("elmo.place=none", "model.antecedents=6")
    data = load_data(TASK, config, *files)
    model = make(data, config).eval()
    document = data.dev.examples[0]
    batch = data.dev.batch([0])
    h, x = model.encode(batch, 0, range(len(document.sentences)))
    kept = model.keep(h, x, [len(s) for s in document.sentences])
    assert len(kept.starts) == int(0.6 * len(document.tokens))
    model.pairs.rest[-1].bias.data += 0.3  # so that some have antecedents and some have not
    scores = model.score_pairs(kept, document, 0)
    spans = list(map(Mention, kept.starts.tolist(), kept.ends.tolist()))
    assert spans == sorted(spans)
    links = set()
    for i in range(len(spans)):
        best, to = 0.0, None
        for j in range(max(0, i - 6), i):
            if scores[i, i - 1 - j] > best:
                best, to = scores[i, i - 1 - j].item(), j
        if to is not None:
            links.add((i, to))
    cluster = {i: {i} for i in range(len(spans))}
    for i, j in links:
        for k in (joined := cluster[i] | cluster[j]):
            cluster[k] = joined
    wanted = {frozenset(spans[k] for k in c) for c in cluster.values() if len(c) > 1}
    found = model.decode(batch)[0].clusters
    assert wanted
    assert set(map(frozenset, found)) == wanted
    assert all(list(c) == sorted(c) for c in found)


def test_a_stretch_is_drawn_from_all_of_a_document(files: tuple[str, str]) -> None:
    config = settings("elmo.place=none", "model.sentences=3", "model.tokens=9")
    data = load_data(TASK, config, *files)
    model = make(data, config)
    document = Document(tuple(("w",) * n for n in (2, 3, 1, 9, 12, 4, 4, 1, 2)))
    drawn = Counter(model.stretch(document) for _ in range(400))
    assert drawn.keys() == {
        *(range(0, 3), range(1, 3), range(2, 3), range(3, 4), range(4, 5), range(5, 8)),
        range(6, 9),
    }
    assert min(drawn.values()) > 20
    torch.manual_seed(5)
    first = [model.stretch(document) for _ in range(9)]
    torch.manual_seed(5)
    assert [model.stretch(document) for _ in range(9)] == first
    assert model.stretch(Document((("w",) * 20,))) == range(0, 1)


def test_a_stretch_is_trained_on_as_if_it_were_the_document(files: tuple[str, str]) -> None:
    config = settings("elmo.place=none", "model.dropout=0", "model.word_dropout=0")
    data = load_data(TASK, config, *files)
    model = make(data, config)
    for document in data.train.examples[:5]:
        end = int(document.bounds[3])
        assert document.clusters is not None
        inside = [tuple(m for m in c if m.end <= end) for c in document.clusters]
        short = Document(document.sentences[:3], tuple(c for c in inside if c))
        wanted = model.loss(Dataset([short], None, CPU).batch([0]))
        model.stretch = lambda _: range(3)  # type: ignore[method-assign]
        found = model.loss(Dataset([document], None, CPU).batch([0]))
        del model.stretch
        assert found.item() == pytest.approx(wanted.item(), rel=1e-5)


def test_long_documents_need_bounded_memory(
    files: tuple[str, str],
    elmo: ElmoModel,
    cache: LayerCache,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = settings("elmo.place=input")
    data = load_data(TASK, config, *files, elmo=elmo, cache=cache)
    model = make(data, config).eval()
    model.pairs.rest[-1].bias.data += 0.5
    sentences = tuple(s for d in data.train.examples[:20] for s in d.sentences)
    long = Document((*sentences, (), sentences[0] * 9))
    layers = cache.layers(elmo, long.texts, CPU)
    batch = Dataset([long], layers, CPU).batch([0])
    wanted = model.decode(batch)
    assert any(len(cluster) > 1 for cluster in wanted[0].clusters)
    seen = Counter[str]()

    def watch(name: str, size: int) -> None:
        seen[name] = max(seen[name], size)

    part, score, encode = batch.part, model.pairs._score, model.spans.forward
    monkeypatch.setattr(coref, "_TOKENS_AT_ONCE", 60)
    monkeypatch.setattr(coref, "_SPANS_AT_ONCE", 70)
    monkeypatch.setattr(pairing, "_PAIRS_AT_ONCE", 80)

    def watched_part(row: int, texts: range) -> Any:
        tokens, found = part(row, texts)
        watch("tokens", tokens.mask.numel())
        return tokens, found

    def watched_score(rows: Tensor, index: Tensor, *rest: Tensor) -> Tensor:
        watch("pairs", index.numel())
        return score(rows, index, *rest)

    def watched_spans(h: Tensor, x: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
        watch("spans", len(starts))
        return encode(h, x, starts, ends)

    monkeypatch.setattr(batch, "part", watched_part)
    monkeypatch.setattr(model.pairs, "_score", watched_score)
    monkeypatch.setattr(model.spans, "forward", watched_spans)
    assert model.decode(batch) == wanted
    kept = int(0.6 * len(long.tokens))
    assert dict(seen) == {"tokens": 60, "pairs": 80, "spans": max(70, kept)}


def test_batch_mates_and_empty_documents_change_nothing(files: tuple[str, str]) -> None:
    config = settings("elmo.place=none", "model.singletons=true")
    data = load_data(TASK, config, *files)
    model = make(data, config).eval()
    model.mention[-1].bias.data += 0.1
    odd = [
        Document(()),
        Document(((), ())),
        Document((("Ann",),)),
        Document(((), ("she", "."), ())),
    ]
    found = Dataset([*data.dev.examples[:4], *odd], None, CPU)
    together = model.decode(found.batch(range(8)))
    assert [model.decode(found.batch([row]))[0] for row in range(8)] == together
    assert [resolved.clusters for resolved in together[4:6]] == [[], []]
    lost = model.loss(found.batch(range(4))).item()
    alone = [model.loss(found.batch([row])).item() for row in range(4)]
    assert lost == pytest.approx(sum(alone) / 4, rel=1e-5)


def test_speakers_and_genres_are_looked_at(files: tuple[str, str]) -> None:
    config = settings("elmo.place=none")
    data = load_data(TASK, config, *files)
    model = make(data, config).eval()
    torch.manual_seed(0)
    model = TASK.model(config, {"genres": ["bc"]}, data.words, None).eval()
    plain = data.dev.examples[0]
    said = tuple("x" if k % 2 else "y" for k in range(len(plain.tokens)))
    others = [
        plain,
        Document(plain.sentences, plain.clusters, "bc/1"),
        Document(plain.sentences, plain.clusters, "nw/1"),
        Document(plain.sentences, plain.clusters, speakers=said),
        Document(plain.sentences, plain.clusters, speakers=("",) * len(said)),
    ]
    batch = Dataset(others, None, CPU).batch(range(5))
    losses = [model.loss(Dataset([d], None, CPU).batch([0])).item() for d in batch.examples]
    assert losses[0] == losses[2] == losses[4]
    assert len(set(losses)) == 3


# --------------------------------------------------------------------------------------- commands


def test_a_run_that_is_stopped_goes_on_as_if_nothing_had_been(
    files: tuple[str, str], tmp_path: Path
) -> None:
    config = settings("elmo.place=none", "model.sentences=2", "train.epochs=2", "train.share=0.2")
    data = load_data(TASK, config, *files)
    train(TASK, config, data, tmp_path / "whole")

    def interrupt(_: str, done: int, __: int) -> None:
        if done == 5:
            os.kill(os.getpid(), signal.SIGINT)

    out = tmp_path / "cut"
    assert train(TASK, config, data, out, progress=interrupt).interrupted
    assert not train(TASK, config, data, out, resume=True).interrupted
    one, other = (load_file(tmp_path / name / "weights.safetensors") for name in ("whole", "cut"))
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_from_training_to_prediction(files: tuple[str, str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    changes = [part for setting in SMALL for part in ("--set", setting)]
    trained = command(
        *("task", "coref", "train", *files, files[1], "-o", out, "--model", TINY_MODEL, "--json"),
        *("--cache-dir", tmp_path / "cache", "--device", "cpu", *changes),
        *("--set", "train.epochs=6"),
    )
    assert trained.exit_code == 0, trained.stderr
    assert "mix at the input: s_0 = " in trained.stderr
    result = json.loads(trained.stdout)
    assert result["test"]["conll"] > 80
    found = command("task", "coref", "evaluate", out, files[1], "--json", "--device", "cpu")
    assert json.loads(found.stdout)["conll"] == result["test"]["conll"]
    told = command("task", "coref", "evaluate", out, Path(files[1]).parent, "--device", "cpu")
    assert "50 examples: conll" in told.stdout
    assert "measures ceafe: f1" in told.stdout
    assert "mentions that nothing else refers to" in told.stderr

    text = "Ann met Bob. She saw him.\n\nTom left.\n"
    done = command("task", "coref", "predict", out, "-", "--device", "cpu", given=text)
    assert done.exit_code == 0, done.stderr
    lines = [Line("x", i, line) for i, line in enumerate(done.stdout.splitlines(), 1)]
    again = list(read_columns(lines, Oddities(), labelled=True))
    assert [d.sentences[0] for d in again] == [("Ann", "met", "Bob", "."), ("Tom", "left", ".")]
    done = command("task", "coref", "predict", out, "-", "--json", "--device", "cpu", given=text)
    assert [len(json.loads(line)["sentences"]) for line in done.stdout.splitlines()] == [2, 1]
    done = command(
        *("task", "coref", "predict", out, files[1], "--input", "conll", "--device", "cpu"),
    )
    assert done.stdout.count("#begin document (dev.conll") == 10
    bad = tmp_path / "bad.conll"
    bad.write_text("a\t(1\nb\t-\n")
    assert "bad.conll, line 1" in error("task", "coref", "evaluate", out, bad)
    assert "is a directory" in error("task", "coref", "predict", out, tmp_path)
    told = error("task", "ner", "train", tmp_path, tmp_path, "-o", "x", "--elmo", "none")
    assert "is a directory" in told
