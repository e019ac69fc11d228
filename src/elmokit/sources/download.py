"""Download a file over HTTP with the standard library, and resume interrupted downloads.

A download continues where it stopped if the server supports ranges and still has the same file;
otherwise it starts again. Broken connections and temporary server errors are retried a few times;
permanent errors (no such file, no network) are raised immediately.
"""

from __future__ import annotations

import http.client
import os
import re
import shutil
import socket
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from elmokit.errors import DownloadError, OutputError, output_error
from elmokit.sources.partfile import PartFile, Version, part_file

_CHUNK = 1 << 18
_LONGEST_WAIT = 30.0
# Status codes that may be temporary.
_PASSING = (408, 425, 429, 500, 502, 503, 504)
_RANGE_NOT_SATISFIABLE = 416


def cache_dir() -> Path:
    """Return the cache directory: `ELMOKIT_HOME`, or `~/.cache/elmokit`."""
    home = os.environ.get("ELMOKIT_HOME")
    return Path(home).expanduser() if home else Path.home() / ".cache" / "elmokit"


def is_url(text: str) -> bool:
    """Return whether a string is an HTTP(S) URL."""
    return text.lower().startswith(("http://", "https://"))


def cached_path(url: str) -> Path:
    """Return where the file of a URL is cached: by host and path, so that it is easy to find."""
    parts = urlsplit(url)
    *folders, name = unquote(parts.path).split("/")
    names = [parts.netloc, *folders, parts.query, name]
    safe = [re.sub(r"[^\w.+-]", "_", name) for name in names if name.strip(".")]
    return cache_dir().joinpath("web", *safe)


def fetch(
    url: str,
    destination: Path,
    *,
    progress: bool = True,
    timeout: float = 30.0,
    tries: int = 5,
    wait: float = 1.0,
) -> Path:
    """Download a file unless it exists.

    Args:
        url: Its URL, http or https.
        destination: The file to create. Until it is complete, it is named `<name>.part`.
        progress: Show size and progress on stderr.
        timeout: Seconds without data after which a connection is closed.
        tries: Maximum number of consecutive attempts without new data.
        wait: Seconds before the second attempt; doubled before each further one.

    Returns:
        `destination`.
    """
    if destination.exists():
        return destination
    if not is_url(url):
        raise DownloadError(f"'{url}' is not an address: it should begin with https:// or http://.")
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with part_file(destination) as part:
            if part is not None:  # else another process has just finished it
                _Transfer(url, part, progress, timeout).run(tries, wait)
                part.finish()
    except OSError as error:  # errors of the network never come this far
        raise output_error(destination, error) from error
    return destination


class _Transfer:
    """One download: requests until all bytes are there."""

    def __init__(self, url: str, part: PartFile, progress: bool, timeout: float) -> None:
        self.url = url
        self.part = part
        self.progress = progress
        self.timeout = timeout
        self.answered = False

    def run(self, tries: int, wait: float) -> None:
        """Repeat requests while they bring something."""
        failures, most = 0, self.part.size
        while True:
            reason = self._try()
            if reason is None:
                return
            # A server that always starts from zero and always breaks off brings nothing new.
            failures = 0 if self.part.size > most else failures + 1
            most = max(most, self.part.size)
            if failures >= tries:
                raise self._error(f"{reason} ({tries} tries)")
            time.sleep(min(wait * 2 ** max(failures - 1, 0), _LONGEST_WAIT))

    def _try(self) -> str | None:
        """Make one request; return None if the file is complete, else why it is not."""
        try:
            return self._request()
        except urllib.error.HTTPError as error:
            error.close()
            self.answered = True
            if error.code == _RANGE_NOT_SATISFIABLE:  # the file has become shorter
                self.part.restart(None)
            elif error.code not in _PASSING:
                raise self._error(f"the server answered {error.code} {error.reason}") from None
            return f"the server answered {error.code} {error.reason}"
        except (OSError, http.client.HTTPException) as error:
            cause = error.reason if isinstance(error, urllib.error.URLError) else error
            hopeless = (socket.gaierror, ConnectionRefusedError, ssl.SSLCertVerificationError)
            if not self.answered and isinstance(cause, hopeless):
                raise self._error(str(cause)) from None
            return f"the connection failed: {str(cause) or type(cause).__name__}"

    def _request(self) -> str | None:
        before = self.part.version
        start = self.part.size if before is not None and before.url == self.url else 0
        if before is not None and start and start == before.total:
            return None  # killed between the last byte and the rename
        request = urllib.request.Request(self.url, headers=_headers(before, start))
        with urllib.request.urlopen(request, timeout=self.timeout) as response:
            self.answered = True
            found = _version(self.url, response)
            if response.status != http.client.PARTIAL_CONTENT:
                self.part.restart(found)
            elif before is None or _first_byte(response) != start or not before.matches(found):
                self.part.restart(None)
                return "the file on the server has changed"
            self._copy(response, found.total)
        missing = (found.total or 0) - self.part.size
        if missing < 0 and found.total is not None:
            self.part.restart(None)
            return f"the server sent {-missing:,} bytes too many"
        return f"the connection was cut {missing:,} bytes before the end" if missing > 0 else None

    def _copy(self, response: Any, total: int | None) -> None:
        from tqdm import tqdm

        start = self.part.size
        if total is not None:
            self._check_space(total - start)
        with tqdm(
            desc=self.part.destination.name,
            total=total,
            initial=start,
            unit="B",
            unit_scale=True,
            unit_divisor=1024,
            disable=not self.progress,
        ) as bar:
            while data := response.read1(_CHUNK):
                self.part.append(data)
                bar.update(len(data))

    def _check_space(self, needed: int) -> None:
        free = shutil.disk_usage(self.part.path.parent).free
        if needed > free:
            raise OutputError(
                f"Cannot fetch {self.url}: {needed:,} bytes are needed in {self.part.path.parent} "
                f"and {free:,} are free. Make room, or set ELMOKIT_HOME to a folder elsewhere."
            )

    def _error(self, reason: str) -> DownloadError:
        part, place = self.part, self.part.destination
        kept = (
            f" {part.size:,} bytes are kept; the next try goes on from there." if part.size else ""
        )
        return DownloadError(
            f"Cannot fetch {self.url}: {reason}.{kept} Without a network, fetch the file on "
            f"another machine and put it at {place}; the path of a model on this machine works as "
            "well as a name."
        )


def _headers(before: Version | None, start: int) -> dict[str, str]:
    from elmokit import __version__

    headers = {"User-Agent": f"elmokit/{__version__}", "Accept-Encoding": "identity"}
    if before is None or not start:
        return headers
    headers["Range"] = f"bytes={start}-"
    # The server then sends the rest of this very version, or all of the present one. A weak ETag
    # does not promise the same bytes and may not be used so.
    strong = before.etag if before.etag and not before.etag.startswith("W/") else None
    if validator := strong or before.modified:
        headers["If-Range"] = validator
    return headers


def _version(url: str, response: Any) -> Version:
    headers = response.headers
    length = headers.get("Content-Length")
    if response.status == http.client.PARTIAL_CONTENT:
        length = (headers.get("Content-Range") or "").rpartition("/")[2]
    total = int(length) if length is not None and length.isdigit() else None
    return Version(url, headers.get("ETag"), headers.get("Last-Modified"), total)


def _first_byte(response: Any) -> int | None:
    match = re.match(r"bytes (\d+)-", response.headers.get("Content-Range") or "")
    return int(match[1]) if match else None
