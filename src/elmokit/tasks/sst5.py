"""Five-class sentiment classification with ELMo (Peters et al. 2018, section 4).

The biattentive classification network of McCann et al. (2017) for one sentence:

    x_k = word vector
    e_k = ReLU(W [x_k; ELMo_k])                  ELMo at the input
    h   = biLSTM(e)
    c_k = sum_j softmax_j(h_k . h_j) h_j         the sentence attends to itself
    y   = biLSTM([h; h - c; h * c])              the integrator
    v   = [max; mean; min; self-attentive] pooling of [y_k; ELMo_k]        ELMo at the output
    p(label) = softmax(maxout layers of v)

Data: trees of the Stanford Sentiment Treebank, one per line, such as
(3 (2 It) (4 (2 's) (4 lovely))). Each phrase has a label from 0 (very negative) to 4 (very
positive).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from elmokit.errors import warn
from elmokit.progress import plural
from elmokit.settings import Fraction, Settings, Size
from elmokit.tasks.batches import Batch
from elmokit.tasks.classify import Classification, Classifier, check_length, tokenize_text
from elmokit.tasks.config import ElmoConfig, StaticConfig, TaskConfig, TrainConfig
from elmokit.tasks.inputs import TextOrTokens, read_objects
from elmokit.tasks.nn.elmo import BilmInfo, ElmoMixes
from elmokit.tasks.nn.layers import AttentivePool, BiLstm, attend, max_pool, mean_pool, min_pool
from elmokit.tasks.task import LabelInfo, Reader
from elmokit.tasks.words import WordTable, WordVectors
from elmokit.text.lines import Line, read_lines
from elmokit.text.treebank import unescape

LABELS = ("0", "1", "2", "3", "4")
#: The labels of the two-class task; neutral examples are excluded.
BINARY_LABELS = {"0": "negative", "1": "negative", "3": "positive", "4": "positive"}

_TOKEN = re.compile(r"\([ \t]*[^() \t]*|\)|[^() \t]+")  # other whitespace may be part of a word
_PREVIOUS = {"(": ("", "(", ")"), "word": ("(",), ")": ("word", ")")}  # allowed before a token
_TREE = "Expected one tree per line, such as (3 (2 It) (4 (2 's) (4 lovely)))."


# ------------------------------------------------------------------------------------------- data


@dataclass(frozen=True)
class Review:
    """A sentence or a phrase.

    Attributes:
        tokens: The tokens.
        label: The label; None if unknown.
        phrases: The (start, end, label) of each phrase, except the sentence itself.
    """

    tokens: tuple[str, ...]
    label: str | None = None
    phrases: tuple[tuple[int, int, str], ...] = ()

    @property
    def texts(self) -> Sequence[Sequence[str]]:
        """The tokenized texts for the biLM."""
        return (self.tokens,)


def read_tree(line: Line) -> Review:
    """Read a tree in bracket notation."""
    leaves: list[str] = []
    phrases: list[tuple[int, int, str]] = []
    nodes: list[tuple[str, int]] = []  # label and first word of each open node, outermost first
    previous = ""
    for token in _TOKEN.findall(line.text):
        kind = token[0] if token[0] in "()" else "word"
        label = token[1:].strip()
        is_complete = bool(phrases) and not nodes
        if is_complete or previous not in _PREVIOUS[kind] or (kind == "(" and label not in LABELS):
            raise line.error(f"unexpected '{token[:40]}'. {_TREE}")
        if kind == "(":
            nodes.append((label, len(leaves)))
        elif kind == "word":
            leaves.append(token)
        else:
            label, start = nodes.pop()
            phrases.append((start, len(leaves), label))
        previous = kind
    if nodes or not phrases:
        raise line.error(f"missing ')'. {_TREE}")
    tokens = check_length([unescape(leaf) for leaf in leaves], line)
    inner = tuple(phrase for phrase in phrases[:-1] if phrase[1] <= len(tokens))
    return Review(tokens, phrases[-1][2], inner)  # the root closes last


def expand_phrases(reviews: Iterable[Review]) -> Iterator[Review]:
    """Yield each sentence and all its phrases as separate examples."""
    for review in reviews:
        yield replace(review, phrases=())
        for start, end, label in review.phrases:
            yield Review(review.tokens[start:end], label)


def to_two_classes(reviews: Iterable[Review]) -> Iterator[Review]:
    """Remove neutral examples, and label the others positive or negative."""
    for review in reviews:
        if review.label in BINARY_LABELS:
            yield replace(review, label=BINARY_LABELS[review.label])


def read_trees(lines: Iterable[Line]) -> Iterator[Review]:
    """Read one tree per line."""
    return (read_tree(line) for line in lines if line.text.strip())


def read_text(lines: Iterable[Line]) -> Iterator[Review]:
    """Read raw text with one example per line."""
    return (Review(tokenize_text(line.text, line)) for line in lines if line.text.strip())


def read_jsonl(lines: Iterable[Line]) -> Iterator[Review]:
    """Read JSON lines: {"tokens": [...]} or {"text": "..."}."""
    for line, item in read_objects(TextOrTokens, lines):
        if item.text is not None:
            yield Review(tokenize_text(item.text, line))
        else:
            yield Review(check_length(item.tokens or (), line))


# ------------------------------------------------------------------------------------------ model


class Sst5Config(Settings):
    """The architecture of the network, and its training data.

    Attributes:
        subtrees: Train on all phrases of the sentences, as in published work.
        distinct: Train only once on a phrase that occurs in several sentences. Most such phrases
            are single words. The label of a phrase is the same in all sentences.
        classes: "five", or "two" for positive and negative without the neutral examples.
        hidden: Size of the encoder and of both LSTMs (per direction).
        pieces: Number of linear functions per output of a maxout layer.
        dropout: Dropout on [x_k; ELMo_k].
        encoder_dropout: Dropout on the encoder's output.
        pool_dropout: Dropout on the pooled vector.
        maxout_dropout: Dropout after the first maxout layer.
        last_dropout: Dropout after the second maxout layer.
    """

    subtrees: bool = True
    distinct: bool = False
    classes: Literal["five", "two"] = "five"
    hidden: Size = 300
    pieces: Size = 4
    dropout: Fraction = 0.5
    encoder_dropout: Fraction = 0.25
    pool_dropout: Fraction = 0.1
    maxout_dropout: Fraction = 0.2
    last_dropout: Fraction = 0.3


class Maxout(nn.Module):
    """Maxout: each output is the maximum of `pieces` linear functions (Goodfellow et al. 2013).

    Shape:
        (..., input_dim) -> (..., output_dim)
    """

    def __init__(self, input_dim: int, output_dim: int, pieces: int) -> None:
        super().__init__()
        self.pieces = pieces
        self.linear = nn.Linear(input_dim, output_dim * pieces)

    def forward(self, x: Tensor) -> Tensor:
        maximum: Tensor = self.linear(x).unflatten(-1, (-1, self.pieces)).amax(dim=-1)
        return maximum


class Bcn(Classifier[Review]):
    """A biattentive classification network."""

    def __init__(
        self, config: TaskConfig, label_info: LabelInfo, words: WordTable, bilm: BilmInfo | None
    ) -> None:
        super().__init__(label_info["labels"])
        settings: Sst5Config = config.model
        self.words = WordVectors(words, trainable=config.static.trainable)
        self.elmo = ElmoMixes(config.elmo, bilm)
        self.dropout = nn.Dropout(settings.dropout)
        self.encoder = nn.Sequential(
            nn.Linear(self.words.dim + self.elmo.input_dim, settings.hidden),
            nn.ReLU(),
            nn.Dropout(settings.encoder_dropout),
        )
        self.rnn = BiLstm(settings.hidden, settings.hidden)
        self.integrator = BiLstm(3 * self.rnn.output_dim, settings.hidden)
        dim = self.integrator.output_dim + self.elmo.output_dim
        self.attentive_pool = AttentivePool(dim)
        self.classify = nn.Sequential(
            nn.Dropout(settings.pool_dropout),
            Maxout(4 * dim, 4 * settings.hidden, settings.pieces),
            nn.Dropout(settings.maxout_dropout),
            Maxout(4 * settings.hidden, 2 * settings.hidden, settings.pieces),
            nn.Dropout(settings.last_dropout),
            Maxout(2 * settings.hidden, len(self.labels), settings.pieces),
        )

    def forward(self, batch: Batch[Review]) -> Tensor:
        """Return the scores of all labels, (B, K)."""
        tokens, layers = batch.tokens(), batch.layers()
        mask = tokens.mask
        x = self.elmo.at_input(self.words(tokens), layers)  # [x_k; ELMo_k]
        h = self.rnn(self.encoder(self.dropout(x)), tokens.lengths)  # (B, T, 2H)
        c = attend(h, h, mask)
        y = self.integrator(torch.cat([h, h - c, h * c], dim=2), tokens.lengths)
        y = self.elmo.at_output(y, layers)  # [y_k; ELMo_k]
        pooled = [pool(y, mask) for pool in (max_pool, mean_pool, min_pool, self.attentive_pool)]
        scores: Tensor = self.classify(torch.cat(pooled, dim=1))
        return scores


# ------------------------------------------------------------------------------------------- task


class Sst5(Classification[Review]):
    """Sentiment of sentences."""

    name = "sst5"
    # As published: frozen word vectors, Adam with a learning rate of 0.001, and batches of 100
    # phrases.
    presets: ClassVar[Mapping[str, TaskConfig]] = {
        "paper": TaskConfig(
            Sst5Config(),
            ElmoConfig(dropout=0.0),  # the dropout on [x_k; ELMo_k] is enough
            StaticConfig(trainable=False),
            TrainConfig(batch_size=100, batch_tokens=8192, epochs=40, patience=5),
        ),
        # Trained only on whole sentences, which are about one in 37 of all examples.
        "sentences": TaskConfig(
            Sst5Config(subtrees=False, hidden=150),
            ElmoConfig(dropout=0.0),
            StaticConfig(trainable=False),
            TrainConfig(batch_size=32, epochs=30, patience=5, halve_after=2),
        ),
    }
    inputs: ClassVar[Mapping[str, Reader[Review]]] = {
        "text": read_text,
        "jsonl": read_jsonl,
        "trees": read_trees,
    }
    network = Bcn

    def read(self, path: str) -> list[Review]:
        """Read a file of trees."""
        return list(read_trees(read_lines([path])))

    def training(self, examples: Sequence[Review], config: TaskConfig) -> list[Review]:
        """Select the phrases and classes that the settings specify."""
        settings: Sst5Config = config.model
        selected = expand_phrases(examples)
        if not settings.subtrees:
            selected = (replace(example, phrases=()) for example in examples)
        if settings.distinct:
            selected = iter(dict.fromkeys(selected))
        return list(to_two_classes(selected) if settings.classes == "two" else selected)

    def scored(self, examples: Sequence[Review], config: TaskConfig) -> list[Review]:
        """With two classes, remove neutral examples and warn about them."""
        if config.model.classes == "five":
            return list(examples)
        scored = list(to_two_classes(examples))
        if n_neutral := len(examples) - len(scored):
            warn(f"Skipped {plural(n_neutral, 'neutral example')} in scoring.")
        return scored

    def format_prediction(self, example: Review, prediction: Any, *, as_json: bool) -> str:
        """Return the label and the text separated by a tab, or a JSON object."""
        if not as_json:
            return f"{prediction.label}\t{' '.join(example.tokens)}"
        values = {"tokens": example.tokens, **prediction.to_dict()}
        if example.label is not None:
            values["gold"] = example.label
        return json.dumps(values, ensure_ascii=False)
