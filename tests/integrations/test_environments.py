"""Each example runs in an environment with only the extra that it needs.

Takes minutes each, since torch is installed again. `ELMOKIT_PIP_ARGS` adds arguments for pip.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integrations.hub_server import running
from tests.integrations.test_examples import PACKAGES, ROOT, examples, expected_output

# Which of the other integrations can be imported, and the errors of the rest.
PROGRAM = """
import importlib
from elmokit.errors import DependencyError
for extra in {extras!r}:
    try:
        importlib.import_module("elmokit.integrations." + extra.replace("-", "_"))
    except DependencyError as error:
        assert "elmokit[" + extra + "]" in str(error), error
        print("missing", extra)
    else:
        print("there", extra)
"""

# Other integrations whose package is a dependency of an extra.
BRINGS = {"flair": {"sklearn"}, "sentence-transformers": {"sklearn"}}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.mark.parametrize("extra", PACKAGES)
def test_example_runs_with_only_its_extra(extra: str, wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "env"
    python = environment / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    install = [python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt"]
    install += shlex.split(os.environ.get("ELMOKIT_PIP_ARGS", ""))
    subprocess.run([*install, f"elmokit[{extra}] @ {wheel.as_uri()}"], check=True)
    empty = tmp_path / "empty"
    empty.mkdir()
    with running() as hub:
        hub.serve_folder("you/my-elmo", empty / "my-elmo")
        variables = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf")}
        variables |= {"no_proxy": "*", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}

        def run(program: str) -> list[str]:
            done = subprocess.run(
                [python, "-c", program],
                cwd=empty,
                env=variables,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            return done.stdout.splitlines()

        assert run(examples()[extra]) == expected_output(examples()[extra])
        # `hub` needs its package only for downloads, so it can always be imported.
        others = [other for other in PACKAGES if other != "hub"]
        found = run(PROGRAM.format(extras=others))
    there = {extra} | BRINGS.get(extra, set())
    assert found == [f"{'there' if other in there else 'missing'} {other}" for other in others]
