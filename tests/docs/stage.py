"""What pages need and do not show: prepared before their code runs."""

from __future__ import annotations

import shutil
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
    """Set the stage for a page: files in its folder, names that it takes for granted."""
    if page in STAGES:
        STAGES[page](folder, namespace, stack)


def _readme(folder: Path, namespace: dict[str, Any], stack: ExitStack) -> None:
    namespace["sentences"] = [["I", "read", "it"], ["So", "did", "I", "."]]


def _index(folder: Path, namespace: dict[str, Any], stack: ExitStack) -> None:
    """`index/`, as `elmo index` makes it of the example sentences."""
    from elmokit.search.build import build_index

    build_index(elmokit.load(), [folder / "examples" / "sentences.txt"], folder / "index")


def _onnx(folder: Path, namespace: dict[str, Any], stack: ExitStack) -> None:
    """`english-onnx/`, as `elmo convert --to onnx` makes it, here of a small model."""
    pytest.importorskip("onnx", reason="the extra `onnx` is not installed")
    pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")
    from elmokit.embed.onnx_export import export
    from elmokit.sources.resolve import load_parts

    export(load_parts(TINY_MODEL), folder / "english-onnx")


def _own_model(folder: Path, namespace: dict[str, Any], stack: ExitStack) -> None:
    """`run/model`, as `elmo train` leaves it."""
    shutil.copytree(TINY_MODEL, folder / "run" / "model")


def _carried_over(folder: Path, namespace: dict[str, Any], stack: ExitStack) -> None:
    """`original/`, as `elmo convert allennlp:original original/` leaves it, but small."""
    shutil.copytree(TINY_MODEL, folder / "original")


def _service(folder: Path, namespace: dict[str, Any], stack: ExitStack) -> None:
    """A service; what the page sends to port 8017 goes to the port that was free."""
    httpx = pytest.importorskip("httpx", reason="httpx is not installed")
    pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
    from elmokit.serve.settings import Settings
    from tests.serve.conftest import running

    server = stack.enter_context(running(Settings(port=0, models={"english": None}, device="cpu")))
    post = httpx.post

    def redirected(url: str, **options: Any) -> Any:
        return post(url.replace("http://localhost:8017", server.url), trust_env=False, **options)

    stack.enter_context(mock.patch.object(httpx, "post", redirected))


STAGES: dict[str, Stage] = {
    "README.md": _readme,
    "docs/how-to/offline.md": _carried_over,
    "docs/how-to/onnx.md": _onnx,
    "docs/how-to/search.md": _index,
    "docs/how-to/serve.md": _service,
    "docs/how-to/your-language.md": _own_model,
}
