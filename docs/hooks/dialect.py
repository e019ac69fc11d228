"""Convert GitHub-flavored Markdown to the dialect of Python-Markdown.

In tables, GitHub requires a backslash before `|` in code. Python-Markdown would show it.
"""

from __future__ import annotations

import re
from typing import Any

_CODE = re.compile(r"(`+)(.+?)\1")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Remove backslashes from code in tables (MkDocs event)."""
    lines = markdown.split("\n")
    return "\n".join(_row(line) if line.lstrip().startswith("|") else line for line in lines)


def _row(line: str) -> str:
    return _CODE.sub(lambda code: code[0].replace("\\|", "|"), line)
