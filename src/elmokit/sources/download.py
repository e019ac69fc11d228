"""Download a file over HTTP with the standard library, and resume interrupted downloads.

`weights.hdf5.part` contains the bytes received so far, and `weights.hdf5.part.json` their URL and
version (the ETag or Last-Modified header). If the server still has the same version, the download
is resumed; otherwise it starts from the beginning. The downloading process holds the lock
`weights.hdf5.lock`, and other processes wait for it. Requests are retried after broken connections
and temporary server errors. Permanent errors (for example, a missing file or no network) are raised
immediately.
"""

from __future__ import annotations

import http.client
import logging
import os
import re
import shutil
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from elmokit.errors import DownloadError, ElmoError, OutputError, output_error
from elmokit.progress import plural
from elmokit.storage.atomic import move_into_place
from elmokit.storage.lock import file_lock
from elmokit.storage.manifest import read_json, write_json

_CHUNK = 1 << 18
# Seconds without data after which a connection is closed.
_TIMEOUT = 30.0
# Maximum number of consecutive requests without new data.
_MAX_ATTEMPTS = 5
# Seconds between the first two attempts. The delay doubles after each failed attempt.
_RETRY_DELAY = 1.0
# The largest published model is 0.4 GB, and its options file is 1 kB.
_MAX_BYTES = 16 << 30
_MAX_JSON_BYTES = 64 << 20
# Status codes of errors that may be temporary. 416 means that the file has become shorter than the
# partial download.
_TEMPORARY = (408, 416, 425, 429, 500, 502, 503, 504)
_NETWORK_ERRORS = (
    urllib.error.URLError,
    http.client.HTTPException,
    ConnectionError,
    TimeoutError,
    ssl.SSLError,
)
# Errors that are treated as permanent if no data has been received yet.
_PERMANENT_ERRORS = (socket.gaierror, ConnectionRefusedError, ssl.SSLCertVerificationError)

_logger = logging.getLogger(__name__)


def cache_dir() -> Path:
    """Return the cache directory: `ELMOKIT_HOME`, or `~/.cache/elmokit`."""
    home = os.environ.get("ELMOKIT_HOME")
    return Path(home).expanduser() if home else Path.home() / ".cache" / "elmokit"


def is_url(text: str) -> bool:
    """Return whether a string is an HTTP(S) URL."""
    return text.lower().startswith(("http://", "https://"))


def cached_path(url: str) -> Path:
    """Return the cache path of a file, which contains the host, path and query of its URL."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise DownloadError(f"Invalid URL '{url}': {error}.") from error
    *folders, name = unquote(parts.path).split("/")
    names = [parts.netloc, *folders, parts.query, name]
    safe = [re.sub(r"[^\w.+-]", "_", name) for name in names if name.strip(".")]
    return cache_dir().joinpath("web", *safe)


def fetch(url: str, destination: Path) -> Path:
    """Download a file unless `destination` exists, and show a progress bar on stderr.

    Args:
        url: The HTTP(S) URL.
        destination: The file to create. An incomplete download is named `<name>.part`.

    Returns:
        `destination`.
    """
    if destination.exists():
        return destination
    if not is_url(url):
        raise DownloadError(f"Invalid URL '{url}'. Expected https://... or http://...")
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with _download_lock(destination):
            if destination.exists():  # another process has downloaded it
                return destination
            download = _Download(url, destination)
            download.run()
            move_into_place(download.partial_file, destination)
            download.info_file.unlink()
    except OSError as error:
        raise output_error(destination, error) from error
    return destination


@contextmanager
def _download_lock(destination: Path) -> Iterator[None]:
    """Wait until no other process is downloading the file."""
    lock = destination.with_name(destination.name + ".lock")
    with ExitStack() as stack:
        try:
            stack.enter_context(file_lock(lock, timeout=0))
        except TimeoutError:
            _logger.warning("Waiting for another process to download %s.", destination.name)
            stack.enter_context(file_lock(lock))
        yield


class _Download:
    """A download, which may require several requests."""

    def __init__(self, url: str, destination: Path) -> None:
        self.url, self.destination = url, destination
        self.partial_file = destination.with_name(destination.name + ".part")
        self.info_file = destination.with_name(destination.name + ".part.json")

    @property
    def size(self) -> int:
        return self.partial_file.stat().st_size if self.partial_file.exists() else 0

    def run(self) -> None:
        """Send requests until the file is complete or they no longer make progress."""
        failures, largest = 0, self.size
        while (reason := self._try()) is not None:
            # Restarting from the beginning and receiving less than before is not progress.
            failures = 0 if self.size > largest else failures + 1
            largest = max(largest, self.size)
            if failures >= _MAX_ATTEMPTS:
                raise self._error(f"{reason} (after {_MAX_ATTEMPTS} attempts)")
            time.sleep(_RETRY_DELAY * 2 ** max(failures - 1, 0))

    def _try(self) -> str | None:
        """Make one request. Return None if the file is complete, otherwise what went wrong."""
        try:
            return self._request()
        except urllib.error.HTTPError as error:
            error.close()
            reason = f"the server returned {error.code} {error.reason}"
            if error.code not in _TEMPORARY:
                raise self._error(reason) from None
            if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
                self.info_file.unlink(missing_ok=True)
            return reason
        except _NETWORK_ERRORS as error:
            cause = error.reason if isinstance(error, urllib.error.URLError) else error
            if not self.size and isinstance(cause, _PERMANENT_ERRORS):
                raise self._error(str(cause)) from None
            return f"the connection failed: {str(cause) or type(cause).__name__}"
        except (ValueError, OverflowError) as error:
            raise self._error(f"invalid URL or response ({error})") from error

    def _request(self) -> str | None:
        from elmokit import __version__

        version = self._stored_version()
        start = self.size if version else 0
        headers = {"User-Agent": f"elmokit/{__version__}", "Accept-Encoding": "identity"}
        if version and start:
            # If the server still has this version, it returns the remaining bytes. Otherwise, it
            # returns all bytes of the new version.
            headers |= {"Range": f"bytes={start}-", "If-Range": version}
        request = urllib.request.Request(self.url, headers=headers)
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
            new_version = _version(response.headers)
            if response.status != http.client.PARTIAL_CONTENT:
                start = 0
                write_json(self.info_file, {"url": self.url, "version": new_version})
            elif new_version != version or _first_byte(response.headers) != start:
                self.info_file.unlink()
                return "the file on the server has changed"
            length = response.headers.get("Content-Length", "")
            total = start + int(length) if length.isdigit() else None
            self._copy(response, start, total)
        missing = (total or 0) - self.size
        return (
            f"the connection was closed {plural(missing, 'byte')} before the end"
            if missing > 0
            else None
        )

    def _stored_version(self) -> str | None:
        """Return the version of the partial file, or None if the download cannot be resumed."""
        with suppress(ElmoError):
            info = read_json(self.info_file)
            if info.get("url") == self.url and isinstance(info.get("version"), str):
                return str(info["version"])
        return None

    def _copy(self, response: Any, start: int, total: int | None) -> None:
        from tqdm import tqdm

        limit = _MAX_JSON_BYTES if self.destination.suffix == ".json" else _MAX_BYTES
        needed, free = (total or 0) - start, shutil.disk_usage(self.partial_file.parent).free
        if needed > free:
            raise OutputError(
                f"Cannot download {self.url}: it needs {needed:,} bytes in "
                f"{self.partial_file.parent}, but only {free:,} are free. Free some space, or set "
                "ELMOKIT_HOME to another directory."
            )
        with (
            self.partial_file.open("ab" if start else "wb", buffering=0) as file,
            tqdm(
                desc=self.destination.name,
                total=total,
                initial=start,
                unit="B",
                unit_scale=True,
                unit_divisor=1024,
            ) as bar,
        ):
            while data := response.read1(_CHUNK):
                start += len(data)
                if max(start, total or 0) > limit:
                    file.truncate(0)
                    raise self._error(f"the file is larger than {limit:,} bytes")
                file.write(data)
                bar.update(len(data))

    def _error(self, reason: str) -> DownloadError:
        saved = f" Saved {plural(self.size, 'byte')}; try again to resume." if self.size else ""
        return DownloadError(
            f"Cannot download {self.url}: {reason}.{saved} Without a network connection, download "
            f"the file elsewhere and copy it to {self.destination}, or load a model from a local "
            "path."
        )


def _version(headers: Message) -> str | None:
    """Return the strong ETag or, if there is none, the Last-Modified header."""
    etag = headers.get("ETag", "W/")
    return headers.get("Last-Modified") if etag.startswith("W/") else etag


def _first_byte(headers: Message) -> int | None:
    match = re.match(r"bytes (\d+)-", headers.get("Content-Range", ""))
    return int(match[1]) if match else None
