"""A file object for h5py that defers write errors until they can be raised.

HDF5 does not handle a full disk: it often writes when a dataset or file is closed, where h5py
cannot raise, and then the process crashes. This file object therefore reports every write as
successful to HDF5 and raises the error later. For the same reason, signals such as Ctrl-C wait
until HDF5 has returned.
"""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

_BINARY = getattr(os, "O_BINARY", 0)  # on Windows


class Hdf5Sink:
    """A file object for h5py.

    Args:
        path: The file to create.

    Attributes:
        error: The first error. After it, nothing is written.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | _BINARY, 0o666)
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

    def __enter__(self) -> Hdf5Sink:
        if (
            threading.current_thread() is threading.main_thread()
        ):  # other threads cannot handle signals
            for number in (signal.SIGINT, signal.SIGTERM):
                handler = signal.getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler
                    signal.signal(number, lambda number, frame: self._signals.append(number))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if error is None:
            self.check()  # closing the HDF5 file may have failed

    # The methods that HDF5 calls.

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position of the next read or write."""
        return os.lseek(self._descriptor, offset, whence)

    def tell(self) -> int:
        """Return the position of the next read or write."""
        return os.lseek(self._descriptor, 0, os.SEEK_CUR)

    def write(self, data: memoryview) -> int:
        """Write all of `data`."""
        rest = memoryview(data).cast("B")
        try:
            while rest and self.error is None:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as error:
            self.error = error
        return len(data)

    def readinto(self, buffer: memoryview) -> int:
        """Fill `buffer`, with zeros beyond the end of the file."""
        view = memoryview(buffer).cast("B")
        data = b""
        try:
            while len(data) < len(view) and (more := os.read(self._descriptor, len(view))):
                data += more
        except OSError as error:
            self.error = self.error or error
        view[:] = data[: len(view)].ljust(len(view), b"\0")
        return len(view)

    def read(self, size: int) -> bytes:
        """Return `size` bytes."""
        buffer = bytearray(size)
        self.readinto(memoryview(buffer))
        return bytes(buffer)

    def truncate(self, size: int) -> int:
        """Set the length of the file."""
        try:
            if self.error is None:
                os.ftruncate(self._descriptor, size)
        except OSError as error:
            self.error = error
        return size

    def flush(self) -> None:
        """Do nothing, because writes are not buffered."""
