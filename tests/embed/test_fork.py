"""A model that was used before a fork works in the forked process, and in copies."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elmokit
from elmokit.embed.model import ElmoModel
from elmokit.embed.onnx_export import export
from elmokit.embed.onnx_model import OnnxModel
from elmokit.sources import onnxdir
from elmokit.sources.resolve import load_parts

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

SENTENCES = ["A cat sat .".split(), "Colorless green ideas sleep furiously .".split()]
# Only reached if a child hangs.
HANG_SECONDS = 300


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Use two threads: OpenMP creates the threads that a forked child waits for only then."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=["exact", "fast", "onnx"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> ElmoModel | OnnxModel:
    if request.param == "onnx":
        pytest.importorskip("onnxruntime")
        export(load_parts("english"), tmp_path / "onnx")
        return OnnxModel(onnxdir.load(tmp_path / "onnx"))
    return elmokit.load("english", device="cpu", precision=request.param)


def in_child(function: Callable[[], Any]) -> Any:
    """Return the result of a function in a forked child."""

    def work(sender: Connection) -> None:
        sender.send(function())

    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=work, args=(sender,))
    child.start()
    try:
        assert receiver.poll(HANG_SECONDS), "the forked child hangs"
        return receiver.recv()
    finally:
        child.kill()
        child.join()


def layers(model: ElmoModel | OnnxModel) -> np.ndarray[Any, Any]:
    return np.concatenate([out.layers for out in model.embed(SENTENCES)], axis=1)


@pytest.mark.usefixtures("two_threads")
def test_forked_child_computes_the_same_vectors(model: ElmoModel | OnnxModel) -> None:
    expected = layers(model)

    def in_a_thread_as_well() -> list[Any]:
        found = [layers(model)]
        thread = threading.Thread(target=lambda: found.append(layers(model)))
        thread.start()
        thread.join()
        return found

    for found in in_child(in_a_thread_as_well):
        np.testing.assert_allclose(found, expected, atol=2e-6)
    np.testing.assert_array_equal(layers(model), expected)


@pytest.mark.usefixtures("two_threads")
def test_fork_while_another_thread_computes() -> None:
    elmo = elmokit.load("english", device="cpu")
    expected = layers(elmo)
    stop = threading.Event()
    running = threading.Event()

    def compute() -> None:
        while not stop.is_set():
            elmo.cache.clear()
            layers(elmo)
            running.set()

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        running.wait()
        for _ in range(3):
            np.testing.assert_allclose(in_child(lambda: layers(elmo)), expected, atol=2e-6)
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_and_pickles_compute_the_same_vectors(
    model: ElmoModel | OnnxModel, duplicate: Callable[[Any], ElmoModel | OnnxModel]
) -> None:
    copied = duplicate(model)
    assert copied.lock is not model.lock
    assert copied.precision == model.precision
    np.testing.assert_array_equal(layers(copied), layers(model))
