"""What pages need but do not show, prepared before their code runs."""

from __future__ import annotations

import shutil
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import elmokit
from tests.conftest import TINY_MODEL

Stage = Callable[[Path, dict[str, Any], ExitStack], None]


def prepare(page: str, folder: Path, namespace: dict[str, Any], stack: ExitStack) -> None:
    """Prepare a page: files in its directory, and names that it uses without defining them."""
    if page in STAGES:
        STAGES[page](folder, namespace, stack)


def _readme(folder: Path, namespace: dict[str, Any], stack: ExitStack) -> None:
    namespace["sentences"] = [["I", "read", "it"], ["So", "did", "I", "."]]


def _index(folder: Path, namespace: dict[str, Any], stack: ExitStack) -> None:
    """Create `index/` as `elmo index` does from the example sentences."""
    from elmokit.search.build import build_index

    build_index(elmokit.load(), [folder / "examples" / "sentences.txt"], folder / "index")


def _onnx(folder: Path, namespace: dict[str, Any], stack: ExitStack) -> None:
    """Create `english-onnx/` as `elmo convert --to onnx` does, here from a small model."""
    pytest.importorskip("onnx", reason="the extra `onnx` is not installed")
    pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")
    from elmokit.embed.onnx_export import export
    from elmokit.sources.resolve import load_parts

    export(load_parts(TINY_MODEL), folder / "english-onnx")


def _own_model(folder: Path, namespace: dict[str, Any], stack: ExitStack) -> None:
    """Create `run/model` as `elmo train` does."""
    shutil.copytree(TINY_MODEL, folder / "run" / "model")


def _carried_over(folder: Path, namespace: dict[str, Any], stack: ExitStack) -> None:
    """Create `original/` as `elmo convert allennlp:original original/` does, but small."""
    shutil.copytree(TINY_MODEL, folder / "original")


def _service(folder: Path, namespace: dict[str, Any], stack: ExitStack) -> None:
    """Run a service, and redirect requests for port 8017 to the port that was free."""
    pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
    from elmokit.serve.settings import Settings
    from tests.serve.conftest import running

    server = stack.enter_context(running(Settings(port=0, models={"english": None}, device="cpu")))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy

    def redirected(request: urllib.request.Request) -> Any:
        request.full_url = request.full_url.replace("http://localhost:8017", server.url)
        return opener.open(request)

    stack.enter_context(mock.patch.object(urllib.request, "urlopen", redirected))


STAGES: dict[str, Stage] = {
    "README.md": _readme,
    "docs/how-to/offline.md": _carried_over,
    "docs/how-to/onnx.md": _onnx,
    "docs/how-to/search.md": _index,
    "docs/how-to/serve.md": _service,
    "docs/how-to/your-language.md": _own_model,
}
