"""The site builds without warnings, loads nothing from other hosts, and fits a phone."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs.pages import ROOT
from tests.serve import browser as tools

pytestmark = pytest.mark.slow

# Programs and lists of the repository that pages link to: long lines are not wrapped.
_NOT_WRITTEN_HERE = ("repository/", "404.html")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("material") is None:
        pytest.skip("the extra `docs` is not installed: pip install 'elmokit[docs]'")
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    variables = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "NO_COLOR": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False, timeout=500
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


@pytest.fixture(scope="module")
def written(site: Path) -> list[str]:
    """Return the built pages by their URLs."""
    found = sorted(page.relative_to(site).as_posix() for page in site.rglob("*.html"))
    return [page for page in found if not page.startswith(_NOT_WRITTEN_HERE)]


def test_all_kinds_of_pages_exist(written: list[str]) -> None:
    for kind in ("tutorials", "how-to", "reference", "explanation", "migrating", "project"):
        assert any(page.startswith(kind) for page in written), kind


def test_site_loads_nothing_from_other_hosts(site: Path, written: list[str]) -> None:
    loaded = re.compile(
        r"<(?:script|img|iframe)\b[^>]*\bsrc=\"?(https?:[^\" >]+)"
        r"|<link\b(?=[^>]*\brel=\"?(?:stylesheet|preload|preconnect|icon))"
        r"[^>]*href=\"?(https?:[^\" >]+)"
    )
    for page in written:
        assert not loaded.search((site / page).read_text("utf-8")), page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?https?:|@import", sheet.read_text("utf-8")), sheet


def test_all_links_of_the_site_lead_to_files(site: Path, written: list[str]) -> None:
    wrong = []
    for page in written:
        for link in re.findall(r"\b(?:href|src)=\"([^\"]+)\"", (site / page).read_text("utf-8")):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or not parts.path:
                continue
            there = (site / page).parent / unquote(parts.path)
            if not there.exists():
                wrong.append(f"{page}: {link}")
    assert not wrong, "\n".join(wrong)


def test_commands_and_docstrings_can_be_searched(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    places = {entry["location"] for entry in index["docs"]}
    assert "reference/commands.html#elmo-embed" in places
    assert "reference/elmokit.html#elmokit.load" in places
    assert "reference/configuration.html#elmokit.train.config.RunConfig" in places


def test_changelog_page_equals_the_changelog(site: Path) -> None:
    page = (site / "project" / "changelog.html").read_text("utf-8")
    assert "https://keepachangelog.com" in page
    assert "0.1.0" in page


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("size", sorted(tools.SIZES))
def test_pages_fit_and_work_in_a_browser(size: str, address: str, written: list[str]) -> None:
    width, height = tools.SIZES[size]
    wrong: list[str] = []
    with tools.launched() as browser:
        context = browser.new_context(viewport={"width": width, "height": height})
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(f"{page.url}: {error}"))
        # Not `requestfailed`: leaving a page aborts requests that are still loading.
        page.on("response", lambda r: wrong.extend([f"{r.url}: {r.status}"] * (r.status >= 400)))
        page.on("request", lambda r: wrong.extend([r.url] * (not r.url.startswith(address))))
        for name in written:
            page.goto(f"{address}/{name}", wait_until="load")
            beyond = page.evaluate(
                "document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth"
            )
            if beyond > 0:
                wrong.append(f"{name}: {beyond} pixels too wide at {width}")
            broken = page.evaluate(
                "[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"
            )
            wrong += [f"{name}: {image} is not an image" for image in broken]
    assert not wrong, "\n".join(wrong)
