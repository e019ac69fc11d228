"""Published models, by name and by URL, from a local mirror."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import pytest
import torch

from elmokit.convert import bilm_hdf5
from elmokit.errors import ConfigError, DownloadError, WeightsError
from elmokit.model.bilm import BiLM
from elmokit.model.skip_init import skip_init
from elmokit.presets import preset
from elmokit.sources.published import PUBLISHED
from elmokit.sources.resolve import load_parts
from tests.sources.models import make_parts, same_bits, write_hdf5
from tests.sources.server import Server, answer, status

SMALL = "/2x1024_128_2048cnn_1xhighway/elmo_2x1024_128_2048cnn_1xhighway_"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ELMOKIT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def mirror(home: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setenv("ELMOKIT_ALLENNLP_URL", server.url)
    return server


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Write the files of a model with the released small shape, all zeros and therefore sparse."""
    with skip_init():
        bilm = BiLM(preset("small"))
    path = tmp_path_factory.mktemp("small") / "weights.hdf5"
    with h5py.File(path, "w") as file:
        for entry in bilm_hdf5.entries(bilm.config):
            file.create_dataset(entry.name, shape=entry.shape, dtype="float32")
    options = json.dumps(bilm_hdf5.to_options(bilm.config)).encode()
    return {f"{SMALL}options.json": options, f"{SMALL}weights.hdf5": path.read_bytes()}


def test_names_map_to_the_published_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ELMOKIT_ALLENNLP_URL", raising=False)
    base = "https://allennlp.s3.amazonaws.com/models/elmo"
    folders = {
        "allennlp:original": "2x4096_512_2048cnn_2xhighway",
        "allennlp:5.5B": "2x4096_512_2048cnn_2xhighway_5.5B",
        "allennlp:medium": "2x2048_256_2048cnn_1xhighway",
        "allennlp:small": "2x1024_128_2048cnn_1xhighway",
    }
    assert PUBLISHED.keys() == folders.keys()
    for name, folder in folders.items():
        for kind in ("options.json", "weights.hdf5"):
            assert PUBLISHED[name].url(kind) == f"{base}/{folder}/elmo_{folder}_{kind}"


def test_published_model_is_downloaded_once_and_validated(
    mirror: Server, small: dict[str, bytes], home: Path
) -> None:
    mirror.files |= small
    mirror.plan = [answer(), answer(stop_after=2000)]
    parts = load_parts("allennlp:small")
    assert parts.bilm.config == preset("small")
    assert parts.n_parameters == 13_593_296
    assert (parts.source, parts.metadata["name"]) == ("allennlp:small", "allennlp:small")
    assert len(mirror.requests) == 3
    mirror.usual = status(500)
    assert load_parts("allennlp:small").source == "allennlp:small"
    assert {file.relative_to(home).parts[0] for file in parts.files} == {"allennlp"}


def test_files_copied_to_the_cache_manually_are_used(
    home: Path, small: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELMOKIT_ALLENNLP_URL", "http://127.0.0.1:9")
    with pytest.raises(DownloadError) as caught:
        load_parts("allennlp:small")
    assert str(home / f"allennlp{SMALL}options.json") in str(caught.value)
    for name, content in small.items():
        place = home / f"allennlp{name}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    assert load_parts("allennlp:small")


def test_old_urls_lead_to_the_same_files(
    mirror: Server, small: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror.files |= small
    load_parts("allennlp:small")
    monkeypatch.delenv("ELMOKIT_ALLENNLP_URL")
    addresses = [PUBLISHED["allennlp:small"].url(kind) for kind in ("options.json", "weights.hdf5")]
    assert load_parts(*addresses).source == addresses[0]
    assert load_parts(addresses[0])


def test_options_of_another_shape_are_rejected_before_downloading_the_weights(
    mirror: Server, small: dict[str, bytes]
) -> None:
    medium = PUBLISHED["allennlp:medium"].url("options.json").removeprefix(mirror.url)
    mirror.files[medium] = small[f"{SMALL}options.json"]
    with pytest.raises(
        WeightsError, match=r"configuration of allennlp:medium.*Delete .*options\.json"
    ):
        load_parts("allennlp:medium")
    assert len(mirror.requests) == 1


def test_html_page_instead_of_options_is_rejected(mirror: Server) -> None:
    mirror.files[f"{SMALL}options.json"] = b"<html>log in to this network</html>"
    with pytest.raises(ConfigError, match=r"not valid JSON.*Delete .*options\.json"):
        load_parts("allennlp:small")


def test_error_for_damaged_weights_says_what_to_delete(
    mirror: Server, small: dict[str, bytes]
) -> None:
    mirror.files |= small
    mirror.files[f"{SMALL}weights.hdf5"] = small[f"{SMALL}weights.hdf5"][:3000]
    with pytest.raises(
        WeightsError, match=r"truncated.*Delete .*weights\.hdf5 to download it again"
    ):
        load_parts("allennlp:small")


def test_any_url_of_a_model_can_be_loaded(mirror: Server, tmp_path: Path) -> None:
    parts = make_parts()
    folder = write_hdf5(parts, tmp_path / "old")
    mirror.files = {f"/m/{file.name}": file.read_bytes() for file in folder.iterdir()}
    for given in (
        (f"{mirror.url}/m/options.json",),
        (f"{mirror.url}/m/options.json", f"{mirror.url}/m/weights.hdf5"),
        (folder / "options.json", f"{mirror.url}/m/weights.hdf5"),
    ):
        loaded = load_parts(*given)
        assert same_bits(loaded.bilm, parts.bilm)
        assert all(isinstance(t, torch.Tensor) for t in loaded.bilm.state_dict().values())
    assert len(mirror.requests) == 2
