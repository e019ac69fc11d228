"""Text for tests of prepared corpora, and a simple reference implementation of `elmo prepare`."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from elmokit.data.corpus import Corpus
from elmokit.data.reading import LineSplitter, read_sentences

Document = list[list[str]]

SMALL = """\
Mr. Smith read the book. He liked the book!

The dog can't read. Собака не читает. 狗不读书。
The dog reads the book.
"""

_WORDS = (
    "the of and to in a is was cat dog naïve Straße книга 本 don't U.S. 3.14 well-known "
    "e-mail Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft"
).split()


def random_text(n_documents: int, seed: int = 0) -> str:
    """Create documents of one to nine lines with Zipf-distributed words, some of them unique."""
    rng = random.Random(seed)
    weights = [1 / (rank + 1) for rank in range(len(_WORDS))]
    documents = []
    for _ in range(n_documents):
        lines = []
        for _ in range(rng.randint(1, 9)):
            chosen = rng.choices(_WORDS, weights, k=rng.randint(1, 30))
            chosen.insert(rng.randrange(len(chosen) + 1), f"w{rng.randrange(1000)}")
            line = " ".join(chosen)
            lines.append(line.replace(" cat ", " cat. The ") + rng.choice([".", "?", ""]))
        documents.append("\n".join(lines))
    return ("\n" * rng.randint(2, 4)).join(documents) + "\n"


def documents_of(files: Sequence[Path], splitter: LineSplitter | None = None) -> list[Document]:
    """Read documents with a simple implementation."""
    documents: dict[int, Document] = {}
    for sentence in read_sentences(files, splitter):
        documents.setdefault(sentence.document, []).append(sentence.words)
    return list(documents.values())


def stored_documents(corpus: Corpus, split: str = "train") -> list[Document]:
    """Read the documents back from their ids."""
    ids, starts = corpus.tokens(split), corpus.documents(split)
    documents = []
    for start, end in pairwise(starts):
        document: Document = [[]]
        for number, word in zip(ids[start:end], corpus.words(ids[start:end]), strict=True):
            if number == 1:
                document.append([])
            else:
                document[-1].append(word)
        assert document.pop() == []  # a document ends with the end of a sentence
        documents.append(document)
    return documents


def count(documents: list[Document]) -> Counter[str]:
    return Counter(word for document in documents for sentence in document for word in sentence)


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
