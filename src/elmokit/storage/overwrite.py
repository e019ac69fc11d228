"""Create output directories. Only directories written by elmokit can be overwritten."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from elmokit.errors import OutputError
from elmokit.storage.atomic import replace_directory, restore_directory


class DirectoryKind(NamedTuple):
    """A kind of output directory.

    Attributes:
        name: The name for error messages, for example "model".
        files: The names of all files that such a directory can contain.
        matches: A function that returns whether a directory is of this kind.
    """

    name: str
    files: Container[str]
    matches: Callable[[Path], bool]


def check_directory(path: Path, kind: DirectoryKind, *, overwrite: bool) -> None:
    """Raise an `OutputError` if a directory cannot be created or replaced; see `new_directory`."""
    if path.exists() and not path.is_dir():
        raise OutputError(
            f"Cannot create the directory {path}: a file with this name exists. Choose "
            "another name."
        )
    try:
        names = sorted(entry.name for entry in path.iterdir()) if path.exists() else []
    except OSError as error:
        raise OutputError(
            f"{path} cannot be read: {error.strerror}. Check its permissions."
        ) from None
    foreign = [name for name in names if name not in kind.files]
    if foreign or (names and not kind.matches(path)):
        listed = ", ".join((foreign or names)[:5])
        reason = (
            f"contains files that are not part of a {kind.name} ({listed})"
            if foreign
            else f"is neither empty nor a {kind.name} (it contains {listed})"
        )
        raise OutputError(
            f"{path} was not replaced, because it {reason}. Move these files, or choose "
            "a new or empty directory."
        )
    if names and not overwrite:
        raise OutputError(
            f"{path} already contains a {kind.name}. Choose another directory, or replace it "
            "with --overwrite (in Python: overwrite=True)."
        )


@contextmanager
def new_directory(path: Path, kind: DirectoryKind, *, overwrite: bool) -> Iterator[Path]:
    """Yield a temporary directory to fill, and rename it to `path` at the end.

    Args:
        path: The directory to create.
        kind: The kind of directory.
        overwrite: Whether to replace an existing directory of the same kind.

    Raises:
        OutputError: `path` must not be replaced, or cannot be written.
    """
    restore_directory(path)
    check = partial(check_directory, path, kind, overwrite=overwrite)
    check()
    with replace_directory(path, check=check) as temporary:
        yield temporary
