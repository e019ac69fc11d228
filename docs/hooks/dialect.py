"""Where the Markdown of the site differs from that of the usual viewers.

Pages are written for both. In a table the viewers want a `|` in code escaped, and Python-Markdown
shows the backslash.
"""

from __future__ import annotations

import re
from typing import Any

_CODE = re.compile(r"(`+)(.+?)\1")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Take the backslashes out of code in tables (an event of MkDocs)."""
    lines = markdown.split("\n")
    return "\n".join(_row(line) if line.lstrip().startswith("|") else line for line in lines)


def _row(line: str) -> str:
    return _CODE.sub(lambda code: code[0].replace("\\|", "|"), line)
