"""Textual entailment with ELMo in a sentence-pair model (Peters et al. 2018, section 4).

ESIM (Chen et al. 2017), for a premise a and a hypothesis b:

    x_k  = word vector
    h    = biLSTM([x_k; ELMo_k])                 of both sentences; ELMo at the input
    a_k  = [h_k; ELMo_k]                         ELMo at the output, before attention
    ~a_k = sum_j softmax_j(a_k . b_j) b_j        attention from token k of a to b; ~b likewise
    m_k  = ReLU(W [a; ~a; a - ~a; a * ~a])       enhancement and projection
    v    = biLSTM(m)                             composition
    p(label) = softmax(MLP([mean; max] of v, of both sentences))

The data format is detected for each line, so files of several formats can be concatenated: JSON
lines as in SNLI and MultiNLI ("gold_label", "sentence1", "sentence2"); tab-separated columns with a
header; or three columns, with the label before or after the two sentences. The numeric labels 0, 1
and 2 stand for entailment, neutral and contradiction. Pairs with the label "-" (no agreement) are
skipped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from pydantic import RootModel
from torch import Tensor, nn

from elmokit.errors import warn
from elmokit.progress import plural
from elmokit.settings import Fraction, Settings, Size
from elmokit.tasks.batches import Batch, TokenBatch
from elmokit.tasks.classify import Classification, Classifier, tokenize_text
from elmokit.tasks.config import ElmoConfig, TaskConfig, TrainConfig
from elmokit.tasks.inputs import read_object
from elmokit.tasks.nn.elmo import BilmInfo, ElmoMixes
from elmokit.tasks.nn.layers import (
    BiLstm,
    VariationalDropout,
    attend,
    initialize_linear_layers,
    max_pool,
    mean_pool,
)
from elmokit.tasks.task import LabelInfo, Reader
from elmokit.tasks.words import WordTable, WordVectors
from elmokit.text.lines import Line, read_lines

LABELS = ("entailment", "neutral", "contradiction")
#: The label of a pair on which the annotators did not agree.
UNDECIDED = "-"

_LABEL_NAMES = {
    **{label: label for label in LABELS},
    **{str(number): label for number, label in enumerate(LABELS)},
    UNDECIDED: UNDECIDED,
    "-1": UNDECIDED,
}
_EXPECTED = (
    f"Expected two sentences and a label ({', '.join(LABELS)}, or 0, 1, 2), separated by tabs, or "
    'a line of JSON with "sentence1", "sentence2" and "gold_label". For prediction, the label is '
    "optional."
)


# ------------------------------------------------------------------------------------------- data


@dataclass(frozen=True)
class Pair:
    """A premise and a hypothesis."""

    premise: tuple[str, ...]
    hypothesis: tuple[str, ...]
    label: str | None = None

    @property
    def texts(self) -> Sequence[Sequence[str]]:
        """The tokenized texts for the biLM."""
        return (self.premise, self.hypothesis)


_SKIPPED = Pair((), (), UNDECIDED)


def read_pairs(
    lines: Iterable[Line], *, labeled: bool, input_format: str | None = None
) -> Iterator[Pair]:
    """Read pairs. Pairs on which the annotators did not agree are returned without sentences.

    Args:
        lines: The lines to read.
        labeled: Whether to read labels.
        input_format: "text" (columns) or "jsonl". If None, the format is detected for each line.
    """
    header: Sequence[str] | None = None
    for line in lines:
        if not line.text.strip() and (input_format == "jsonl" or "\t" not in line.text):
            continue
        if input_format == "jsonl" or (input_format is None and line.text.lstrip().startswith("{")):
            values = read_object(RootModel[dict[str, Any]], line, _EXPECTED).root
            yield _make_pair(line, values, labeled=labeled)
            continue
        fields = line.text.split("\t")
        names = [field.strip().lower() for field in fields]
        if {"sentence1", "sentence2"} <= set(names) or {"premise", "hypothesis"} <= set(names):
            header = names
            continue
        columns = header or _column_names(names, labeled=labeled)
        if len(fields) != len(columns):
            raise line.error(
                f"found {plural(len(fields), 'column')}, expected {len(columns)}. {_EXPECTED}"
            )
        yield _make_pair(line, dict(zip(columns, fields, strict=True)), labeled=labeled)


def _column_names(fields: Sequence[str], *, labeled: bool) -> Sequence[str]:
    """Return column names for a line if there is no header: the label comes first or last."""
    sentences, label = ["sentence1", "sentence2"], ["gold_label"]
    if len(fields) != 3:
        return sentences + label if labeled else sentences
    is_first = fields[2] not in _LABEL_NAMES and fields[0] in _LABEL_NAMES
    return label + sentences if is_first else sentences + label


def _make_pair(line: Line, values: Mapping[str, Any], *, labeled: bool) -> Pair:
    label = None
    if labeled:
        text = str(values.get("gold_label", values.get("label", "")))
        label = _LABEL_NAMES.get(text.strip().lower())
        if label is None:
            raise line.error(f"invalid label '{text[:40]}'. {_EXPECTED}")
        if label == UNDECIDED:
            return _SKIPPED
    premise = values.get("sentence1", values.get("premise"))
    hypothesis = values.get("sentence2", values.get("hypothesis"))
    if not isinstance(premise, str) or not isinstance(hypothesis, str):
        raise line.error(f"found '{line.text[:40]}'. {_EXPECTED}")
    return Pair(tokenize_text(premise, line), tokenize_text(hypothesis, line), label)


# ------------------------------------------------------------------------------------------ model


class SnliConfig(Settings):
    """The architecture of ESIM.

    Attributes:
        hidden: Size of the LSTMs (per direction), of the projection and of the MLP.
        dropout: Dropout on the input of the LSTMs (with one mask per sentence) and in the MLP.
    """

    hidden: Size = 300
    dropout: Fraction = 0.5


class Esim(Classifier[Pair]):
    """Enhanced sequential inference model."""

    def __init__(
        self, config: TaskConfig, label_info: LabelInfo, words: WordTable, bilm: BilmInfo | None
    ) -> None:
        super().__init__(label_info["labels"])
        settings: SnliConfig = config.model
        self.words = WordVectors(words, trainable=config.static.trainable)
        self.elmo = ElmoMixes(config.elmo, bilm)
        self.dropout = VariationalDropout(settings.dropout)
        self.encoder = BiLstm(self.words.dim + self.elmo.input_dim, settings.hidden)
        dim = self.encoder.output_dim + self.elmo.output_dim
        self.project = nn.Sequential(nn.Linear(4 * dim, settings.hidden), nn.ReLU())
        self.composer = BiLstm(settings.hidden, settings.hidden)
        self.classify = nn.Sequential(
            nn.Dropout(settings.dropout),
            nn.Linear(4 * self.composer.output_dim, settings.hidden),
            nn.ReLU(),
            nn.Dropout(settings.dropout),
            nn.Linear(settings.hidden, len(self.labels)),
        )
        initialize_linear_layers(self)

    def forward(self, batch: Batch[Pair]) -> Tensor:
        """Return the scores of all labels, (B, K)."""
        premise, hypothesis = batch.tokens(0), batch.tokens(1)
        a = self._encode(premise, batch.layers(0))  # (B, S, 2H)
        b = self._encode(hypothesis, batch.layers(1))  # (B, T, 2H)
        pooled = [
            *self._compose(a, attend(a, b, hypothesis.mask), premise),
            *self._compose(b, attend(b, a, premise.mask), hypothesis),
        ]
        scores: Tensor = self.classify(torch.cat(pooled, dim=1))
        return scores

    def _encode(self, tokens: TokenBatch, layers: Tensor | None) -> Tensor:
        x = self.elmo.at_input(self.words(tokens), layers)  # [x_k; ELMo_k]
        h = self.encoder(self.dropout(x), tokens.lengths)
        return self.elmo.at_output(h, layers)  # [h_k; ELMo_k]

    def _compose(self, a: Tensor, aligned: Tensor, tokens: TokenBatch) -> tuple[Tensor, Tensor]:
        m = self.project(torch.cat([a, aligned, a - aligned, a * aligned], dim=2))
        v = self.composer(self.dropout(m), tokens.lengths)
        return mean_pool(v, tokens.mask), max_pool(v, tokens.mask)


# ------------------------------------------------------------------------------------------- task


class Snli(Classification[Pair]):
    """Entailment, contradiction, or neither."""

    name = "snli"
    # As in the paper: ELMo at the input and output, lambda 0.001, and Adam with a learning rate of
    # 0.0004, which is halved after each epoch without improvement.
    presets: ClassVar[Mapping[str, TaskConfig]] = {
        "paper": TaskConfig(
            SnliConfig(),
            ElmoConfig(place="both", dropout=0.0),  # the dropout before the LSTMs is enough
            train=TrainConfig(learning_rate=4e-4, clip=10.0, epochs=75, patience=5, halve_after=1),
        ),
        # For quick experiments: a smaller model that stops earlier.
        "quick": TaskConfig(
            SnliConfig(hidden=100),
            ElmoConfig(place="both", dropout=0.0),
            train=TrainConfig(batch_size=64, epochs=10, patience=2, halve_after=1),
        ),
    }
    inputs: ClassVar[Mapping[str, Reader[Pair]]] = {
        "text": partial(read_pairs, labeled=False, input_format="text"),
        "jsonl": partial(read_pairs, labeled=False, input_format="jsonl"),
    }
    network = Esim

    def read(self, path: str) -> list[Pair]:
        """Read a file of labeled pairs. Skip pairs without a gold label, with a warning."""
        pairs = list(read_pairs(read_lines([path]), labeled=True))
        labeled = [pair for pair in pairs if pair.label != UNDECIDED]
        if skipped := len(pairs) - len(labeled):
            warn(
                f"{path}: skipped {plural(skipped, 'pair')} without a gold label ('{UNDECIDED}'), "
                f"out of {len(pairs):,}."
            )
        return labeled

    def format_prediction(self, example: Pair, prediction: Any, *, as_json: bool) -> str:
        """Return the label and the sentences separated by tabs, or a JSON object."""
        premise, hypothesis = " ".join(example.premise), " ".join(example.hypothesis)
        if not as_json:
            return f"{prediction.label}\t{premise}\t{hypothesis}"
        values = {"sentence1": premise, "sentence2": hypothesis, **prediction.to_dict()}
        if example.label is not None:
            values["gold_label"] = example.label
        return json.dumps(values, ensure_ascii=False)
