from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tests.text import ewt

SHARED = Path(__file__).resolve().parents[2].parent / "shared"


@pytest.fixture(scope="session")
def ewt_sentences(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[ewt.Sentence]]:
    """Load dev and test of UD EWT."""
    archive = SHARED / "data" / "tasks.tar.xz"
    if not archive.exists():
        pytest.skip(f"UD EWT is not here: no {archive}")
    folder = tmp_path_factory.mktemp("ewt")
    wanted = {f"tasks/ud_ewt/en_ewt-ud-{part}.conllu": part for part in ("dev", "test")}
    found = {}
    with tarfile.open(archive, "r|xz") as tar:
        for member in tar:
            if member.name in wanted:
                tar.extract(member, folder, filter="data")
                part = wanted.pop(member.name)
                found[part] = list(ewt.read(folder / member.name))
            if not wanted:
                break
    return found
