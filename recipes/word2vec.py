"""Static vectors from the very text a biLM was trained on, by word2vec: the fair comparison.

What ELMo gains over GloVe may be context, or only other text. Vectors of the same text tell.

Needs: pip install gensim; a corpus of `elmo prepare` (its tokens, so that they are the biLM's).

Run as:
    python recipes/word2vec.py data/ -o vectors.txt --dim 100 --epochs 2 --workers 4
    elmo task ner train ... --static vectors.txt
With --words FILE only the words of these files (one per line) and the --top most frequent are
written. Words are lower-cased as in GloVe 6B, unless --cased. Writes the text format of word2vec,
and beside it a JSON file of settings, time and machine.
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
    """Write the text, train, and write the vectors."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path, help="what `elmo prepare` made")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--window", type=int, default=5)
    parser.add_argument("--negative", type=int, default=5)
    parser.add_argument("--sample", type=float, default=1e-4, help="bound on frequent words")
    parser.add_argument("--min-count", type=int, default=5)
    parser.add_argument("--cbow", action="store_true", help="bag of words instead of skip-gram")
    parser.add_argument("--cased", action="store_true", help="leave words as they are written")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--words", type=Path, nargs="+", help="write the words of these files")
    parser.add_argument("--top", type=int, default=30_000, help="and so many frequent ones")
    args = parser.parse_args()
    import gensim

    began = time.monotonic()
    corpus = Corpus.open(args.data, check=False)
    with tempfile.TemporaryDirectory(dir=args.output.parent) as folder:
        text = Path(folder) / "text"
        with text.open("w", encoding="utf-8") as file:
            file.writelines(sentences(corpus, cased=args.cased))
        # A file is read by gensim's own threads, without Python between.
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
    written = write(model.wv, args.output, wanted(args.words), args.top)
    about = {
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
    args.output.with_suffix(".json").write_text(json.dumps(about, indent=1) + "\n", "utf-8")
    sys.stdout.write(json.dumps(about) + "\n")


def sentences(corpus: Corpus, *, cased: bool) -> Iterator[str]:
    """Yield lines of text, a sentence each."""
    spelled = corpus.words(np.arange(corpus.n_types))
    spelled = spelled if cased else [word.lower() for word in spelled]
    spelled[END_ID] = "\n"
    ids = corpus.tokens("train")
    for first in tqdm(range(0, len(ids), _CHUNK), desc="text"):
        yield " ".join([spelled[i] for i in ids[first : first + _CHUNK].tolist()]) + " "


def wanted(paths: list[Path] | None) -> set[str] | None:
    """Return the words to be written; None: all."""
    if paths is None:
        return None
    return {line for path in paths for line in path.read_text("utf-8").split("\n") if line}


def write(vectors: Any, path: Path, chosen: set[str] | None, top: int) -> int:
    """Write gensim's vectors by falling frequency; return how many."""
    rows = [
        f"{word} {' '.join(f'{x:.3f}' for x in vectors[word])}\n"
        for place, word in enumerate(vectors.index_to_key)
        if chosen is None or place < top or word in chosen
    ]
    with replace_file(path) as part, part.open("w", encoding="utf-8") as file:
        file.write(f"{len(rows)} {vectors.vector_size}\n")
        file.writelines(rows)
    return len(rows)


if __name__ == "__main__":
    main()
