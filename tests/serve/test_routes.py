"""The other routes, compared with the corresponding library functions."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner

from elmokit.cli.main import app
from elmokit.embed.model import ElmoModel
from elmokit.embed.vectors import normalize
from elmokit.errors import ConfigError
from elmokit.serve.server import Server
from elmokit.serve.settings import Settings
from tests.serve.conftest import ALONE, client, error, running
from tests.tasks.custom_task import custom_task

PAIR = ["I read the book yesterday.", "Can you read the letter now?"]
BANK = ["The [dog] ran .", "A [dog] read .", "My [dog] and my cat .", "dog !"]


def post(http: httpx.Client, path: str, **body: Any) -> dict[str, Any]:
    answer = http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    values: dict[str, Any] = answer.json()
    return values


def rejected(http: httpx.Client, path: str, status: int = 422, **body: Any) -> str:
    answer = http.post(path, json=body)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["status"] == status
    return str(error["message"])


# ------------------------------------------------------------------------------------- similarity


def test_cosines_of_all_layers(http: httpx.Client, tiny: ElmoModel) -> None:
    s = [0.2, 0.3, 0.5]
    found = post(
        http,
        "/v1/similarity",
        sentences=PAIR,
        layer=["all", "average", "mix"],
        mix=s,
        static=True,
        gram=True,
    )
    names = [space["name"] for space in found["layers"]]
    assert names == ["layer 0", "layer 1", "layer 2", "average", "mix", "static"]
    assert found["starts"] == [0, 6]
    first, second = tiny.embed(PAIR)
    layers = np.concatenate([first.layers, second.layers], axis=1)
    matrix = {space["name"]: space["matrix"] for space in found["layers"]}
    for j in range(3):
        expected = normalize(layers[j]) @ normalize(layers[j]).T
        assert np.abs(np.array(matrix[f"layer {j}"]) - expected).max() < 1e-5
    mixed = normalize(np.tensordot(np.array(s, np.float32), layers, axes=1))
    assert np.abs(np.array(matrix["mix"]) - mixed @ mixed.T).max() < 1e-5
    # The cosine of a mix, computed from the products of the layers as on the page.
    gram = np.array(found["gram"])
    dots = np.einsum("i,j,ijab->ab", s, s, gram)
    norms = np.sqrt(np.diag(dots))
    assert np.abs(dots / np.outer(norms, norms) - mixed @ mixed.T).max() < 1e-3
    # "read" has the same static vector in both sentences; "I" has none.
    assert matrix["static"][1][8] == 1.0
    assert matrix["static"][0][1] is None


def test_limits_of_the_similarity_route(http: httpx.Client) -> None:
    message = rejected(http, "/v1/similarity", sentences=[["a"] * 200, ["b"] * 57])
    assert "257 tokens; the limit matrix_tokens is 256" in message
    assert "gamma" in rejected(http, "/v1/similarity", sentences=PAIR, gamma=2.0)


# ---------------------------------------------------------------------------------------- project


def test_uses_of_a_word_are_projected_to_planes(http: httpx.Client) -> None:
    senses = ["pet", "person", "pet", None]
    found = post(http, "/v1/project", sentences=BANK, word="Dog", senses=senses, clusters=2)
    assert found["sentences_without_word"] == []
    assert [(p["sentence"], p["position"], p["sense"]) for p in found["points"]] == [
        (0, 1, "pet"),
        (1, 1, "person"),
        (2, 1, "pet"),
        (3, 0, None),
    ]
    planes = {space["name"]: space for space in found["layers"]}
    assert list(planes) == ["layer 0", "layer 1", "layer 2", "average"]
    # Layer 0 has no context: all uses are at the same point.
    assert np.abs(np.array(planes["layer 0"]["coordinates"])).max() == 0
    assert planes["layer 0"]["mean_cosine"] == 1.0
    assert np.abs(np.array(planes["layer 2"]["coordinates"])).max() > 0.01
    assert set(planes["layer 2"]["clusters"]) == {0, 1}
    assert planes["layer 2"]["sense_purity"] >= 2 / 3
    assert found["static"][0]["word"] == "book"


def test_sentences_without_the_word_are_identified(http: httpx.Client) -> None:
    found = post(http, "/v1/project", sentences=["A dog .", "A cat .", "dog dog"], word="dog")
    assert found["sentences_without_word"] == [1]
    assert len(found["points"]) == 3
    assert "token 'dog' does not" in rejected(http, "/v1/project", sentences=["a"], word="dog")
    assert "Sentence 0: Expected exactly one bracketed word" in rejected(
        http, "/v1/project", sentences=["a dog"]
    )
    assert "set `word`" in rejected(http, "/v1/project", sentences=[["a", "dog"]])
    assert "2 senses for 1" in rejected(
        http, "/v1/project", sentences=["a [dog]"], senses=["x", "y"]
    )


# -------------------------------------------------------------------------------------- neighbors


def test_nearest_tokens_in_the_index(http: httpx.Client) -> None:
    queries = ["I [read] the book .", {"sentence": "A dog read .", "word": "dog"}, 1]
    found = post(http, "/v1/neighbors", queries=queries, k=3, words="same", static=True)
    assert found["model"] == "tiny"
    assert found["index"]["inputs"] == ["text.txt"]  # its name, not its path
    first, second, third = found["results"]
    assert list(first["neighbors"]) == ["layer 0", "layer 1", "layer 2", "average"]
    best = first["neighbors"]["layer 2"][0]
    assert best["word"] == "read"
    assert best["score"] == pytest.approx(1, abs=1e-3)
    assert best["where"] == "text.txt:1"
    assert {hit["word"] for hit in second["neighbors"]["layer 1"]} == {"dog"}
    assert third["query"]["token"] == 1
    assert first["static"][0]["word"] == "book"


def test_invalid_queries_are_explained(http: httpx.Client) -> None:
    def message(query: Any, **more: Any) -> str:
        return rejected(http, "/v1/neighbors", queries=[query], **more)

    assert "Expected exactly one bracketed word" in message("I read it")
    assert "token ID 10000000" in message(10_000_000)
    assert "token 'dog' does not" in message({"sentence": "I read", "word": "dog"})
    assert "position 7" in message({"sentence": ["I", "read"], "position": 7})
    assert "Invalid layer '9'" in message("I [read]", layer=9)


# --------------------------------------------------------------------------------- language models


def test_removed_index_is_an_internal_error(served: Settings, tmp_path: Path) -> None:
    """The path of the index is not revealed."""
    assert served.index is not None
    index = shutil.copytree(served.index, tmp_path / "index")
    with running(replace(served, index=index)) as server, client(server) as http:
        shutil.rmtree(index)
        for query in (0, "I [read] the book ."):
            found = http.post("/v1/neighbors", json={"queries": [query]})
            assert str(tmp_path).strip("/") not in error(found, 500)["message"]


def test_scores_equal_those_of_the_library(http: httpx.Client, full: ElmoModel) -> None:
    found = post(http, "/v1/score", sentences=["I read the zebra .", ""], model="full")
    expected = full.score(["I read the zebra .", ""])
    for row, one in zip(found["sentences"], expected, strict=True):
        assert row["tokens"] == list(one.tokens)
        assert row["forward"] == pytest.approx(one.forward, abs=1e-5)
        assert row["backward"] == pytest.approx(one.backward, abs=1e-5)
        assert row["perplexity"] == pytest.approx(one.perplexity, rel=1e-5)
        assert row["unknown"] == list(one.unknown)
    assert found["sentences"][0]["unknown"][3]
    assert "no LM head" in rejected(http, "/v1/score", sentences=["a"])


@pytest.mark.parametrize("state", ["reset", "warm"])
def test_substitutes_of_all_positions_equal_those_of_each(
    http: httpx.Client, full: ElmoModel, state: str
) -> None:
    tokens = ["I", "read", "<S>", "book", "."]
    body = {"sentence": tokens, "model": "full", "k": 4, "state": state}
    found = post(http, "/v1/substitutes", **body)
    assert [place["position"] for place in found["positions"]] == [0, 1, 2, 3, 4]
    for place in found["positions"]:
        expected = full.substitutes(tokens, 4, position=place["position"], state=state)
        for name in ("forward", "backward", "combined"):
            listed = getattr(expected, name)
            assert [c["word"] for c in place[name]] == [c.word for c in listed]
            probabilities = [c["probability"] for c in place[name]]
            assert probabilities == pytest.approx([c.probability for c in listed], rel=1e-4)


def test_substitutes_of_one_position(http: httpx.Client) -> None:
    found = post(http, "/v1/substitutes", sentence="I [read] it .", model="full")
    assert [(p["position"], p["word"]) for p in found["positions"]] == [(1, "read")]
    assert found["tokens"] == ["I", "read", "it", "."]
    one = post(http, "/v1/substitutes", sentence="I read it .", positions=[1], model="full")
    assert one["positions"] == found["positions"]
    message = rejected(http, "/v1/substitutes", sentence="I read", positions=[2], model="full")
    assert "Invalid position 2: the sentence has 2 tokens" in message
    message = rejected(http, "/v1/substitutes", sentence=["a"] * 129, model="full")
    assert "limit positions is 128" in message
    assert "No positions" in rejected(http, "/v1/substitutes", sentence="", model="full")


# ------------------------------------------------------------------------------------------ tasks


def test_tasks_are_listed_with_their_layer_weights(http: httpx.Client) -> None:
    [card] = http.get("/v1/tasks").json()["tasks"]
    assert (card["name"], card["task"], card["metric"]) == ("people", "ner", "f1")
    assert set(card["mixes"]) == {"input", "output"}
    for mix in card["mixes"].values():
        assert sum(mix["s"]) == pytest.approx(1, abs=1e-3)
        assert mix["gamma"] > 0
    assert card["scores"]["dev"]["f1"] >= 0
    assert card["labels"] == {"types": ["LOC", "PER"]}


def test_predictions_equal_those_of_the_task(server: Server, http: httpx.Client) -> None:
    examples = ["Ann met Bob in Oslo. Dave\nleft.", {"tokens": ["Carla", "saw", "Bob"]}, ""]
    found = post(http, "/v1/tasks/people", examples=examples)
    assert [len(group) for group in found["results"]] == [3, 1, 0]
    saved = server.service.resources.tasks["people"]
    from elmokit.tasks.ner import Sentence

    [tags] = saved.predict([Sentence(("Carla", "saw", "Bob"))])
    assert found["results"][1][0]["tags"] == tags
    assert found["results"][0][0]["tokens"][:2] == ["Ann", "met"]
    # The task uses the served model instead of loading a second copy.
    assert saved.elmo is server.service.resources.models["tiny"]


def test_invalid_examples_are_rejected(http: httpx.Client) -> None:
    assert "example 1" in rejected(http, "/v1/tasks/people", examples=["a", {"words": []}])
    message = rejected(http, "/v1/tasks/nope", 404, examples=["a"])
    assert "Unknown task 'nope'" in message
    assert "limit max_tokens is 600" in rejected(
        http, "/v1/tasks/people", examples=[{"tokens": ["a"] * 601}]
    )


def test_custom_task_is_served_with_its_file(tmp_path: Path) -> None:
    task, *arguments = custom_task(tmp_path)
    done = CliRunner().invoke(app, ["task", str(task), *arguments])
    assert done.exit_code == 0, done.output
    settings = replace(ALONE, tasks={"mine": tmp_path / "run"})
    with pytest.raises(ConfigError, match=r"custom task 'digits'.*--task-file"):
        Server(settings).run()
    with running(replace(settings, task_files=[task])) as server, client(server) as http:
        found = post(http, "/v1/tasks/mine", examples=["a 7", "no end"])
        assert found["results"] == [[{"label": 1}], [{"label": 0}]]


# ---------------------------------------------------------------------------------------- service


def test_models_health_and_metrics(http: httpx.Client) -> None:
    values = http.get("/v1/models").json()
    assert [model["id"] for model in values["data"]] == ["tiny", "full"]
    tiny, full = values["data"]
    assert (tiny["default"], tiny["n_layers"], tiny["dim"]) == (True, 3, 32)
    assert (tiny["language_model"], full["language_model"]) == (False, True)
    assert values["tasks"] == ["people"]
    assert values["limits"]["tokens"] == 600
    assert http.get("/v1/models/full").json() == full
    assert http.get("/v1/models/nope").status_code == 404
    assert http.get("/healthz").json() == {"status": "ok"}
    assert http.get("/readyz").json() == {"status": "ok"}
    post(http, "/v1/embed", sentences=["a"])
    text = http.get("/metrics").text
    assert 'elmo_requests_total{route="/v1/embed",status="200"}' in text
    assert "elmo_ready 1" in text
    assert 'elmo_request_seconds_bucket{le="+Inf",route="/v1/embed"}' in text


def test_responses_do_not_reveal_paths(server: Server, http: httpx.Client) -> None:
    folder = str(server.service.settings.index).rsplit("/", 1)[0]
    output = [http.get(path).text for path in ("/v1/models", "/v1/tasks", "/openapi.json")]
    output.append(http.post("/v1/neighbors", json={"queries": ["I [read] it ."]}).text)
    output.append(http.post("/v1/score", json={"sentences": ["a"]}).text)
    assert not any(folder in text or "tests/models" in text for text in output)
