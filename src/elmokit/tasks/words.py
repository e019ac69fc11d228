"""The token vectors x_k of a task model: word vectors and a character CNN.

The vocabulary contains words of the training data and other words from a table of pretrained
vectors. A token is looked up as written and, if it is not found, in lowercase. Row 0 is the vector
for unknown words.

    words.txt              one word per line, in the order of the rows, without row 0
    words.safetensors      the vectors in float16: `training` (starting with row 0) and `others`
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.embed.static import StaticVectors
from elmokit.errors import WeightsError
from elmokit.model.chars import N_CHARACTERS, char_ids_table, unpadded_length
from elmokit.progress import plural
from elmokit.sources.tensors import read_shapes, read_tensors, write_tensors
from elmokit.storage.atomic import restore_directory
from elmokit.storage.regular import read_bounded
from elmokit.tasks.batches import TokenBatch
from elmokit.tasks.config import StaticConfig

UNKNOWN_ROW = 0
FILE = "words.txt"
VECTORS = "words.safetensors"

# Words of the training data that are not in the table get a vector if they occur at least this
# often.
_MIN_COUNT = 2


class WordTable:
    """The vocabulary of a task model and its word vectors.

    Args:
        words: The words of rows 1, 2, ...
        n_training: Number of rows for words in the training data, including row 0.
        vectors: Row 0 and one row per word, float16.
    """

    def __init__(self, words: Sequence[str], n_training: int, vectors: NDArray[np.float16]) -> None:
        self.words = list(words)
        self.n_training = n_training
        self.vectors = vectors
        self._rows = {word: row for row, word in enumerate(self.words, start=1)}

    def rows(self, tokens: Iterable[str]) -> list[int]:
        """Return the row of each token."""
        get = self._rows.get
        return [get(token) or get(token.lower(), UNKNOWN_ROW) for token in tokens]

    @property
    def digest(self) -> str:
        """The digest of the words and the vectors."""
        words = "\n".join(self.words).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(words + self.vectors.tobytes()).hexdigest()[:32]

    @classmethod
    def build(
        cls,
        config: StaticConfig,
        table: StaticVectors | None,
        training: Iterable[Sequence[str]],
        others: Iterable[Sequence[str]] = (),
    ) -> WordTable:
        """Collect the words of the data and their vectors.

        Args:
            config: How many words of the table to add, and the size of random vectors.
            table: Pretrained vectors; None to initialize all vectors randomly.
            training: The tokenized texts of the training data.
            others: Other tokenized texts, such as those of the dev set. Their words are added if
                the table contains them.
        """
        rows: dict[str, int | None] = {}  # for each word, its row in `table`, if any
        missing: Counter[str] = Counter()  # counts of words not in the table, in lowercase
        for token, count in Counter(token for text in training for token in text).items():
            if table is None or (row := table.row(token)) is None:
                missing[token.lower()] += count
            else:
                rows[table.words[row]] = row
        for token, count in missing.items():
            if count >= _MIN_COUNT:
                rows.setdefault(token, None)
        n_training = len(rows) + 1
        dim, scale = config.dim, 0.1
        if table is not None:
            for token in dict.fromkeys(token for text in others for token in text):
                if (row := table.row(token)) is not None:
                    rows.setdefault(table.words[row], row)
            for row, word in enumerate(table.words[: config.words]):
                rows.setdefault(word, row)
            dim = int(table.vectors.shape[1])
            scale = float(np.asarray(table.vectors[:10_000], dtype=np.float32).std())
        random = np.random.default_rng(0)
        vectors = np.empty((len(rows) + 1, dim), dtype=np.float16)
        for i, row in enumerate([None, *rows.values()]):
            if table is None or row is None:
                vectors[i] = random.normal(0, scale, dim)
            else:
                vectors[i] = table.vectors[row]
        return cls(list(rows), n_training, vectors)

    def save(self, folder: Path) -> None:
        """Write the words and the vectors to a directory."""
        lines = (word.replace("\n", " ").replace("\r", " ") for word in self.words)
        text = "".join(f"{line}\n" for line in lines)
        (folder / FILE).write_bytes(text.encode("utf-8", "surrogatepass"))
        tensors = {
            "training": torch.from_numpy(self.vectors[: self.n_training]),
            "others": torch.from_numpy(self.vectors[self.n_training :]),
        }
        write_tensors(tensors, folder / VECTORS, storage="float16")

    @classmethod
    def load(cls, folder: Path) -> WordTable:
        """Load the words and vectors that `save` wrote."""
        restore_directory(folder)
        tensors = read_tensors(folder / VECTORS, read_shapes(folder / VECTORS))
        try:
            text = read_bounded(folder / FILE, WeightsError).decode("utf-8", "surrogatepass")
        except (OSError, UnicodeDecodeError) as error:
            raise WeightsError(f"Cannot read {folder / FILE}: {error}.") from error
        words = text.split("\n")[:-1]
        if tensors.keys() != {"training", "others"}:
            raise WeightsError(
                f"{folder / VECTORS} does not contain word vectors: expected the tensors "
                "'training' and 'others'. Copy the directory again, or train the task model again."
            )
        vectors = torch.cat([tensors["training"], tensors["others"]]).numpy().astype(np.float16)
        if len(vectors) != len(words) + 1:
            raise WeightsError(
                f"{folder / FILE} has {plural(len(words), 'word')}, but {VECTORS} has "
                f"{plural(len(vectors) - 1, 'vector')}. The files are from different models. Copy "
                "the directory again, or train the task model again."
            )
        return cls(words, len(tensors["training"]), vectors)


# ---------------------------------------------------------------------------------------- modules


class WordVectors(nn.Module):
    """The vectors of a `WordTable`. Only the vectors of training words can be trained.

    Args:
        words: The words and their initial vectors.
        trainable: Whether to train the vectors of training words.
        word_dropout: Probability of replacing the vector of a token with row 0 during training.

    Attributes:
        dim: The size of a vector.
    """

    fixed: Tensor

    def __init__(self, words: WordTable, *, trainable: bool, word_dropout: float = 0.0) -> None:
        super().__init__()
        self.words = words
        self.word_dropout = word_dropout
        vectors = torch.from_numpy(words.vectors).float()
        self.dim = vectors.shape[1]
        tuned, fixed = vectors[: words.n_training], vectors[words.n_training :]
        self.tuned = nn.Parameter(tuned.clone(), requires_grad=trainable)
        # Not stored with the weights, because `WordTable.save` stores all vectors.
        self.register_buffer("fixed", fixed.clone(), persistent=False)

    def forward(self, tokens: TokenBatch) -> Tensor:
        """Return the vectors of tokens, (B, T, dim)."""
        rows = torch.tensor(self.words.rows(tokens.types), device=tokens.index.device)
        ids = rows[tokens.index]
        if self.training and self.word_dropout:
            dropped = torch.rand(ids.shape, device=ids.device) < self.word_dropout
            ids = ids.masked_fill(dropped, UNKNOWN_ROW)
        n_tuned = len(self.tuned)
        vectors = F.embedding(ids.clamp(max=n_tuned - 1), self.tuned)
        if not len(self.fixed):
            return vectors
        others = F.embedding((ids - n_tuned).clamp(min=0), self.fixed)
        return torch.where((ids < n_tuned).unsqueeze(2), vectors, others)


class CharCnn(nn.Module):
    """Computes word vectors from characters: embeddings, a convolution and max pooling.

    The characters are UTF-8 bytes, as in the biLM, so no vocabulary is needed.
    """

    def __init__(self, *, dim: int, filters: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.embedding = nn.Embedding(N_CHARACTERS, dim)
        self.convolution = nn.Conv1d(dim, filters, width)

    def forward(self, tokens: TokenBatch) -> Tensor:
        """Return the vectors of tokens, (B, T, filters). Each distinct word is encoded once."""
        table = char_ids_table(tokens.types)
        # All words are padded to the length of the longest word plus `width`. At least one window
        # of each word then contains only padding, so that the maximum does not depend on the length
        # of the other words.
        longest = int(unpadded_length(table).max()) + self.width
        ids = torch.from_numpy(table).to(tokens.index.device)
        # If the number of padding columns is negative, columns are removed.
        ids = F.pad(ids, (0, longest - ids.shape[1]), value=N_CHARACTERS - 1)
        windows = self.convolution(self.embedding(ids).transpose(1, 2))  # (n, filters, C')
        vectors: Tensor = torch.relu(windows.amax(dim=2))
        return vectors[tokens.index]


class TokenEncoder(nn.Module):
    """Computes x_k = [word vector; character vector] for each token.

    Args:
        words: The word vectors.
        char_dim: Size of the character embeddings.
        char_filters: Number of filters of the character CNN; 0 disables it.
        char_width: Width of the filters in characters.

    Attributes:
        dim: The size of x_k.
    """

    def __init__(
        self, words: WordVectors, *, char_dim: int = 0, char_filters: int = 0, char_width: int = 0
    ) -> None:
        super().__init__()
        self.words = words
        self.chars: CharCnn | None = None
        if char_filters:
            self.chars = CharCnn(dim=char_dim, filters=char_filters, width=char_width)
        self.dim = words.dim + char_filters

    def forward(self, tokens: TokenBatch) -> Tensor:
        """Return the vectors of tokens, (B, T, dim)."""
        words: Tensor = self.words(tokens)
        return words if self.chars is None else torch.cat([words, self.chars(tokens)], dim=2)
