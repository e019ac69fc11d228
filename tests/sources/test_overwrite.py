"""A folder is replaced whole, only by request, and only if it holds nothing but a model."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from elmokit.errors import DataError, OutputError
from elmokit.sources.modeldir import ModelParts, load, save
from elmokit.text.vocab import Vocabulary
from tests.sources.models import make_parts, same_bits


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save(make_parts(), tmp_path / "model")
    return tmp_path / "model"


def test_a_model_is_replaced_only_when_asked(saved: Path) -> None:
    with pytest.raises(OutputError, match="--overwrite"):
        save(make_parts(seed=1), saved)
    save(make_parts(seed=1), saved, overwrite=True)
    assert same_bits(load(saved).bilm, make_parts(seed=1).bilm)
    assert [entry.name for entry in saved.parent.iterdir()] == ["model"]


def test_parts_of_the_old_model_do_not_stay(tmp_path: Path) -> None:
    save(make_parts(full=True), tmp_path / "model")
    save(make_parts(), tmp_path / "model", overwrite=True)
    assert load(tmp_path / "model").head is None


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_with_other_things_is_never_replaced(saved: Path, overwrite: bool) -> None:
    (saved / "thesis.tex").write_text("years of work")
    with pytest.raises(OutputError, match=r"thesis\.tex"):
        save(make_parts(), saved, overwrite=overwrite)
    (saved / "model.safetensors").unlink()
    with pytest.raises(OutputError):
        save(make_parts(), saved, overwrite=overwrite)
    assert (saved / "thesis.tex").read_text() == "years of work"


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    save(make_parts(), tmp_path / "empty")
    assert load(tmp_path / "empty")


def test_a_file_in_the_way_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    with pytest.raises(OutputError):
        save(make_parts(), tmp_path / "file", overwrite=True)


def test_a_link_still_leads_to_the_model_after_it_is_replaced(saved: Path) -> None:
    link = saved.with_name("link")
    link.symlink_to(saved)
    save(make_parts(seed=1), link, overwrite=True)
    assert link.is_symlink()
    assert same_bits(load(saved).bilm, make_parts(seed=1).bilm)


def test_a_save_that_fails_leaves_the_old_model_and_nothing_else(saved: Path) -> None:
    broken = ModelParts(make_parts(seed=1).bilm, vocabulary=Vocabulary(["\ud800"]))
    with pytest.raises(DataError, match="surrogate"):
        save(broken, saved, overwrite=True)
    assert same_bits(load(saved).bilm, make_parts().bilm)
    assert [entry.name for entry in saved.parent.iterdir()] == ["model"]


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="file"):
        save(make_parts(), tmp_path / "file" / "model")


def test_a_full_disk_is_an_error_and_leaves_the_old_model(saved: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        with pytest.raises(OutputError, match=f"Cannot write {saved}: .*File too large"):
            save(make_parts(seed=1), saved, overwrite=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert same_bits(load(saved).bilm, make_parts().bilm)
    assert [entry.name for entry in saved.parent.iterdir()] == ["model"]
