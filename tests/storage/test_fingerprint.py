from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmokit.storage.fingerprint import fingerprint_file, fingerprint_model, fingerprint_texts

CONFIG = {"layers": 2}
ARRAYS = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(2, np.float32)}


def test_fingerprints_are_stable() -> None:
    # Finished task runs store them: if they changed, every run would reject its own model.
    assert fingerprint_model(CONFIG, ARRAYS.items(), "words") == "14e6cd7b4f6c201558e0946e229f43bc"
    assert fingerprint_texts(["a", "b"]) == "0c84cf75ee142f818515ab54bd107d86"


@pytest.mark.parametrize(
    "changed",
    [
        ({"layers": 3}, ARRAYS, "words"),
        (CONFIG, ARRAYS | {"b": np.zeros(2, np.float32)}, "words"),
        (CONFIG, ARRAYS | {"a": ARRAYS["a"].reshape(3, 2)}, "words"),
        (CONFIG, {"a": ARRAYS["a"], "c": ARRAYS["b"]}, "words"),
        (CONFIG, ARRAYS, "other words"),
    ],
)
def test_every_difference_changes_the_fingerprint(changed: tuple[Any, Any, str]) -> None:
    config, arrays, words = changed
    assert fingerprint_model(config, arrays.items(), words) != fingerprint_model(
        CONFIG, ARRAYS.items(), "words"
    )


def test_memory_layout_does_not_affect_the_fingerprint() -> None:
    turned = ARRAYS | {"a": np.asfortranarray(ARRAYS["a"])}
    config = json.loads(json.dumps(CONFIG))
    assert fingerprint_model(config, turned.items()) == fingerprint_model(CONFIG, ARRAYS.items())


def test_fingerprint_of_a_file_depends_on_its_bytes(tmp_path: Path) -> None:
    for name, content in (("a", b"same"), ("b", b"same"), ("c", b"other")):
        (tmp_path / name).write_bytes(content)
    a, b, c = (fingerprint_file(tmp_path / name) for name in "abc")
    assert a == b != c
