"""A file object for h5py that defers write errors until they can be raised.

HDF5 does not handle a full disk: it often writes when a dataset or file is closed, where h5py
cannot raise, and then the process crashes. This file object therefore reports every write as
successful to HDF5 and raises the error later. For the same reason, signals such as Ctrl-C wait
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
        error: The first error. After it, nothing is written.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "w+")
        self.error: OSError | None = None
        self._handlers: dict[int, Any] = {}
        self._signals: list[int] = []

    def check(self) -> None:
        """Raise a deferred error and handle deferred signals; call this between writes."""
        if self.error is not None:
            raise self.error
        while self._signals:
            number = self._signals.pop()
            self._handlers[number](number, None)

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # others get no signals
            for number in (signal.SIGINT, signal.SIGTERM):
                handler = signal.getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler
                    signal.signal(number, lambda number, frame: self._signals.append(number))
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.close()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if error is None:
            self.check()  # closing the HDF5 file may have failed

    # The methods that HDF5 calls, in addition to `seek`.

    def write(self, data: Any) -> int:
        """Write all of `data`."""
        rest = memoryview(data).cast("B")
        try:
            while rest and self.error is None:
                rest = rest[super().write(rest) :]
        except OSError as error:
            self.error = error
        return len(data)

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer`, with zeros beyond the end of the file."""
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
