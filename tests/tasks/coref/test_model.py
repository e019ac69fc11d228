"""Coreference model: it learns, needs bounded memory, and uses its features."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from elmokit.embed.layer_cache import LayerCache
from elmokit.embed.model import ElmoModel
from elmokit.tasks import coref_model
from elmokit.tasks.batches import Dataset
from elmokit.tasks.config import TaskConfig
from elmokit.tasks.coref_model import CorefModel
from elmokit.tasks.data import Data, load_data
from elmokit.tasks.documents import Document, Mention
from elmokit.tasks.nn import spans as pairing
from elmokit.text.lines import Line
from tests.tasks.coref.conftest import CPU, TASK, settings
from tests.tasks.task_checks import check_gradients, learn


def make(data: Data[Document], config: TaskConfig) -> CorefModel:
    torch.manual_seed(0)
    return TASK.network(config, data.label_info, data.words, data.bilm)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(["elmo.place=none"], marks=pytest.mark.slow),
        ["elmo.place=both"],
        ["elmo.place=none", "model.singletons=true"],
    ],
)
def test_model_learns_and_predicts_after_loading(
    files: tuple[str, str], elmo: ElmoModel, cache: LayerCache, tmp_path: Path, changes: list[str]
) -> None:
    config = settings(*changes, "train.epochs=10", "train.patience=3")
    run = learn(TASK, config, files, elmo, cache, tmp_path / "run")
    dev, saved, examples, predicted = run.dev, run.saved, run.examples, run.predicted
    assert dev["conll"] > 97
    assert dev["measures"]["mentions"]["f1"] > 97
    assert [saved.predict([e])[0] for e in examples] == predicted
    assert [len(line["gold"]) for line in run.records] == [3] * len(examples)
    asked = [*TASK.parse([Line("x", 1, "Ann met Tom. He saw her old dog.")], "text")]
    shown = json.loads(TASK.format_prediction(asked[0], saved.predict(asked)[0], as_json=True))
    named = {m["text"]: m for cluster in shown["clusters"] for m in cluster}
    assert {"Tom"} <= named.keys()
    assert (
        named["Tom"] | {"sentence": 0, "start": 2, "end": 3, "characters": [8, 11]} == named["Tom"]
    )
    if config.model.singletons:
        assert dev["conll_without_singletons"] > 97
        assert dev["gold_clusters"] == 3 * len(examples)
        assert "muc without singletons" in dev["measures"]
    else:
        assert dev["gold_clusters"] == 2 * len(examples)


@pytest.mark.parametrize("singletons", ["false", "true"])
def test_gradients_reach_the_mixes_but_not_the_biLM(
    files: tuple[str, str], elmo: ElmoModel, cache: LayerCache, singletons: str
) -> None:
    config = settings("elmo.place=both", f"model.singletons={singletons}")
    data = load_data(TASK, config, *files, elmo=elmo, cache=cache)
    model = make(data, config)
    check_gradients(model.loss(data.train.batch([0, 1, 2])), model, elmo)


def test_clusters_follow_the_best_antecedents(files: tuple[str, str]) -> None:
    config = settings("elmo.place=none", "model.antecedents=6")
    data = load_data(TASK, config, *files)
    model = make(data, config).eval()
    document = data.dev.examples[0]
    batch = data.dev.batch([0])
    h, x = model.encode(batch, 0, range(len(document.sentences)))
    kept = model.keep(h, x, [len(s) for s in document.sentences])
    assert len(kept.starts) == int(0.6 * len(document.tokens))
    model.pairs.rest[-1].bias.data += 0.3  # so that some have antecedents and some do not
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


def test_training_segment_is_sampled_from_the_whole_document(files: tuple[str, str]) -> None:
    config = settings("elmo.place=none", "model.sentences=3", "model.tokens=9")
    data = load_data(TASK, config, *files)
    model = make(data, config)
    document = Document(tuple(("w",) * n for n in (2, 3, 1, 9, 12, 4, 4, 1, 2)))
    drawn = Counter(model.excerpt(document) for _ in range(400))
    assert drawn.keys() == {
        *(range(0, 3), range(1, 3), range(2, 3), range(3, 4), range(4, 5), range(5, 8)),
        range(6, 9),
    }
    assert min(drawn.values()) > 20
    torch.manual_seed(5)
    first = [model.excerpt(document) for _ in range(9)]
    torch.manual_seed(5)
    assert [model.excerpt(document) for _ in range(9)] == first
    assert model.excerpt(Document((("w",) * 20,))) == range(0, 1)


def test_training_segment_equals_a_document_of_its_own(files: tuple[str, str]) -> None:
    config = settings("elmo.place=none", "model.dropout=0", "model.word_dropout=0")
    data = load_data(TASK, config, *files)
    model = make(data, config)
    for document in data.train.examples[:5]:
        end = int(document.bounds[3])
        assert document.clusters is not None
        inside = [tuple(m for m in c if m.end <= end) for c in document.clusters]
        short = Document(document.sentences[:3], tuple(c for c in inside if c))
        wanted = model.loss(Dataset([short], None, CPU).batch([0]))
        model.excerpt = lambda _: range(3)  # type: ignore[method-assign]
        found = model.loss(Dataset([document], None, CPU).batch([0]))
        del model.excerpt
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

    part, product, encode = batch.part, model.pairs.product.forward, model.spans.forward
    monkeypatch.setattr(coref_model, "_TOKENS_PER_CHUNK", 60)
    monkeypatch.setattr(coref_model, "_SPANS_PER_CHUNK", 70)
    monkeypatch.setattr(pairing, "_PAIRS_PER_CHUNK", 80)

    def watched_part(row: int, texts: range) -> Any:
        tokens, found = part(row, texts)
        watch("tokens", tokens.mask.numel())
        return tokens, found

    def watched_product(pairs: Tensor) -> Tensor:
        watch("pairs", pairs.shape[:-1].numel())
        return product(pairs)

    def watched_spans(h: Tensor, x: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
        watch("spans", len(starts))
        return encode(h, x, starts, ends)

    monkeypatch.setattr(batch, "part", watched_part)
    monkeypatch.setattr(model.pairs.product, "forward", watched_product)
    monkeypatch.setattr(model.spans, "forward", watched_spans)
    assert model.decode(batch) == wanted
    kept = int(0.6 * len(long.tokens))
    assert dict(seen) == {"tokens": 60, "pairs": 80, "spans": max(70, kept)}


def test_predictions_do_not_depend_on_the_batch_or_empty_documents(files: tuple[str, str]) -> None:
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


def test_speakers_and_genres_are_used(files: tuple[str, str]) -> None:
    config = settings("elmo.place=none")
    data = load_data(TASK, config, *files)
    model = make(data, config).eval()
    torch.manual_seed(0)
    model = TASK.network(config, {"genres": ["bc"]}, data.words, None).eval()
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
