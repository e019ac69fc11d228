"""/v1/embed and /v1/embeddings over HTTP: the vectors of the library, in all formats."""

from __future__ import annotations

import base64
import io
import json
import threading
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

from elmokit.embed.model import ElmoModel
from elmokit.serve.server import Server
from elmokit.text.sentences import split_sentences
from tests.serve.conftest import client

SENTENCES: list[Any] = ["I read the book yesterday.", ["Can", "you", "read", "it", "?"], "Dogs!"]


def embed(http: httpx.Client, accept: str = "application/json", **body: Any) -> httpx.Response:
    body = {"sentences": SENTENCES, **body}
    answer = http.post("/v1/embed", json=body, headers={"Accept": accept})
    assert answer.status_code == 200, answer.text
    return answer


def test_json_values_equal_those_of_the_library(http: httpx.Client, tiny: ElmoModel) -> None:
    answer = embed(http).json()
    assert answer["layer"] == [0, 1, 2]
    assert (answer["model"], answer["state"], answer["dim"]) == ("tiny", "reset", 32)
    assert answer["usage"] == {"sentences": 3, "tokens": 13}
    for found, expected in zip(answer["sentences"], tiny.embed(SENTENCES), strict=True):
        assert found["tokens"] == expected.tokens
        offsets = expected.offsets and [list(pair) for pair in expected.offsets]
        assert found["offsets"] == offsets
        vectors = np.array(found["vectors"], dtype=np.float32)
        assert vectors.shape == expected.layers.shape
        assert np.abs(vectors - expected.layers).max() < 2e-6


@pytest.mark.parametrize(
    "asked",
    [
        {"layer": "top"},
        {"layer": "average"},
        {"layer": 1},
        {"layer": "concat"},
        {"layer": "mix", "mix": [0.2, 0.3, 0.5], "gamma": 2.0},
    ],
)
def test_one_vector_per_token(http: httpx.Client, tiny: ElmoModel, asked: dict[str, Any]) -> None:
    expected = tiny.embed(SENTENCES)[0]
    wanted = {
        "top": expected.top,
        "average": expected.average,
        1: expected.layers[1],
        "concat": expected.select("concat"),
        "mix": expected.select(**{"mix": [0, 0, 1], **asked, "layer": "mix"}),
    }[asked["layer"]]
    found = embed(http, **asked).json()["sentences"][0]["vectors"]
    assert np.abs(np.array(found) - wanted).max() < 2e-6


def test_npy_contains_all_tokens_in_order(http: httpx.Client, tiny: ElmoModel) -> None:
    answer = embed(http, "application/x-npy", layer="top")
    vectors = np.load(io.BytesIO(answer.content), allow_pickle=False)
    assert vectors.dtype == np.float32
    assert answer.headers["content-type"] == "application/x-npy"
    assert answer.headers["x-elmo-lengths"] == "6,5,2"
    expected = np.concatenate([s.top for s in tiny.embed(SENTENCES)])
    assert np.abs(vectors - expected).max() < 2e-6


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("application/json;q=0.5, application/x-npy", "application/x-npy"),
        ("application/x-npy;q=0.1, application/json;q=0.9", "application/json"),
        ("application/x-npy;q=0, */*", "application/json"),
        ("text/html, application/x-npy", "application/x-npy"),
        ("*/*;q=0", None),
        ("text/html", None),
    ],
)
def test_accept_header_selects_the_format(
    http: httpx.Client, accept: str, expected: str | None
) -> None:
    answer = http.post("/v1/embed", json={"sentences": ["a"]}, headers={"Accept": accept})
    assert answer.status_code == (406 if expected is None else 200)
    assert answer.headers["content-type"] == (expected or "application/json")


def test_npy_of_several_layers_and_of_means(http: httpx.Client, tiny: ElmoModel) -> None:
    answer = embed(http, "application/x-npy", layer=[2, 0], pooling="mean")
    means = np.load(io.BytesIO(answer.content), allow_pickle=False)
    expected = np.stack([s.layers[[2, 0]].mean(axis=1) for s in tiny.embed(SENTENCES)], axis=1)
    assert means.shape == (2, 3, 32)
    assert np.abs(means - expected).max() < 2e-6


def test_arrow_table_has_one_row_per_token(http: httpx.Client, tiny: ElmoModel) -> None:
    answer = embed(http, "application/vnd.apache.arrow.stream;q=0.9, text/plain")
    table = pa.ipc.open_stream(answer.content).read_all()
    assert table.column_names == [
        *("sentence", "token", "start", "end"),
        *("layer_0", "layer_1", "layer_2"),
    ]
    assert table["sentence"].to_pylist() == [0] * 6 + [1] * 5 + [2] * 2
    assert table["token"].to_pylist()[:3] == ["I", "read", "the"]
    assert table["start"].to_pylist()[:2] == [0, 2]
    assert table["start"].to_pylist()[6] is None
    found = np.array(table["layer_2"].to_pylist(), dtype=np.float32)
    expected = np.concatenate([s.top for s in tiny.embed(SENTENCES)])
    assert np.abs(found - expected).max() < 2e-6
    assert json.loads(table.schema.metadata[b"elmo"])["model"] == "tiny"
    pooled = embed(http, "application/vnd.apache.arrow.stream", layer="top", pooling="mean")
    table = pa.ipc.open_stream(pooled.content).read_all()
    assert table.column_names == ["sentence", "tokens", "vector"]
    assert table.num_rows == 3


def test_pooled_json_has_one_vector_per_sentence(http: httpx.Client, tiny: ElmoModel) -> None:
    found = embed(http, layer="top", pooling="mean").json()["sentences"]
    expected = tiny.embed(SENTENCES)[1].top.mean(axis=0)
    assert np.abs(np.array(found[1]["vectors"]) - expected).max() < 2e-6


def test_warm_starts_from_the_stored_state(http: httpx.Client, full: ElmoModel) -> None:
    found = embed(http, model="full", state="warm", layer="top").json()["sentences"]
    expected = full.embed(SENTENCES, "warm")
    assert np.abs(np.array(found[0]["vectors"]) - expected[0].top).max() < 2e-6
    answer = http.post("/v1/embed", json={"sentences": ["a"], "state": "warm"})
    assert answer.status_code == 422
    assert "no warm state" in answer.json()["error"]["message"]


def test_sentence_without_tokens_has_no_vectors_and_no_mean(http: httpx.Client) -> None:
    found = embed(http, sentences=["", "a"], layer="top").json()["sentences"]
    assert found[0] == {"tokens": [], "offsets": [], "vectors": []}
    body = {"sentences": ["a", " "], "pooling": "mean"}
    answer = http.post("/v1/embed", json=body)
    assert answer.status_code == 422
    assert "sentences[1] has no tokens" in answer.json()["error"]["message"]


def test_vectors_do_not_depend_on_the_batch(server: Server, tiny: ElmoModel) -> None:
    """Thirty concurrent clients with sentences of all lengths get the same vectors as alone."""
    rows = [[f"word{i * k % 7}" for k in range(1 + 3 * i % 41)] for i in range(30)]
    alone = [tiny.embed([row])[0].layers for row in rows]
    wrong: list[float] = []

    def ask(row: list[str], expected: np.ndarray) -> None:
        with client(server) as http:
            for _ in range(3):
                answer = embed(http, "application/x-npy", sentences=[row])
                found = np.load(io.BytesIO(answer.content))
                wrong.append(float(np.abs(found - expected).max()))

    threads = [threading.Thread(target=ask, args=pair) for pair in zip(rows, alone, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wrong) == 90
    assert max(wrong) < 2e-6


def test_long_tokens_are_reported_and_not_cached(server: Server, http: httpx.Client) -> None:
    word = "x" * 3000
    answer = embed(http, sentences=[["a", word, word[:60]]], layer="top").json()
    assert answer["sentences"][0]["tokens"][1] == word
    vectors = answer["sentences"][0]["vectors"]
    assert len(vectors) == 3
    assert "Truncated 2 tokens to 48 bytes" in answer["warnings"][0]
    model = server.service.resources.models["tiny"]
    assert max(map(len, model.cache._tokens)) <= 50


@pytest.mark.parametrize("form", ["float", "base64"])
def test_openai_vectors_are_means_of_the_average_layer(
    http: httpx.Client, tiny: ElmoModel, form: str
) -> None:
    text = "I read it. Then I left."
    body = {"input": [text, "Dogs bark"], "model": "tiny", "encoding_format": form, "user": "me"}
    answer = http.post("/v1/embeddings", json=body)
    values = answer.json()
    assert values["object"] == "list"
    assert values["usage"] == {"prompt_tokens": 10, "total_tokens": 10}
    assert [row["index"] for row in values["data"]] == [0, 1]
    found = values["data"][0]["embedding"]
    if form == "base64":
        found = np.frombuffer(base64.b64decode(found), dtype="<f4")
    sentences = tiny.embed(split_sentences(text))
    expected = np.concatenate([s.average for s in sentences]).mean(axis=0)
    assert len(sentences) == 2
    assert np.abs(np.array(found) - expected).max() < 2e-6


def test_openai_errors(http: httpx.Client) -> None:
    def status(**body: Any) -> tuple[int, str]:
        answer = http.post("/v1/embeddings", json={"input": "a", "model": "tiny", **body})
        return answer.status_code, answer.json()["error"]["message"]

    assert status(model="text-embedding-ada-002")[0] == 404
    assert status(input=[1, 2, 3])[0] == 422
    assert status(input="")[0] == 422
    assert "input[0] has no tokens" in status(input=" ")[1]
    assert "have 32 dimensions" in status(dimensions=16)[1]


def test_official_openai_client_works(server: Server) -> None:
    openai = pytest.importorskip("openai")
    asks = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    found = asks.embeddings.create(model="tiny", input=["I read it.", "Dogs"])
    assert [len(row.embedding) for row in found.data] == [32, 32]
    assert found.usage.total_tokens == 5
    assert {model.id for model in asks.models.list()} == {"tiny", "full"}
    with pytest.raises(openai.NotFoundError, match="Unknown model 'nope'"):
        asks.embeddings.create(model="nope", input="a")
