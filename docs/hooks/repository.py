"""Add the files of the repository that pages link to.

Pages can also be read in the repository, so they have relative links such as
`../results/serve.json` or `../recipes/english.md`. This hook adds the targets of these links to the
site (Markdown and programs as pages, everything else as files) and adapts the links.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]

# Pages of the site whose sources are outside of docs/.
MOUNTED = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "LICENSE": "project/license.md",
    "README.md": "project/readme.md",
    "examples/README.md": "tutorials/examples.md",
    "recipes/english.md": "explanation/english-recipe.md",
    "src/elmokit/models/english/README.md": "models/english.md",
    "weights/english-original/README.md": "models/english-original.md",
}
# Pages of MOUNTED that are only included if another page links to them.
_IF_LINKED = ("LICENSE", "README.md")
_PROGRAMS = {
    ".py": "python",
    ".sh": "bash",
    ".toml": "toml",
    ".cff": "yaml",
    ".yml": "yaml",
}
_LINK = re.compile(r"(\]\()([^)\s]+)((?:\s+\"[^\"]*\")?\))")
_FENCE = re.compile(r"^ *(`{3,}|~{3,})[^`]*$")

# Maps the URIs of pages that are not in docs/ to paths in the repository.
_origin: dict[str, str] = {}


def on_files(files: Files, config: Any) -> Files:
    """Add all files that pages link to (MkDocs event)."""
    _origin.clear()
    pages = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    waiting = [
        *pages,
        *(path for path in MOUNTED if path not in _IF_LINKED and (ROOT / path).exists()),
    ]
    seen = set(pages)
    while waiting:
        path = waiting.pop()
        if path not in seen:
            seen.add(path)
            files.append(_file(path, config))
        if (ROOT / path).is_dir():
            below = (f"{path}/{entry.name}" for entry in (ROOT / path).iterdir() if _listed(entry))
            waiting += [entry for entry in below if entry not in seen]
        elif path.endswith(".md"):
            text = (ROOT / path).read_text("utf-8")
            waiting += [t for t in _targets(text, path) if t not in seen and _outside(t)]
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Adapt the links of a page to the paths in the site (MkDocs event)."""
    here = page.file.src_uri
    path = _origin.get(here, f"docs/{here}")
    below = posixpath.dirname(here)

    def moved(found: re.Match[str]) -> str:
        target, _, anchor = found[2].partition("#")
        there = _target(target, path)
        if there is None or (path == f"docs/{here}" and not _outside(there)):
            return found[0]
        new = posixpath.relpath(_uri(there), below or ".")
        return f"{found[1]}{new}{'#' + anchor if anchor else ''}{found[3]}"

    return "\n".join(_LINK.sub(moved, line) if prose else line for line, prose in _lines(markdown))


def _file(path: str, config: Any) -> File:
    """Return the page or file of the site for a path in the repository."""
    uri, there = _uri(path), ROOT / path
    if not uri.endswith(".md"):
        return File.generated(config, uri, abs_src_path=str(there))
    _origin[uri] = path
    if there.is_dir():
        entries = sorted(p.name + "/" * p.is_dir() for p in there.iterdir() if _listed(p))
        _origin[uri] = f"{path}/index"
        listing = "\n".join(f"- [{entry}]({entry})" for entry in entries)
        content = f"# {path}\n\nA directory of the repository.\n\n{listing}\n"
    elif there.suffix == ".md":
        content = there.read_text("utf-8")
    else:
        language = _PROGRAMS.get(there.suffix, "text")
        content = f"# {path}\n\n`````{language}\n{there.read_text('utf-8')}\n`````\n"
    return File.generated(config, uri, content=content)


def _listed(path: Path) -> bool:
    return not path.name.startswith((".", "__pycache__"))


def _uri(path: str) -> str:
    """Return the URI in the site for a path in the repository."""
    if path in MOUNTED:
        return MOUNTED[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    there = ROOT / path
    if there.is_dir():
        return f"repository/{path}/index.md"
    if there.suffix in _PROGRAMS or not there.suffix:
        return f"repository/{path}.md"
    return f"repository/{path}"


def _targets(text: str, path: str) -> Iterator[str]:
    for line, prose in _lines(text):
        for found in _LINK.finditer(line) if prose else ():
            there = _target(found[2].partition("#")[0], path)
            if there is not None:
                yield there


def _target(link: str, path: str) -> str | None:
    """Return the path in the repository that a link points to, or None."""
    if not link or re.match(r"^[a-z]+:", link):
        return None
    there = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
    return there if not there.startswith("..") and (ROOT / there).exists() else None


def _outside(path: str) -> bool:
    return not path.startswith("docs/") and path != "docs"


def _lines(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each line and whether it is prose, not code."""
    fence = ""
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
            yield line, False
        elif mark and mark[1].startswith(fence):
            fence = ""
            yield line, False
        else:
            yield line, not fence
