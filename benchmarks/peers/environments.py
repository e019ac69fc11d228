"""Create a separate environment for each implementation. Later runs reuse it.

AllenNLP requires a version of torch that does not support Python 3.11, and its version ranges allow
packages that are incompatible with it, hence the constraints. If an environment cannot be created,
the benchmark continues without the implementation, because most machines do not have Python 3.9.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_LIMIT = 1800  # seconds for one installation


class Unavailable(Exception):
    """Raised if an implementation is not available. The message contains the reason."""


@dataclass(frozen=True)
class Recipe:
    """How to install an implementation.

    Attributes:
        python: The required Python version. None means the current one.
        first: Packages that are installed first because the others need them.
        packages: The packages to install.
        constraints: Versions of their dependencies.
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
    """Find a Python interpreter of this version on the path or in pyenv."""
    candidates = [shutil.which(f"python{version}")]
    if pyenv := shutil.which("pyenv"):
        completed = subprocess.run([pyenv, "root"], capture_output=True, text=True, check=False)
        versions = Path(completed.stdout.strip()) / "versions"
        candidates += [str(p) for p in sorted(versions.glob(f"{version}.*/bin/python"))]
    program = f"import sys; sys.exit('%d.%d' % sys.version_info[:2] != {version!r})"
    for candidate in candidates:
        # A pyenv shim can exist although the version is not installed.
        if (
            candidate
            and not subprocess.run([candidate, "-c", program], capture_output=True).returncode
        ):
            return Path(candidate)
    raise Unavailable(f"no Python {version} was found (python{version} on the path, or pyenv)")


def environment(name: str, cache: Path) -> Path:
    """Return the Python interpreter of an implementation. Create its environment if necessary."""
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
            completed = subprocess.run(
                step, capture_output=True, text=True, timeout=_LIMIT, check=False
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(f"{name} was not installed within {_LIMIT // 60} minutes") from None
        if completed.returncode:
            message = (completed.stderr.strip().splitlines() or ["no message"])[-1]
            raise Unavailable(f"{name} could not be installed: {message}")
    ready.write_text(repr(recipe))
    return python
