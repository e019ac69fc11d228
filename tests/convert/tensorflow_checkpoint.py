"""A checkpoint written by TensorFlow (recipes/tf_checkpoint.py), with TensorFlow's own results."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

from tests.convert.bundles import write_bundle

FOLDER = Path(__file__).with_name("tf_checkpoint")
PREFIX = FOLDER / "model.ckpt-12"
OPTIONS = json.loads((FOLDER / "options.json").read_text())
VERSE = "In the beginning God created the heaven and the earth .".split()

run = CliRunner().invoke


def tensorflow_results() -> dict[str, np.ndarray]:
    """Load the values that TensorFlow itself read and computed."""
    with np.load(FOLDER / "tensorflow.npz") as file:
        numbers, shapes = file["numbers"], json.loads(str(file["shapes"]))
    sizes = [int(np.prod(shape)) for shape in shapes.values()]
    parts = np.split(numbers, np.cumsum(sizes)[:-1])
    return {n: p.reshape(s) for (n, s), p in zip(shapes.items(), parts, strict=True)}


SAYS = tensorflow_results()
VARIABLES = {n: v for n, v in SAYS.items() if not n.startswith(("says/", "after/"))}


def copied(folder: Path) -> Path:
    shutil.copytree(FOLDER, folder)
    return folder


def rewritten(folder: Path, tensors: dict[str, np.ndarray], **options: Any) -> Path:
    """Write a directory with a checkpoint that we create and modified options."""
    folder.mkdir()
    (folder / "options.json").write_text(json.dumps(OPTIONS | options))
    return write_bundle(folder / "model.ckpt-3", tensors)
