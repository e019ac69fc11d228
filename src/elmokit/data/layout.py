"""The files of a prepared corpus: a directory of memory-mapped arrays.

Every word type of the corpus has an id, special symbols first:

    0 <S>   1 </S>   2 <UNK>   3.. words by decreasing count in the training part, then by word

The vocabulary of the softmax is the first V ids: as a target, an id >= V means <UNK>. As an input,
every type is encoded from its characters, so no input is unknown. Types that occur only in the
held-out part come last, with a count of 0.

A corpus may be prepared with a given vocabulary, so that its ids are those of an existing model's
head. Then the first V ids are the lines of that vocabulary in their original order, and only the
remaining types are sorted by count.

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
    valid.bin, valid.documents.npy   the same for the held-out part, if there is one

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
#: Words that cannot be types, see above.
RESERVED = (*SPECIALS, "!!!MAXTERMID")

ID_TYPE = "<u4"


def tokens_file(split: str) -> str:
    """Return the name of the file with the ids of a split."""
    return f"{split}.bin"


def documents_file(split: str) -> str:
    """Return the name of the file with the document boundaries of a split."""
    return f"{split}.documents.npy"


#: All files of a prepared corpus.
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
    """Settings that, together with the text, determine the bytes of a prepared corpus.

    Attributes:
        min_count: Minimum number of occurrences of a vocabulary word in the training part; 3 in
            the paper.
        max_vocab: Maximum size of the vocabulary, including the three special symbols; None: no
            limit.
        max_characters: Character ids per word, including the two boundary ids.
        one_sentence_per_line: A line is a sentence; otherwise a paragraph, which is split.
        tokenized: Words are separated by whitespace, and a line is a sentence.
        valid: Documents to hold out: their number (int), their fraction (float, at least one
            document), or None.
        seed: Determines, with the positions of documents, which are held out.
    """

    min_count: Count = 3
    max_vocab: Annotated[int | None, Bounds(gt=N_SPECIALS, le=10**9)] = None
    max_characters: Characters = 50
    one_sentence_per_line: bool = False
    tokenized: bool = False
    valid: HeldOut = None
    seed: Seed = 0


class SplitCounts(Settings):
    """Counts of a split.

    Attributes:
        documents: Number of documents.
        sentences: Number of sentences.
        tokens: Number of tokens, without sentence ends.
        types: Number of distinct words.
        unknown_tokens: Number of tokens that are not in the vocabulary.
        unknown_rate: Their fraction of all tokens.
        truncated_tokens: Number of tokens with more bytes than `max_characters` allows.
        reserved_tokens: Number of tokens that equal a special symbol, stored as <UNK>.
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
    """The contents of meta.json.

    Attributes:
        elmokit: The version of elmokit that tokenized the text.
        settings: The settings; if `valid` is None, a held-out part comes from separate files.
        n_types: Number of ids, including special symbols.
        n_words: The size V of the vocabulary, including special symbols.
        skipped_lines: Number of lines that were skipped because they were not UTF-8.
        splits: Counts of "train" and possibly "valid".
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
            raise invalid("splits", list(self.splits), "'train' and possibly 'valid'")
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
            DataError: It is missing, damaged, or not that of a prepared corpus.
        """
        hint = f"Prepare a corpus with: elmo prepare FILES... -o {path.parent}"
        values = read_json(path, error=DataError, hint=hint)
        check_format(values, path, FORMAT, FORMAT_VERSION, oldest=2, error=DataError, hint=hint)
        try:
            return cls.from_dict({k: v for k, v in values.items() if not k.startswith("format")})
        except ConfigError as error:
            raise DataError(f"{path}: {error} {how_to_prepare_again(path)}") from None


def how_to_prepare_again(path: Path) -> str:
    """Return the advice for a damaged corpus."""
    folder = path if path.is_dir() else path.parent
    return f"Prepare the text again with: elmo prepare FILES... -o {folder} --overwrite"


def is_corpus(path: Path) -> bool:
    """Return whether a directory is a prepared corpus (it may be damaged)."""
    if not (path / META).is_file():
        return False
    try:
        return bool(read_json(path / META).get("format") == FORMAT)
    except ConfigError:
        return (path / tokens_file(TRAIN)).exists()
