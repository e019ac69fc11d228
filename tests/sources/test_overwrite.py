"""Directories are replaced as a whole, only on request, and only if they contain a model."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from elmokit.errors import OutputError
from elmokit.sources.modeldir import ModelParts, load, save
from elmokit.text.vocab import Vocabulary
from tests.sources.models import make_parts, same_bits


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save(make_parts(), tmp_path / "model")
    return tmp_path / "model"


def test_model_is_replaced_only_on_request(saved: Path) -> None:
    with pytest.raises(OutputError, match="--overwrite"):
        save(make_parts(seed=1), saved)
    save(make_parts(seed=1), saved, overwrite=True)
    assert same_bits(load(saved).bilm, make_parts(seed=1).bilm)
    assert [entry.name for entry in saved.parent.iterdir()] == ["model"]


def test_parts_of_the_old_model_are_removed(tmp_path: Path) -> None:
    save(make_parts(full=True), tmp_path / "model")
    save(make_parts(), tmp_path / "model", overwrite=True)
    assert load(tmp_path / "model").head is None


@pytest.mark.parametrize("overwrite", [False, True])
def test_directory_with_other_files_is_never_replaced(saved: Path, overwrite: bool) -> None:
    (saved / "thesis.tex").write_text("years of work")
    with pytest.raises(OutputError, match=r"thesis\.tex"):
        save(make_parts(), saved, overwrite=overwrite)
    (saved / "model.safetensors").unlink()
    with pytest.raises(OutputError):
        save(make_parts(), saved, overwrite=overwrite)
    assert (saved / "thesis.tex").read_text() == "years of work"


def test_empty_directory_is_used(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    save(make_parts(), tmp_path / "empty")
    assert load(tmp_path / "empty")


def test_existing_file_is_not_replaced_by_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    with pytest.raises(OutputError):
        save(make_parts(), tmp_path / "file", overwrite=True)


def test_symbolic_link_is_kept_when_the_model_is_replaced(saved: Path) -> None:
    link = saved.with_name("link")
    link.symlink_to(saved)
    save(make_parts(seed=1), link, overwrite=True)
    assert link.is_symlink()
    assert same_bits(load(saved).bilm, make_parts(seed=1).bilm)


def test_failed_save_keeps_the_old_model_and_leaves_no_files(saved: Path) -> None:
    broken = ModelParts(make_parts(seed=1).bilm, vocabulary=Vocabulary(["\ud800"]))
    with pytest.raises(UnicodeEncodeError):
        save(broken, saved, overwrite=True)
    assert same_bits(load(saved).bilm, make_parts().bilm)
    assert [entry.name for entry in saved.parent.iterdir()] == ["model"]


def test_unwritable_path_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="file"):
        save(make_parts(), tmp_path / "file" / "model")


def test_full_disk_is_an_error_and_keeps_the_old_model(saved: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        with pytest.raises(OutputError, match=f"Cannot write {saved}: .*File too large"):
            save(make_parts(seed=1), saved, overwrite=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert same_bits(load(saved).bilm, make_parts().bilm)
    assert [entry.name for entry in saved.parent.iterdir()] == ["model"]
