"""Semantic roles from file to file: supported formats, learning, rejected input."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import settings as run
from hypothesis import strategies as st

from elmokit.embed.layer_cache import LayerCache
from elmokit.embed.model import ElmoModel
from elmokit.errors import DataError, ElmoWarning
from elmokit.settings import with_settings
from elmokit.tasks import checkpoint
from elmokit.tasks.batches import Dataset
from elmokit.tasks.config import TaskConfig
from elmokit.tasks.data import Data, load_data, select_scored_examples
from elmokit.tasks.loop import train
from elmokit.tasks.metrics.spans import Span, spans_to_tags
from elmokit.tasks.nn.crf import viterbi
from elmokit.tasks.propbank import Frame, Sentence
from elmokit.tasks.srl import Srl, SrlModel
from elmokit.text.lines import Line
from tests.conftest import TINY_MODEL
from tests.tasks.task_checks import check_gradients, learn, with_both, write_examples
from tests.tasks.test_commands import elmo as command

TASK = Srl()
PEOPLE = ["Ann", "Bob", "Carla", "Dave"]
VERBS = ["saw", "met", "left"]
SMALL = [
    "static.source=none",
    "static.dim=16",
    "model.mark_dim=8",
    "model.hidden=24",
    "model.layers=2",
    "train.batch_size=16",
    "train.optimizer=adam",
    "train.learning_rate=0.01",
    "train.checkpoint_seconds=0",
]


def settings(*changes: str) -> TaskConfig:
    return with_settings(TASK.presets["paper"], [*SMALL, *changes])


def sentence(draw: random.Random) -> dict[str, Any]:
    """Say who did what to whom, sometimes twice, with a time, or as a noun."""
    words: list[str] = []
    pos: list[str] = []
    frames = []
    for part in range(draw.randint(1, 2)):
        if part:
            words.append("and")
            pos.append("CC")
        first = len(words)
        who, verb, whom = draw.choice(PEOPLE), draw.choice(VERBS), draw.choice(PEOPLE)
        words += ["the", who, verb, "the", whom]
        pos += ["DT", "NN", "VBD", "DT", "NN"]
        args = [[first, first + 1, "ARG0"], [first + 2, first + 2, "V"]]
        args.append([first + 3, first + 4, "ARG1"])
        if draw.random() < 0.5:
            words.append("today")
            pos.append("RB")
            args.append([len(words) - 1, len(words) - 1, "ARGM-TMP"])
        frames.append({"pred": first + 2, "args": args})
    if draw.random() < 0.3:
        words += ["in", "anger"]
        pos += ["IN", "NN"]
        frames.append({"pred": len(words) - 1, "args": []})
    return {"words": words, "pos": pos, "frames": frames}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    def example(draw: random.Random) -> str:
        return json.dumps(sentence(draw))

    folder = tmp_path_factory.mktemp("srl")
    return write_examples(folder, example, ending="jsonl", train=60, dev=20)


def read(tmp_path: Path, text: str, name: str = "data.txt") -> list[Sentence]:
    path = tmp_path / name
    path.write_text(text)
    return TASK.read(str(path))


# ------------------------------------------------------------------------------------------- data

CATS = ("The", "cat", "(", "it", ")", "chased", "mice")
FRAME = Frame(5, (Span(0, 5, "A0"), Span(5, 6, "V"), Span(6, 7, "A1")))
CONLL2005 = """
The    DT  -      (A0*
cat    NN  -         *
-LRB-  -   -         *
it     PR  -         *
-RRB-  -   -         *)
chased VBD chase   (V*)
mice   NN  -      (A1*)

Yes    UH  -
"""


def test_columns_of_conll2005(tmp_path: Path) -> None:
    found = read(tmp_path, CONLL2005)
    assert found == [Sentence.of(CATS, [FRAME]), Sentence.of(("Yes",), [])]
    assert found[0].tags == ["B-A0", *["I-A0"] * 4, "B-V", "B-A1"]
    words_and_props = "\n".join(line[:7] + line[11:] for line in CONLL2005.split("\n"))
    assert read(tmp_path, words_and_props) == found  # any columns may precede the targets
    older = CONLL2005.replace("*)\nchased", "*A0)\nchased").replace("(A1*)", "(A1*A1)")
    assert read(tmp_path, older) == found


def test_columns_of_conll2012(tmp_path: Path) -> None:
    cells = [("The", "DT", "(ARG0*"), ("cat", "NN", "*)"), ("runs", "VBZ", "(V*)")]
    rows = [
        f"bc/x 0 {i} {word} {pos} * {'run' if i == 2 else '-'} - - S1 * {role} {nominal} -\n"
        for i, ((word, pos, role), nominal) in enumerate(
            zip(cells, ["*", "(V*)", "(ARG1*)"], strict=True)
        )
    ]
    text = "#begin document (bc/x); part 000\n" + "".join(rows) + "\n"
    text += "bc/x 0 0 Yes UH * - - - S1 * (4)\n\n#end document\n"
    frames = [
        Frame(2, (Span(0, 2, "ARG0"), Span(2, 3, "V"))),
        Frame(1, (Span(1, 2, "V"), Span(2, 3, "ARG1")), verb=False),
    ]
    expected = [Sentence.of(("The", "cat", "runs"), frames), Sentence.of(("Yes",), [])]
    assert read(tmp_path, text) == expected
    bare = "\n".join(line for line in text.split("\n") if not line.startswith("#"))
    assert read(tmp_path, bare, "x.v4_gold_conll") == expected


def test_json_lines(tmp_path: Path) -> None:
    frame = {"pred": 1, "args": [[0, 0, "ARG0"], [1, 2, "V"], [4, 4, "C-V"], [3, 3, "ARG1"]]}
    given = {"words": ["He", "picked", "x", "it", "up"], "frames": [frame, {"pred": 3, "args": []}]}
    [found] = read(tmp_path, json.dumps(given) + "\n\n")
    assert found.predicates == (1, 3)
    assert [f.verb for f in found.frames] == [True, True]  # nothing else is annotated
    assert found.tags == ["B-ARG0", "B-V", "I-V", "B-ARG1", "B-C-V"]
    assert found.frames[1].arguments == (Span(3, 4, "V"),)  # the predicate is always included
    given["pos"] = ["PRP", "VBD", "X", "NN", "RP"]
    [found] = read(tmp_path, json.dumps(given))
    assert [f.verb for f in found.frames] == [True, False]


def test_overlapping_arguments_are_counted_and_ignored(tmp_path: Path) -> None:
    args = [[0, 3, "ARG0"], [1, 2, "ARG1"], [3, 5, "ARG2"], [2, 2, "V"], [4, 5, "ARGM-LOC"]]
    line = json.dumps({"words": list("abcdef"), "frames": [{"pred": 2, "args": args}]})
    with pytest.warns(ElmoWarning, match="data.txt: found 3 arguments overlapping"):
        [found] = read(tmp_path, line)
    assert len(found.frames[0].arguments) == 5
    assert found.tags == ["O", "O", "B-V", "B-ARG2", "I-ARG2", "I-ARG2"]
    scores = TASK.score([found], [[Frame(2, found.frames[0].non_overlapping)]])
    assert (scores["correct"], scores["gold"]) == (1, 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"words": ["a"]}', r'data.txt, line 1: missing "words" or "frames"'),
        ('{"x": 1}', r'line 1: missing "words" or "frames"'),
        ('{"words": "a", "frames": []}', "line 1: words: .* array"),
        ('\n{"words": []', "line 2: Invalid JSON"),
        ("{\n", "line 1: Invalid JSON"),
        ("{'words': []}", "line 1: Invalid JSON"),
        ('{"words": []}\n[]', 'line 1: missing "words" or "frames"'),
        ('{"words": [], "frames": []}\n[]', "line 2: .* object"),
        ('{"words": ["a"], "frames": [{"pred": 1, "args": []}]}', "predicate 1 is out of range"),
        ('{"words": [], "frames": [{"pred": 0, "args": []}]}', "in a sentence of 0 words"),
        (
            '{"words": ["a"], "frames": [{"pred": "0", "args": []}]}',
            r"pred: .*integer",
        ),
        ('{"words": ["a"], "frames": [0]}', r"frames\[0\]: .*object"),
        ('{"words": ["a"], "frames": [{"pred": 0}]}', r"frames\[0\]\.args: Field required"),
        ('{"words": ["a"], "frames": [{"args": []}]}', r"frames\[0\]\.pred: Field required"),
        ('{"words": ["a"], "frames": [{"pred": 0, "args": 3}]}', r"frames\[0\]\.args: .*array"),
        (
            '{"words": ["a"], "frames": [{"pred": 0, "args": [[0, 0, "A("]]}]}',
            r"frames\[0\]\.args\[0\]\.label",
        ),
        (
            '{"words": ["a"], "frames": [{"predicate": 0, "roles": [{"start": 0, "label": "A"}]}]}',
            r"frames\[0\]\.roles\[0\]\.end: Field required",
        ),
        (
            '{"words": [], "frames": []}\n'
            '{"words": ["a"], "frames": [{"pred": 0, "args": ['
            '{"start": 0, "end": 2, "label": "A"}]}]}',
            "line 2: invalid argument .* in a sentence of 1 word\\b",
        ),
        ('{"words": ["a\\tb"], "frames": []}', r'line 1: .*invalid token "a\\tb"'),
        ('{"words": ["a", " "], "frames": []}', 'line 1: .*invalid token " "'),
        (r'{"words": ["\ud800"], "frames": []}', r"line 1: Invalid JSON: .*hex escape"),
        ('{"words": ["a"], "frames": [{"pred": 0, "args": [[0, 1, "A"]]}]}', "invalid argument"),
        ('{"words": ["a"], "frames": [{"pred": 0, "args": [[0, 0]]}]}', r"args\[0\]"),
        ('{"words": ["a"], "pos": [], "frames": []}', '"pos" must be a list with one value'),
        ("a - *\nb\n", "line 2: found 1 column, expected 3"),
        (
            "a x (A0*)\n\nb - *\n",
            "line 3: found 0 targets in column 2",
        ),
        ("see (V*)\n- *\n", "no words before the column .*join them: paste"),
        ("a see (V*\nb - *\n", r"line 1: argument '\(V\*' is not closed"),
        ("a see (V*)\nb - *)\n", r"line 2: unmatched '\)' in column 3"),
        ("a see (V*)\nb - A0\n", "line 2: found 'A0' in column 3"),
        ("#begin document\nx 0 0 a NN\n", "line 2: found 5 columns, expected 12"),
        ("#begin document\nx 0 0 a NN * - - - S * (A0*) -\n", "column 12 has no"),
    ],
)
def test_invalid_data_is_identified(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path, text)


@pytest.mark.parametrize("token", ["#", "#tag", "#a=b", "{", "{x"])
def test_first_token_that_looks_like_another_format(tmp_path: Path, token: str) -> None:
    wanted = Sentence.of((token, "ran"), [Frame(1, (Span(0, 1, "A0"), Span(1, 2, "V")))])
    assert read(tmp_path, f"{token}\t-\t(A0*)\nran\tran\t(V*)\n") == [wanted]


def test_comments_in_conll2012_are_skipped(tmp_path: Path) -> None:
    text = "# text = a b c d e f g h i j k l\n#sent_id=3\n#begin document (x); part 000\n"
    for i, (word, cell) in enumerate([("He", "(A0*)"), ("ran", "(V*)")]):
        text += f"x 0 {i} {word} NN * - - - S * {cell} -\n"
    found = read(tmp_path, text + "# b\n#end document\n")
    frame = Frame(1, (Span(0, 1, "A0"), Span(1, 2, "V")), verb=False)
    assert found == [Sentence.of(("He", "ran"), [frame])]


def test_columns_are_in_the_order_of_the_tokens(tmp_path: Path) -> None:
    tokens = ("He", "-", "she", "#", "New\u00a0York")
    frames = [
        Frame(4, (Span(2, 3, "A0"), Span(4, 5, "V"))),
        Frame(1, (Span(0, 1, "A0"), Span(1, 2, "V"), Span(2, 5, "A1"))),
    ]
    shown = TASK.format_prediction(Sentence(tokens, predicates=(4, 1)), frames, as_json=False)
    assert read(tmp_path, shown) == [Sentence.of((*tokens[:4], "New_York"), frames[::-1])]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ('"predicates": [1, 0, 1]', r"x, line 4: duplicate predicates in \[1, 0, 1\]"),
        ('"frames": [{"pred": 0, "args": []}, {"predicate": 0, "roles": []}]', "duplicate"),
        ('"frames": [{"lemma": "see"}]', r"frames\[0\]"),
    ],
)
def test_invalid_predicates_are_rejected(given: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(TASK.parse([Line("x", 4, f'{{"tokens": ["a", "b"], {given}}}')], "jsonl"))


@pytest.mark.parametrize(
    "bad", ['["a\\nb"]', '["a", ""]', '["\\u00a0"]', r'["a\tb"]', r'["\udfff"]', r'["x\ud83d"]']
)
def test_tokens_that_columns_cannot_represent_are_rejected(bad: str) -> None:
    with pytest.raises(DataError, match=r"x, line 4: .*(token|JSON)"):
        list(TASK.parse([Line("x", 4, f'{{"tokens": {bad}}}')], "jsonl"))


def test_prediction_reads_text_and_json() -> None:
    raw = [Line("x", 1, "Ann saw Bob. Dave left."), Line("x", 2, "")]
    found = list(TASK.parse(raw, "text"))
    assert [s.tokens for s in found] == [("Ann", "saw", "Bob", "."), ("Dave", "left", ".")]
    assert found[1].offsets == ((13, 17), (18, 22), (22, 23))
    assert [s.predicates for s in found] == [None, None]
    given = [
        '{"tokens": ["Ann", "left"], "predicates": [1]}',
        '{"words": ["Ann", "left"], "frames": [{"pred": 1, "args": []}]}',
        '{"words": ["Ann", "left"]}',
        '{"text": "Ann left"}',
        "",
    ]
    lines = [Line("x", i + 1, text) for i, text in enumerate(given)]
    found = list(TASK.parse(lines, "jsonl"))
    assert [s.predicates for s in found] == [(1,), (1,), None, None]
    assert all(s.tokens == ("Ann", "left") and not s.frames for s in found)
    for bad in (
        "[]",
        '{"tokens": "Ann"}',
        '{"tokens": ["Ann"], "predicates": [1]}',
        '{"tokens": ["Ann"], "predicates": 0}',
        '{"tokens": ["Ann"], "frames": [3]}',
        '{"text": "Ann left", "predicates": [1]}',
    ):
        with pytest.raises(DataError, match="x, line 4"):
            list(TASK.parse([Line("x", 4, bad)], "jsonl"))


def test_very_long_sentences_of_raw_text_are_split() -> None:
    pieces = list(TASK.parse([Line("x", 7, "word " * 515)], "text"))
    assert [len(s.tokens) for s in pieces] == [512, 3]
    assert pieces[1].offsets == tuple((5 * i, 5 * i + 4) for i in range(512, 515))


def test_training_data_without_arguments_is_rejected() -> None:
    with pytest.raises(DataError):
        TASK.collect_labels([Sentence.of(("a",), [Frame.of(0, [], verb=True)])])


@pytest.mark.filterwarnings("ignore:.*non-verbal predicate")
@pytest.mark.parametrize(("predicates", "n", "roles"), [("all", 2, "A7, A8"), ("verbs", 1, "A7")])
def test_unknown_roles_are_counted(predicates: str, n: int, roles: str) -> None:
    label_info = TASK.collect_labels(
        [Sentence.of(("a", "b"), [Frame.of(0, [Span(1, 2, "A0")], verb=True)])]
    )
    verb = Frame.of(0, [Span(1, 2, "A7")], verb=True)
    noun = Frame.of(1, [Span(0, 1, "A8")], verb=False)
    config = settings(f"model.predicates={predicates}")
    with pytest.warns(ElmoWarning, match=rf"{n} gold labels? absent from .*: {roles}\."):
        select_scored_examples(TASK, [Sentence.of(("a", "b"), [verb, noun])], config, label_info)


# ------------------------------------------------------------------------------------------ model


@pytest.mark.parametrize("place", [pytest.param("none", marks=pytest.mark.slow), "both"])
def test_tagger_learns_and_predicts_after_loading(
    files: tuple[str, str], elmo: ElmoModel, cache: LayerCache, tmp_path: Path, place: str
) -> None:
    config = settings(f"elmo.place={place}", "train.epochs=8", "train.patience=0")
    run = learn(TASK, config, files, elmo, cache, tmp_path / "run")
    saved, examples, predicted, records = run.saved, run.examples, run.predicted, run.records
    assert run.dev["f1"] > 98
    assert [saved.predict([e])[0] for e in examples] == predicted
    # Its output can be read again, both as gold data and as input for prediction.
    path = tmp_path / "own.jsonl"
    shown = [
        TASK.format_prediction(e, p, as_json=True) for e, p in zip(examples, predicted, strict=True)
    ]
    path.write_text("".join(line + "\n" for line in shown))
    own = TASK.read(str(path))
    assert [[f.arguments for f in s.frames] for s in own] == [
        [f.arguments for f in frames] for frames in predicted
    ]
    assert TASK.score(own, saved.predict(own))["f1"] == 100
    asked = list(TASK.parse([Line("x", i, line) for i, line in enumerate(shown, 1)], "jsonl"))
    assert saved.predict(asked) == predicted
    assert [len(line["frames"]) for line in records] == [len(e.frames or ()) for e in examples]
    assert records[0]["frames"][0]["gold"][0]["label"] == "ARG0"
    # Without given predicates, it finds them.
    bare = [Sentence(e.tokens) for e in examples]
    assert saved.predict(bare) == predicted
    assert saved.predict([Sentence(())]) == [[]]


def data_of(files: tuple[str, str], elmo: ElmoModel, cache: LayerCache, *changes: str) -> Any:
    return with_both(TASK, settings("elmo.place=both", *changes), files, elmo, cache)


def test_gradients_reach_the_mixes_but_not_the_biLM(
    files: tuple[str, str], elmo: ElmoModel, cache: LayerCache
) -> None:
    data, model = data_of(files, elmo, cache)
    check_gradients(model.loss(data.train.batch(list(range(12)))), model, elmo)


def test_predicate_loss_does_not_train_the_tagger(
    files: tuple[str, str], elmo: ElmoModel, cache: LayerCache
) -> None:
    data, model = data_of(files, elmo, cache)
    found = model(data.train.batch(list(range(12))))[1]
    found.sum().backward()
    taught = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert taught == {f"find.{name}" for name, _ in model.find.named_parameters()}


def test_predictions_do_not_depend_on_the_batch_or_empty_sentences(
    files: tuple[str, str], elmo: ElmoModel, cache: LayerCache
) -> None:
    data, model = data_of(files, elmo, cache, "model.layers=3")
    model.eval()
    together, found, tokens = model(data.train.batch(list(range(10))))
    for row in range(10):
        alone, found_alone, _ = model(data.train.batch([row]))
        length = tokens.lengths[row]
        assert torch.allclose(alone[0], together[row, :length], atol=1e-5)
        assert torch.allclose(found_alone[0], found[row, :length], atol=1e-5)
    sentences = [Sentence(()), *data.dev.examples[:3], Sentence(("Ann",), predicates=(0,))]
    layers = cache.layers(elmo, [s.tokens for s in sentences], torch.device("cpu"))
    mixed = Dataset(sentences, layers, torch.device("cpu"))
    assert model.decode(mixed.batch([0])) == [[]]
    apart = [model.decode(mixed.batch([row]))[0] for row in range(len(sentences))]
    assert model.decode(mixed.batch(range(len(sentences)))) == apart


def test_many_predicates_are_tagged_in_batches(
    files: tuple[str, str], elmo: ElmoModel, cache: LayerCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, model = data_of(files, elmo, cache)
    batch = data.dev.batch(range(20))
    model.eval()
    expected = model.decode(batch)
    monkeypatch.setattr("elmokit.tasks.srl._TOKENS_PER_CHUNK", 50)
    assert model.decode(batch) == expected


@pytest.fixture(scope="module")
def plain(files: tuple[str, str]) -> tuple[Data[Sentence], SrlModel]:
    config = settings("elmo.place=none", "model.layers=1", "model.hidden=4")
    data = load_data(TASK, config, *files)
    return data, TASK.network(config, data.label_info, data.words, None).eval()


@given(st.integers(0, 2**31), st.floats(0.1, 1e4), st.lists(st.integers(1, 9), min_size=1))
@run(max_examples=40, deadline=None)
def test_decoded_frames_satisfy_the_constraints(
    plain: tuple[Data[Sentence], SrlModel], seed: int, scale: float, lengths: list[int]
) -> None:
    _, model = plain
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():  # regardless of the emissions
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw) * scale)
    sentences = [Sentence(("Ann",) * n, predicates=(n // 2, 0)) for n in lengths]
    dataset = Dataset(sentences, None, torch.device("cpu"))
    rows: list[Any] = []

    def spied(emissions: Any, mask: Any, *scores: Any) -> Any:
        best = viterbi(emissions, mask, *scores)
        rows.extend(row[here].tolist() for row, here in zip(best, mask, strict=True))
        return best

    with patch("elmokit.tasks.srl.viterbi", spied):
        decoded = model.decode(dataset.batch(range(len(lengths))))
    found = [frame for frames in decoded for frame in frames]
    assert [frame.predicate for frame in found] == [p for n in lengths for p in (n // 2, 0)]
    for row, frame in zip(rows, found, strict=True):
        tags = [model.labels[number] for number in row]
        assert tags[frame.predicate] in ("B-V", "I-V")
        for before, after in pairwise(["O", *tags]):
            assert not after.startswith("I-") or before[1:] == after[1:]
        assert spans_to_tags(frame.arguments, len(tags)) == tags


def test_only_verbs_are_predicates_on_request(files: tuple[str, str]) -> None:
    config = settings("elmo.place=none", "model.predicates=verbs")
    everything = load_data(TASK, settings("elmo.place=none"), *files)
    with pytest.warns(ElmoWarning, match="non-verbal predicate"):
        data = load_data(TASK, config, *files)
    frames = [frame for s in data.train.examples for frame in s.frames]
    assert len(frames) == len(data.train.examples) < len(everything.train.examples)
    assert all(frame.verb for frame in frames)
    model = TASK.network(config, data.label_info, data.words, None).eval()
    found = model.decode(data.dev.batch(range(len(data.dev))))
    scores = TASK.score(data.dev.examples, found)
    nouns = sum(not f.verb for s in everything.dev.examples for f in s.frames)
    assert nouns > 0
    assert scores["predicates"] == sum(len(s.frames) for s in everything.dev.examples) - nouns
    shown = [
        TASK.format_prediction(s, f, as_json=True)
        for s, f in zip(data.dev.examples, found, strict=True)
    ]
    assert sum(len(json.loads(line)["frames"]) for line in shown) == scores["predicates"]


def test_interrupted_run_resumes_with_identical_results(
    files: tuple[str, str], tmp_path: Path
) -> None:
    config = settings("elmo.place=none", "train.epochs=2", "train.checkpoint_every=1")
    data = load_data(TASK, config, *files)
    whole = train(TASK, config, data, tmp_path / "whole")

    class Killed(BaseException):
        pass

    def killed(what: str, done: int, _: int) -> None:
        if (what, done) == ("epoch 2", 3):
            raise Killed

    with pytest.raises(Killed):
        train(TASK, config, data, tmp_path / "parts", progress=killed)
    assert checkpoint.newest(tmp_path / "parts") is not None
    parts = train(TASK, config, data, tmp_path / "parts", resume=True)
    assert parts.dev == whole.dev
    weights = [(tmp_path / run / "weights.safetensors").read_bytes() for run in ("whole", "parts")]
    assert weights[0] == weights[1]


# --------------------------------------------------------------------------------------- commands


def test_srl_from_training_to_prediction(files: tuple[str, str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    changes = [part for setting in SMALL for part in ("--set", setting)]
    done = command(
        *("task", "srl", "train", *files, files[1], "-o", out, "--model", TINY_MODEL, "--json"),
        *("--cache-dir", tmp_path / "cache", "--device", "cpu", *changes),
        *("--set", "train.epochs=8"),
    )
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["test"]["f1"] > 98
    done = command("task", "srl", "evaluate", out, files[1], "--device", "cpu")
    assert f"f1 {result['test']['f1']:.2f}" in done.stdout
    assert "role ARGM-TMP: f1" in done.stdout

    text = "the Ann saw the Bob today\n"
    done = command("task", "srl", "predict", out, "-", "--device", "cpu", given=text)
    assert done.stdout == (
        "the\t-\t(ARG0*\nAnn\t-\t*)\nsaw\tsaw\t(V*)\n"
        "the\t-\t(ARG1*\nBob\t-\t*)\ntoday\t-\t(ARGM-TMP*)\n\n"
    )
    done = command("task", "srl", "predict", out, "-", "--json", "--device", "cpu", given=text)
    [frame] = json.loads(done.stdout)["frames"]
    assert (frame["predicate"], frame["word"]) == (2, "saw")
    role = {"label": "ARG1", "start": 3, "end": 5, "text": "the Bob", "characters": [12, 19]}
    assert role in frame["roles"]
    asked = '{"tokens": ["the", "Ann", "saw", "the", "Bob"], "predicates": []}\n'
    done = command(
        *("task", "srl", "predict", out, "-", "--input", "jsonl", "--json", "--device", "cpu"),
        given=asked,
    )
    assert json.loads(done.stdout)["frames"] == []
