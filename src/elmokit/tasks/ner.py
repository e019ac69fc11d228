"""Named entity recognition with ELMo in a biLSTM-CRF tagger (Peters et al. 2018, section 4).

    x_k = [word vector; character CNN]           the token vector of the task model
    h   = biLSTM([x_k; ELMo_k])                  ELMo at the input
    e_k = W [h_k; ELMo_k]                        ELMo at the output
    p(y) = CRF(e_1, ..., e_T)                    one score for the entire tag sequence

The data is in CoNLL-2003 format: one token per line in columns separated by spaces or tabs, with
the tag in the last column and an empty line after each sentence. The tagging scheme is IOB1, IOB2,
BIOES or BILOU. Lines that begin with -DOCSTART- separate documents. You can also use this format
and this task for other types of spans, such as chunks.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from elmokit.errors import DataError
from elmokit.progress import plural
from elmokit.settings import Fraction, Layers, Settings, Size, SizeOrZero
from elmokit.tasks.batches import Batch
from elmokit.tasks.config import ElmoConfig, TaskConfig, TrainConfig
from elmokit.tasks.inputs import TextOrTokens, is_blank, read_objects, split_blocks, split_text
from elmokit.tasks.metrics.spans import (
    Span,
    span_scores,
    span_to_dict,
    spans_to_tags,
    tags_to_spans,
)
from elmokit.tasks.nn.crf import Crf, allowed_transitions, build_tag_set
from elmokit.tasks.nn.elmo import BilmInfo, ElmoMixes
from elmokit.tasks.nn.layers import BiLstm
from elmokit.tasks.task import LabelInfo, Reader, Scores, Task, TaskModel
from elmokit.tasks.words import TokenEncoder, WordTable, WordVectors
from elmokit.text.lines import Line, read_lines

_DOCSTART = "-DOCSTART-"
_TAG = re.compile(r"O|[BIESLU]-\S+")
_COLUMNS = (
    "All lines must have the same number of columns, separated by spaces or tabs, with the token "
    "in the first column and its tag in the last. Empty lines separate sentences."
)


# ------------------------------------------------------------------------------------------- data


@dataclass(frozen=True)
class Sentence:
    """A sentence.

    Attributes:
        tokens: The tokens.
        tags: The tag of each token as written in the file; None for input without tags.
        offsets: The character offsets (start, end) of each token in its line; None for tokenized
            input.
    """

    tokens: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    offsets: tuple[tuple[int, int], ...] | None = None

    @property
    def texts(self) -> Sequence[Sequence[str]]:
        """The texts that the biLM reads."""
        return (self.tokens,)

    @cached_property
    def spans(self) -> list[Span]:
        """The entities according to the tags."""
        return tags_to_spans(self.tags or ())


def read_columns(lines: Iterable[Line], *, tagged: bool) -> Iterator[Sentence]:
    """Read sentences in column format: the token in the first column, the tag in the last."""
    n_columns = 0  # determined by the first line
    for block in split_blocks(lines, _is_separator):
        tokens, tags = [], []
        for line in block:
            text = line.text.strip(" \t")  # other whitespace may be part of a token
            fields = text.split("\t") if "\t" in text else re.split(" +", text)
            n_columns = n_columns or max(len(fields), 1 + tagged)
            if len(fields) != n_columns:
                raise line.error(
                    f"found {plural(len(fields), 'column')} ('{line.text[:60]}'), expected "
                    f"{n_columns}. {_COLUMNS}"
                )
            if tagged and not _TAG.fullmatch(fields[-1]):
                raise line.error(
                    f"invalid tag '{fields[-1][:60]}'. Expected O or a BIO or BIOES tag such "
                    f"as B-PER. {_COLUMNS}"
                )
            tokens.append(fields[0])
            tags.append(fields[-1])
        yield Sentence(tuple(tokens), tuple(tags) if tagged else None)


def _is_separator(line: Line) -> bool:
    return is_blank(line) or line.text.startswith(_DOCSTART)


def read_text(lines: Iterable[Line]) -> Iterator[Sentence]:
    """Split lines of raw text into sentences and tokens."""
    for line in lines:
        for tokens, offsets in split_text(line.text):
            yield Sentence(tokens, offsets=offsets)


def read_jsonl(lines: Iterable[Line]) -> Iterator[Sentence]:
    """Read JSON lines: a sentence as {"tokens": [...]}, or raw text as {"text": "..."}."""
    for line, item in read_objects(TextOrTokens, lines):
        if item.text is not None:
            yield from read_text([line._replace(text=item.text)])
        else:
            yield Sentence(tuple(item.tokens or ()))


# ------------------------------------------------------------------------------------------ model


class NerConfig(Settings):
    """The architecture of the tagger.

    Attributes:
        scheme: Tagging scheme of the CRF, BIOES or BIO, regardless of the tags in the data.
        char_dim: Size of the character embeddings.
        char_filters: Number of filters of the character CNN; 0 disables it.
        char_width: Width of the filters in characters.
        hidden: Size of the LSTMs, per direction.
        layers: Number of LSTM layers.
        dropout: Dropout on x_k, between LSTM layers (with one mask per sentence) and on h_k.
        word_dropout: Probability of replacing a word vector with the unknown-word vector.
    """

    scheme: Literal["BIOES", "BIO"] = "BIOES"
    char_dim: Size = 16
    char_filters: SizeOrZero = 128
    char_width: Size = 3
    hidden: Size = 200
    layers: Layers = 2
    dropout: Fraction = 0.5
    word_dropout: Fraction = 0.01


class NerModel(TaskModel[Sentence]):
    """A biLSTM-CRF tagger."""

    def __init__(
        self, config: TaskConfig, label_info: LabelInfo, words: WordTable, bilm: BilmInfo | None
    ) -> None:
        super().__init__()
        settings: NerConfig = config.model
        self.scheme = settings.scheme
        self.tags = build_tag_set(label_info["types"], settings.scheme)
        self._tag_ids = {tag: i for i, tag in enumerate(self.tags)}
        word_vectors = WordVectors(
            words, trainable=config.static.trainable, word_dropout=settings.word_dropout
        )
        self.encoder = TokenEncoder(
            word_vectors,
            char_dim=settings.char_dim,
            char_filters=settings.char_filters,
            char_width=settings.char_width,
        )
        self.elmo = ElmoMixes(config.elmo, bilm)
        self.dropout = nn.Dropout(settings.dropout)
        dim = self.encoder.dim + self.elmo.input_dim
        self.rnn = BiLstm(dim, settings.hidden, settings.layers, dropout=settings.dropout)
        self.emit = nn.Linear(self.rnn.output_dim + self.elmo.output_dim, len(self.tags))
        self.crf = Crf(allowed_transitions(self.tags, settings.scheme))

    def forward(self, batch: Batch[Sentence]) -> tuple[Tensor, Tensor]:
        """Return the score of every tag for every token, (B, T, K), and the mask, (B, T)."""
        tokens, layers = batch.tokens(), batch.layers()
        x = self.dropout(self.encoder(tokens))
        x = self.elmo.at_input(x, layers)  # [x_k; ELMo_k]
        h = self.dropout(self.rnn(x, tokens.lengths))
        h = self.elmo.at_output(h, layers)  # [h_k; ELMo_k]
        return self.emit(h), tokens.mask

    def loss(self, batch: Batch[Sentence]) -> Tensor:
        """Return -log p(gold tags), averaged over the sentences."""
        emissions, mask = self(batch)
        gold = torch.zeros(mask.shape, dtype=torch.long)
        for row, sentence in enumerate(batch.examples):
            tags = spans_to_tags(sentence.spans, len(sentence.tokens), self.scheme)
            gold[row, : len(tags)] = torch.tensor([self._tag_ids[tag] for tag in tags])
        mean: Tensor = self.crf(emissions, gold.to(mask.device), mask).mean()
        return mean

    def decode(self, batch: Batch[Sentence]) -> list[Any]:
        """Return the best tag sequence of each sentence, in IOB2."""
        best = self.crf.decode(*self(batch)).tolist()
        predictions = []
        for sentence, row in zip(batch.examples, best, strict=True):
            tags = [self.tags[i] for i in row[: len(sentence.tokens)]]
            predictions.append(spans_to_tags(tags_to_spans(tags), len(tags)))
        return predictions


# ------------------------------------------------------------------------------------------- task


class Ner(Task[Sentence]):
    """Named entity recognition."""

    name = "ner"
    metric = "f1"
    # As in the paper: lambda 0.1, two LSTM layers, Adam with a learning rate of 0.001, and early
    # stopping after 25 epochs without improvement.
    presets: ClassVar[Mapping[str, TaskConfig]] = {
        "paper": TaskConfig(
            NerConfig(),
            ElmoConfig(penalty=0.1),
            train=TrainConfig(epochs=75, patience=25),
        ),
        # A stronger baseline: without ELMo, its F1 on the test set of CoNLL-2003 is 90.2 with
        # 150-dimensional GloVe vectors.
        "tuned": TaskConfig(
            NerConfig(layers=1, char_dim=30, char_filters=50, dropout=0.4),
            ElmoConfig(penalty=0.1),
            train=TrainConfig(epochs=40, patience=8, halve_after=3),
        ),
        # A smaller model that stops earlier, for quick experiments.
        "quick": TaskConfig(
            NerConfig(hidden=100, layers=1),
            ElmoConfig(penalty=0.1),
            train=TrainConfig(epochs=15, patience=4, halve_after=2),
        ),
    }
    inputs: ClassVar[Mapping[str, Reader[Sentence]]] = {
        "text": read_text,
        "conll": partial(read_columns, tagged=False),
        "jsonl": read_jsonl,
    }
    network = NerModel

    def read(self, path: str) -> list[Sentence]:
        """Read a tagged file in column format."""
        return list(read_columns(read_lines([path]), tagged=True))

    def collect_labels(self, examples: Sequence[Sentence]) -> LabelInfo:
        """Collect the entity types."""
        types = sorted(self.count_labels(examples))
        if not types:
            raise DataError(f"All tags in the training data are O. {_COLUMNS}")
        return {"types": types}

    def count_labels(self, examples: Sequence[Sentence]) -> Counter[str]:
        """Count the entities of each type."""
        return Counter(span.type for sentence in examples for span in sentence.spans)

    def score(self, examples: Sequence[Sentence], predictions: Sequence[Any]) -> Scores:
        """Return the span F1, computed as in conlleval, and other scores."""
        return span_scores([sentence.tags or () for sentence in examples], predictions)

    def format_prediction(self, example: Sentence, prediction: Any, *, as_json: bool) -> str:
        """Return two columns, or a JSON object with the tokens, the tags and the entities."""
        if not as_json:
            rows = zip(example.tokens, prediction, strict=True)
            return "".join(f"{token}\t{tag}\n" for token, tag in rows)
        values: dict[str, Any] = {"tokens": example.tokens, "tags": prediction, "entities": []}
        if example.tags is not None:
            values["gold"] = spans_to_tags(example.spans, len(example.tags))
        for start, end, entity_type in tags_to_spans(prediction):
            position = span_to_dict(example.tokens, example.offsets, start, end)
            values["entities"].append({"type": entity_type, **position})
        return json.dumps(values, ensure_ascii=False)
