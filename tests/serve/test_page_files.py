"""Files of the page: content types, completeness, and no requests to other hosts."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from elmokit.serve.app import STATIC

TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
FILES = sorted(STATIC.iterdir())
MODULES = [path for path in FILES if path.suffix == ".js"]
PAGE = (STATIC / "index.html").read_text()

_IMPORT = re.compile(r'import \{([^}]*)\} from "\./([\w.]+)";')
_EXPORT = re.compile(r"export (?:async )?(?:function|class|const) (\w+)")
# Namespaces of SVG and XLink, which are never requested.
_NAMESPACE = "http://www.w3.org/2000/svg"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_are_served_with_their_content_type(http: httpx.Client, path: Path) -> None:
    answer = http.get(f"/{path.name}")
    assert answer.status_code == 200
    assert answer.headers["content-type"].split(";")[0] == TYPES[path.suffix]
    assert answer.content == path.read_bytes()
    assert "default-src 'self'" in answer.headers["content-security-policy"]


def test_page_is_served_at_the_root(http: httpx.Client) -> None:
    assert http.get("/").text == PAGE


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_contain_no_external_urls(path: Path) -> None:
    text = path.read_text().replace(_NAMESPACE, "")
    assert "http://" not in text
    assert "https://" not in text
    assert not re.search(r"""(src|href|url\(|import|from)\s*[=(]?\s*["']?//""", text)
    assert not re.search(r"""["'(]/(?!/)[\w.]""", text), (
        "a path from the root breaks behind a proxy"
    )


def test_all_files_of_the_page_exist() -> None:
    wanted = set(re.findall(r'(?:src|href)="([^"#]+)"', PAGE))
    assert wanted == {"style.css", "main.js", "icon.svg"}
    assert all((STATIC / name).is_file() for name in wanted)


def test_imports_of_modules_match_their_exports() -> None:
    reached, waiting = set(), ["main.js"]
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.add(name)
        text = (STATIC / name).read_text()
        found = _IMPORT.findall(text)
        assert len(found) == len(re.findall(r"^import ", text, re.M)), name
        for names, other in found:
            exported = set(_EXPORT.findall((STATIC / other).read_text()))
            wanted = {part.strip() for part in names.split(",")} - {""}
            assert wanted <= exported, (name, other)
            waiting.append(other)
    assert reached == {path.name for path in MODULES}


def test_ids_used_by_scripts_exist_exactly_once() -> None:
    ids = re.findall(r'\bid="([\w-]+)"', PAGE)
    assert len(ids) == len(set(ids))
    for path in MODULES:
        for wanted in re.findall(r'byId\("([\w-]+)"\)', path.read_text()):
            assert wanted in ids, (path.name, wanted)
    for wanted in re.findall(r'(?:for|aria-controls|aria-labelledby)="([\w-]+)"', PAGE):
        assert wanted in ids, wanted


def test_scripts_never_insert_text_as_html() -> None:
    for path in MODULES:
        text = path.read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|javascript:", PAGE)
