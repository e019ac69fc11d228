"""A file object for h5py that defers write errors until they can be raised.

HDF5 often writes when a dataset or file is closed. h5py cannot raise an exception there, so the
process crashes if the disk is full. This file object therefore reports all writes to HDF5 as
successful and raises the error later. For the same reason, signals such as Ctrl-C are deferred
until HDF5 has returned.
"""

from __future__ import annotations

import io
import signal
import threading
from pathlib import Path
from typing import Any, Self


class Hdf5Sink(io.FileIO):
    """A new file for h5py.

    Attributes:
        error: The first error, if any. After an error, nothing more is written.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "w+")
        self.error: OSError | None = None
        self._handlers: dict[int, Any] = {}
        self._signals: list[int] = []

    def check(self) -> None:
        """Raise the deferred error and handle deferred signals. Call this between writes."""
        if self.error is not None:
            raise self.error
        while self._signals:
            signum = self._signals.pop()
            self._handlers[signum](signum, None)

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # only it handles signals
            for signum in (signal.SIGINT, signal.SIGTERM):
                handler = signal.getsignal(signum)
                if callable(handler):
                    self._handlers[signum] = handler
                    signal.signal(signum, lambda signum, frame: self._signals.append(signum))
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.close()
        for signum, handler in self._handlers.items():
            signal.signal(signum, handler)
        if error is None:
            self.check()  # closing the HDF5 file may have failed

    # The methods that h5py calls, in addition to `seek`.

    def write(self, data: Any) -> int:
        """Write all of `data`."""
        remaining = memoryview(data).cast("B")
        try:
            while remaining and self.error is None:
                remaining = remaining[super().write(remaining) :]
        except OSError as error:
            self.error = error
        return len(data)

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` with data, and with zeros beyond the end of the file."""
        view = memoryview(buffer).cast("B")
        data = b""
        try:
            while len(data) < len(view) and (more := self.read(len(view) - len(data))):
                data += more
        except OSError as error:
            self.error = self.error or error
        view[:] = data.ljust(len(view), b"\0")
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        """Set the length of the file."""
        try:
            if self.error is None:
                super().truncate(size)
        except OSError as error:
            self.error = error
        return size or 0
