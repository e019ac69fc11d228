"""Find discouraged words and phrases in source, documentation and help texts.

    python scripts/check_language.py [PATH ...]

Prints FILE:LINE, the phrase, and what to write instead. The exit code is 1 if any phrase is found.
Spelling is checked by codespell (see pyproject.toml).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PATHS = ("src", "docs", "examples", "recipes", "benchmarks", "scripts", "tests", "README.md")
OTHER_FILES = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "Makefile")
SUFFIXES = {".py", ".md", ".html", ".js", ".c", ""}

# Regular expressions, matched without regard to case -> what to write instead.
PHRASES = {
    r"unless told": "by default",
    r"come again": "retry after N seconds",
    r"\b(?-i:Nothing): ": "Default: ",
    r"at home in": "in-domain text",
    r"errors less": "relative error reduction",
    r"\bmended\b": "fixed",
    r"\bunsteady\b": "flaky",
    r"plain twin": "reference implementation",
    r"beside and renamed": "written to a temporary file and renamed",
    r"as its users call it": "default usage",
    r"content sooner": "stops earlier",
    r"told in private": "report privately",
    r"\bOwnHands\b|\bhands_of\b|\b_hands\b": "Executor",
    r"\btold_of_\w+|\bteller\b": "a verb that says what is printed",
    r"\b_bury\b|\b_hear\b": "_reap, _receive",
    r"\b1 sentences\b": "1 sentence",
    r"\bfound a int\b": "found an int",
    r"\w*tokenis\w+": "tokenize",
    r"\w*neighbour\w*": "neighbor",
}


def check(path: Path) -> list[str]:
    """Return a message for every phrase that is found in a file."""
    problems = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        for pattern, replacement in PHRASES.items():
            if match := re.search(pattern, line, re.IGNORECASE):
                name = path.relative_to(ROOT)
                problems.append(f"{name}:{number}: '{match[0]}': write '{replacement}'")
    return problems


def main(paths: list[str]) -> int:
    """Check files and directories, and print the phrases that are found."""
    problems = []
    for start in paths or [*PATHS, *OTHER_FILES]:
        root = ROOT / start
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if path.is_file() and path.suffix in SUFFIXES and path != Path(__file__).resolve():
                problems += check(path)
    sys.stdout.writelines(problem + "\n" for problem in problems)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
