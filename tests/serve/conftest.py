"""A real server with tiny models, in a thread of the test process."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
pytest.importorskip("uvicorn", reason="the extra 'serve' is not installed")
pytest.importorskip("httpx", reason="the service is tested with httpx")

import httpx

from elmokit.embed.layer_cache import LayerCache
from elmokit.embed.loading import load
from elmokit.embed.model import ElmoModel
from elmokit.model.lstm import LstmState
from elmokit.model.softmax import LMHead
from elmokit.search.build import build_index
from elmokit.serve.server import Server
from elmokit.serve.settings import Limits, Settings
from elmokit.sources import modeldir
from elmokit.sources.modeldir import ModelParts
from elmokit.tasks.data import load_data
from elmokit.tasks.loop import train
from elmokit.tasks.ner import Ner
from elmokit.text.vocab import Vocabulary
from tests.conftest import TINY, TINY_MODEL, random_bilm
from tests.serve import browser as tools
from tests.tasks.conftest import settings as ner_settings
from tests.tasks.conftest import write_columns

WORDS = ["<S>", "</S>", "<UNK>", ".", "I", "read", "the", "book", "a", "dog", "saw", "letter"]
TEXT = "I read the book .\nI saw a dog .\nThe dog read the letter .\nI read a letter .\n"

ALONE = Settings(port=0, models={"tiny": str(TINY_MODEL)}, device="cpu")


@contextmanager
def running(settings: Settings) -> Iterator[Server]:
    """Serve in a thread until the block ends."""
    ready = threading.Event()
    server = Server(settings, lambda _: ready.set())
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert ready.wait(60)
        yield server
    finally:
        server.stop()
        thread.join(60)
        assert not thread.is_alive()


@contextmanager
def client(server: Server, **options: Any) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=30, **options) as found:
        yield found


def embed(http: httpx.Client, *sentences: Any, **body: Any) -> httpx.Response:
    return http.post("/v1/embed", json={"sentences": list(sentences) or ["a b"], **body})


def error(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    found: dict[str, Any] = answer.json()["error"]
    assert found["status"] == status
    return found


def metric(server: Server, name: str, **labels: str) -> float:
    """Return the value of a metric; 0 if it has not been counted yet."""
    return server.service.metrics.registry.get_sample_value(name, labels) or 0.0


def answered(server: Server, status: int) -> float:
    """Return the number of requests to /v1/embed with a status; 499: the client disconnected."""
    return metric(server, "elmo_requests_total", route="/v1/embed", status=str(status))


def connect(server: Server) -> socket.socket:
    host, port = server.url.removeprefix("http://").rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=20)


def wait_for(true: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.02)


def closed(sock: socket.socket) -> bytes:
    """Read until the other side closes the connection."""
    found = b""
    try:
        while piece := sock.recv(65536):
            found += piece
    except ConnectionResetError:
        pass
    return found


class Gate:
    """Blocks the computation of a model until it is opened, so that a queue can be filled."""

    def __init__(self, model: ElmoModel) -> None:
        self._open = threading.Event()
        self.entered = threading.Event()
        self.batches: list[int] = []
        inner = model.compute

        def compute(sentences: Any, state: Any = "reset", **options: Any) -> Any:
            self.entered.set()
            assert self._open.wait(30)
            self.batches.append(len(sentences))
            return inner(sentences, state, **options)

        model.compute = compute  # type: ignore[method-assign]

    def open(self) -> None:
        self._open.set()


@pytest.fixture(scope="session")
def full_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a tiny model with a language-model head and a warm state."""
    torch.manual_seed(1)
    parts = ModelParts(random_bilm(TINY), vocabulary=Vocabulary(WORDS))
    parts.head = LMHead(len(WORDS), 10)
    torch.nn.init.normal_(parts.head.bias)
    parts.warm = LstmState(torch.randn(2, 2, 1, 24), torch.randn(2, 2, 1, 10))
    folder = tmp_path_factory.mktemp("models") / "full"
    modeldir.save(parts, folder)
    return folder


@pytest.fixture(scope="session")
def tiny() -> ElmoModel:
    return load(TINY_MODEL, device="cpu")


@pytest.fixture(scope="session")
def full(full_model: Path) -> ElmoModel:
    return load(full_model, device="cpu")


@pytest.fixture(scope="session")
def served(full_model: Path, tiny: ElmoModel, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Return settings for two models, a task, an index and static vectors."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "text.txt").write_text(TEXT)
    (folder / "static.txt").write_text("dog 1 0 0\nread 0 1 0\nbook 0.9 0.1 0\n")
    build_index(tiny, [folder / "text.txt"], folder / "index")
    files = [str(write_columns(folder / f"{n}.txt", 40, n)) for n in (1, 2)]
    config = ner_settings("elmo.place=both", "train.epochs=2")
    cache = LayerCache(folder / "cache")
    data = load_data(
        Ner(), config, files[0], files[1], elmo=tiny, model=str(TINY_MODEL), cache=cache
    )
    train(Ner(), config, data, folder / "ner")
    return Settings(
        port=0,
        models={"tiny": str(TINY_MODEL), "full": str(full_model)},
        tasks={"people": folder / "ner"},
        index=folder / "index",
        static=str(folder / "static.txt"),
        device="cpu",
        # A long timeout: on a busy machine, a request would be rejected for its estimated wait.
        limits=Limits(body=20_000, tokens=600, sentences=40, timeout=600),
    )


@pytest.fixture(scope="session")
def server(served: Settings) -> Iterator[Server]:
    with running(served) as found:
        yield found


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with client(server) as found:
        yield found


# ----------------------------------------------------------------------------------- a real browser


@pytest.fixture(scope="module")  # while Playwright runs, other tests cannot use asyncio.run
def browser() -> Iterator[Any]:
    with tools.launched() as browser:
        yield browser


@pytest.fixture(scope="package")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve the bundled model, an index of part of the example text, six tasks, static vectors."""
    tools.chromium()  # skips the test if there is no browser
    folder = tmp_path_factory.mktemp("page")
    index, static = tools.make_index(folder), tools.make_static(folder)
    tasks = tools.task_options(folder)
    with tools.serving("--index", index, "--static", static, *tasks) as found:
        yield found


@pytest.fixture(params=sorted(tools.SIZES))
def visit(browser: Any, url: str, request: pytest.FixtureRequest) -> Iterator[tools.Visit]:
    found = tools.Visit(browser, url, request.param)
    yield found
    found.close()


@pytest.fixture
def desk(browser: Any, url: str) -> Iterator[tools.Visit]:
    found = tools.Visit(browser, url, "desk")
    yield found
    found.close()
