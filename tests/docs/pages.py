"""The pages of the documentation and their code blocks."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHELLS = ("", "sh", "bash", "shell", "console")

_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,}) *(?P<info>[^`]*)$")
_MARK = re.compile(r"^\s*<!-- *(?P<mark>file|run|output|not run) *(?:: *(?P<why>.*?))? *-->\s*$")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, text, first line, and the marker before it."""

    language: str
    text: str
    line: int
    mark: str = ""
    why: str = ""


def pages() -> list[Path]:
    """Return all pages whose code must work."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    extra = (ROOT / "CONTRIBUTING.md", ROOT / "examples" / "README.md")
    return [*found, *(path for path in extra if path.exists())]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(path: Path) -> list[Block]:
    """Return the fenced blocks of a page in order."""
    return parse(path.read_text("utf-8"), name(path))


def parse(text: str, page: str = "page") -> list[Block]:
    found, lines, at = [], text.splitlines(), 0
    while at < len(lines):
        opened = _FENCE.match(lines[at])
        if opened is None:
            at += 1
            continue
        begin = at + 1
        closing = re.compile(rf"^ *{re.escape(opened['fence'])} *$")
        end = next((n for n in range(begin, len(lines)) if closing.match(lines[n])), None)
        assert end is not None, f"{page}:{at + 1}: a block of code that does not end"
        mark, why = _mark_before(lines, at)
        body = textwrap.dedent("\n".join(lines[begin:end]) + "\n")
        language = opened["info"].split()[0] if opened["info"].split() else ""
        found.append(Block(language, body, begin, mark, why))
        at = end + 1
    return found


def without_blocks(text: str) -> str:
    """Return the text with all fenced blocks emptied, so that line numbers stay the same."""
    lines = text.splitlines()
    for block in parse(text):
        for n in range(block.line, block.line + len(block.text.splitlines())):
            lines[n] = ""
    return "\n".join(lines)


def _mark_before(lines: list[str], at: int) -> tuple[str, str]:
    above = at - 1
    while above >= 0 and not lines[above].strip():
        above -= 1
    mark = _MARK.match(lines[above]) if above >= 0 else None
    if mark is None:
        return "", ""
    return mark["mark"], (mark["why"] or "").strip()
