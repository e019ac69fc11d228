"""Create `examples/corpus.txt` from Debian's package of the King James Bible.

The text (1611, public domain) comes from Debian's `bible-kjv-text`, read with the program of
`bible-kjv`: apt-get install bible-kjv bible-kjv-text. A chapter is a document and one paragraph.

Run as: python recipes/example_corpus.py examples/corpus.txt
"""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from pathlib import Path

# Narrative books, whose sentences have ordinary word order.
BOOKS = ("Genesis", "Ruth", "1Samuel", "Jonah", "Matthew", "Mark", "Luke", "John", "Acts")
LAST_VERSES = ("50:26", "4:22", "31:13", "4:11", "28:20", "16:20", "24:53", "21:25", "28:31")
_VERSE = re.compile(r"^(\w+?)(\d+):(\d+) (.*)$")


def verses(book: str, last: str) -> list[tuple[int, str]]:
    """Return the verses of a book, each with the number of its chapter."""
    passage = f"{book}1:1-{book}{last}\n"
    process = subprocess.run(
        ["bible", "-f"], input=passage, capture_output=True, text=True, check=True
    )
    numbered_verses = []
    for line in process.stdout.splitlines():
        if match := _VERSE.match(line):
            numbered_verses.append((int(match[2]), match[4].strip()))
    return numbered_verses[1:]  # the program begins by showing Genesis 1:1


def main(out: Path) -> None:
    """Write the corpus."""
    chapters = []
    for book, last in zip(BOOKS, LAST_VERSES, strict=True):
        for _, group in itertools.groupby(verses(book, last), key=lambda verse: verse[0]):
            chapters.append(" ".join(text for _, text in group))
    out.write_text("\n\n".join(chapters) + "\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
