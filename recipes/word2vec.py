"""Train word2vec vectors on the training text of a biLM.

ELMo's gain over GloVe could come from the context or from the different training text. Static
vectors trained on the same text distinguish these two factors.

Needs: pip install gensim; a corpus prepared by `elmo prepare`, so that tokens are the same.

Run as:
    python recipes/word2vec.py data/ -o vectors.txt --dim 100 --epochs 2 --workers 4
    elmo task ner train ... --static vectors.txt
With --words FILE ..., only the words in these files (one per line) and the --top most frequent
words are written. Words are in lowercase as in GloVe 6B, unless you use --cased. Writes the vectors
in word2vec's text format, and a JSON file with the settings, time and machine.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from elmokit.data.corpus import Corpus
from elmokit.data.layout import END_ID
from elmokit.storage.atomic import replace_file

_CHUNK = 1 << 20


def main() -> None:
    """Train on the text of the corpus and write the vectors."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path, help="corpus prepared by `elmo prepare`")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--window", type=int, default=5)
    parser.add_argument("--negative", type=int, default=5)
    parser.add_argument("--sample", type=float, default=1e-4, help="downsampling threshold")
    parser.add_argument("--min-count", type=int, default=5)
    parser.add_argument("--cbow", action="store_true", help="use CBOW instead of skip-gram")
    parser.add_argument("--cased", action="store_true", help="do not convert words to lowercase")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--words", type=Path, nargs="+", help="write the words of these files")
    parser.add_argument("--top", type=int, default=30_000, help="number of frequent words to add")
    args = parser.parse_args()
    import gensim

    began = time.monotonic()
    corpus = Corpus.open(args.data)
    with tempfile.TemporaryDirectory(dir=args.output.parent) as folder:
        text = Path(folder) / "text"
        with text.open("w", encoding="utf-8") as file:
            file.writelines(sentences(corpus, cased=args.cased))
        # gensim reads a file without Python's global interpreter lock.
        model = gensim.models.Word2Vec(
            corpus_file=str(text),
            vector_size=args.dim,
            window=args.window,
            min_count=args.min_count,
            sg=int(not args.cbow),
            negative=args.negative,
            sample=args.sample,
            epochs=args.epochs,
            workers=args.workers,
            seed=args.seed,
        )
    written = write(model.wv, args.output, read_words(args.words), args.top)
    summary = {
        "recipe": "recipes/word2vec.py",
        "settings": {k: v for k, v in vars(args).items() if not isinstance(v, Path | list)},
        "corpus": corpus.fingerprint,
        "tokens": corpus.meta.splits["train"].tokens,
        "words": len(model.wv),
        "words_written": written,
        "gensim": gensim.__version__,
        "machine": platform.processor() or platform.machine(),
        "seconds": round(time.monotonic() - began),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    args.output.with_suffix(".json").write_text(json.dumps(summary, indent=1) + "\n", "utf-8")
    sys.stdout.write(json.dumps(summary) + "\n")


def sentences(corpus: Corpus, *, cased: bool) -> Iterator[str]:
    """Yield the text of the corpus with one sentence per line."""
    words = corpus.words(np.arange(corpus.n_types))
    words = words if cased else [word.lower() for word in words]
    words[END_ID] = "\n"
    ids = corpus.tokens("train")
    for first in tqdm(range(0, len(ids), _CHUNK), desc="text"):
        yield " ".join([words[i] for i in ids[first : first + _CHUNK].tolist()]) + " "


def read_words(paths: list[Path] | None) -> set[str] | None:
    """Return the words to write. None means all words."""
    if paths is None:
        return None
    return {line for path in paths for line in path.read_text("utf-8").split("\n") if line}


def write(vectors: Any, path: Path, selected: set[str] | None, top: int) -> int:
    """Write the vectors in order of decreasing frequency and return their number."""
    rows = [
        f"{word} {' '.join(f'{x:.3f}' for x in vectors[word])}\n"
        for rank, word in enumerate(vectors.index_to_key)
        if selected is None or rank < top or word in selected
    ]
    with replace_file(path) as part, part.open("w", encoding="utf-8") as file:
        file.write(f"{len(rows)} {vectors.vector_size}\n")
        file.writelines(rows)
    return len(rows)


if __name__ == "__main__":
    main()
