"""Shutdown of the service, and objects that cannot be served."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner

from elmokit.cli.main import app
from elmokit.errors import ConfigError
from elmokit.serve.server import Server
from elmokit.serve.settings import Settings, parse_named_paths
from tests.conftest import TINY_MODEL
from tests.process_utils import HANG_SECONDS, Pause, elmo, start
from tests.serve.conftest import (
    ALONE,
    Gate,
    client,
    embed,
    error,
    metric,
    running,
    wait_for,
)


def listens(http: httpx.Client) -> bool:
    try:
        http.get("/readyz")
    except httpx.HTTPError:
        return False
    return True


def test_shutdown_finishes_accepted_requests() -> None:
    with ThreadPoolExecutor(4) as threads, running(ALONE) as server, client(server) as http:
        gate = Gate(server.service.resources.models["tiny"])
        asked = [threads.submit(embed, http, "a")]
        assert gate.entered.wait(60)
        asked.append(threads.submit(embed, http, "b"))
        with client(server) as other:
            wait_for(lambda: metric(server, "elmo_queue_requests") == 1)
            server.stop()
            wait_for(lambda: not listens(other))
        assert server.service.status == "stopping"
        gate.open()
        assert [one.result().status_code for one in asked] == [200, 200]


def test_requests_are_rejected_during_startup_and_shutdown() -> None:
    with running(ALONE) as server, client(server) as http:
        resources, server.service._resources = server.service._resources, None
        found = embed(http)
        assert error(found, 503)
        assert found.headers["retry-after"]
        assert http.get("/readyz").json() == {"status": "loading"}
        assert http.get("/readyz").status_code == 503
        assert http.get("/healthz").status_code == 200
        server.service._resources = resources
        server.service.shutdown = True
        assert error(embed(http), 503)
        assert http.get("/readyz").json() == {"status": "stopping"}


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGTERM, 0),
        pytest.param(signal.SIGHUP, 0, marks=[pytest.mark.slow, pytest.mark.ci]),
        pytest.param(signal.SIGINT, 130, marks=[pytest.mark.slow, pytest.mark.ci]),
    ],
)
def test_command_exits_after_pending_requests_on_a_signal(
    number: signal.Signals, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELMO_SERVE_TOKEN", "of the environment")
    options = ["--no-bundled", "--model", f"tiny={TINY_MODEL}", "--port", "0", "--json"]
    compute = Pause("elmokit.embed.embedder.Embedder.compute")
    with start(elmo, "serve", *options, pause=compute) as child, ThreadPoolExecutor(1) as threads:
        wait_for(lambda: child.stdout.endswith("\n"), HANG_SECONDS)
        url = json.loads(child.stdout)["url"]
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url)
        assert httpx.get(f"{url}/v1/models", timeout=HANG_SECONDS).status_code == 401
        headers = {"Authorization": "Bearer of the environment"}
        body = {"sentences": ["a"]}
        pending = threads.submit(
            httpx.post, f"{url}/v1/embed", json=body, headers=headers, timeout=HANG_SECONDS
        )
        child.wait_for_pause()
        child.send_signal(number)
        child.resume()
        assert np.array(pending.result().json()["sentences"][0]["vectors"]).shape == (3, 1, 32)
        assert child.wait() == code, child.stderr
        assert "Traceback" not in child.stderr


def test_second_signal_stops_the_command_immediately() -> None:
    options = ["--no-bundled", "--model", f"tiny={TINY_MODEL}", "--port", "0", "--json"]
    compute = Pause("elmokit.embed.embedder.Embedder.compute")
    with start(elmo, "serve", *options, pause=compute) as child:
        wait_for(lambda: child.stdout.endswith("\n"), HANG_SECONDS)
        url = json.loads(child.stdout)["url"]
        with httpx.Client(base_url=url) as http, ThreadPoolExecutor(1) as threads:
            pending = threads.submit(embed, http)
            child.wait_for_pause()
            child.send_signal(signal.SIGTERM)
            wait_for(lambda: not listens(httpx.Client(base_url=url)), HANG_SECONDS)
            child.send_signal(signal.SIGHUP)
            assert child.wait() == -signal.SIGHUP
            assert isinstance(pending.exception(), httpx.HTTPError)
        assert "Traceback" not in child.stderr
        assert "answered" not in child.stderr


def test_empty_token_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """In earlier versions, the service then ran without authentication."""
    monkeypatch.setenv("ELMO_SERVE_TOKEN", "")
    result = CliRunner().invoke(app, ["serve", "--port", "0"])
    assert result.exit_code == 2
    assert "ELMO_SERVE_TOKEN" in result.output


def test_objects_that_cannot_be_served_are_reported(tmp_path: Path, full_model: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match=r"already in use.* another port"):
            Server(replace(ALONE, port=taken.getsockname()[1]))
    with pytest.raises(ConfigError, match=r"Cannot listen on .*'no.such"):
        Server(replace(ALONE, host="no.such.host.example"))
    with pytest.raises(ConfigError, match=r"Cannot listen on .*'192.* another address"):
        Server(replace(ALONE, host="192.0.2.1"))  # not an address of this machine
    with pytest.raises(ConfigError, match="No trained task model"):
        Server(replace(ALONE, tasks={"x": tmp_path})).run()
    with pytest.raises(ConfigError, match=r"'example.org'.* such as https://example.org"):
        replace(ALONE, cors=["example.org"])
    with pytest.raises(ConfigError, match="requires a trained task model"):
        replace(ALONE, task_files=[tmp_path / "my_task.py"])
    with pytest.raises(ConfigError, match="no model to serve"):
        replace(ALONE, models={})
    with pytest.raises(ConfigError, match="expected NAME=PATH"):
        parse_named_paths(["a/b"], "model")
    with pytest.raises(ConfigError, match="Duplicate name 'a'"):
        parse_named_paths(["a=1", "a=2"], "model")


def test_index_of_another_model_is_rejected(served: Settings, full_model: Path) -> None:
    settings = replace(served, models={"full": str(full_model)}, tasks={})
    with pytest.raises(ConfigError, match="with a model that is not loaded"):
        Server(settings).run()


def test_missing_extra_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['uvicorn'] = None\n"
        "from elmokit.cli.main import run; sys.argv = ['elmo', 'serve']; run()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "pip install 'elmokit[serve]'" in done.stderr
    assert "Traceback" not in done.stderr
