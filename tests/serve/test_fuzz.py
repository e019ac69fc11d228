"""Test the service against its own OpenAPI schema with valid and invalid requests (schemathesis).

Slow: installs schemathesis if necessary, and sends thousands of requests.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from elmokit.serve.settings import Limits, Settings
from tests.conftest import TINY_MODEL
from tests.serve.conftest import client, running

CONSTRAINTS = Path(__file__).resolve().parents[2] / "constraints.txt"


@pytest.fixture(scope="module")
def schemathesis(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return a Python environment in which `python -m schemathesis.cli` works."""
    if importlib.util.find_spec("schemathesis") is not None:
        return dict(os.environ)
    folder = tmp_path_factory.mktemp("schemathesis")
    install = [sys.executable, "-m", "pip", "install", "-q", "-t", folder, "-c", CONSTRAINTS]
    subprocess.run([*install, "schemathesis>=4"], check=True)
    return {**os.environ, "PYTHONPATH": str(folder)}


@pytest.mark.slow
def test_service_conforms_to_its_schema(
    schemathesis: dict[str, str], served: Settings, full_model: Path, tmp_path: Path
) -> None:
    settings = replace(
        served,
        models={"full": str(full_model), "tiny": str(TINY_MODEL)},
        limits=Limits(tokens=200, sentences=10),
    )
    with running(settings) as server, client(server) as http:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"),
                *("--max-examples", "100", "--seed", "1", "--request-timeout", "30"),
                # Constraints that a schema cannot express, such as valid layers of a model, give a
                # 422.
                *("--exclude-checks", "positive_data_acceptance"),
            ],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=schemathesis,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-6000:]
        assert 'status="500"' not in http.get("/metrics").text
        answer = http.post("/v1/embed", json={"sentences": ["It still answers ."]})
        assert answer.status_code == 200
