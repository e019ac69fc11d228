"""Models on the hub: saving, downloading, caching, and clear errors without a network."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import elmokit
from elmokit.errors import ConfigError, DownloadError, ElmoWarning, WeightsError
from elmokit.sources.hub import parse
from tests.conftest import TINY_MODEL
from tests.integrations.hub_server import Hub, running

package = pytest.importorskip("huggingface_hub", reason="the extra `hub` is not installed")

from huggingface_hub import constants  # noqa: E402

from elmokit.integrations.hub import save_pretrained  # noqa: E402

NAME = "hf://mary/tiny"
SENTENCE = "In the beginning God created the heaven and the earth."


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """Run a hub with one model, and use an empty cache."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")  # the hub of these tests is local
    for name in ("HF_HUB_OFFLINE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with running() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.push("mary/tiny", TINY_MODEL)
        yield hub


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a URL where no server is listening."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{held.getsockname()[1]}"


def vectors(name: str) -> np.ndarray:
    return elmokit.load(name).embed(SENTENCE).layers


def other_model(folder: Path) -> Path:
    """Create a model of the same shape with other weights."""
    from elmokit.sources import modeldir

    parts = modeldir.load(TINY_MODEL)
    for parameter in parts.bilm.parameters():
        parameter.data.mul_(0.5)
    modeldir.save(parts, folder)
    return folder


# -------------------------------------------------------------------------------------------- names


def test_names_are_parsed() -> None:
    assert parse("hf://mary/tiny") == ("mary/tiny", "main")
    assert parse("HF://mary/tiny@v1.0/") == ("mary/tiny", "v1.0")


@pytest.mark.parametrize("name", ["hf://", "hf://tiny", "hf://a/b/c", "hf://a/b@", "hf://a/../b@c"])
def test_invalid_names_are_rejected(name: str) -> None:
    with pytest.raises(WeightsError, match="expected hf://user/model"):
        elmokit.load(name)


# -------------------------------------------------------------------------------------- downloading


def test_downloaded_model_gives_the_same_vectors(hub: Hub) -> None:
    elmo = elmokit.load(NAME)
    assert elmo.source == NAME
    np.testing.assert_array_equal(elmo.embed(SENTENCE).layers, vectors(str(TINY_MODEL)))


def test_model_is_downloaded_once(hub: Hub) -> None:
    vectors(NAME)
    assert sorted(hub.downloads()) == sorted(p.name for p in TINY_MODEL.iterdir())
    hub.requests.clear()
    vectors(NAME)
    assert hub.downloads() == []


def test_all_parts_of_a_model_are_downloaded(hub: Hub, tmp_path: Path) -> None:
    from elmokit.sources import modeldir
    from tests.sources.models import make_parts, same_bits

    parts = make_parts(full=True)
    modeldir.save(parts, tmp_path / "full", part_bytes=200)
    assert (tmp_path / "full" / "model-10.safetensors").is_file()
    hub.push("mary/full", tmp_path / "full")
    elmo = elmokit.load("hf://mary/full")
    assert same_bits(elmo.bilm, parts.bilm)
    assert elmo.head is not None
    assert elmo.warm is not None
    assert elmo.vocabulary is not None
    assert elmo.vocabulary.words == parts.vocabulary.words


def test_changed_revision_is_downloaded_and_the_old_one_is_kept(hub: Hub, tmp_path: Path) -> None:
    first = hub.refs["mary/tiny", "main"]
    before = vectors(NAME)
    hub.refs["mary/tiny", "v1"] = first
    hub.push("mary/tiny", other_model(tmp_path / "other"))
    after = vectors(NAME)
    assert np.abs(after - before).max() > 0.01
    np.testing.assert_array_equal(vectors(f"{NAME}@{first}"), before)
    np.testing.assert_array_equal(vectors(f"{NAME}@v1"), before)


def test_missing_models_and_revisions_are_reported(hub: Hub) -> None:
    with pytest.raises(DownloadError, match=r"hf://mary/huge .*Repository Not Found"):
        elmokit.load("hf://mary/huge")
    with pytest.raises(DownloadError, match=r"@v7 .*Revision Not Found"):
        elmokit.load(f"{NAME}@v7")


def test_weights_of_other_repositories_are_rejected(hub: Hub) -> None:
    with pytest.raises(WeightsError):
        elmokit.load(NAME, weights="weights.hdf5")


def test_pickles_and_code_are_never_downloaded(hub: Hub) -> None:
    files = {p.name: p.read_bytes() for p in TINY_MODEL.iterdir()}
    evil = {
        "pytorch_model.bin": b"\x80\x02",
        "elmo.pkl": b"\x80",
        "modeling.py": b"raise SystemExit",
    }
    hub.push("mary/mixed", {**files, **evil, "sub/model.safetensors": b"x"})
    vectors("hf://mary/mixed")
    assert sorted(hub.downloads()) == sorted(files)
    hub.push("mary/pickled", {"config.json": files["config.json"], **evil})
    with pytest.raises(WeightsError, match=r"found .*elmo\.pkl.* Pickle files"):
        elmokit.load("hf://mary/pickled")


def test_weights_of_another_library_are_not_downloaded(hub: Hub) -> None:
    config = json.dumps({"model_type": "bert"}).encode()
    hub.push("mary/bert", {"config.json": config, "model.safetensors": b"large"})
    with pytest.raises(ConfigError):
        elmokit.load("hf://mary/bert")
    assert hub.downloads() == ["config.json"]


def test_hdf5_model_can_be_loaded_from_the_hub(hub: Hub, tmp_path: Path) -> None:
    from elmokit.convert import bilm_hdf5
    from elmokit.sources import modeldir

    parts = modeldir.load(TINY_MODEL)
    bilm_hdf5.write(parts.bilm, tmp_path / "options.json", tmp_path / "weights.hdf5")
    hub.push("mary/old", {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()})
    np.testing.assert_array_equal(vectors("hf://mary/old"), vectors(str(TINY_MODEL)))


# ----------------------------------------------------------------------------------- offline


def test_cached_copy_is_used_with_a_warning_without_a_network(
    hub: Hub, nowhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = hub.refs["mary/tiny", "main"]
    before = vectors(NAME)
    monkeypatch.setenv("HF_ENDPOINT", nowhere)
    with pytest.warns(ElmoWarning, match=f"Cannot reach the Hub.* cached copy .*commit {commit}"):
        np.testing.assert_array_equal(vectors(NAME), before)


def test_hub_that_answers_503_counts_as_offline(hub: Hub) -> None:
    before = vectors(NAME)
    hub.down = True
    with pytest.warns(ElmoWarning, match="503"):
        np.testing.assert_array_equal(vectors(NAME), before)


def test_error_without_a_network_and_without_a_cached_copy(
    hub: Hub, nowhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", nowhere)
    with pytest.raises(
        DownloadError, match=f"Cannot reach the Hub at {nowhere} .* {NAME} is not in the cache"
    ):
        elmokit.load(NAME)


def test_offline_mode_sends_no_requests(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    before = vectors(NAME)
    hub.requests.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    np.testing.assert_array_equal(vectors(NAME), before)
    with pytest.raises(DownloadError, match="is set, and hf://mary/tall is not in the cache"):
        elmokit.load("hf://mary/tall")
    assert hub.requests == []


def test_incomplete_copy_is_not_used(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = hub.refs["mary/tiny", "main"]
    hub.broken = {"model.safetensors"}
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(DownloadError, match=r"500.* hf://mary/tiny is not in the cache"):
        elmokit.load(NAME)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(DownloadError, match="hf://mary/tiny is not in the cache"):
        elmokit.load(NAME)
    with pytest.raises(DownloadError, match="is incomplete, because its download was interrupted"):
        elmokit.load(f"{NAME}@{commit}")


def test_interrupted_update_keeps_the_old_copy(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = vectors(NAME)
    hub.push("mary/tiny", other_model(tmp_path / "other"))
    hub.broken = {"model.safetensors"}
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.warns(ElmoWarning, match="500"):
        np.testing.assert_array_equal(vectors(NAME), before)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    np.testing.assert_array_equal(vectors(NAME), before)


# ------------------------------------------------------------------------------------ saving


def test_saved_model_can_be_pushed_and_loaded(hub: Hub, tmp_path: Path) -> None:
    folder = save_pretrained(TINY_MODEL, tmp_path / "mine", license="CC BY-SA 4.0", language="de")
    hub.push("mary/mine", folder)
    np.testing.assert_array_equal(vectors("hf://mary/mine"), vectors(str(TINY_MODEL)))


def test_model_card_has_a_valid_header_for_the_hub(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(TINY_MODEL, source, ignore=shutil.ignore_patterns("README.md"))
    elmo = elmokit.load(source)
    folder = save_pretrained(
        elmo, tmp_path / "mine", license="My Own: 1", language=["de", "nds"], tags=["bible"]
    )
    card = package.ModelCard((folder / "README.md").read_text("utf-8"))
    data = card.data.to_dict()
    assert data["license"] == "other"
    assert data["license_name"] == "My Own: 1"
    assert data["language"] == ["de", "nds"]
    assert data["library_name"] == "elmokit"
    assert {"elmo", "bible"} <= set(data["tags"])
    assert 'elmokit.load("hf://user/model")' in card.text


def test_header_defaults_come_from_the_model(tmp_path: Path) -> None:
    folder = save_pretrained("english", tmp_path / "english", storage="int8")
    card = package.ModelCard((folder / "README.md").read_text("utf-8"))
    assert card.data.to_dict()["license"] == "cc-by-sa-4.0"
    assert card.data.to_dict()["language"] == ["en"]
    assert card.text.lstrip().startswith("# english")


def test_existing_header_is_kept(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(TINY_MODEL, source)
    (source / "README.md").write_text("---\nlicense: mit\n---\n# mine\n", "utf-8")
    folder = save_pretrained(source, tmp_path / "mine", license="apache-2.0")
    assert (folder / "README.md").read_text("utf-8") == "---\nlicense: mit\n---\n# mine\n"


def test_loaded_model_keeps_its_card(tmp_path: Path) -> None:
    folder = save_pretrained(elmokit.load(TINY_MODEL), tmp_path / "mine")
    card = (folder / "README.md").read_text("utf-8")
    assert card.endswith((TINY_MODEL / "README.md").read_text("utf-8"))


@pytest.mark.parametrize("bad", [{"license": ""}, {"language": 7}, {"language": [""]}])
def test_invalid_headers_are_rejected(tmp_path: Path, bad: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        save_pretrained(TINY_MODEL, tmp_path / "mine", **bad)  # type: ignore[arg-type]
    assert not (tmp_path / "mine").exists()
