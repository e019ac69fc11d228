"""The files of a prepared corpus: a directory of memory-mapped arrays.

Every word type of the corpus has an id, special symbols first:

    0 <S>   1 </S>   2 <UNK>   3.. words by decreasing count in the training part, then by word

The vocabulary of the softmax is the first V ids: as a target, an id >= V means <UNK>. As an input,
every type is encoded by its characters, so that none is unknown. Types that occur only in the
held-out part come last, with a count of 0.

A corpus may be prepared with a given vocabulary, so that its ids are those of an existing model's
head. Then the first V ids are the lines of that vocabulary, in its order and whatever their counts,
and only the types after them fall by count.

    meta.json             format, settings, counts of each split, digests of the files; written last
    vocab.txt             the V words of the vocabulary, one per line in order of their ids
    types.txt             all words in the same way; vocab.txt is its beginning
    types.offsets.npy     int64 (n_types + 1,): the word of id i is at bytes [i] to [i + 1] - 1
    counts.npy            int64 (n_types,): how often each id is in train.bin
    chars.npy             uint16 (n_types, C): the character ids of each type, see model/chars.py
    train.bin             little-endian uint32, no header: the ids of all sentences, in order, each
                          followed by 1 (</S>)
    train.documents.npy   int64 (n_documents + 1,): where in train.bin each document starts, and
                          the length of train.bin
    valid.bin, valid.documents.npy   the same of the held-out part, if there is one

The targets of the forward LM are the stream itself; its inputs are the stream shifted by one, with
<S> for each </S>. The backward LM reads it from the end.

A word of the text that equals a special symbol (such as "<S>" in a corpus with marked sentences)
must not be mistaken for a boundary: it is stored as id 2, <UNK>, and counted as `reserved_tokens`.
The same applies to "!!!MAXTERMID", which readers of vocabulary files skip.

The bytes depend only on the text and the settings, not on file names, compression, time or the
number of processes.
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
#: Words that may not be types of their own, see above.
RESERVED = (*SPECIALS, "!!!MAXTERMID")

ID_TYPE = "<u4"


def tokens_file(split: str) -> str:
    """Return the name of the file with the ids of a split."""
    return f"{split}.bin"


def documents_file(split: str) -> str:
    """Return the name of the file that says where the documents of a split start."""
    return f"{split}.documents.npy"


#: All files that a prepared corpus may hold.
FILES = (
    *(META, VOCABULARY, TYPES, OFFSETS, COUNTS, CHARS),
    *(name for split in (TRAIN, VALID) for name in (tokens_file(split), documents_file(split))),
)


#: A count of things in a corpus, which may be larger than any setting.
Number = Annotated[int, Bounds(ge=1)]
NumberOrZero = Annotated[int, Bounds(ge=0)]
HeldOut = Annotated[
    Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0, lt=1)] | None,
    Expected("a number of documents >= 1, a fraction of them between 0 and 1, or null"),
]


class PrepareSettings(Settings):
    """What decides the bytes of a prepared corpus, besides the text.

    Attributes:
        min_count: Words seen less often in the training part are not in the vocabulary; 3 is what
            the paper's vocabulary was made with.
        max_vocab: The most words in the vocabulary, with the three specials; None for no limit.
        max_characters: Character ids per word, with the marks of its begin and end.
        one_sentence_per_line: A line is a sentence; else a paragraph whose sentences are found.
        tokenized: Words are what whitespace separates, and a line is a sentence.
        valid: Documents to hold out: a number of them (int), a fraction of them (float, at least
            one document), or None.
        seed: Which documents are held out follows from it and their place in the input.
    """

    min_count: Count = 3
    max_vocab: Annotated[int | None, Bounds(gt=N_SPECIALS, le=10**9)] = None
    max_characters: Characters = 50
    one_sentence_per_line: bool = False
    tokenized: bool = False
    valid: HeldOut = None
    seed: Seed = 0


class SplitCounts(Settings):
    """What is in a split.

    Attributes:
        documents: Documents.
        sentences: Sentences.
        tokens: Words, the ends of sentences not counted.
        types: Different words.
        unknown_tokens: Words that are not in the vocabulary.
        unknown_rate: Their part of all words.
        truncated_tokens: Words with more bytes than `max_characters` leaves room for.
        reserved_tokens: Words that are written like a special, stored as <UNK>.
    """

    documents: Number
    sentences: Number
    tokens: Number
    types: NumberOrZero
    unknown_tokens: NumberOrZero
    unknown_rate: Probability
    truncated_tokens: NumberOrZero
    reserved_tokens: NumberOrZero


class Meta(Settings):
    """What meta.json says.

    Attributes:
        elmokit: The version that wrote it, whose rules found the words.
        settings: What it was prepared with; a held-out part although `valid` is None came from
            files of its own.
        n_types: Ids, those of the specials included.
        n_words: The size V of the vocabulary, specials included.
        skipped_lines: Lines left out because they were not UTF-8.
        splits: What is in "train" and, if there is one, "valid".
        digests: Fingerprints of all other files, by name.
    """

    elmokit: str
    settings: PrepareSettings
    n_types: Number
    n_words: Number
    skipped_lines: NumberOrZero
    splits: dict[str, SplitCounts]
    digests: dict[str, str]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if list(self.splits) not in ([TRAIN], [TRAIN, VALID]):
            raise invalid("splits", list(self.splits), "'train' and perhaps 'valid'")
        if not N_SPECIALS < self.n_words <= self.n_types:
            raise invalid("n_words", self.n_words, f"{N_SPECIALS + 1} to {self.n_types}")
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, with the name and version of the format."""
        return {"format": FORMAT, "format_version": FORMAT_VERSION, **super().to_dict()}

    @classmethod
    def from_file(cls, path: Path) -> Meta:
        """Read a meta.json.

        Raises:
            DataError: It is missing, damaged, or not of a prepared corpus.
        """
        hint = f"Make a prepared corpus with: elmo prepare FILES... -o {path.parent}"
        values = read_json(path, error=DataError, hint=hint)
        check_format(values, path, FORMAT, FORMAT_VERSION, oldest=2, error=DataError, hint=hint)
        try:
            return cls.from_dict({k: v for k, v in values.items() if not k.startswith("format")})
        except ConfigError as error:
            raise DataError(f"{path}: {error} {again(path)}") from None


def again(path: Path) -> str:
    """Say how a damaged corpus is made whole."""
    folder = path if path.is_dir() else path.parent
    return f"Prepare the text again with: elmo prepare FILES... -o {folder} --overwrite"


def is_corpus(path: Path) -> bool:
    """Tell whether a folder, of whose files we know the names, is a prepared corpus or was one."""
    if not (path / META).is_file():
        return False
    try:
        return bool(read_json(path / META).get("format") == FORMAT)
    except ConfigError:  # damaged, and nobody else has such a file beside it
        return (path / tokens_file(TRAIN)).exists()
