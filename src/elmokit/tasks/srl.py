"""Semantic roles, and how ELMo is added to a deep tagger (Peters et al. 2018, section 4).

The model of He et al. (2017): who did what to whom, for one predicate p of a sentence at a time.

    x_k = word vector
    m_k = embedding of "k is p" or of "k is not p"
    h   = highway LSTMs in alternating directions ([x_k; ELMo_k; m_k])        ELMo at the input
    e_k = W [h_k; ELMo_k]                                                     ELMo at the output
    p(y_k) = softmax(e_k), and the best valid BIO sequence y_1, ..., y_T

If the predicates are not given, as in raw text, a small separate network predicts them:

    p(k is a predicate) = sigmoid(MLP([x_{k-1}; x_k; x_{k+1}]))               x_k with ELMo_k

It is trained together with the tagger, without gradients into it. Data: see `propbank.py`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.errors import DataError, warn
from elmokit.settings import Fraction, Layers, Settings, Size
from elmokit.tasks.batches import Batch, TokenBatch
from elmokit.tasks.config import ElmoConfig, TaskConfig, TrainConfig
from elmokit.tasks.metrics.spans import PREDICATE, Span, shown_span, spans_of, srl_scores
from elmokit.tasks.ner import allowed, labels_of
from elmokit.tasks.nn.crf import viterbi
from elmokit.tasks.nn.elmo import BilmInfo, ElmoPlaces
from elmokit.tasks.nn.highway import AlternatingLstm
from elmokit.tasks.nn.tokens import WordVectors
from elmokit.tasks.propbank import NO_TARGET, Frame, Sentence, read_frames, read_jsonl, read_text
from elmokit.tasks.task import LabelInfo, Reader, Scores, Task, TaskModel
from elmokit.tasks.words import Words
from elmokit.text.lines import read_lines

_IGNORED = -100
_FINDER = 100  # hidden size of the network that predicts predicates
_AT_ONCE = 1 << 14  # tokens per chunk in prediction


# ------------------------------------------------------------------------------------------ model


class SrlConfig(Settings):
    """The architecture of the tagger, and the predicates to label.

    Attributes:
        predicates: "all", or "verbs": other predicates are ignored in training and scoring.
        mark_dim: Size of the embedding that marks the predicate.
        hidden: Size of the LSTMs.
        layers: Number of LSTM layers; their directions alternate.
        dropout: Dropout on h_t of each layer, with one mask per sentence.
    """

    predicates: Literal["all", "verbs"] = "all"
    mark_dim: Size = 100
    hidden: Size = 300
    layers: Layers = 8
    dropout: Fraction = 0.1

    def wants(self, frame: Frame) -> bool:
        """Return whether a predicate is to be labeled."""
        return frame.verb or self.predicates == "all"


class SrlModel(TaskModel[Sentence]):
    """A deep tagger of the arguments of a predicate, and a small network for the predicates."""

    def __init__(
        self, config: TaskConfig, facts: LabelInfo, words: Words, elmo: BilmInfo | None
    ) -> None:
        super().__init__()
        self.own: SrlConfig = config.model
        self.labels = labels_of(facts["roles"], "BIO")
        self._label_ids = {label: i for i, label in enumerate(self.labels)}
        self.words = WordVectors(words, trainable=config.static.trainable)
        self.elmo = ElmoPlaces(config.elmo, elmo)
        self.marks = nn.Embedding(2, self.own.mark_dim)
        dim = self.words.dim + self.elmo.input_dim
        self.rnn = AlternatingLstm(
            dim + self.own.mark_dim, self.own.hidden, self.own.layers, dropout=self.own.dropout
        )
        self.emit = nn.Linear(self.rnn.output_dim + self.elmo.output_dim, len(self.labels))
        self.find = nn.Sequential(nn.Linear(3 * dim, _FINDER), nn.ReLU(), nn.Linear(_FINDER, 1))
        nn.init.normal_(self.marks.weight, std=0.01)
        nn.init.orthogonal_(self.emit.weight)
        nn.init.zeros_(self.emit.bias)
        self._rules = allowed(self.labels, "BIO").scores()
        itself = (PREDICATE, f"C-{PREDICATE}")
        self._is_other = torch.tensor([label[2:] not in itself for label in self.labels])

    def forward(self, batch: Batch[Sentence]) -> tuple[Tensor, Tensor, TokenBatch]:
        """Score the tags for the first predicate of each sentence.

        Returns:
            The score of every tag for every token, (B, T, K), the score of being a predicate,
            (B, T), and the tokens.
        """
        tokens, x, layers = self._read(batch)
        first = torch.tensor([_frames(sentence)[0].predicate for sentence in batch.examples])
        emissions = self._tag(x, layers, first.to(batch.device), tokens.lengths)
        return emissions, self._predicates(x.detach(), tokens.mask), tokens

    def loss(self, batch: Batch[Sentence]) -> Tensor:
        """Return -log p(gold tags), the mean over the examples, plus the loss of the predicates."""
        emissions, predicates, tokens = self(batch)
        shape = tokens.mask.shape
        gold, places = np.full(shape, _IGNORED, dtype=np.int64), np.zeros(shape, dtype=np.float32)
        for row, sentence in enumerate(batch.examples):
            gold[row, : len(sentence.tokens)] = [self._label_ids[tag] for tag in sentence.tags]
            places[row, list(sentence.predicates or ())] = 1
        tagged = F.cross_entropy(
            emissions.flatten(0, 1),
            torch.from_numpy(gold).to(batch.device).flatten(),
            ignore_index=_IGNORED,
            reduction="sum",
        )
        placed = F.binary_cross_entropy_with_logits(
            predicates,
            torch.from_numpy(places).to(batch.device),
            tokens.mask.float(),
            reduction="sum",
        )
        loss: Tensor = tagged / len(batch) + placed / sum(tokens.lengths)
        return loss

    def decode(self, batch: Batch[Sentence]) -> list[Any]:
        """Return the frames of each sentence: for its predicates, or else for predicted ones."""
        tokens, x, layers = self._read(batch)
        is_predicate = ((self._predicates(x, tokens.mask) > 0) & tokens.mask).tolist()
        frames: list[list[Frame]] = [[] for _ in batch.examples]
        pairs = [
            (row, place)
            for row, sentence in enumerate(batch.examples)
            for place in (
                [k for k, yes in enumerate(is_predicate[row]) if yes]
                if sentence.predicates is None
                else sentence.predicates
            )
        ]
        size = max(1, _AT_ONCE // x.shape[1])
        for start in range(0, len(pairs), size):
            part = pairs[start : start + size]
            arguments = self._best(part, tokens, x, layers)
            for (row, place), spans in zip(part, arguments, strict=True):
                frames[row].append(Frame(place, spans))
        return frames

    def _read(self, batch: Batch[Sentence]) -> tuple[TokenBatch, Tensor, Tensor | None]:
        tokens, layers = batch.tokens(), batch.layers()
        return tokens, self.elmo.at_input(self.words(tokens), layers), layers  # [x_k; ELMo_k]

    def _tag(
        self, x: Tensor, layers: Tensor | None, predicates: Tensor, lengths: Sequence[int]
    ) -> Tensor:
        places = torch.arange(x.shape[1], device=x.device)
        marks = self.marks((places == predicates.unsqueeze(1)).long())
        h = self.rnn(torch.cat([x, marks], dim=2), lengths)
        scores: Tensor = self.emit(self.elmo.at_output(h, layers))  # [h_k; ELMo_k]
        return scores

    def _predicates(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the score of each token for being a predicate; above 0 it is one."""
        x = F.pad(x * mask.unsqueeze(2), (0, 0, 1, 1))
        scores: Tensor = self.find(torch.cat([x[:, :-2], x[:, 1:-1], x[:, 2:]], dim=2))
        return scores.squeeze(2)

    def _best(
        self,
        pairs: Sequence[tuple[int, int]],
        tokens: TokenBatch,
        x: Tensor,
        layers: Tensor | None,
    ) -> list[tuple[Span, ...]]:
        """Return the best arguments of some predicates, given as (sentence, position)."""
        rows, predicates = torch.tensor(pairs, device=x.device).unbind(dim=1)
        lengths = [tokens.lengths[row] for row, _ in pairs]
        at_output = layers[:, rows] if layers is not None and self.elmo.output_dim else None
        emissions = self._tag(x[rows], at_output, predicates, lengths)
        # A predicate is V or a continuation of it, and never its own argument.
        every = torch.arange(len(pairs), device=x.device)
        own = emissions[every, predicates]
        is_other = self._is_other.to(x.device)
        emissions[every, predicates] = own.masked_fill(is_other, -torch.inf)
        rules = (scores.to(x.device) for scores in self._rules)
        best = viterbi(emissions, tokens.mask[rows], *rules).tolist()
        return [
            tuple(spans_of([self.labels[number] for number in row[:length]]))
            for row, length in zip(best, lengths, strict=True)
        ]


def _frames(sentence: Sentence) -> tuple[Frame, ...]:
    assert sentence.frames is not None
    return sentence.frames


# ------------------------------------------------------------------------------------------- task


class Srl(Task[Sentence]):
    """Semantic role labeling."""

    name = "srl"
    metric = "f1"
    # Paper: lambda 0.001, eight layers, Adadelta at 1.0, batches of 80 predicates.
    presets: ClassVar[Mapping[str, TaskConfig]] = {
        "paper": TaskConfig(
            SrlConfig(),
            ElmoConfig(dropout=0.1),
            train=TrainConfig(
                optimizer="adadelta",
                learning_rate=1.0,
                clip=1.0,
                batch_size=80,
                batch_tokens=8192,
                epochs=500,
                patience=200,
            ),
        ),
        # For quick experiments: smaller, and stops earlier.
        "quick": TaskConfig(
            SrlConfig(hidden=150, layers=4),
            ElmoConfig(dropout=0.1),
            train=TrainConfig(
                learning_rate=2e-3, clip=1.0, batch_size=40, epochs=15, patience=3, halve_after=1
            ),
        ),
    }
    inputs: ClassVar[Mapping[str, Reader[Sentence]]] = {"text": read_text, "jsonl": read_jsonl}
    network = SrlModel

    def read(self, path: str) -> list[Sentence]:
        """Read a file of sentences with frames; warn about overlapping arguments."""
        sentences = list(read_frames(path, read_lines([path])))
        frames = [frame for sentence in sentences for frame in _frames(sentence)]
        if overlapping := sum(len(frame.arguments) - len(frame.apart) for frame in frames):
            warn(
                f"{path}: {overlapping:,} arguments overlap others of the same predicate. Tags "
                "cannot represent them: they are ignored in training and count as missed."
            )
        return sentences

    def training(self, examples: Sequence[Sentence], config: TaskConfig) -> list[Sentence]:
        """Create one example per predicate that is not ignored."""
        own: SrlConfig = config.model
        made = []
        for sentence in examples:
            frames = [frame for frame in _frames(sentence) if own.wants(frame)]
            places = tuple(frame.predicate for frame in frames)
            made += [replace(sentence, frames=(frame,), predicates=places) for frame in frames]
        return made

    def learn(self, examples: Sequence[Sentence]) -> LabelInfo:
        """Collect the roles."""
        roles = {span.type for s in examples for frame in _frames(s) for span in frame.apart}
        if roles <= {PREDICATE}:
            raise DataError(
                "The training data has no arguments. Expected JSON lines with frames, or "
                "CoNLL-2005 or CoNLL-2012 columns."
            )
        return {"roles": sorted(roles)}

    def score(self, examples: Sequence[Sentence], predictions: Sequence[Any]) -> Scores:
        """Return F1 over the arguments of the given predicates, as srl-eval.pl does."""
        return srl_scores(
            [frame.arguments for sentence in examples for frame in _frames(sentence)],
            [frame.arguments for frames in predictions for frame in frames],
        )

    def scored(self, examples: Sequence[Sentence], config: TaskConfig) -> list[Sentence]:
        """Remove the predicates that are ignored, with a warning."""
        own: SrlConfig = config.model
        scored = [Sentence.of(s.tokens, filter(own.wants, _frames(s))) for s in examples]
        if ignored := sum(len(_frames(s)) for s in examples) - sum(len(_frames(s)) for s in scored):
            warn(f"{ignored:,} predicates that are not verbs are not scored.")
        return scored

    def count_labels(self, examples: Sequence[Sentence]) -> Counter[str]:
        """Count the arguments with each role."""
        return Counter(a.type for s in examples for f in _frames(s) for a in f.arguments)

    def show(self, example: Sentence, prediction: Any, *, as_json: bool) -> str:
        """Return the columns of CoNLL-2005, or an object with tokens and frames."""
        if not as_json:
            return _columns(example, prediction)
        frames = []
        for number, frame in enumerate(prediction):
            shown = {
                "predicate": frame.predicate,
                "word": example.tokens[frame.predicate],
                "roles": [_role(example, span) for span in frame.arguments],
            }
            if example.frames is not None:
                gold = example.frames[number].arguments
                shown["gold"] = [_role(example, span) for span in gold]
            frames.append(shown)
        return json.dumps({"tokens": example.tokens, "frames": frames}, ensure_ascii=False)


def _role(sentence: Sentence, span: Span) -> dict[str, Any]:
    start, end, label = span
    return {"label": label, **shown_span(sentence.tokens, sentence.offsets, start, end)}


def _columns(sentence: Sentence, frames: Sequence[Frame]) -> str:
    """Write tokens, targets, and a column of brackets for each frame, in the order of the tokens.

    Columns are separated by spaces, so a space in a token is written as "_"; so is the target "-".
    """
    rows = [[re.sub(r"\s", "_", token), NO_TARGET] for token in sentence.tokens]
    for frame in sorted(frames, key=lambda frame: frame.predicate):
        word = rows[frame.predicate][0]
        rows[frame.predicate][1] = "_" if word == NO_TARGET else word
        cells = ["*"] * len(rows)
        for start, end, label in frame.arguments:
            cells[start] = f"({label}{cells[start]}"
            cells[end - 1] += ")"
        for row, cell in zip(rows, cells, strict=True):
            row.append(cell)
    return "".join("\t".join(row) + "\n" for row in rows)
