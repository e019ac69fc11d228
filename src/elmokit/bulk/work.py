"""The work directory of a corpus that is being embedded: `.OUT.parts` beside `OUT`.

manifest.json              what is being made: model, settings, input; written once, at the start
part-000000.safetensors    the finished parts, each with its own record (see files/part.py)
.part-*.tmp, output.tmp    what is being written now; removed by the next run after a kill
.lock                      the run lock (see storage/lock.py)

All files are written atomically, so every part is complete. One process makes them in order;
several may leave gaps, which are filled when the run is resumed.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from elmokit.bulk.files.part import MemoryPart, PartFile
from elmokit.errors import ConfigError, DataError, output_error
from elmokit.storage.atomic import replace_file, sync_directory
from elmokit.storage.lock import RUN_LOCK, run_lock
from elmokit.storage.manifest import check_format, read_json, write_json

MANIFEST = "manifest.json"
MANIFEST_VERSION = 1


def work_path(out: Path) -> Path:
    """Return where the work directory of an output file is."""
    return out.with_name(f".{out.name}.parts")


def has_unfinished_run(out: Path) -> bool:
    """Tell whether an interrupted run to `out` can be resumed."""
    return (work_path(out) / MANIFEST).exists()


class WorkDirectory:
    """The finished parts of an output file. It is locked until it is released or discarded.

    Attributes:
        path: The directory.
        manifest: What is being made.
        numbered: The finished parts by their numbers.
    """

    def __init__(self, out: Path, manifest: Mapping[str, Any]) -> None:
        self.out = out
        self.path = work_path(out)
        self.manifest = manifest
        self.numbered: dict[int, PartFile] = {}
        self._lock = ExitStack()
        self._lock.enter_context(run_lock(self.path))
        self._is_ours = True  # until it is discarded: the next one of this name is another run's

    @classmethod
    def create(cls, out: Path, manifest: Mapping[str, Any]) -> WorkDirectory:
        """Start a new run; what an earlier one left is removed."""
        work = cls(out, manifest)
        try:
            work._clear()
            values = {"version": MANIFEST_VERSION, **manifest}
            write_json(work.path / MANIFEST, values)
        except OSError as error:
            work.discard()
            raise output_error(out, error) from error
        except BaseException:
            work.discard()
            raise
        return work

    @classmethod
    def resume(cls, out: Path, manifest: Mapping[str, Any]) -> WorkDirectory | None:
        """Continue an interrupted run; None if there is none.

        Raises:
            ConfigError: It was started with another model, other settings or another version.
        """
        if not work_path(out).is_dir():
            return None
        work = cls(out, manifest)
        if not has_unfinished_run(out):  # killed before it began, or while it was discarded
            work.discard()
            return None
        try:
            check_same_run(work.path, _read_manifest(work.path), manifest)
            for file in sorted(work.path.glob("part-*.safetensors")):
                work.note(int(file.stem.removeprefix("part-")))
            work.remove_unfinished()
        except BaseException:
            work.release()
            raise
        return work

    @property
    def parts(self) -> list[PartFile]:
        """The finished parts, in order."""
        return [self.numbered[number] for number in sorted(self.numbered)]

    @property
    def unbroken(self) -> list[PartFile]:
        """The finished parts from the first on, up to the first that is missing."""
        parts: list[PartFile] = []
        while len(parts) in self.numbered:
            parts.append(self.numbered[len(parts)])
        return parts

    def note(self, number: int) -> None:
        """Add a part that was written to the directory."""
        self.numbered[number] = PartFile.open(_part(self.path, number))

    def remove_unfinished(self) -> None:
        """Remove what processes that were killed were writing."""
        if self._is_ours:
            for file in self.path.glob(".part-*.tmp"):
                file.unlink(missing_ok=True)

    def finish(self, write: Callable[[Path], None]) -> None:
        """Make the output file and remove the directory.

        Args:
            write: Writes the whole output to the path that it is given.
        """
        # In the work directory, where the next run removes it after a kill.
        with replace_file(self.out, temporary=self.path / "output.tmp") as temporary:
            write(temporary)
        sync_directory(self.out.parent)  # the output must be safe before the parts go
        self.discard()

    def discard(self) -> None:
        """Remove the directory."""
        if self._is_ours:
            self._is_ours = False
            self._clear()
            self.release()
            with suppress(OSError):  # another run may have started in it
                self.path.rmdir()

    def release(self) -> None:
        """Let other processes use the directory."""
        self._lock.close()

    def _clear(self) -> None:
        # The manifest goes first: without it there is nothing to resume.
        (self.path / MANIFEST).unlink(missing_ok=True)
        for entry in list(self.path.iterdir()):
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry.name != RUN_LOCK:
                entry.unlink()


def write_part(out: Path, number: int, part: MemoryPart, record: Mapping[str, Any]) -> None:
    """Write a part into the work directory of `out`."""
    with replace_file(_part(work_path(out), number)) as temporary:
        part.save(temporary, record)


def _part(path: Path, number: int) -> Path:
    return path / f"part-{number:06d}.safetensors"


def _read_manifest(path: Path) -> dict[str, Any]:
    source, hint = path / MANIFEST, "Start again with --overwrite."
    values = read_json(source, error=DataError, hint=hint)
    check_format(values, source, None, MANIFEST_VERSION, key="version", error=DataError, hint=hint)
    del values["version"]
    return values


def check_same_run(path: object, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise if a run that is to be resumed was another one."""
    names = sorted(before.keys() | now.keys())
    differ = [
        f"{name} was {before.get(name)!r} and is now {now.get(name)!r}"
        for name in names
        if before.get(name) != now.get(name)
    ]
    if differ:
        raise ConfigError(
            f"The interrupted run in {path} cannot be resumed, because it was started with "
            f"different settings: {'; '.join(differ)}. Use the same settings to resume, or start "
            "again with --overwrite."
        )
