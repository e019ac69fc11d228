"""All links, images and anchors on pages have a target; external URLs are not requested."""

from __future__ import annotations

import importlib
import re
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from docs.hooks.command_reference import MARKER, reference

from elmokit.errors import DependencyError
from tests.docs.pages import ROOT, name, pages, without_blocks

_LINK = re.compile(r"\]\(\s*(?:<([^>]+)>|([^)\s]+))(?:\s+\"[^\"]*\")?\s*\)")
_HTML = re.compile(r"<(?:a|img)\b[^>]*?\b(?:href|src)=\"([^\"]+)\"")
_REFERENCE = re.compile(r"^ {0,3}\[[^\]]+\]: +(\S+)", re.MULTILINE)
_HEADING = re.compile(r"^ {0,3}(#{1,6}) +(.+?) *#*$", re.MULTILINE)


def linked_pages() -> list[Path]:
    others = [
        *ROOT.glob("*.md"),
        *(ROOT / "recipes").rglob("*.md"),
        *(ROOT / "benchmarks").rglob("*.md"),
        *(ROOT / "examples").glob("*.md"),
        *(ROOT / "weights").glob("*/README.md"),
        *(ROOT / "src/elmokit/models").glob("*/README.md"),
        *(ROOT / ".github").rglob("*.md"),
    ]
    return sorted({*pages(), *others})


def links(text: str) -> list[tuple[int, str]]:
    """Yield the line number and target of each link and image of a text."""
    # Code keeps its length, so that lines can be counted, but loses its brackets.
    prose = re.sub(r"`[^`\n]+`", lambda code: "x" * len(code[0]), without_blocks(text))
    found = []
    for pattern in (_LINK, _HTML, _REFERENCE):
        for match in pattern.finditer(prose):
            target = next(group for group in match.groups() if group)
            found.append((prose.count("\n", 0, match.start()) + 1, target))
    return sorted(found)


@cache
def anchors(path: Path) -> set[str]:
    """Return the anchors of a page, as named by the site and by common Markdown viewers."""
    text = path.read_text("utf-8")
    text = text.replace(MARKER, reference()) if MARKER in text else text
    found = set(re.findall(r"\bid=\"([^\"]+)\"|\{ *#([\w-]+)", text))
    named = {one or other for one, other in found}
    seen: dict[str, int] = {}
    for _, heading in _HEADING.findall(without_blocks(text)):
        slug = slugify(heading)
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        named.add(f"{slug}_{count}" if count else slug)
    return named


def slugify(heading: str) -> str:
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    plain = re.sub(r"<[^>]+>|[`*]", "", plain).replace("\\", "")
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")


def complaint(page: Path, link: str) -> str:
    """Return what is wrong with a link on a page; empty if it is valid."""
    if re.match(r"^[a-z][a-z+.-]*:", link):
        return ""
    target, _, anchor = unquote(link).partition("#")
    if target.startswith("/"):
        return "begins at the root of a disk or a server"
    there = (page.parent / target).resolve() if target else page
    if not there.exists():
        return f"there is no {target}"
    if not there.is_relative_to(ROOT):
        return "leads out of the repository"
    if anchor and there.suffix == ".md":
        return _missing(there, anchor)
    return ""


def _missing(there: Path, anchor: str) -> str:
    if anchor.startswith("elmokit."):  # set by the docstrings that the page shows
        shown = re.findall(r"^::: (\S+)", there.read_text("utf-8"), re.MULTILINE)
        if not any(f"{anchor}.".startswith(f"{one}.") for one in shown):
            return f"{name(there)} does not show {anchor}"
        return "" if _is_there(anchor) else f"there is no {anchor}"
    return "" if anchor in anchors(there) else f"{name(there)} has no heading #{anchor}"


def _is_there(dotted: str) -> bool:
    module = dotted
    rest: list[str] = []
    while module:
        try:
            found: Any = importlib.import_module(module)
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            rest.insert(0, last)
            continue
        except DependencyError:  # of an extra that is not installed: look at the source
            home, _, last = dotted.rpartition(".")
            source = (ROOT / "src" / f"{home.replace('.', '/')}.py").read_text("utf-8")
            return re.search(rf"^(class|def) {last}\b", source, re.MULTILINE) is not None
        for part in rest:
            found = getattr(found, part, None)
        return found is not None
    return False


@pytest.mark.parametrize("page", linked_pages(), ids=name)
def test_all_links_are_valid(page: Path) -> None:
    wrong = [
        f"{name(page)}:{line}: {link}: {found}"
        for line, link in links(page.read_text("utf-8"))
        if (found := complaint(page, link))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", linked_pages(), ids=name)
def test_pages_named_in_code_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    named = re.findall(r"`((?:docs|recipes|examples|tests|benchmarks|src)/[\w./-]+\.\w+)`", text)
    wrong = [path for path in named if not (ROOT / path).exists()]
    assert not wrong, f"{name(page)} names {wrong}"


def test_pages_named_in_docstrings_and_messages_exist() -> None:
    wrong = []
    for folder in ("src", "recipes", "benchmarks", "examples", "tests"):
        for path in set((ROOT / folder).rglob("*.py")) - {Path(__file__)}:
            named = re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text("utf-8"))
            wrong += [f"{name(path)}: {page}" for page in named if not (ROOT / page).exists()]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("link", "message"),
    [
        ("docs/how-to/serve.md#routes", ""),
        ("docs/how-to/serve.md#rutes", "no heading"),
        ("docs/serve.md", "there is no"),
        ("docs/reference/commands.md#elmo-embed", ""),
        ("docs/reference/elmokit.md#elmokit.load", ""),
        ("docs/reference/elmokit.md#elmokit.lod", "does not show"),
        ("docs/img/senses.svg", ""),
        ("..", "leads out"),
        ("https://example.org/nothing", ""),
    ],
)
def test_the_check_accepts_valid_and_rejects_invalid_links(link: str, message: str) -> None:
    found = complaint(ROOT / "README.md", link)
    assert (message in found) if message else not found, found


def test_links_are_found_in_prose_but_not_in_code() -> None:
    text = "[a](b.md) and `[c](d.md)`\n\n```\n[e](f.md)\n```\n[![g](h.png)](i.md#j)\n"
    assert links(text) == [(1, "b.md"), (6, "h.png"), (6, "i.md#j")]
