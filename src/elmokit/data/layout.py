"""The format of a prepared corpus, which is a directory of arrays that can be memory-mapped.

Each type (distinct word) of the corpus has an id:

    0 <S>   1 </S>   2 <UNK>   3.. words by decreasing count in the training split, then by spelling

The vocabulary of the head consists of the types with ids 0 to V-1. As targets, all other types are
<UNK>. As inputs, all types are encoded from their characters, so there are no unknown inputs. Types
that occur only in the held-out split have the highest ids and a count of 0.

If a corpus is prepared with a given vocabulary, for example that of an existing model, the first V
ids belong to the words of that vocabulary, in their original order. Only the other types are sorted
by count.

    meta.json             the format, settings, counts, and digests of the other files; written last
    vocab.txt             the V words of the vocabulary in order of id, one per line
    types.txt             all types in order of id, one per line
    types.offsets.npy     int64 (n_types + 1,): the start of each type in types.txt in bytes, and
                          the size of types.txt
    counts.npy            int64 (n_types,): the number of occurrences of each id in train.bin
    chars.npy             uint16 (n_types, C): the character ids of each type, see model/chars.py
    train.bin             little-endian uint32, no header: the ids of all tokens, with </S>
                          after each sentence
    train.documents.npy   int64 (n_documents + 1,): the start of each document in train.bin, and
                          the length of train.bin
    valid.bin, valid.documents.npy   the held-out split in the same format, if there is one

`elmokit.data.streams` explains how inputs and targets are derived from the ids.

Words in the text that look like special symbols (for example "<S>") are stored as <UNK>, because
they are not sentence boundaries. They are counted as `reserved_tokens`. The same applies to
"!!!MAXTERMID", which is skipped when a vocabulary file is read.

The files depend only on the text, the settings and the version of elmokit, not on file names,
compression, time or the number of processes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from elmokit.config import Characters
from elmokit.errors import ConfigError, DataError
from elmokit.settings import Bounds, Count, Expected, Probability, Seed, Settings, invalid
from elmokit.storage.manifest import check_format, read_json
from elmokit.text.vocab import SPECIALS

FORMAT = "elmokit-corpus"
FORMAT_VERSION = 2

META = "meta.json"
VOCABULARY = "vocab.txt"
TYPES = "types.txt"
OFFSETS = "types.offsets.npy"
COUNTS = "counts.npy"
CHARS = "chars.npy"

TRAIN = "train"
VALID = "valid"

BEGIN_ID, END_ID, UNKNOWN_ID = range(len(SPECIALS))
N_SPECIALS = len(SPECIALS)
#: Words that are stored as <UNK>.
RESERVED = (*SPECIALS, "!!!MAXTERMID")

ID_TYPE = "<u4"


def tokens_file(split: str) -> str:
    """Return the name of the file that contains the ids of a split."""
    return f"{split}.bin"


def documents_file(split: str) -> str:
    """Return the name of the file that contains the document boundaries of a split."""
    return f"{split}.documents.npy"


#: All files of a prepared corpus.
FILES = (
    *(META, VOCABULARY, TYPES, OFFSETS, COUNTS, CHARS),
    *(name for split in (TRAIN, VALID) for name in (tokens_file(split), documents_file(split))),
)


# Unlike `Count`, these have no upper limit, because a corpus can be of any size.
PositiveInt = Annotated[int, Bounds(ge=1)]
NonNegativeInt = Annotated[int, Bounds(ge=0)]
HeldOut = Annotated[
    Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0, lt=1)] | None,
    Expected("a number of documents (at least 1) or a fraction greater than 0 and less than 1"),
]


class PrepareSettings(Settings):
    """The settings of `prepare` that affect the prepared corpus.

    Attributes:
        min_count: Minimum number of occurrences in the training split for a word to be in the
            vocabulary. The paper uses 3.
        max_vocab: Maximum size of the vocabulary, including the three special symbols. None: no
            limit.
        max_characters: Number of character ids per word, including the begin and end markers.
        one_sentence_per_line: Whether each line is a sentence. Otherwise, lines are split into
            sentences.
        tokenized: Whether each line is a sentence with words separated by whitespace.
        valid: Documents to hold out: a number (int), a fraction (float), or None. For a fraction,
            at least one document is held out.
        seed: Random seed for the choice of held-out documents.
    """

    min_count: Count = 3
    max_vocab: Annotated[int | None, Bounds(gt=N_SPECIALS, le=10**9)] = None
    max_characters: Characters = 50
    one_sentence_per_line: bool = False
    tokenized: bool = False
    valid: HeldOut = None
    seed: Seed = 0


class SplitCounts(Settings):
    """The counts of a split.

    Attributes:
        documents: Number of documents.
        sentences: Number of sentences.
        tokens: Number of tokens, not counting sentence boundaries.
        types: Number of distinct words.
        unknown_tokens: Number of tokens that are not in the vocabulary.
        unknown_rate: Fraction of tokens that are not in the vocabulary.
        truncated_tokens: Number of tokens that are truncated to `max_characters`.
        reserved_tokens: Number of tokens that look like special symbols and are stored as <UNK>.
    """

    documents: PositiveInt
    sentences: PositiveInt
    tokens: PositiveInt
    types: NonNegativeInt
    unknown_tokens: NonNegativeInt
    unknown_rate: Probability
    truncated_tokens: NonNegativeInt
    reserved_tokens: NonNegativeInt


class Meta(Settings):
    """The contents of meta.json.

    Attributes:
        elmokit: The version of elmokit that prepared the corpus.
        settings: The settings. `valid` is None if the held-out text comes from separate files.
        n_types: Number of types, including special symbols.
        n_words: The size V of the vocabulary, including special symbols.
        skipped_lines: Number of lines that were skipped because they were not valid UTF-8.
        splits: The counts of "train" and, if there is held-out text, "valid".
        digests: Fingerprints of the other files, by file name.
    """

    elmokit: str
    settings: PrepareSettings
    n_types: PositiveInt
    n_words: PositiveInt
    skipped_lines: NonNegativeInt
    splits: dict[str, SplitCounts]
    digests: dict[str, str]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if list(self.splits) not in ([TRAIN], [TRAIN, VALID]):
            raise invalid("splits", list(self.splits), "'train' and possibly 'valid'")
        if not N_SPECIALS < self.n_words <= self.n_types:
            raise invalid("n_words", self.n_words, f"{N_SPECIALS + 1} to {self.n_types}")
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values, including the name and version of the format."""
        return {"format": FORMAT, "format_version": FORMAT_VERSION, **super().to_dict()}

    @classmethod
    def from_file(cls, path: Path) -> Meta:
        """Read a meta.json file.

        Raises:
            DataError: The file is missing, damaged, or not from a prepared corpus.
        """
        hint = f"Prepare a corpus with: elmo prepare FILES... -o {path.parent}"
        if not path.parent.exists():
            raise DataError(f"{path.parent} does not exist. {hint}")
        if not path.exists():
            raise DataError(f"{path.parent} is not a prepared corpus: it has no {META}. {hint}")
        values = read_json(path, error=DataError, hint=hint)
        check_format(values, path, FORMAT, FORMAT_VERSION, oldest=2, error=DataError, hint=hint)
        try:
            return cls.from_dict({k: v for k, v in values.items() if not k.startswith("format")})
        except ConfigError as error:
            raise DataError(f"{path}: {error} {prepare_again_hint(path)}") from None


def prepare_again_hint(path: Path) -> str:
    """Return advice for error messages about a damaged corpus."""
    folder = path if path.is_dir() else path.parent
    return f"Prepare the text again with: elmo prepare FILES... -o {folder} --overwrite"


def is_corpus(path: Path) -> bool:
    """Return whether a directory is a prepared corpus, even if it is damaged."""
    if not (path / META).is_file():
        return False
    try:
        return bool(read_json(path / META).get("format") == FORMAT)
    except ConfigError:
        return (path / tokens_file(TRAIN)).exists()
