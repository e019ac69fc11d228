"""SQuAD from questions to answers: supported formats, learning, rejected input."""

from __future__ import annotations

import itertools
import json
import random
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from elmokit.embed.layer_cache import LayerCache
from elmokit.embed.model import ElmoModel
from elmokit.errors import ConfigError, DataError, ElmoWarning
from elmokit.settings import with_settings
from elmokit.tasks import squad_data
from elmokit.tasks.batches import Dataset, collect_texts
from elmokit.tasks.config import TaskConfig
from elmokit.tasks.data import Data, load_data
from elmokit.tasks.loop import train
from elmokit.tasks.nn.layers import Trilinear
from elmokit.tasks.saved import load_saved
from elmokit.tasks.squad import SelfAttention, Squad, SquadModel, best_spans
from elmokit.tasks.squad_data import Passage, Question, truncate_passage
from elmokit.text.lines import Line
from tests.conftest import TINY_MODEL
from tests.tasks.test_commands import elmo as command
from tests.tasks.test_commands import error

TASK = Squad()
PEOPLE = ["Ann", "Bob Smith", "Carla", "Dave Jones", "Eve"]
PLACES = ["Paris", "New York", "Oslo", "Lima", "Rome"]
THINGS = ["book", "lamp", "drum", "coat", "ring"]
SMALL = [
    "model.char_dim=8",
    "model.char_filters=8",
    "model.char_width=3",
    "model.hidden=24",
    "model.dropout=0.0",
    "elmo.dropout=0.0",
    "train.batch_size=32",
    "train.learning_rate=0.01",
    "train.halve_after=0",
    "train.checkpoint_seconds=0",
]


class Files(NamedTuple):
    """Training data: questions, and word vectors that distinguish the words."""

    train: str
    dev: str
    vectors: str


def settings(*changes: str) -> TaskConfig:
    return with_settings(TASK.presets["quick"], [*SMALL, *changes])


def qa(question: str, answer: str, context: str, name: str, start: int | None = None) -> Any:
    start = context.index(answer) if start is None else start
    return {
        "id": name,
        "question": question,
        "answers": [{"text": answer, "answer_start": start}],
    }


def paragraph(draw: random.Random, number: int) -> Any:
    """Say who has what and where, and ask for all of it."""
    rows = list(zip(*(draw.sample(kind, 2) for kind in (PEOPLE, THINGS, PLACES)), strict=True))
    context = " ".join(f"{who} keeps the {thing} in {where}." for who, thing, where in rows)
    asked = [
        pair
        for who, thing, where in rows
        for pair in ((f"Who keeps the {thing}?", who), (f"Where is the {thing}?", where))
    ]
    qas = [qa(q, a, context, f"{number}-{i}") for i, (q, a) in enumerate(asked)]
    return {"context": context, "qas": qas}


def squad(*paragraphs: Any) -> str:
    return json.dumps({"version": "1.1", "data": [{"title": "x", "paragraphs": paragraphs}]})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("squad")
    for name, n, seed in (("train.json", 90, 1), ("dev.json", 8, 2)):
        draw = random.Random(seed)
        (folder / name).write_text(squad(*(paragraph(draw, number) for number in range(n))))
    text = " ".join([*PEOPLE, *PLACES, *THINGS, "Who Where keeps is in the . ?"])
    rows = [
        " ".join([word, *(f"{draw.gauss(0, 0.7):.3f}" for _ in range(24))])
        for word in dict.fromkeys(text.split())
    ]
    (folder / "vectors.txt").write_text("\n".join(rows) + "\n")
    return Files(*(str(folder / name) for name in ("train.json", "dev.json", "vectors.txt")))


def read(tmp_path: Path, text: str) -> list[Question]:
    path = tmp_path / "squad.json"
    path.write_text(text)
    return TASK.read(str(path))


# ------------------------------------------------------------------------------------------- data

CONTEXT = "Mr. Hale (b. 1858) didn't go.\nHe stayed in St. Ives, Cornwall."


def test_answers_are_mapped_to_tokens(tmp_path: Path) -> None:
    asked = [("Where?", "St. Ives"), ("When?", "1858"), ("Who?", "Mr. Hale"), ("?", "Cornwall")]
    text = squad({"context": CONTEXT, "qas": [qa(q, a, CONTEXT, q) for q, a in asked]})
    found = read(tmp_path, text)
    assert [question.id for question in found] == [q for q, _ in asked]
    assert [question.answers for question in found] == [(a,) for _, a in asked]
    for question, (_, answer) in zip(found, asked, strict=True):
        [(first, last)] = question.spans
        passage = question.passage
        assert passage is found[0].passage  # one object, so that it is embedded once
        assert passage.text[passage.starts[first] : passage.ends[last]] == answer
    passage = found[0].passage
    assert passage.tokens[:3] == ("Mr.", "Hale", "(")
    for token, start, end in zip(passage.tokens, passage.starts, passage.ends, strict=True):
        assert CONTEXT[start:end] == token


def test_offsets_count_characters_beyond_ascii(tmp_path: Path) -> None:
    context = "\U0001f600 Zoe\u0308 \u00e9tait \u5317\u4eac \U0001f1eb\U0001f1f7 ici. Fin"
    asked = ["\u5317\u4eac", "ici", "Zoe\u0308", "Fin"]
    text = squad({"context": context, "qas": [qa("Quoi ?", a, context, a) for a in asked]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for question, answer in zip(read(tmp_path, text), asked, strict=True):
            [(first, last)] = question.spans
            a, b = question.passage.starts[first], question.passage.ends[last]
            assert context[a:b] == answer
    # The same offsets in UTF-16 code units, as used by some tools.
    units = len(context[: context.index("ici")].encode("utf-16-le")) // 2
    text = squad({"context": context, "qas": [qa("Quoi ?", "ici", context, "q7", units)]})
    with pytest.warns(ElmoWarning, match=r"squad.json: answers .*: 1 .*id 'q7'.*UTF-16"):
        assert read(tmp_path, text)[0].spans == ()


def test_files_can_be_combined_and_questions_may_have_no_answers(tmp_path: Path) -> None:
    one = squad({"context": CONTEXT, "qas": [qa("Where?", "Cornwall", CONTEXT, "1")]})
    alone = {"context": CONTEXT, **qa("Where?", "Cornwall", CONTEXT, "3")}
    columns = {**alone, "answers": {"text": ["Cornwall"], "answer_start": [CONTEXT.index("Corn")]}}
    pretty = json.dumps(json.loads(one), indent=2)
    lines = f"{json.dumps(alone)}\n{json.dumps(columns)}\n"
    found = read(tmp_path, one + pretty + "\n" + lines)
    assert [question.id for question in found] == ["1", "1", "3", "3"]
    assert len({question.spans for question in found}) == 1


def test_mismatched_answers_are_counted_and_named(tmp_path: Path) -> None:
    context = "It was the 1990s. She won $12million there."
    several = qa("Who?", "She", context, "several")
    several["answers"] += [{"text": "won", "answer_start": 0}, *several["answers"]]
    asked = [
        several,
        qa("When?", "1990", context, "a1"),
        qa("Where?", "Oslo", context, "b1", 3),
        qa("Where?", "There", context, "b2", 37),
        qa("Where?", "It", context, "b3", -43),
        qa("What?", "", context, "b4", 0),
        {"id": "c1", "question": "Why?", "answers": []},
    ]
    with pytest.warns(ElmoWarning) as caught:
        found = read(tmp_path, squad({"context": context, "qas": asked}))
    text_of_warnings = "\n".join(str(warning.message) for warning in caught)
    assert "squad.json: answers that begin or end inside a token: 1 (" in text_of_warnings
    assert "id 'a1'" in text_of_warnings
    assert "do not occur at answer_start: 5 (" in text_of_warnings
    assert "(id 'several', id 'b1', id 'b2', ...)" in text_of_warnings
    assert "skipped questions without an answer: 1 (" in text_of_warnings
    assert [question.id for question in found] == ["several", "a1", "b1", "b2", "b3", "b4"]
    assert [question.spans for question in found] == [((5, 5),), ((3, 3),), (), (), (), ()]
    assert found[0].answers == ("She", "won", "She")
    assert [q.id for q in TASK.training(found, settings())] == ["several", "a1"]
    with pytest.raises(DataError):
        TASK.collect_labels(TASK.training(found[2:], settings()))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"data": [', r"squad.json: invalid JSON \(.* line 1 column"),
        ("[1]", "squad.json: .*object"),
        ('{"data": 3}', "squad.json: data: .*array"),
        ('{"data": [{}]}', r"data\[0\]\.paragraphs: Field required"),
        (squad({"context": "x", "qas": []}, {"qas": []}), r"paragraphs\[1\]\.context: Field"),
        (squad({"context": "x"}), r"data\[0\]\.paragraphs\[0\]\.qas: Field required"),
        (squad({"context": " \n", "qas": []}), r"paragraphs\[0\]\.context: the text is empty"),
        (squad({"context": "x", "qas": [{"id": "q9"}]}), r"qas\[0\]\.question: Field required"),
        (squad({"context": "x", "qas": [qa(" ", "x", "x", "q9")]}), r"question: .* is empty"),
        (squad({"context": "x", "qas": [{"question": "y"}]}), 'missing "answers"'),
        (
            squad({"context": "x", "qas": [{"id": 7, "question": "y", "answers": [{}]}]}),
            r"answers\[0\]\.text: Field required",
        ),
        (
            squad({"context": "x", "qas": [{"question": "y", "answers": [{"text": "x"}]}]}),
            r"answers\[0\]\.answer_start: Field required",
        ),
        (
            '{"context": "x", "question": "y", "answers": {"text": ["x"], "answer_start": []}}',
            "answers: .*array",
        ),
    ],
)
def test_invalid_files_are_identified(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read(tmp_path, text)
    assert "Expected SQuAD v1.1" in str(caught.value)


def test_long_training_passages_are_truncated_around_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = " ".join(f"w{i}" for i in range(50))
    asked = [qa("What?", f"w{i} w{i + 1}", context, str(i)) for i in (0, 8, 9, 30, 48)]
    found = read(tmp_path, squad({"context": context, "qas": asked}))
    short = [truncate_passage(question, 10) for question in found]
    assert [question.passage.tokens[0] for question in short] == ["w0", "w0", "w5", "w26", "w40"]
    for before, after in zip(found, short, strict=True):
        assert len(after.passage) == 10
        [(i, j)] = after.spans
        passage = after.passage
        assert (passage.text[passage.starts[i] : passage.ends[j]],) == before.answers
    assert truncate_passage(found[0], 50) is found[0]
    with pytest.warns(ElmoWarning, match="5 training questions .* more than 10 tokens"):
        assert TASK.training(found, settings("model.longest_passage=10")) == short
    assert not truncate_passage(found[0], 1).spans  # an answer of two tokens

    monkeypatch.setattr(squad_data, "MAX_TOKENS", 31)
    with pytest.warns(ElmoWarning) as caught:
        found = read(tmp_path, squad({"context": context, "qas": asked}))
    text_of_warnings = "\n".join(str(warning.message) for warning in caught)
    assert "questions or passages truncated to 1,000 tokens: 5 (" in text_of_warnings
    assert [len(question.passage) for question in found] == [31] * 5
    assert [len(question.spans) for question in found] == [1, 1, 1, 0, 0]


@pytest.mark.parametrize("name", ["longest_answer", "longest_passage"])
def test_limits_that_exclude_all_examples_are_rejected(name: str) -> None:
    with pytest.raises(ConfigError, match=f"model.{name}: '0'"):
        settings(f"model.{name}=0")


def test_all_input_formats_for_prediction() -> None:
    def ask(form: str, *texts: str) -> list[Question]:
        return list(TASK.parse([Line("x", i, t) for i, t in enumerate(texts, 1)], form))

    given = {"question": "Who?", "context": "Ann sang."}
    whole = squad({"context": "Ann sang.", "qas": [{"question": "Who?", "id": "7"}]})
    tabbed = ask("text", "Who?\tAnn sang.", "", "Who?\tAnn\tsang.")
    lines = ask("jsonl", json.dumps(given), "", json.dumps({**given, "id": 7, "answers": []}))
    halves = ask("squad", whole[:19], whole[19:])
    assert [question.id for question in (*tabbed, *lines, *halves)] == [None, None, None, "7", "7"]
    for question in (*tabbed, *lines, *halves):
        assert question.tokens == ("Who", "?")
        assert question.passage.tokens == ("Ann", "sang", ".")
        assert question.answers == ()
    for form, bad in (
        ("text", "Who?"),
        ("text", "Who?\t "),
        ("text", "\tAnn sang."),
        ("text", " \t "),
        ("jsonl", "7"),
    ):
        with pytest.raises(DataError, match="x, line 2"):
            ask(form, "", bad)


# ------------------------------------------------------------------------------------------ model


def test_best_span_equals_brute_force() -> None:
    draw = torch.Generator().manual_seed(0)
    for length, longest in ((1, 17), (3, 2), (9, 4), (12, 17), (6, 1)):
        mask = torch.arange(length) < torch.tensor([[length], [max(1, length // 2)], [1]])
        start, end = torch.randn(2, 3, length, generator=draw).masked_fill(~mask, -torch.inf)
        found = best_spans(start, end, longest)
        for row, (i, j, score) in enumerate(zip(*(x.tolist() for x in found), strict=True)):
            spans = [
                (start[row, a].item() + end[row, b].item(), a, b)
                for a, b in itertools.product(range(length), repeat=2)
                if a <= b < a + longest
            ]
            assert (pytest.approx(score), i, j) == max(spans)


def test_trilinear_similarity_follows_the_formula() -> None:
    torch.manual_seed(0)
    alike, x, y = Trilinear(5), torch.randn(2, 3, 5), torch.randn(2, 4, 5)
    u, v = alike.x_alone.weight[0], alike.y_alone.weight[0]
    found = alike(x, y)
    for b, i, j in itertools.product(range(2), range(3), range(4)):
        wanted = u @ x[b, i] + v @ y[b, j] + alike.both @ (x[b, i] * y[b, j])
        assert found[b, i, j].item() == pytest.approx(wanted.item(), abs=1e-6)


def test_token_does_not_attend_to_itself() -> None:
    torch.manual_seed(0)
    attention = SelfAttention(4)
    seen: list[torch.Tensor] = []
    attention.merge.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    g = torch.randn(1, 3, 4)
    attention(g, torch.tensor([[True, True, False]]))
    g, b = seen[0][0, :, :4], seen[0][0, :, 4:8]
    alike = attention.alike(g[None], g[None])[0]
    for k, other in ((0, 1), (1, 0)):  # one other token, or none
        weight = torch.sigmoid(alike[k, other] - attention.nothing)
        assert torch.allclose(b[k], weight * g[other], atol=1e-6)


@pytest.fixture(scope="module")
def data(files: Files, elmo: ElmoModel, tmp_path_factory: Any) -> Data[Question]:
    cache = LayerCache(tmp_path_factory.mktemp("cache"))
    config = settings(f"static.source={files.vectors}")
    train, dev, _ = files
    return load_data(TASK, config, train, dev, dev, elmo=elmo, model=str(TINY_MODEL), cache=cache)


def network(data: Data[Question], *changes: str) -> SquadModel:
    assert data.bilm is not None
    torch.manual_seed(0)
    return TASK.network(settings(*changes), data.label_info, data.words, data.bilm)


def test_predictions_do_not_depend_on_the_batch(data: Data[Question], elmo: ElmoModel) -> None:
    model = network(data).eval()
    questions = [
        *data.dev.examples[:6],
        Question("Who?", ("Who",), Passage.of("Ann")),
        Question("Who?", ("Who", "keeps") * 20, Passage.of("Ann keeps the ring. " * 12)),
    ]
    cache = LayerCache(max_bytes=0)
    layers = cache.layers(elmo, collect_texts(questions), torch.device("cpu"))
    found = Dataset(questions, layers, torch.device("cpu"))
    together = model(found.batch(range(len(questions))))
    answers = model.decode(found.batch(range(len(questions))))
    for row, question in enumerate(questions):
        length = len(question.passage)
        alone = model(found.batch([row]))
        assert alone.shape == (2, 1, length)
        assert torch.allclose(alone[:, 0], together[:, row, :length], atol=1e-5)
        assert together[:, row, length:].eq(-torch.inf).all()
        assert torch.allclose(alone.exp().sum(dim=2), torch.ones(2, 1))
        [answer] = model.decode(found.batch([row]))
        assert answer[:3] == answers[row][:3]
        assert answer.score == pytest.approx(answers[row].score, abs=1e-5)


def test_loss_accepts_any_gold_answer(data: Data[Question]) -> None:
    model = network(data).eval()
    batch = data.train.batch(range(4))
    start, end = model(batch)
    parts = []
    for row, question in enumerate(batch.examples):
        [(i, j)] = question.spans
        parts.append(-(start[row, i] + end[row, j]).item())
    assert model.loss(batch).item() == pytest.approx(sum(parts) / 4, rel=1e-5)
    several = [replaced(question, ((0, 1), (2, 5), (2, 3))) for question in batch.examples]
    batch.examples = several
    p_start = start.exp()[:, [0, 2]].sum(dim=1)
    p_end = end.exp()[:, [1, 3, 5]].sum(dim=1)
    wanted = -(p_start.log() + p_end.log()).mean().item()
    assert model.loss(batch).item() == pytest.approx(wanted, rel=1e-5)


def replaced(question: Question, spans: tuple[tuple[int, int], ...]) -> Question:
    return Question(question.text, question.tokens, question.passage, spans=spans)


def test_gradients_reach_the_mixes_but_not_the_biLM(data: Data[Question], elmo: ElmoModel) -> None:
    model = network(data, "static.trainable=true")
    model.loss(data.train.batch(range(12))).backward()  # type: ignore[no-untyped-call]
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name
    assert set(model.elmo.mixes) == {"input", "output"}
    assert all(p.grad is None and not p.requires_grad for p in elmo.bilm.parameters())


def test_model_learns_and_predicts_after_loading(
    files: Files, data: Data[Question], tmp_path: Path
) -> None:
    config = settings("train.epochs=12", "train.patience=0", f"static.source={files.vectors}")
    result = train(TASK, config, data, tmp_path / "run")
    assert result.dev is not None
    assert result.dev["f1"] > 95
    assert result.dev["exact_match"] > 93
    saved = load_saved(tmp_path / "run", TASK, device="cpu")
    examples = TASK.read(files.dev)
    predicted = saved.predict(examples)
    assert TASK.score(examples, predicted) == result.dev
    for question, answer in zip(examples, predicted, strict=True):
        assert question.passage.text[answer.start : answer.end] == answer.text
        assert 0 < answer.score <= 1
    text_of_warnings = [
        json.loads(line) for line in (tmp_path / "run" / "test.jsonl").read_text().splitlines()
    ]
    assert [line["answer"] for line in text_of_warnings] == [answer.text for answer in predicted]
    assert [line["id"] for line in text_of_warnings] == [question.id for question in examples]
    assert [tuple(line["gold"]) for line in text_of_warnings] == [
        question.answers for question in examples
    ]


# --------------------------------------------------------------------------------------- commands


def test_commands_from_training_to_prediction(files: Files, tmp_path: Path) -> None:
    out = tmp_path / "run"
    changes = [part for setting in SMALL for part in ("--set", setting)]
    given = [
        *("task", "squad", "train", files.train, files.dev, "-o", out, "--preset", "quick"),
        *("--model", TINY_MODEL, "--cache-dir", tmp_path / "cache", "--device", "cpu"),
        *(*changes, "--set", "train.share=0.3", "--static", files.vectors, "--json"),
    ]
    done = command(*given, "--set", "train.epochs=1")
    assert done.exit_code == 0, done.stderr
    assert "train: 108 training examples created from 360" in done.stderr
    assert "s_2 = " in done.stderr
    first = json.loads(done.stdout)
    done = command(*given, "--set", "train.epochs=1", "--resume")
    assert "already finished" in done.stderr
    assert json.loads(done.stdout)["dev"] == first["dev"]

    done = command("task", "squad", "evaluate", out, files.dev, "--json", "--device", "cpu")
    found = json.loads(done.stdout)
    assert {key: found[key] for key in ("f1", "exact_match")} == first["dev"]

    text = "Who keeps the ring?\tAnn keeps the ring in\x0bOslo.\n"
    done = command("task", "squad", "predict", out, "-", "--device", "cpu", given=text)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.count("\n") == 1
    asked = json.dumps({"id": "q", "question": "Who?", "context": "\U0001f600 Ann keeps it."})
    done = command(
        *("task", "squad", "predict", out, "-", "--input", "jsonl", "--json", "--device", "cpu"),
        given=asked + "\n",
    )
    answer = json.loads(done.stdout)
    assert set(answer) == {"id", "question", "answer", "start", "end", "score"}
    assert "\U0001f600 Ann keeps it."[answer["start"] : answer["end"]] == answer["answer"]
    done = command(
        *("task", "squad", "predict", out, files.dev, "--input", "squad", "--device", "cpu")
    )
    assert len(done.stdout.splitlines()) == 32

    bad = tmp_path / "bad.json"
    bad.write_text('{"data": [{"paragraphs": [{"context": "x"}]}]}')
    assert "bad.json: data[0].paragraphs[0].qas" in error("task", "squad", "evaluate", out, bad)
    bad.write_text("\n")
    assert "contains no examples" in error("task", "squad", "evaluate", out, bad)


def test_interrupted_run_resumes_with_identical_results(files: Files, tmp_path: Path) -> None:
    config = settings(
        *("elmo.place=none", f"static.source={files.vectors}", "model.dropout=0.2"),
        *("train.epochs=2", "train.share=0.2", "train.batch_size=18", "train.checkpoint_every=1"),
    )
    plain = load_data(TASK, config, files.train, files.dev)
    whole = train(TASK, config, plain, tmp_path / "whole")
    assert whole.steps == 8
    assert whole.mixes == {}
    with pytest.raises(KeyboardInterrupt):
        train(TASK, config, plain, tmp_path / "cut", progress=_Stop(after=6))
    assert train(TASK, config, plain, tmp_path / "cut", resume=True).dev == whole.dev
    found = [(tmp_path / name / "weights.safetensors").read_bytes() for name in ("whole", "cut")]
    assert found[0] == found[1]


class _Stop:
    """Ends a run like a kill, after some steps."""

    def __init__(self, *, after: int) -> None:
        self._left = after

    def __call__(self, *_: object) -> None:
        self._left -= 1
        if not self._left:
            raise KeyboardInterrupt
