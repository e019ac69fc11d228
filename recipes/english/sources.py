"""The training texts of the English model: licenses, and how often each is used.

A source is a file NAME.txt. `natural` uses each source once. `balanced` repeats small registers so
that they have an effect, and uses only half of the documents of narrow-domain sources.

Run as: python recipes/english/sources.py TEXTS [--shares natural|balanced]     (prints the files)
        python recipes/english/sources.py TEXTS --shares balanced --count DATA OUT.json
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Source:
    """A source.

    Attributes:
        name: The name of its file.
        license: The license.
        reason: Where the license is stated, or why the source is excluded.
        repeats: How often `balanced` uses it. 0.5 uses every second document.
        included: Whether the source is used.
    """

    name: str
    license: str
    reason: str
    repeats: float = 1
    included: bool = True


FEDERAL = "work of the US federal government: no copyright (17 USC 105)"
COURT_OPINION = "court opinions: no copyright (17 USC 105)"
WIKIPEDIA = "stated by Wikipedia for all of its text"

SOURCES = (
    Source("enwiki-1", "CC BY-SA 3.0", WIKIPEDIA),
    Source("enwiki-2", "CC BY-SA 3.0", WIKIPEDIA),
    Source("simplewiki", "CC BY-SA 3.0", WIKIPEDIA),
    Source("gutenberg", "public domain in the US", "stated by Project Gutenberg"),
    Source("enwiki_b", "CC BY-SA 3.0", WIKIPEDIA),
    Source("tatoeba", "CC BY 2.0 FR", "stated in the hosting repository"),
    Source("openstax", "CC BY 4.0", "stated in the hosting repositories at the commits used"),
    Source("elife_reviews_digests", "CC BY 4.0, CC0", "stated in every file"),
    Source("fomc", "public domain", FEDERAL, repeats=0.5),
    Source("presidents", "public domain", FEDERAL),
    Source("courts", "public domain", COURT_OPINION),
    Source("congress_day", "public domain", FEDERAL, repeats=4),
    Source("spacelog", "public domain", "NASA transcripts: " + FEDERAL, repeats=2),
    Source("dialogues", "CC BY-SA 4.0, CC BY 4.0", "stated in both repositories", repeats=0.5),
    Source("meetings", "MIT (AMI, ICSI: CC BY 4.0)", "stated in the hosting repository", repeats=2),
    Source("medquad", "CC BY 4.0", "stated in the hosting repository", repeats=0.5),
    Source("govblogs", "public domain, CC0", "stated in both repositories", repeats=2),
    Source(
        "stackexchange_small",
        "CC BY-SA 2.5 to 4.0 by date",
        "stated by Stack Exchange for all posts (meta.stackexchange.com/questions/347758)",
        repeats=2,
    ),
    Source("howto", "public domain, CC BY 4.0", "stated in the hosting repositories", repeats=0.5),
    Source("scp_fiction", "CC BY-SA 3.0", "stated in the hosting repository", repeats=3),
    Source("newsevents", "CC BY-SA 4.0", WIKIPEDIA, repeats=3),
    Source("commonvoice", "CC0", "stated in the hosting repository", repeats=3),
    Source(
        "captions",
        "CC BY 4.0",
        "NLVR2: stated in the repository; COCO: stated in its terms of use for annotations",
        repeats=4,
    ),
    Source("stories", "CC BY", "stated in every file", repeats=4),
    Source(
        "europarl",
        "not confirmed",
        "no license in the hosting repository; the Parliament's notice could not be confirmed",
        included=False,
    ),
)


def files_of(texts: Path, shares: str) -> list[tuple[str, Path]]:
    """Return the names of sources and their files, including repetitions."""
    files = []
    for source in SOURCES:
        if source.included:
            path = texts / f"{source.name}.txt"
            if shares == "natural":
                files.append((source.name, path))
            elif source.repeats < 1:
                files.append((source.name, _every_second(path)))
            else:
                files += [(source.name, path)] * int(source.repeats)
    return files


def _every_second(path: Path) -> Path:
    """Write every second document of a file to a new file in the same directory."""
    half = path.with_suffix(".half.txt")
    if not half.exists():
        documents = re.split(r"\n{2,}", path.read_text("utf-8").strip("\n"))
        part = half.with_suffix(".part")
        part.write_text("\n\n".join(documents[::2]) + "\n", "utf-8")
        part.replace(half)
    return half


def count(data: Path, files: list[tuple[str, Path]]) -> list[dict[str, object]]:
    """Count documents, sentences, tokens and unknown words of each source in a prepared corpus."""
    import numpy as np

    from elmokit.data.corpus import Corpus
    from elmokit.data.layout import END_ID
    from elmokit.data.reading import read_document_lines

    corpus = Corpus.open(data)
    tokens, starts = corpus.tokens(), corpus.documents()
    totals: dict[str, np.ndarray] = {}
    n_documents = 0
    for name, path in files:
        n = 1 + max(number for number, _ in read_document_lines([path]))
        ids = np.asarray(tokens[starts[n_documents] : starts[n_documents + n]])
        sentences = int((ids == END_ID).sum())
        unknown = int((ids >= corpus.n_words).sum())
        counts = np.array([n, sentences, len(ids) - sentences, unknown])
        totals[name] = totals.get(name, 0) + counts
        n_documents += n
    if n_documents != len(starts) - 1:
        raise SystemExit(
            f"{data} has {len(starts) - 1} documents, but the files have {n_documents}. "
            "Use the corpus that was prepared from these files."
        )
    rows: list[dict[str, object]] = []
    for source in SOURCES:
        row: dict[str, object] = {"name": source.name, "license": source.license}
        row |= {"included": source.included, "reason": source.reason}
        if source.name in totals:
            values = totals[source.name].tolist()
            row |= dict(zip(("documents", "sentences", "tokens"), values, strict=False))
            row["unknown_rate"] = round(values[3] / values[2], 5)
        rows.append(row)
    return rows


def main() -> None:
    """Print the files, or write the statistics of a corpus that was prepared from them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("texts", type=Path, help="directory of the unpacked texts")
    parser.add_argument("--shares", choices=("natural", "balanced"), default="natural")
    parser.add_argument("--count", type=Path, nargs=2, metavar=("DATA", "OUT"))
    args = parser.parse_args()
    files = files_of(args.texts, args.shares)
    if args.count is None:
        sys.stdout.write("".join(f"{path}\n" for _, path in files))
        return
    data, out = args.count
    rows = {"shares": args.shares, "sources": count(data, files)}
    out.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
