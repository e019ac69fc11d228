"""NER from file to file: supported formats, learning, rejected input."""

from __future__ import annotations

import functools
import json
import operator
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from elmokit.embed.layer_cache import LayerCache
from elmokit.embed.model import ElmoModel
from elmokit.errors import DataError, ElmoError, ElmoWarning
from elmokit.sources import hub, published, resolve
from elmokit.tasks import loop
from elmokit.tasks.batches import Dataset, collect_texts
from elmokit.tasks.data import Data, load_data, read_examples, select_scored_examples
from elmokit.tasks.loop import train
from elmokit.tasks.ner import Ner, NerModel, Sentence
from elmokit.tasks.saved import load_saved
from elmokit.text.lines import Line
from tests.conftest import TINY_MODEL
from tests.tasks.conftest import settings
from tests.tasks.task_checks import check_gradients, with_both

TASK = Ner()


def read(tmp_path: Path, text: str) -> list[Sentence]:
    path = tmp_path / "data.txt"
    path.write_text(text)
    return TASK.read(str(path))


# ------------------------------------------------------------------------------------------- data


def test_columns_documents_and_empty_documents(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "-DOCSTART- -X- O O\n\n-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\n\n"
        "-DOCSTART- -X- O O\nNo DT I-NP O",
    )
    assert [s.tokens for s in found] == [("EU", "rejects"), ("No",)]
    assert found[0].tags == ("I-ORG", "O")


def test_tab_separated_tokens_may_contain_spaces(tmp_path: Path) -> None:
    assert read(tmp_path, "New York\tB-LOC\n")[0].tokens == ("New York",)
    assert read(tmp_path, "5\u00a0000 O\n")[0].tokens == ("5\u00a0000",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a O\nb\n", r"data.txt, line 2: found 1 column .* expected 2"),
        ("a\n", r"line 1: found 1 column .* expected 2"),
        ("a x O\n\nb O\n", r"line 3: found 2 columns .* expected 3"),
        ("a O\nb PER\n", r"line 2: invalid tag 'PER'"),
    ],
)
def test_invalid_columns_are_identified(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path, text)


def test_very_long_sentence_gives_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "data.txt"
    path.write_text("w B-A\n" * 1001)
    with pytest.warns(ElmoWarning, match="the longest text has 1,001 tokens"):
        [found] = read_examples(TASK, str(path))
    assert len(found.tokens) == 1001


def test_prediction_reads_text_json_and_columns() -> None:
    raw = [Line("x", 1, "Ann saw Bob. Dave left."), Line("x", 2, "")]
    sentences = list(TASK.parse(raw, "text"))
    assert [s.tokens for s in sentences] == [("Ann", "saw", "Bob", "."), ("Dave", "left", ".")]
    assert sentences[1].offsets == ((13, 17), (18, 22), (22, 23))
    given = ['{"tokens": ["Ann", "left"]}', '{"text": "Bob left."}', ""]
    lines = [Line("x", i + 1, text) for i, text in enumerate(given)]
    found = [s.tokens for s in TASK.parse(lines, "jsonl")]
    assert found == [("Ann", "left"), ("Bob", "left", ".")]
    with pytest.raises(DataError, match="x, line 7"):
        list(TASK.parse([Line("x", 7, '{"tokens": "Ann"}')], "jsonl"))
    columns = [Line("x", 1, "Ann"), Line("x", 2, ""), Line("x", 3, "Bob")]
    assert [s.tokens for s in TASK.parse(columns, "conll")] == [("Ann",), ("Bob",)]


@pytest.mark.parametrize("token", ["a\tb", "c\nd", "c\rd", "", " ", "\u3000"])
def test_tokens_that_columns_cannot_represent_are_rejected(token: str) -> None:
    good, bad = (json.dumps({"tokens": ["Ann", found]}) for found in ("New York", token))
    parsed = TASK.parse([Line("x", 1, good), Line("x", 2, bad)], "jsonl")
    assert next(parsed).tokens == ("Ann", "New York")  # an inner space is allowed
    with pytest.raises(DataError, match=r"x, line 2: .*invalid token \"\S* ?\": .*tabs"):
        next(parsed)


def test_training_data_without_entities_is_rejected() -> None:
    with pytest.raises(DataError):
        TASK.collect_labels([Sentence(("a",), ("O",))])


def test_unknown_types_are_counted() -> None:
    label_info = TASK.collect_labels([Sentence(("a",), ("B-A",))])
    sentences = [Sentence(("a", "b"), ("B-A", "B-X")), Sentence(("c",), ("I-X",))]
    with pytest.warns(ElmoWarning, match=r"2 gold labels absent from .*: X\."):
        assert select_scored_examples(TASK, sentences, settings(), label_info) == sentences


# ------------------------------------------------------------------------------------------ model


@pytest.fixture(scope="module")
def trained(
    files: tuple[str, str], elmo: ElmoModel, tmp_path_factory: pytest.TempPathFactory
) -> Any:
    out = tmp_path_factory.mktemp("trained")
    config = settings("elmo.place=both", "train.epochs=12", "train.patience=4")
    cache = LayerCache(out / "cache")
    data = load_data(
        TASK, config, *files, files[1], elmo=elmo, model="tests/models/tiny", cache=cache
    )
    return out / "run", train(TASK, config, data, out / "run")


@pytest.mark.parametrize("place", ["none", "input"])
def test_tagger_learns(
    files: tuple[str, str], elmo: ElmoModel, cache: LayerCache, tmp_path: Path, place: str
) -> None:
    config = settings(f"elmo.place={place}", "train.epochs=10", "train.patience=3")
    given = None if place == "none" else elmo
    data = load_data(TASK, config, *files, elmo=given, cache=cache)
    result = train(TASK, config, data, tmp_path / "run")
    assert result.dev is not None
    assert result.dev["f1"] > 98
    assert set(result.mixes) == ({"input"} if place == "input" else set())


def test_gradients_reach_the_mixes_but_not_the_biLM(
    files: tuple[str, str], elmo: ElmoModel, cache: LayerCache
) -> None:
    before = {name: p.clone() for name, p in elmo.bilm.named_parameters()}
    data, model = with_both(TASK, settings("elmo.place=both"), files, elmo, cache)
    loss = model.loss(data.train.batch([0, 1, 2])) + model.elmo.penalty()
    check_gradients(loss, model, elmo)
    for name, parameter in elmo.bilm.named_parameters():
        assert not parameter.requires_grad
        assert parameter.grad is None
        assert torch.equal(parameter, before[name])


def model_of(data: Data[Sentence], *changes: str) -> NerModel:
    torch.manual_seed(0)
    return TASK.network(settings(*changes), data.label_info, data.words, data.bilm).eval()


def test_predictions_do_not_depend_on_the_batch(
    files: tuple[str, str], elmo: ElmoModel, cache: LayerCache
) -> None:
    data = load_data(TASK, settings(), *files, elmo=elmo, cache=cache)
    model = model_of(data)
    together, mask = model(data.dev.batch(list(range(10))))
    for row in range(10):
        alone, _ = model(data.dev.batch([row]))
        assert torch.allclose(alone[0], together[row][mask[row]], atol=1e-5)


@pytest.mark.parametrize(
    ("setting", "learned", "weights"),
    [
        ("layer=mix", {"w", "gamma"}, [1 / 3] * 3),
        ("layer=top", {"gamma"}, [0, 0, 1]),
        ("layer=1", set(), [0, 1, 0]),
        ("mix=0.2,0.5,0.3", set(), [0.2, 0.5, 0.3]),
    ],
)
def test_layer_and_mix_settings(
    files: tuple[str, str],
    elmo: ElmoModel,
    cache: LayerCache,
    setting: str,
    learned: set[str],
    weights: list[float],
) -> None:
    data = load_data(TASK, settings(), *files, elmo=elmo, cache=cache)
    model = model_of(data, f"elmo.{setting}")
    mix: Any = model.elmo.mixes["input"]
    assert {name for name, p in mix.named_parameters() if p.requires_grad} == learned
    learned: Any = model.elmo.learned_weights()["input"]["s"]
    assert learned == pytest.approx(weights, abs=1e-3)
    assert (
        float(torch.as_tensor(model.elmo.penalty()).detach()) == 0.0
    )  # of weights that are initialized with zero or given


def test_penalty_is_lambda_times_the_squared_weights(
    files: tuple[str, str], elmo: ElmoModel, cache: LayerCache
) -> None:
    data = load_data(TASK, settings(), *files, elmo=elmo, cache=cache)
    model = model_of(data, "elmo.penalty=0.5", "elmo.place=both")
    with torch.no_grad():
        for mix in model.elmo.mixes.values():
            mix.w.copy_(torch.tensor([1.0, 2.0, 0.0]))
    assert float(torch.as_tensor(model.elmo.penalty()).detach()) == pytest.approx(2 * 0.5 * 5)


def test_empty_sentences_are_supported(elmo: ElmoModel, files: tuple[str, str]) -> None:
    data = load_data(TASK, settings("elmo.place=none"), *files)
    model = model_of(data, "elmo.place=none")
    empty = Dataset([Sentence(()), Sentence(("Ann",))], None, torch.device("cpu"))
    assert [len(tags) for tags in model.decode(empty.batch([0, 1]))] == [0, 1]
    assert model.decode(empty.batch([0])) == [[]]


# ---------------------------------------------------------------------------------------- directory


def test_saved_model_gives_the_same_predictions(trained: Any, files: tuple[str, str]) -> None:
    out, result = trained
    saved = load_saved(out, TASK, device="cpu")
    examples = TASK.read(files[1])
    assert TASK.score(examples, saved.predict(examples)) == result.dev
    records = [json.loads(line) for line in (out / "test.jsonl").read_text().splitlines()]
    assert [line["tags"] for line in records] == saved.predict(examples)
    assert all(line["gold"] for line in records)
    card = (out / "README.md").read_text()
    assert "mix at the output" in card
    assert "tiny" in card
    assert not (out / "checkpoints").exists()
    config = json.loads((out / "config.json").read_text())
    assert config["elmo"]["name"] == "tiny"
    assert set(config["results"]["mixes"]) == {"input", "output"}
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == list(range(1, result.epochs + 1))


@pytest.mark.parametrize("setting", ["layer=average", "mix=0.2,0.5,0.3"])
def test_model_with_fixed_layer_weights_is_loaded(
    files: tuple[str, str], elmo: ElmoModel, cache: LayerCache, tmp_path: Path, setting: str
) -> None:
    config = settings(f"elmo.{setting}", "train.epochs=1", "train.share=0.2")
    data = load_data(TASK, config, *files, elmo=elmo, model=str(TINY_MODEL), cache=cache)
    result = train(TASK, config, data, tmp_path / "run")
    saved = load_saved(tmp_path / "run", TASK, device="cpu")
    assert saved.model.elmo.learned_weights() == result.mixes
    examples = TASK.read(files[1])
    assert TASK.score(examples, saved.predict(examples)) == result.dev


def test_predictions_do_not_depend_on_other_examples(trained: Any, files: tuple[str, str]) -> None:
    saved = load_saved(trained[0], TASK, device="cpu")
    examples = TASK.read(files[1])
    assert [saved.predict([e])[0] for e in examples] == saved.predict(examples)
    assert saved.predict([]) == []
    assert collect_texts([]) == []


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("config.json", "{"),
        ("config.json", '{"format": "elmokit"}'),
        ("labels.json", "{}"),
        ("labels.json", '{"types": 3}'),
        ("labels.json", '{"types": ["X"]}'),
        ("weights.safetensors", "nothing"),
        ("words/words.txt", "a\n"),
        ("words/words.safetensors", ""),
    ],
)
def test_damaged_directory_is_rejected(trained: Any, tmp_path: Path, file: str, text: str) -> None:
    shutil.copytree(trained[0], tmp_path / "run")
    (tmp_path / "run" / file).write_text(text)
    with pytest.raises(ElmoError):
        load_saved(tmp_path / "run", TASK, device="cpu")


def test_mismatched_settings_are_rejected(trained: Any, tmp_path: Path) -> None:
    shutil.copytree(trained[0], tmp_path / "run")
    config = tmp_path / "run" / "config.json"
    values = json.loads(config.read_text())
    for groups, key, value in (
        (("config", "model"), "hidden", "x"),
        (("config", "model"), "hidden", 10**7),
        (("config", "model"), "hidden", 4000),  # valid values, but the weights have another size
        (("config", "model"), "hiden", 3),
        (("config", "elmo"), "place", 1),
        (("elmo",), "model", 5),
        (("elmo",), "dim", -1),
    ):
        changed = json.loads(json.dumps(values))
        functools.reduce(operator.getitem, groups, changed)[key] = value
        config.write_text(json.dumps(changed))
        with pytest.raises(ElmoError, match=r"config\.json|weights\.safetensors"):
            load_saved(tmp_path / "run", TASK, device="cpu")


@pytest.mark.parametrize(
    "name",
    ["https://example.org/options.json", "hf://user/model", "allennlp:small", "a\0b", "x" * 5000],
)
def test_saved_task_cannot_cause_a_download_of_a_biLM(
    trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def fetched(*_: object, **__: object) -> None:
        raise AssertionError("something was fetched")

    for place, function in ((resolve, "fetch"), (published, "fetch"), (hub, "fetch")):
        monkeypatch.setattr(place, function, fetched)
    shutil.copytree(trained[0], tmp_path / "run")
    config = tmp_path / "run" / "config.json"
    values = json.loads(config.read_text())
    values["elmo"]["model"] = name
    config.write_text(json.dumps(values))
    with pytest.raises(ElmoError, match="--model"):
        load_saved(tmp_path / "run", TASK, device="cpu")


def test_task_and_its_biLM_can_be_moved_together(
    files: tuple[str, str], tmp_path: Path, elmo: ElmoModel, cache: LayerCache
) -> None:
    shutil.copytree(TINY_MODEL, tmp_path / "here" / "bilm")
    given = str(tmp_path / "here" / "bilm")
    config = settings("train.epochs=1")
    data = load_data(TASK, config, *files, elmo=elmo, model=given, cache=cache)
    loop.train(TASK, config, data, tmp_path / "here" / "run")
    (tmp_path / "here").rename(tmp_path / "there")
    assert load_saved(tmp_path / "there" / "run", TASK, device="cpu").elmo is not None
    written = (tmp_path / "there" / "run" / "config.json").read_text()
    assert str(tmp_path) not in written


def test_another_biLM_is_rejected(trained: Any, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(TINY_MODEL, other)
    tensors = load_file(other / "model.safetensors")
    save_file({name: t * 1.5 for name, t in tensors.items()}, other / "model.safetensors")
    with pytest.raises(ElmoError, match="is not the one that"):
        load_saved(trained[0], TASK, model=str(other), device="cpu")
    with pytest.raises(ElmoError, match="--model"):
        load_saved(trained[0], TASK, model=str(tmp_path / "gone"), device="cpu")
