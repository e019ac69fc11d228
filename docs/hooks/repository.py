"""Add the files of the repository to which pages link.

The pages can also be read in the repository, so they have relative links such as
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
    pending = [
        *pages,
        *(path for path in MOUNTED if path not in _IF_LINKED and (ROOT / path).exists()),
    ]
    seen = set(pages)
    while pending:
        path = pending.pop()
        if path not in seen:
            seen.add(path)
            files.append(_file(path, config))
        if (ROOT / path).is_dir():
            entries = (
                f"{path}/{entry.name}" for entry in (ROOT / path).iterdir() if _is_listed(entry)
            )
            pending += [entry for entry in entries if entry not in seen]
        elif path.endswith(".md"):
            text = (ROOT / path).read_text("utf-8")
            pending += [t for t in _targets(text, path) if t not in seen and _is_outside_docs(t)]
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Adapt the links of a page to the paths in the site (MkDocs event)."""
    uri = page.file.src_uri
    path = _origin.get(uri, f"docs/{uri}")
    directory = posixpath.dirname(uri)

    def adapt(link: re.Match[str]) -> str:
        url, _, anchor = link[2].partition("#")
        target = _target(url, path)
        if target is None or (path == f"docs/{uri}" and not _is_outside_docs(target)):
            return link[0]
        relative = posixpath.relpath(_uri(target), directory or ".")
        return f"{link[1]}{relative}{'#' + anchor if anchor else ''}{link[3]}"

    return "\n".join(_LINK.sub(adapt, line) if prose else line for line, prose in _lines(markdown))


def _file(path: str, config: Any) -> File:
    """Return the page or file of the site for a path in the repository."""
    uri, source = _uri(path), ROOT / path
    if not uri.endswith(".md"):
        return File.generated(config, uri, abs_src_path=str(source))
    _origin[uri] = path
    if source.is_dir():
        entries = sorted(p.name + "/" * p.is_dir() for p in source.iterdir() if _is_listed(p))
        _origin[uri] = f"{path}/index"
        listing = "\n".join(f"- [{entry}]({entry})" for entry in entries)
        content = f"# {path}\n\nA directory of the repository.\n\n{listing}\n"
    elif source.suffix == ".md":
        content = source.read_text("utf-8")
    else:
        language = _PROGRAMS.get(source.suffix, "text")
        content = f"# {path}\n\n`````{language}\n{source.read_text('utf-8')}\n`````\n"
    return File.generated(config, uri, content=content)


def _is_listed(path: Path) -> bool:
    return not path.name.startswith((".", "__pycache__"))


def _uri(path: str) -> str:
    """Return the URI in the site for a path in the repository."""
    if path in MOUNTED:
        return MOUNTED[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    source = ROOT / path
    if source.is_dir():
        return f"repository/{path}/index.md"
    if source.suffix in _PROGRAMS or not source.suffix:
        return f"repository/{path}.md"
    return f"repository/{path}"


def _targets(text: str, path: str) -> Iterator[str]:
    for line, prose in _lines(text):
        for link in _LINK.finditer(line) if prose else ():
            target = _target(link[2].partition("#")[0], path)
            if target is not None:
                yield target


def _target(link: str, path: str) -> str | None:
    """Return the path in the repository that a link points to, or None."""
    if not link or re.match(r"^[a-z]+:", link):
        return None
    target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
    return target if not target.startswith("..") and (ROOT / target).exists() else None


def _is_outside_docs(path: str) -> bool:
    return not path.startswith("docs/") and path != "docs"


def _lines(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each line and whether it is prose, not code."""
    fence = ""
    for line in text.split("\n"):
        marker = _FENCE.match(line)
        if marker and not fence:
            fence = marker[1]
            yield line, False
        elif marker and marker[1].startswith(fence):
            fence = ""
            yield line, False
        else:
            yield line, not fence
