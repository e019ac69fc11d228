"""A local HTTP server that implements as much of the hub as downloading a model needs."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

Files = Mapping[str, bytes]


class Hub(ThreadingHTTPServer):
    """Repositories with commits; `refs` maps branches and tags to commits.

    Attributes:
        broken: Files whose contents cannot be downloaded: the server answers 500.
        down: The server answers all requests with 503.
        requests: The requests it received, method and path.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.commits: dict[tuple[str, str], Files] = {}
        self.refs: dict[tuple[str, str], str] = {}
        self.live: dict[str, Path] = {}
        self.seen: dict[str, float] = {}
        self.broken: set[str] = set()
        self.down = False
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def push(self, repo: str, files: Files | Path, ref: str = "main") -> str:
        """Add a commit and make a branch or a tag point to it."""
        if isinstance(files, Path):
            files = {p.name: p.read_bytes() for p in sorted(files.iterdir()) if p.is_file()}
        digest = hashlib.sha1(repo.encode())
        for name, content in files.items():
            digest.update(name.encode() + content)
        commit = digest.hexdigest()
        self.commits[repo, commit] = dict(files)
        self.refs[repo, ref] = commit
        return commit

    def serve_folder(self, repo: str, folder: Path) -> None:
        """Serve the current contents of a directory as a repository."""
        self.live[repo] = folder

    def downloads(self) -> list[str]:
        """Return the names of the files that were downloaded."""
        return [r.rpartition("/")[2] for r in self.requests if r.startswith("GET") and "/res" in r]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def do_GET(self) -> None:
        self.server.requests.append(f"{self.command} {urlsplit(self.path).path}")
        path = unquote(urlsplit(self.path).path)
        if self.server.down:
            return self._error(503, None)
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/(.+))?", path):
            return self._api(found[1], found[2] or "revision", found[3] or "main")
        if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            return self._file(found[1], found[2], found[3])
        return self._error(404, None)

    do_HEAD = do_GET

    def log_message(self, *_: Any) -> None:
        """Do not log requests."""

    def _commit(self, repo: str, revision: str) -> tuple[str, Files] | None:
        hub = self.server
        folder = hub.live.get(repo)
        if folder is not None and folder.is_dir() and hub.seen.get(repo) != folder.stat().st_mtime:
            hub.push(repo, folder)
            hub.seen[repo] = folder.stat().st_mtime
        if repo not in {known for known, _ in hub.commits}:
            return self._error(404, "RepoNotFound")
        commit = hub.refs.get((repo, revision), revision)
        files = hub.commits.get((repo, commit))
        return self._error(404, "RevisionNotFound") if files is None else (commit, files)

    def _api(self, repo: str, what: str, revision: str) -> None:
        if (found := self._commit(repo, revision)) is None:
            return
        commit, files = found
        if what == "tree":
            tree = [
                {"type": "file", "path": name, "size": len(body), "oid": _git_id(body)}
                for name, body in files.items()
            ]
            return self._send(json.dumps(tree).encode(), {"Content-Type": "application/json"})
        about = {
            "id": repo,
            "modelId": repo,
            "sha": commit,
            "private": False,
            "downloads": 0,
            "likes": 0,
            "tags": [],
            "siblings": [{"rfilename": name} for name in files],
        }
        return self._send(json.dumps(about).encode(), {"Content-Type": "application/json"})

    def _file(self, repo: str, revision: str, name: str) -> None:
        if (found := self._commit(repo, revision)) is None:
            return None
        commit, files = found
        if name not in files:
            return self._error(404, "EntryNotFound")
        if name in self.server.broken and self.command == "GET":
            return self._error(500, None)
        return self._send(
            files[name], {"ETag": f'"{_git_id(files[name])}"', "X-Repo-Commit": commit}
        )

    def _send(self, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(200)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def _error(self, status: int, code: str | None) -> None:
        self.send_response(status)
        if code is not None:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()


def _git_id(body: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()


@contextmanager
def running() -> Iterator[Hub]:
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
