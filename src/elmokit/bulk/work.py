"""The work directory of a corpus that is being embedded: `.OUT.parts` beside `OUT`.

manifest.json              what is being made: model, settings, input; written once, at the start
part-000000.safetensors    the finished parts, each with its own record (see files/part.py)
part-*.tmp, output.tmp     what is being written just now; worthless after a kill

Everything is written beside and renamed, so at any moment a directory holds whole parts only. One
process makes them in order; several may leave gaps, which are filled when the run is resumed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from elmokit.atomic import output_error
from elmokit.bulk.files.part import MemoryPart, PartFile
from elmokit.errors import ConfigError, DataError, OutputError
from elmokit.locking import folder_lock

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

MANIFEST_VERSION = 1


def work_path(out: Path) -> Path:
    """Return where the work directory of an output file is."""
    return out.with_name(f".{out.name}.parts")


def remove_leftovers(out: Path) -> None:
    """Remove what a run leaves that is killed while it makes or removes its work directory."""
    if out.parent.is_dir():
        with folder_lock(out.parent):
            _remove_leftovers(work_path(out))


class WorkDirectory:
    """The finished parts of an output file.

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
        self._lock = lock_folder(self.path)
        self._is_ours = True  # until it is removed: the next of its name is another's

    @classmethod
    def create(cls, out: Path, manifest: Mapping[str, Any]) -> WorkDirectory:
        """Begin; a directory that is there is removed."""
        path = work_path(out)
        new = _new(path)
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            with folder_lock(out.parent):
                check_nobody_works(out)  # in what is about to be removed
                _remove_leftovers(path)
                try:
                    new.mkdir()
                    text = json.dumps({"version": MANIFEST_VERSION, **manifest}, indent=2)
                    _write_text(new / "manifest.json", text)
                    old = _retired(path)
                    new.rename(path)
                except OSError:
                    _remove(new)
                    raise
                work = cls(out, manifest)
        except OSError as error:
            raise output_error(out, error) from error
        _remove(old)  # which may take long, and others wait for the folder
        return work

    @classmethod
    def resume(cls, out: Path, manifest: Mapping[str, Any]) -> WorkDirectory | None:
        """Go on with what is there; None if nothing is.

        Raises:
            ConfigError: It was begun with another model, other settings or another version.
        """
        path = work_path(out)
        if not out.parent.is_dir():
            return None
        with folder_lock(out.parent):
            if not path.is_dir():
                return None
            check_nobody_works(out)
            check_same_run(path, _read_manifest(path), manifest)
            work = cls(out, manifest)
        try:
            for file in sorted(path.glob("part-*.safetensors")):
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
        """Take a part in that was written to the directory."""
        self.numbered[number] = PartFile.open(_part(self.path, number))

    def remove_unfinished(self) -> None:
        """Remove what processes that were killed were writing."""
        if not self._is_ours:
            return
        for file in self.path.glob("part-*.tmp"):
            _unlink(file)

    def finish(self, write: Callable[[Path], None]) -> None:
        """Make the output file and remove the directory.

        Args:
            write: Writes the whole output to the path that it is given.
        """
        temporary = self.path / "output.tmp"
        try:
            write(temporary)
            _sync(temporary)
            temporary.replace(self.out)
            _sync(self.out.parent)  # the new name must be safe before the parts go
        except OSError as error:
            raise output_error(self.out, error) from error
        finally:
            _unlink(temporary)
        self.discard()

    def discard(self) -> None:
        """Remove the directory."""
        if not self._is_ours:
            return
        with folder_lock(self.out.parent):
            self.release()
            old = _retired(self.path)
        self._is_ours = False
        _remove(old)

    def release(self) -> None:
        """Let other processes work here."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def check_nobody_works(out: Path) -> None:
    """Raise if a process is at work in the work directory of `out`, if there is one."""
    with contextlib.suppress(FileNotFoundError):
        if (lock := lock_folder(work_path(out))) is not None:
            lock.close()


def write_part(out: Path, number: int, part: MemoryPart, record: Mapping[str, Any]) -> None:
    """Write a part into the work directory of `out`."""
    file = _part(work_path(out), number)
    temporary = file.with_suffix(".tmp")
    try:
        part.save(temporary, record)
        temporary.replace(file)
    except OSError as error:
        raise output_error(out, error) from error
    finally:
        _unlink(temporary)


def _part(path: Path, number: int) -> Path:
    return path / f"part-{number:06d}.safetensors"


def _new(path: Path) -> Path:
    return path.with_name(path.name + ".new")


def _remove_leftovers(path: Path) -> None:
    _remove(_new(path))
    for entry in list(path.parent.iterdir()):
        if entry.name.startswith(f"{path.name}.") and entry.name.endswith(".old"):
            _remove(entry)


def _retired(path: Path) -> Path | None:
    """Take its name from a directory that is to be removed: none is left that looks whole."""
    if not path.is_dir():
        return None
    return path.rename(path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.old"))


def _remove(path: Path | None) -> None:
    if path is not None:
        shutil.rmtree(path, ignore_errors=True)


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):  # an error on the way out would hide the one that matters
        path.unlink(missing_ok=True)


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock_folder(path: Path) -> IO[bytes] | None:
    """Keep a second process out of a folder with a `manifest.json`.

    The system lets go of the lock when this process ends or is killed.
    """
    if fcntl is None:
        return None
    file = (path / "manifest.json").open("rb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise OutputError(
            f"Another process is working in {path}. Wait for it, or choose another output."
        ) from None
    except OSError:  # a file system without locks
        file.close()
        return None
    return file


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        values = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
        version = values.pop("version")
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise DataError(
            f"{path / 'manifest.json'} cannot be read ({error!r}): this is not the directory of an "
            "interrupted run, or it is damaged. Start anew with --overwrite."
        ) from error
    if version != MANIFEST_VERSION:
        raise DataError(
            f"{path} is of version {version}, this elmokit knows {MANIFEST_VERSION}. Finish it "
            "with the elmokit that began it, or start anew with --overwrite."
        )
    return dict(values)


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
            f"The interrupted run in {path} cannot be resumed, because it was another one: "
            f"{'; '.join(differ)}. Give the same to resume, or start anew with --overwrite."
        )
