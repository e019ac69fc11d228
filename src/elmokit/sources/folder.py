"""Folders that hold a model: which files, and when one may be replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from elmokit.errors import OutputError
from elmokit.storage.atomic import replace_directory


@contextmanager
def new_folder(
    path: Path, *, overwrite: bool, ours: Iterable[str], is_model: Callable[[Path], bool]
) -> Iterator[Path]:
    """Give an empty folder to fill, which then takes the place of `path` as a whole.

    Nothing that is not a model is ever replaced: neither a file, nor a folder without a model, nor
    a folder in which other files lie beside one.

    Args:
        path: The folder to make.
        overwrite: Replace a model that is already there.
        ours: The names of all files such a folder may hold.
        is_model: Tells whether a folder holds a model of the kind to be written.
    """
    path = Path(path)

    def check() -> None:
        if path.is_file():
            raise OutputError(
                f"Cannot write the folder {path}: a file is there. Choose another name."
            )
        names = sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []
        foreign = [name for name in names if name not in set(ours)]
        if foreign or (names and not is_model(path)):
            raise OutputError(
                f"{path} is not replaced: it holds other things than a model "
                f"({', '.join((foreign or names)[:5])}). Choose a folder that is new or empty."
            )
        if names and not overwrite:
            raise OutputError(
                f"There is a model in {path} already. Choose another folder, or replace it with "
                "--overwrite (in Python: overwrite=True)."
            )

    check()
    with replace_directory(path, check=check) as temporary:
        yield temporary


def size_of(files: Iterable[Path]) -> int:
    """Count the bytes of the files that are there."""
    return sum(file.stat().st_size for file in files if file.is_file())
