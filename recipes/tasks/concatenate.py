"""Concatenate two tables of static vectors, word by word.

Words that are missing in one table get zeros there. This gives a task model GloVe and word2vec at
the same time, as a baseline: does ELMo add more to GloVe than other vectors do?

Run as: python recipes/tasks/concatenate.py glove.txt word2vec.txt -o both.txt
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from glove import format_vector

from elmokit.embed.static import load_static
from elmokit.storage.atomic import replace_file


def main() -> None:
    """Read two tables and write their concatenation."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("first", help="table whose words are written first, in the same order")
    parser.add_argument("second")
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args()
    tables = [load_static(source) for source in (args.first, args.second)]
    rows_by_word = [{word: row for row, word in enumerate(table.words)} for table in tables]
    words = list(dict.fromkeys(word for table in tables for word in table.words))
    with replace_file(args.output) as path, path.open("w", encoding="utf-8") as file:
        for word in words:
            parts = [
                table.vectors[rows[word]] if word in rows else np.zeros(table.vectors.shape[1])
                for table, rows in zip(tables, rows_by_word, strict=True)
            ]
            file.write(f"{word} {format_vector(np.concatenate(parts))}\n")
    sys.stdout.write(f"{args.output}: {len(words):,} words\n")


if __name__ == "__main__":
    main()
