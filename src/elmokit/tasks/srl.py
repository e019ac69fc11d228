"""Semantic role labeling with ELMo in a deep tagger (Peters et al. 2018, section 4).

The model of He et al. (2017) labels who did what to whom, for one predicate p of a sentence:

    x_k = word vector
    m_k = embedding of whether k is p
    h   = highway LSTMs in alternating directions ([x_k; ELMo_k; m_k])        ELMo at the input
    e_k = W [h_k; ELMo_k]                                                     ELMo at the output
    p(y_k) = softmax(e_k); the prediction is the best valid BIO sequence y_1, ..., y_T

If the predicates are not given, as in raw text, a small separate network identifies them:

    p(k is a predicate) = sigmoid(MLP([x_{k-1}; x_k; x_{k+1}]))           x_k includes ELMo_k

This network is trained together with the tagger, but its gradients do not affect the tagger. For
the data formats, see `propbank.py`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.errors import DataError, warn
from elmokit.progress import plural
from elmokit.settings import Fraction, Layers, Settings, Size
from elmokit.tasks.batches import Batch, TokenBatch
from elmokit.tasks.config import ElmoConfig, TaskConfig, TrainConfig
from elmokit.tasks.metrics.spans import PREDICATE, span_to_dict, srl_scores, tags_to_spans
from elmokit.tasks.nn.crf import allowed_transitions, build_tag_set, viterbi
from elmokit.tasks.nn.elmo import BilmInfo, ElmoMixes
from elmokit.tasks.nn.highway import AlternatingLstm
from elmokit.tasks.propbank import NO_TARGET, Frame, Sentence, read_frames, read_jsonl, read_text
from elmokit.tasks.task import LabelInfo, Reader, Scores, Task, TaskModel
from elmokit.tasks.words import WordTable, WordVectors
from elmokit.text.lines import read_lines

_IGNORED = -100  # the default `ignore_index` of `cross_entropy`
_PREDICATE_HIDDEN = 100  # hidden size of the network that identifies predicates
_TOKENS_PER_CHUNK = 1 << 14  # during prediction


# ------------------------------------------------------------------------------------------ model


class SrlConfig(Settings):
    """The architecture of the tagger, and the predicates to label.

    Attributes:
        predicates: "all", or "verbs" to ignore other predicates during training and scoring.
        mark_dim: Size of the embedding that marks the predicate.
        hidden: Size of the LSTMs.
        layers: Number of LSTM layers, whose directions alternate.
        dropout: Dropout on h_t of each layer, with one mask per sentence.
    """

    predicates: Literal["all", "verbs"] = "all"
    mark_dim: Size = 100
    hidden: Size = 300
    layers: Layers = 8
    dropout: Fraction = 0.1

    def selects(self, frame: Frame) -> bool:
        """Return whether the settings include a predicate."""
        return frame.verb or self.predicates == "all"


class SrlModel(TaskModel[Sentence]):
    """A deep tagger of predicate arguments, and a small network that identifies predicates."""

    def __init__(
        self, config: TaskConfig, label_info: LabelInfo, words: WordTable, bilm: BilmInfo | None
    ) -> None:
        super().__init__()
        settings: SrlConfig = config.model
        self.labels = build_tag_set(label_info["roles"], "BIO")
        self._label_ids = {label: i for i, label in enumerate(self.labels)}
        self.words = WordVectors(words, trainable=config.static.trainable)
        self.elmo = ElmoMixes(config.elmo, bilm)
        self.marks = nn.Embedding(2, settings.mark_dim)
        dim = self.words.dim + self.elmo.input_dim
        self.rnn = AlternatingLstm(
            dim + settings.mark_dim, settings.hidden, settings.layers, dropout=settings.dropout
        )
        self.emit = nn.Linear(settings.hidden + self.elmo.output_dim, len(self.labels))
        self.find = nn.Sequential(
            nn.Linear(3 * dim, _PREDICATE_HIDDEN), nn.ReLU(), nn.Linear(_PREDICATE_HIDDEN, 1)
        )
        nn.init.normal_(self.marks.weight, std=0.01)
        nn.init.orthogonal_(self.emit.weight)
        nn.init.zeros_(self.emit.bias)
        allowed = allowed_transitions(self.labels, "BIO")
        self._constraints = [torch.where(mask, 0.0, -torch.inf) for mask in allowed]
        predicate_roles = (PREDICATE, f"C-{PREDICATE}")
        self._is_not_predicate = torch.tensor(
            [label[2:] not in predicate_roles for label in self.labels]
        )

    def forward(self, batch: Batch[Sentence]) -> tuple[Tensor, Tensor, TokenBatch]:
        """Score the tags for the first predicate of each sentence.

        Returns:
            The score of every tag for every token, (B, T, K), the predicate score of every token,
            (B, T), and the tokens.
        """
        tokens, x, layers = self._encode(batch)
        predicates = torch.tensor([example.frames[0].predicate for example in batch.examples])
        emissions = self._tag(x, layers, predicates.to(batch.device), tokens.lengths)
        return emissions, self._score_predicates(x.detach(), tokens.mask), tokens

    def loss(self, batch: Batch[Sentence]) -> Tensor:
        """Return -log p(gold tags), averaged over the examples, plus the predicate loss."""
        emissions, predicate_scores, tokens = self(batch)
        tags = torch.full(tokens.mask.shape, _IGNORED)
        is_predicate = torch.zeros(tokens.mask.shape)
        for row, sentence in enumerate(batch.examples):
            tag_ids = [self._label_ids[tag] for tag in sentence.tags]
            tags[row, : len(tag_ids)] = torch.tensor(tag_ids)
            is_predicate[row, list(sentence.predicates or ())] = 1
        tags, is_predicate = tags.to(batch.device), is_predicate.to(batch.device)
        tag_loss = F.cross_entropy(emissions.flatten(0, 1), tags.flatten(), reduction="sum")
        predicate_loss = F.binary_cross_entropy_with_logits(
            predicate_scores, is_predicate, tokens.mask.float(), reduction="sum"
        )
        loss: Tensor = tag_loss / len(batch) + predicate_loss / sum(tokens.lengths)
        return loss

    def decode(self, batch: Batch[Sentence]) -> list[Any]:
        """Return the frames of each sentence, for given or predicted predicates."""
        tokens, x, layers = self._encode(batch)
        is_predicate = (self._score_predicates(x, tokens.mask) > 0) & tokens.mask
        predicted = [row.nonzero().flatten().tolist() for row in is_predicate.cpu()]
        pairs: list[tuple[int, int]] = []
        for row, sentence in enumerate(batch.examples):
            predicates = predicted[row] if sentence.predicates is None else sentence.predicates
            pairs += [(row, predicate) for predicate in predicates]
        frames: list[list[Frame]] = [[] for _ in batch.examples]
        size = max(1, _TOKENS_PER_CHUNK // x.shape[1])
        for start in range(0, len(pairs), size):
            chunk = pairs[start : start + size]
            rows, positions = torch.tensor(chunk, device=x.device).unbind(dim=1)
            lengths = [tokens.lengths[row] for row, _ in chunk]
            at_output = layers[:, rows] if layers is not None and self.elmo.output_dim else None
            emissions = self._tag(x[rows], at_output, positions, lengths)
            # The predicate itself can only be labeled V or C-V.
            indices = torch.arange(len(chunk), device=x.device)
            is_other = self._is_not_predicate.to(x.device)
            scores = emissions[indices, positions].masked_fill(is_other, -torch.inf)
            emissions[indices, positions] = scores
            constraints = (scores.to(x.device) for scores in self._constraints)
            best = viterbi(emissions, tokens.mask[rows], *constraints).tolist()
            for (row, predicate), length, label_ids in zip(chunk, lengths, best, strict=True):
                tags = [self.labels[i] for i in label_ids[:length]]
                frames[row].append(Frame(predicate, tuple(tags_to_spans(tags))))
        return frames

    def _encode(self, batch: Batch[Sentence]) -> tuple[TokenBatch, Tensor, Tensor | None]:
        tokens, layers = batch.tokens(), batch.layers()
        return tokens, self.elmo.at_input(self.words(tokens), layers), layers  # [x_k; ELMo_k]

    def _tag(
        self, x: Tensor, layers: Tensor | None, predicates: Tensor, lengths: Sequence[int]
    ) -> Tensor:
        positions = torch.arange(x.shape[1], device=x.device)
        marks = self.marks((positions == predicates.unsqueeze(1)).long())
        h = self.rnn(torch.cat([x, marks], dim=2), lengths)
        scores: Tensor = self.emit(self.elmo.at_output(h, layers))  # [h_k; ELMo_k]
        return scores

    def _score_predicates(self, x: Tensor, mask: Tensor) -> Tensor:
        """Score each token; a positive score means that the token is probably a predicate."""
        x = F.pad(x * mask.unsqueeze(2), (0, 0, 1, 1))
        scores: Tensor = self.find(torch.cat([x[:, :-2], x[:, 1:-1], x[:, 2:]], dim=2))
        return scores.squeeze(2)


# ------------------------------------------------------------------------------------------- task


class Srl(Task[Sentence]):
    """Semantic role labeling."""

    name = "srl"
    metric = "f1"
    # As in the paper: lambda 0.001, eight layers, Adadelta with a learning rate of 1, and batches
    # of 80 predicates.
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
        # For quick experiments: a smaller model that stops earlier.
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
        """Read a file of sentences with frames, and warn about overlapping arguments."""
        sentences = list(read_frames(path, read_lines([path])))
        frames = [frame for sentence in sentences for frame in sentence.frames]
        if overlapping := sum(
            len(frame.arguments) - len(frame.non_overlapping) for frame in frames
        ):
            warn(
                f"{path}: found {plural(overlapping, 'argument')} overlapping another argument of "
                "the same predicate. Tags cannot represent overlaps, so such arguments are ignored "
                "during training and count as missed during evaluation."
            )
        return sentences

    def training(self, examples: Sequence[Sentence], config: TaskConfig) -> list[Sentence]:
        """Create one example for each selected predicate."""
        return [
            replace(sentence, frames=(frame,))
            for sentence in self._select(examples, config)
            for frame in sentence.frames
        ]

    def collect_labels(self, examples: Sequence[Sentence]) -> LabelInfo:
        """Collect the roles."""
        roles = {
            span.type for s in examples for frame in s.frames for span in frame.non_overlapping
        }
        if roles <= {PREDICATE}:
            raise DataError(
                "The training data has no arguments. Expected JSON lines with frames, or "
                "CoNLL-2005 or CoNLL-2012 columns."
            )
        return {"roles": sorted(roles)}

    def score(self, examples: Sequence[Sentence], predictions: Sequence[Any]) -> Scores:
        """Return the F1 of the arguments of the gold predicates, computed as in srl-eval.pl."""
        return srl_scores(
            [frame.arguments for sentence in examples for frame in sentence.frames],
            [frame.arguments for frames in predictions for frame in frames],
        )

    def scored(self, examples: Sequence[Sentence], config: TaskConfig) -> list[Sentence]:
        """Remove the predicates that the settings exclude, and warn about them."""
        selected = self._select(examples, config)
        n_all, n_selected = (sum(len(s.frames) for s in group) for group in (examples, selected))
        if n_selected < n_all:
            skipped = plural(n_all - n_selected, "non-verbal predicate")
            warn(f"Skipped {skipped} in scoring.")
        return selected

    def _select(self, examples: Sequence[Sentence], config: TaskConfig) -> list[Sentence]:
        settings: SrlConfig = config.model
        return [Sentence.of(s.tokens, filter(settings.selects, s.frames)) for s in examples]

    def count_labels(self, examples: Sequence[Sentence]) -> Counter[str]:
        """Count the arguments with each role."""
        return Counter(a.type for s in examples for f in s.frames for a in f.arguments)

    def format_prediction(self, example: Sentence, prediction: Any, *, as_json: bool) -> str:
        """Return CoNLL-2005 columns, or a JSON object with tokens and frames."""
        if not as_json:
            return _format_columns(example, prediction)
        frames = [
            {
                "predicate": frame.predicate,
                "word": example.tokens[frame.predicate],
                "roles": _roles_to_json(example, frame),
            }
            for frame in prediction
        ]
        for values, gold in zip(frames, example.frames, strict=False):
            values["gold"] = _roles_to_json(example, gold)
        return json.dumps({"tokens": example.tokens, "frames": frames}, ensure_ascii=False)


def _roles_to_json(sentence: Sentence, frame: Frame) -> list[dict[str, Any]]:
    return [
        {"label": label, **span_to_dict(sentence.tokens, sentence.offsets, start, end)}
        for start, end, label in frame.arguments
    ]


def _format_columns(sentence: Sentence, frames: Sequence[Frame]) -> str:
    """Return columns: the tokens, the targets, and the arguments of each frame.

    The frames are in the order of their predicates. Whitespace in a token is written as "_",
    because it separates columns. The target "-" is also written as "_".
    """
    rows = [[re.sub(r"\s", "_", token), NO_TARGET] for token in sentence.tokens]
    for frame in sorted(frames, key=lambda frame: frame.predicate):
        target = rows[frame.predicate]
        target[1] = "_" if target[0] == NO_TARGET else target[0]
        cells = ["*"] * len(rows)
        for start, end, label in frame.arguments:
            cells[start] = f"({label}{cells[start]}"
            cells[end - 1] += ")"
        for row, cell in zip(rows, cells, strict=True):
            row.append(cell)
    return "".join("\t".join(row) + "\n" for row in rows)
