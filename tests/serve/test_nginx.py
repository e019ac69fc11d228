"""The nginx configuration from the documentation, in front of a real service."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.serve.conftest import ALONE, embed, running, wait_for

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "nginx.conf"
MAIN = """
{user}
daemon off;
pid {root}/pid;
error_log {root}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {root}/body;
    proxy_temp_path {root}/proxy;
    fastcgi_temp_path {root}/fastcgi;
    uwsgi_temp_path {root}/uwsgi;
    scgi_temp_path {root}/scgi;
    include {root}/elmo.conf;
}}
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which("nginx") and shutil.which("openssl")),
        reason="needs nginx and openssl (apt-get install nginx-light openssl)",
    ),
]


@contextmanager
def proxied(root: Path, service: str) -> Iterator[str]:
    """Run the documented example in front of a service, with paths and ports of the test."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    subject = ["-subj", "/CN=elmo.example.org", "-days", "1"]
    files = ["-keyout", root / "elmo.key", "-out", root / "elmo.pem"]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject, *files],
        check=True,
        capture_output=True,
    )
    text = EXAMPLE.read_text()
    for old, new in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("/etc/ssl/elmo", f"{root}/elmo"),
        ("server 127.0.0.1:8017", f"server {service.removeprefix('http://')}"),
    ):
        assert old in text
        text = text.replace(old, new)
    (root / "elmo.conf").write_text(text)
    # If nginx runs as root, its workers run as another user, who cannot access this directory.
    user = "user root;" if os.geteuid() == 0 else ""
    (root / "nginx.conf").write_text(MAIN.format(root=root, user=user))
    command = ["nginx", "-p", root, "-c", root / "nginx.conf", "-e", root / "error.log"]
    subprocess.run([*command, "-t"], check=True)
    process = subprocess.Popen(command)
    try:
        wait_for(lambda: _listens(port))
        yield f"https://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def _listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def test_documented_nginx_configuration_works(tmp_path: Path) -> None:
    with (
        running(ALONE) as server,
        proxied(tmp_path, server.url) as url,
        httpx.Client(base_url=url, verify=False, timeout=60) as http,
    ):
        http.headers["Host"] = "elmo.example.org"
        assert embed(http).status_code == 200
        assert "<html" in http.get("/").text
        large = embed(http, *[["a"] * 40] * 100)
        assert large.status_code == 200
        assert len(large.json()["sentences"]) == 100
        assert embed(http, "x" * 2**22).status_code == 413
