"""Question answering with ELMo (Peters et al. 2018, section 4).

The model of Clark and Gardner (2018) for a passage and a question. It has bidirectional attention
and self-attention. The scores of both are a trilinear similarity, sim:

    x_k = [word vector; character CNN]
    h   = biGRU([x_k; ELMo_k])                   of both texts; ELMo at the input
    h_k = [h_k; ELMo_k], q likewise              ELMo at the output, before attention
    a_k = sum_j softmax_j(sim(h_k, q_j)) q_j          attention from token k to the question
    c   = sum_k softmax_k(max_j sim(h_k, q_j)) h_k    attention from the question to the passage
    m_k = ReLU(W [h; a; h * a; h * c])
    g   = biGRU(m)
    b_k = sum_j softmax_j(sim(g_k, g_j)) g_j          self-attention, excluding k
    r_k = m_k + ReLU(W [g; b; g * b])
    s   = biGRU(r),        p(start) = softmax(W s)
    e   = biGRU([r; s]),   p(end)   = softmax(W e)

As in the authors' experiments, the biLM reads each passage as a single text, not sentence by
sentence (their code advises against splitting passages).

Data: SQuAD v1.1, see `squad_data.py`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.errors import DataError, warn
from elmokit.progress import plural
from elmokit.settings import Fraction, Settings, Size, SizeOrZero
from elmokit.tasks.batches import Batch, TokenBatch
from elmokit.tasks.config import ElmoConfig, StaticConfig, TaskConfig, TrainConfig
from elmokit.tasks.metrics.squad import squad_scores
from elmokit.tasks.nn.elmo import BilmInfo, ElmoMixes
from elmokit.tasks.nn.layers import (
    BiGru,
    Trilinear,
    VariationalDropout,
    initialize_linear_layers,
    masked_softmax,
)
from elmokit.tasks.squad_data import Question, read_json, read_jsonl, read_tabbed, truncate_passage
from elmokit.tasks.task import LabelInfo, Reader, Scores, Task, TaskModel
from elmokit.tasks.words import TokenEncoder, WordTable, WordVectors
from elmokit.text.lines import read_lines


class Answer(NamedTuple):
    """A predicted answer: the characters `start:end` of the passage, with probability `score`."""

    text: str
    start: int
    end: int
    score: float


# ------------------------------------------------------------------------------------------ model


class SquadConfig(Settings):
    """The architecture, and limits on answers and passages.

    Attributes:
        char_dim: Size of the character embeddings.
        char_filters: Number of filters of the character CNN; 0 disables it.
        char_width: Width of the filters in characters.
        hidden: Size of the GRUs, per direction.
        dropout: Dropout before and after the GRUs, with one mask per text.
        longest_answer: Maximum number of tokens in an answer.
        longest_passage: Maximum number of tokens in a passage during training. Longer passages
            are truncated around the answer. Predictions are made on whole passages.
    """

    char_dim: Size = 20
    char_filters: SizeOrZero = 100
    char_width: Size = 5
    hidden: Size = 90
    dropout: Fraction = 0.2
    longest_answer: Size = 17
    longest_passage: Size = 400


class BiAttention(nn.Module):
    """Attention between the passage and the question, in both directions.

    Shape:
        h (B, T, dim), its mask (B, T), q (B, S, dim), its mask (B, S) -> (B, T, output_dim)
    """

    def __init__(self, dim: int, output_dim: int) -> None:
        super().__init__()
        self.alike = Trilinear(dim)
        self.merge = nn.Sequential(nn.Linear(4 * dim, output_dim), nn.ReLU())

    def forward(self, h: Tensor, h_mask: Tensor, q: Tensor, q_mask: Tensor) -> Tensor:
        scores = self.alike(h, q)  # (B, T, S)
        scores = scores.masked_fill(~q_mask.unsqueeze(1), torch.finfo(scores.dtype).min)
        a = scores.softmax(dim=2) @ q
        c = masked_softmax(scores.amax(dim=2), h_mask).unsqueeze(1) @ h  # (B, 1, dim)
        merged: Tensor = self.merge(torch.cat([h, a, h * a, h * c], dim=2))
        return merged


class SelfAttention(nn.Module):
    """Self-attention of the passage, with a learned score for attending to nothing.

    Shape:
        g (B, T, dim), its mask (B, T) -> (B, T, dim)
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.alike = Trilinear(dim)
        self.nothing = nn.Parameter(torch.tensor([-1.0]))  # the score for attending to nothing
        self.merge = nn.Sequential(nn.Linear(3 * dim, dim), nn.ReLU())

    def forward(self, g: Tensor, mask: Tensor) -> Tensor:
        others = ~torch.eye(g.shape[1], dtype=torch.bool, device=g.device) & mask.unsqueeze(1)
        scores = self.alike(g, g).masked_fill(~others, -torch.inf)  # (B, T, T)
        null_scores = self.nothing.expand(*scores.shape[:2], 1)
        b = torch.cat([scores, null_scores], dim=2).softmax(dim=2)[:, :, :-1] @ g
        merged: Tensor = self.merge(torch.cat([g, b, g * b], dim=2))
        return merged


def best_spans(start: Tensor, end: Tensor, max_length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Find the largest start_i + end_j among all spans with i <= j < i + max_length.

    Shape:
        start (B, T), end (B, T) -> i (B,), j (B,), the sum (B,)
    """
    n = min(max_length, end.shape[1])
    ends = F.pad(end, (0, n - 1), value=-torch.inf).unfold(1, n, 1)
    best, index = (start.unsqueeze(2) + ends).flatten(1).max(dim=1)  # of (B, T * n)
    i = index // n
    return i, i + index % n, best


class SquadModel(TaskModel[Question]):
    """Bidirectional attention, self-attention, and pointers to the start and end of the answer."""

    def __init__(
        self, config: TaskConfig, label_info: LabelInfo, words: WordTable, bilm: BilmInfo | None
    ) -> None:
        super().__init__()
        settings: SquadConfig = config.model
        self.longest_answer = settings.longest_answer
        self.tokens = TokenEncoder(
            WordVectors(words, trainable=config.static.trainable),
            char_dim=settings.char_dim,
            char_filters=settings.char_filters,
            char_width=settings.char_width,
        )
        self.elmo = ElmoMixes(config.elmo, bilm)
        self.dropout = VariationalDropout(settings.dropout)
        self.encoder = BiGru(self.tokens.dim + self.elmo.input_dim, settings.hidden)
        dim = self.encoder.output_dim
        self.bi_attention = BiAttention(dim + self.elmo.output_dim, dim)
        self.reader = BiGru(dim, settings.hidden)
        self.self_attention = SelfAttention(dim)
        self.start_rnn = BiGru(dim, settings.hidden)
        self.end_rnn = BiGru(2 * dim, settings.hidden)
        self.start = nn.Linear(dim, 1)
        self.end = nn.Linear(dim, 1)
        initialize_linear_layers(self)

    def forward(self, batch: Batch[Question]) -> Tensor:
        """Return log p(start) and log p(end) of the tokens of the passages, (2, B, T)."""
        passage, question = batch.tokens(0), batch.tokens(1)
        h = self._encode(passage, batch.layers(0))  # (B, T, 2H + 2D)
        q = self._encode(question, batch.layers(1))  # (B, S, 2H + 2D)
        m = self.bi_attention(h, passage.mask, q, question.mask)  # (B, T, 2H)
        g = self.dropout(self.reader(self.dropout(m), passage.lengths))
        r = self.dropout(m + self.self_attention(g, passage.mask))
        s = self.start_rnn(r, passage.lengths)
        e = self.end_rnn(torch.cat([r, s], dim=2), passage.lengths)
        scores = torch.stack([self.start(s).squeeze(2), self.end(e).squeeze(2)])
        return scores.masked_fill(~passage.mask, -torch.inf).log_softmax(dim=2)

    def _encode(self, tokens: TokenBatch, layers: Tensor | None) -> Tensor:
        x = self.elmo.at_input(self.tokens(tokens), layers)  # [x_k; ELMo_k]
        h = self.dropout(self.encoder(self.dropout(x), tokens.lengths))
        return self.elmo.at_output(h, layers)  # [h_k; ELMo_k]

    def loss(self, batch: Batch[Question]) -> Tensor:
        """Return -log p(start) - log p(end) of the gold answers, averaged over the questions.

        With several gold answers, p is the sum of their probabilities.
        """
        log_p = self(batch)
        is_gold = torch.zeros(log_p.shape, dtype=torch.bool)
        for row, question in enumerate(batch.examples):
            for start, end in question.spans:
                is_gold[0, row, start] = is_gold[1, row, end] = True
        gold_log_p = log_p.masked_fill(~is_gold.to(batch.device), -torch.inf)
        mean: Tensor = -gold_log_p.logsumexp(dim=2).sum(dim=0).mean()
        return mean

    def decode(self, batch: Batch[Question]) -> list[Any]:
        """Return the most probable `Answer` to each question."""
        start, end = self(batch)
        spans = best_spans(start, end, self.longest_answer)
        answers = []
        for question, i, j, score in zip(batch.examples, *(x.tolist() for x in spans), strict=True):
            passage = question.passage
            a, b = passage.starts[i], passage.ends[j]
            answers.append(Answer(passage.text[a:b], a, b, math.exp(score)))
        return answers


# ------------------------------------------------------------------------------------------- task


class Squad(Task[Question]):
    """Question answering on passages."""

    name = "squad"
    metric = "f1"
    # As published: GRUs of size 90, frozen word vectors, Adadelta with a learning rate of 1, and
    # batches of 45 questions.
    presets: ClassVar[Mapping[str, TaskConfig]] = {
        "paper": TaskConfig(
            SquadConfig(),
            ElmoConfig(place="both"),
            StaticConfig(trainable=False),
            TrainConfig(
                optimizer="adadelta",
                learning_rate=1.0,
                clip=0.0,
                batch_size=45,
                batch_tokens=22_500,
                epochs=24,
                patience=5,
            ),
        ),
        # For quick experiments: a smaller model that stops earlier.
        "quick": TaskConfig(
            SquadConfig(char_filters=50, hidden=64),
            ElmoConfig(place="both"),
            StaticConfig(trainable=False),
            TrainConfig(
                learning_rate=2e-3, batch_tokens=10_000, epochs=8, patience=2, halve_after=1
            ),
        ),
    }
    inputs: ClassVar[Mapping[str, Reader[Question]]] = {
        "text": read_tabbed,
        "jsonl": read_jsonl,
        "squad": partial(read_json, labeled=False),
    }
    network = SquadModel

    def read(self, path: str) -> list[Question]:
        """Read a SQuAD file, or several concatenated ones."""
        return list(read_json(read_lines([path]), labeled=True))

    def training(self, examples: Sequence[Question], config: TaskConfig) -> list[Question]:
        """Truncate long passages, and remove questions without a valid answer."""
        limit = config.model.longest_passage
        if n_truncated := sum(len(question.passage) > limit for question in examples):
            warn(
                f"{plural(n_truncated, 'training question')} had a passage of more than {limit} "
                "tokens, which was truncated around the answer "
                "(--set model.longest_passage=...)."
            )
        truncated = [truncate_passage(question, limit) for question in examples]
        return [question for question in truncated if question.spans]

    def collect_labels(self, examples: Sequence[Question]) -> LabelInfo:
        """Check that there are answers. The task has no labels."""
        if not examples:
            raise DataError(
                "No answer in the training data occurs in its passage at answer_start, which "
                "counts characters from 0. Check the offsets."
            )
        return {}

    def score(self, examples: Sequence[Question], predictions: Sequence[Any]) -> Scores:
        """Return F1 and exact match, computed as in the official script."""
        return squad_scores(
            [question.answers for question in examples], [answer.text for answer in predictions]
        )

    def format_prediction(self, example: Question, prediction: Any, *, as_json: bool) -> str:
        """Return the answer as a line of text or as a JSON object."""
        if not as_json:
            return " ".join(prediction.text.split())
        values: dict[str, Any] = {} if example.id is None else {"id": example.id}
        values |= {"question": example.text, "answer": prediction.text}
        values |= {"start": prediction.start, "end": prediction.end}
        values["score"] = round(prediction.score, 4)
        if example.answers:
            values["gold"] = example.answers
        return json.dumps(values, ensure_ascii=False)
