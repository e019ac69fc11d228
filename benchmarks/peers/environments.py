"""An environment of its own for each peer, made from the package index and kept for the next run.

AllenNLP asks for a torch that ends with Python 3.10 and packages that no longer fit its pins, hence
the constraints. What cannot be made is left out with a reason, not with an error: most machines
have no Python 3.9.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_LIMIT = 1800  # seconds for one installation


class Unavailable(Exception):
    """A peer that cannot be had here; the message says why."""


@dataclass(frozen=True)
class Recipe:
    """How a peer is installed.

    Attributes:
        python: The version it needs, None for the one that runs this.
        first: Packages that must be there before the others are built.
        packages: What is installed.
        constraints: Versions of what comes along.
    """

    python: str | None
    first: tuple[str, ...]
    packages: tuple[str, ...]
    constraints: tuple[str, ...] = ()


RECIPES = {
    "allennlp": Recipe(
        python="3.9",
        first=("setuptools<66", "wheel"),
        packages=("allennlp==2.10.1", "torch==1.12.1", "torchvision==0.13.1"),
        constraints=("numpy==1.23.5", "huggingface-hub==0.10.1", "setuptools<66", "pydantic<2"),
    ),
    "simple_elmo": Recipe(
        python=None,
        first=(),
        packages=("simple_elmo==0.9.2", "tensorflow==2.21.0", "tf_keras==2.21.0"),
    ),
}


def find_python(version: str) -> Path:
    """Find a Python of this version: on the path, or among those of pyenv."""
    candidates = [shutil.which(f"python{version}")]
    if pyenv := shutil.which("pyenv"):
        asked = subprocess.run([pyenv, "root"], capture_output=True, text=True, check=False)
        versions = Path(asked.stdout.strip()) / "versions"
        candidates += [str(p) for p in sorted(versions.glob(f"{version}.*/bin/python"))]
    program = f"import sys; sys.exit('%d.%d' % sys.version_info[:2] != {version!r})"
    for candidate in candidates:
        # A shim of pyenv may be there without a Python behind it.
        if (
            candidate
            and not subprocess.run([candidate, "-c", program], capture_output=True).returncode
        ):
            return Path(candidate)
    raise Unavailable(f"no Python {version} was found (python{version} on the path, or pyenv)")


def environment(name: str, cache: Path) -> Path:
    """Return the Python of a peer's environment; it is made if it is not there."""
    recipe = RECIPES[name]
    folder = cache / name
    python, ready = folder / "bin" / "python", folder / "ready.txt"
    if ready.is_file() and ready.read_text() == repr(recipe):
        return python
    base = Path(sys.executable) if recipe.python is None else find_python(recipe.python)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    constraints = folder / "constraints.txt"
    constraints.write_text("".join(f"{line}\n" for line in recipe.constraints))
    install = [str(python), "-m", "pip", "install", "--quiet", "--prefer-binary"]
    steps = [[str(base), "-m", "venv", str(folder)]]
    if recipe.first:
        steps.append([*install, *recipe.first])
    steps.append([*install, "-c", str(constraints), *recipe.packages])
    for step in steps:
        try:
            done = subprocess.run(step, capture_output=True, text=True, timeout=_LIMIT, check=False)
        except subprocess.TimeoutExpired:
            raise Unavailable(f"{name} was not installed within {_LIMIT // 60} minutes") from None
        if done.returncode:
            said = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise Unavailable(f"{name} could not be installed: {said}")
    ready.write_text(repr(recipe))
    return python
