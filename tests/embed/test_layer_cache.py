"""The layer cache: layers are computed once, are never stale, and its size is bounded."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elmokit.embed.fingerprint import fingerprint
from elmokit.embed.layer_cache import LayerCache, LiveLayers, StoredLayers
from elmokit.embed.loading import load
from elmokit.embed.model import ElmoModel
from elmokit.errors import ConfigError, OutputError
from elmokit.storage.lock import file_lock
from tests.conftest import TINY_MODEL

CPU = torch.device("cpu")
TEXTS = [("The", "dog", "barks"), (), ("Hi",), ("Paris", "is", "far", "away")]
BYTES = 8 * 3 * 32 * 2  # tokens, layers, 2D, float16


@pytest.fixture(scope="module")
def elmo() -> ElmoModel:
    return load(TINY_MODEL, device="cpu")


@pytest.fixture
def cache(tmp_path: Path) -> LayerCache:
    return LayerCache(tmp_path / "cache")


def entries(cache: LayerCache) -> list[Path]:
    return sorted(p for p in cache.folder.iterdir() if p.suffix != ".lock")


def count_runs(elmo: ElmoModel, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the runs of the biLM."""
    runs: list[int] = []
    compute = elmo.compute

    def counted(sentences: Any, *rest: Any, **named: Any) -> Any:
        runs.append(len(sentences))
        return compute(sentences, *rest, **named)

    monkeypatch.setattr(elmo, "compute", counted)
    return runs


def test_cached_layers_equal_those_of_embed(elmo: ElmoModel, cache: LayerCache) -> None:
    stored = cache.layers(elmo, TEXTS, CPU, storage="float32")
    live = LiveLayers(elmo, TEXTS, CPU, state="reset", storage="float32")
    for numbers in ([0, 3], [1], [2, 1, 0], [3]):
        found, now = stored.padded(numbers), live.padded(numbers)
        assert found.shape == (3, len(numbers), max(1, *(len(TEXTS[n]) for n in numbers), 0), 32)
        assert torch.allclose(found, now, atol=2e-6)
        for row, n in enumerate(numbers):
            expected = elmo.embed([TEXTS[n]])[0].layers
            length = len(TEXTS[n])
            assert np.allclose(found[:, row, :length].numpy(), expected, atol=2e-6)
            assert not found[:, row, length:].any()


def test_float16_is_close_and_uncached_layers_are_rounded_the_same_way(
    elmo: ElmoModel, cache: LayerCache
) -> None:
    stored = cache.layers(elmo, TEXTS, CPU).padded([0, 3])
    live = LiveLayers(elmo, TEXTS, CPU, state="reset", storage="float16").padded([0, 3])
    assert torch.equal(stored, stored.half().float())
    assert torch.equal(live, live.half().float())
    assert torch.allclose(stored, live, atol=2e-3)


def test_layers_kept_in_memory_are_the_same(elmo: ElmoModel) -> None:
    values = np.random.default_rng(0).normal(size=(8, 3, 32)).astype(np.float16)
    lengths = [len(text) for text in TEXTS]
    mapped = StoredLayers(values, lengths, CPU)
    resident = StoredLayers(values, lengths, CPU, resident=True)
    for numbers in ([0, 1, 2, 3], [1], [3, 0]):
        assert torch.equal(mapped.padded(numbers), resident.padded(numbers))


def test_layers_are_not_recomputed_on_the_second_run(
    elmo: ElmoModel, cache: LayerCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cache.layers(elmo, TEXTS, CPU).padded([0, 3])
    monkeypatch.setattr(elmo, "stream", None)
    assert torch.equal(LayerCache(cache.folder).layers(elmo, TEXTS, CPU).padded([0, 3]), first)
    assert len(entries(cache)) == 1


@pytest.mark.parametrize("what", ["text", "boundaries", "storage", "model"])
def test_layers_are_recomputed_after_a_change(
    elmo: ElmoModel, cache: LayerCache, what: str
) -> None:
    cache.layers(elmo, TEXTS, CPU)
    if what == "text":
        cache.layers(elmo, [("The", "dog", "barkz"), *TEXTS[1:]], CPU)
    elif what == "boundaries":  # the same tokens, split into other sentences
        cache.layers(elmo, [("The", "dog"), ("barks",), *TEXTS[2:]], CPU)
    elif what == "storage":
        cache.layers(elmo, TEXTS, CPU, storage="float32")
    else:
        other = load(TINY_MODEL, device="cpu")
        with torch.no_grad():
            next(other.bilm.parameters()).mul_(1.001)
        assert fingerprint(other) != fingerprint(elmo)
        cache.layers(other, TEXTS, CPU)
    assert len(entries(cache)) == 2


def test_damaged_entries_are_recomputed(elmo: ElmoModel, cache: LayerCache) -> None:
    first = cache.layers(elmo, TEXTS, CPU).padded([0])
    path = entries(cache)[0]
    entry = path.read_bytes()
    for damage in (b"", entry[:-100], entry.replace(b"'shape': (", b"'shape': [")):
        path.write_bytes(damage)
        assert torch.equal(cache.layers(elmo, TEXTS, CPU).padded([0]), first)


def test_incomplete_entries_are_not_used(
    elmo: ElmoModel, cache: LayerCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(elmo, "stream", fail)
        with pytest.raises(KeyboardInterrupt):
            cache.layers(elmo, TEXTS, CPU)
    assert not entries(cache)


def test_identical_texts_are_stored_once(elmo: ElmoModel, cache: LayerCache) -> None:
    repeated = [TEXTS[0], TEXTS[3], TEXTS[0], TEXTS[0]]
    found = cache.layers(elmo, repeated, CPU).padded([2, 1, 0])
    [path] = entries(cache)
    assert np.load(path).shape == (7, 3, 32)
    assert torch.equal(found, cache.layers(elmo, TEXTS, CPU).padded([0, 3, 0]))


def test_identical_texts_in_a_batch_are_computed_once(
    elmo: ElmoModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    repeated = [TEXTS[0], TEXTS[3], list(TEXTS[0]), TEXTS[0]]
    live = LiveLayers(elmo, repeated, CPU, state="reset", storage="float16")
    apart = torch.cat([live.padded([n]) for n in (2, 0, 3)], dim=1)
    runs = count_runs(elmo, monkeypatch)
    found = live.padded([2, 1, 0, 3])
    assert runs == [2]
    assert torch.allclose(found[:, [0, 2, 3], :3], apart, atol=2e-3)
    assert not found[:, [0, 2, 3], 3:].any()


def test_leftovers_of_a_killed_process_are_removed(elmo: ElmoModel, cache: LayerCache) -> None:
    cache.layers(elmo, TEXTS, CPU)
    [path] = entries(cache)
    path.rename(path.with_name(f".{path.name}.0123abcd.tmp"))
    cache.layers(elmo, TEXTS, CPU)
    assert entries(cache) == [path]


def test_unwritable_cache_is_reported(elmo: ElmoModel, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError):
        LayerCache(tmp_path / "file").layers(elmo, TEXTS, CPU)


def test_datasets_that_exceed_the_limit_are_computed_on_the_fly(
    elmo: ElmoModel, tmp_path: Path
) -> None:
    messages: list[str] = []
    cache = LayerCache(tmp_path / "cache", max_bytes=BYTES - 1, log=messages.append)
    assert isinstance(cache.layers(elmo, TEXTS, CPU), LiveLayers)
    assert "--cache-gb" in messages[0]
    assert not cache.folder.exists()
    assert isinstance(LayerCache(tmp_path / "c", max_bytes=0).layers(elmo, TEXTS, CPU), LiveLayers)


def test_least_recently_used_entry_is_evicted(elmo: ElmoModel, tmp_path: Path) -> None:
    cache = LayerCache(tmp_path / "cache", max_bytes=int(2.9 * BYTES))
    sets = [[(f"{name}{i}", *text[1:]) if text else () for i, text in enumerate(TEXTS)]
            for name in "abc"]  # fmt: skip
    cache.layers(elmo, sets[0], CPU)
    [a] = entries(cache)
    cache.layers(elmo, sets[1], CPU)
    [b] = set(entries(cache)) - {a}
    for path, age in ((a, 200), (b, 100)):
        os.utime(path, (time.time() - age,) * 2)
    cache.layers(elmo, sets[0], CPU)  # now b is the least recently used one
    cache.layers(elmo, sets[2], CPU)
    assert a in entries(cache)
    assert b not in entries(cache)
    assert sum(path.stat().st_size for path in entries(cache)) <= cache.max_bytes


def test_threads_that_share_a_small_cache_get_correct_layers(
    elmo: ElmoModel, tmp_path: Path
) -> None:
    folder = tmp_path / "cache"
    limit = int(2.9 * BYTES)
    expected = LiveLayers(elmo, TEXTS, CPU, state="reset", storage="float16").padded([0, 2])

    def use(name: int) -> None:
        cache = LayerCache(folder, max_bytes=limit)
        for number in range(15):
            texts = [*TEXTS[:3], (f"{name}", f"{number}", "far", "away")]
            layers = cache.layers(elmo, texts, CPU)
            assert torch.allclose(layers.padded([0, 2]), expected, atol=2e-3)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(use, range(6)))
    LayerCache(folder, max_bytes=limit).layers(elmo, TEXTS, CPU)
    sizes = [path.stat().st_size for path in entries(LayerCache(folder))]
    assert 0 < sum(sizes) <= limit


def test_files_of_running_processes_are_kept_and_those_of_killed_processes_removed(
    elmo: ElmoModel, tmp_path: Path
) -> None:
    cache = LayerCache(tmp_path / "cache")
    cache.layers(elmo, [("Another", *text[1:]) if text else () for text in TEXTS], CPU)
    [path] = entries(cache)
    path = path.rename(path.with_name(f".{path.name}.0123abcd.tmp"))
    with file_lock(path.with_name(path.name.split(".")[1]).with_suffix(".lock")):
        cache.layers(elmo, TEXTS, CPU)
        assert path in entries(cache)
    cache.layers(elmo, [("One", "more")], CPU)
    assert path not in entries(cache)


def test_other_files_in_the_cache_directory_are_not_touched(
    elmo: ElmoModel, tmp_path: Path
) -> None:
    cache = LayerCache(tmp_path, max_bytes=int(1.1 * BYTES))
    own = [".0123456789abcdef0123456789abcdef", ".git", "layers.npy"]
    for name in own:
        (tmp_path / name).write_bytes(bytes(BYTES))
    for word in "abc":
        assert isinstance(cache.layers(elmo, [(word,) * 8], CPU), StoredLayers)
    assert set(own) < {path.name for path in entries(cache)}
    assert len(entries(cache)) == len(own) + 1


def test_texts_without_tokens(elmo: ElmoModel, cache: LayerCache) -> None:
    assert cache.layers(elmo, [(), ()], CPU).padded([0, 1]).shape == (3, 2, 1, 32)


def test_values_that_overflow_float16_are_rejected(
    elmo: ElmoModel, cache: LayerCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = elmo.stream

    def large(*given: Any, **named: Any) -> Any:
        for vectors in stream(*given, **named):
            yield replace(vectors, layers=vectors.layers * np.float32(1e6))

    monkeypatch.setattr(elmo, "stream", large)
    with pytest.raises(ConfigError, match="storage=float32"):
        cache.layers(elmo, TEXTS, CPU)
