"""Coreference resolution with ELMo in a document-level model (Peters et al. 2018, section 4).

The span-ranking model of Lee et al. (2017). All spans are scored as mentions, without a parser or
rules:

    x_k  = [word vector; character CNNs]
    h    = biLSTM([x_k; ELMo_k])                      of each sentence; ELMo at the input
    h_k  = [h_k; ELMo_k]                              ELMo at the output
    g_i  = [h_start; h_last; head of x; width]        every span of up to ten tokens
    s_m  = FFNN(g_i)                                  mention score; the best spans are kept
    s_a  = FFNN([g_i; g_j; g_i * g_j; phi(i, j)])     antecedent score of an earlier span j
    s(i, j) = s_m(i) + s_m(j) + s_a(i, j)             and s(i, none) = 0
    P(j) = softmax_j s(i, j)                          j (or none) is the antecedent of kept span i

Training maximizes the total probability of all antecedents in the same gold cluster, because the
annotation does not single out one correct antecedent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.settings import Expected, Fraction, Layers, Positive, Settings, Size
from elmokit.tasks.batches import Batch, group
from elmokit.tasks.config import TaskConfig
from elmokit.tasks.documents import Document, Mention
from elmokit.tasks.nn.elmo import BilmInfo, ElmoMixes
from elmokit.tasks.nn.layers import BiLstm
from elmokit.tasks.nn.spans import (
    PairScorer,
    SpanEncoder,
    all_spans,
    antecedents,
    keep_best,
    marginal_loss,
    scorer_layers,
)
from elmokit.tasks.task import LabelInfo, TaskModel
from elmokit.tasks.words import CharCnn, WordTable, WordVectors

# Limit the memory that long documents need.
_TOKENS_PER_CHUNK = 8192  # including padding
_SPANS_PER_CHUNK = 8192


class CorefConfig(Settings):
    """The architecture of the model.

    Attributes:
        char_dim: Size of the character embeddings.
        char_filters: Number of filters of each character CNN.
        char_widths: Widths of the filters in characters, such as "3,4,5". If empty, there are no
            character CNNs.
        hidden: Size of the LSTM, per direction.
        layers: Number of LSTM layers.
        scorer: Size of each of the two hidden layers in the mention scorer and in the pair scorer.
        feature_dim: Size of the embeddings of width, distance, speaker and genre.
        width: Maximum number of tokens in a span.
        kept: Number of spans to keep per token.
        antecedents: Maximum number of candidate antecedents of a span.
        singletons: Train on singleton mentions, and predict them. OntoNotes has none.
        sentences: Maximum number of sentences in a random training excerpt.
        tokens: Maximum number of tokens in a training excerpt.
        dropout: Dropout on h_k, on features and in the scorers.
        word_dropout: Dropout on x_k.
    """

    char_dim: Size = 8
    char_filters: Size = 50
    char_widths: Annotated[
        str,
        Field(pattern=r"^([1-9]\d?(,[1-9]\d?)*)?$", max_length=100),
        Expected("widths from 1 to 99, such as 3,4,5, or an empty value"),
    ] = "3,4,5"
    hidden: Size = 200
    layers: Layers = 1
    scorer: Size = 150
    feature_dim: Size = 20
    width: Size = 10
    kept: Positive = 0.4
    antecedents: Size = 250
    singletons: bool = False
    sentences: Size = 50
    tokens: Size = 2000
    dropout: Fraction = 0.2
    word_dropout: Fraction = 0.5


class CorefPrediction(NamedTuple):
    """The predicted clusters of a document.

    Attributes:
        clusters: The mentions of each cluster, in text order.
        singletons: Whether the model predicts clusters of one mention.
    """

    clusters: list[list[Mention]]
    singletons: bool


class KeptSpans(NamedTuple):
    """The M spans of an excerpt that are kept, in text order.

    Attributes:
        starts: The index of the first token of each span within the excerpt, (M,).
        ends: The index of the last token of each span within the excerpt, plus 1, (M,).
        g: The vector of each span, (M, dim).
        s_m: The mention score of each span, (M,).
    """

    starts: Tensor
    ends: Tensor
    g: Tensor
    s_m: Tensor


class CorefModel(TaskModel[Document]):
    """End-to-end coreference by span ranking."""

    settings: CorefConfig

    def __init__(
        self, config: TaskConfig, label_info: LabelInfo, words: WordTable, bilm: BilmInfo | None
    ) -> None:
        super().__init__()
        settings = self.settings = config.model
        self._genres = {genre: i for i, genre in enumerate(label_info["genres"], 1)}  # 0: unknown
        self.words = WordVectors(words, trainable=config.static.trainable)
        self.chars = nn.ModuleList(
            CharCnn(dim=settings.char_dim, filters=settings.char_filters, width=int(width))
            for width in filter(None, settings.char_widths.split(","))
        )
        x_dim = self.words.dim + settings.char_filters * len(self.chars)
        self.elmo = ElmoMixes(config.elmo, bilm)
        self.word_dropout = nn.Dropout(settings.word_dropout)
        self.dropout = nn.Dropout(settings.dropout)
        self.rnn = BiLstm(
            x_dim + self.elmo.input_dim, settings.hidden, settings.layers, dropout=settings.dropout
        )
        h_dim = self.rnn.output_dim + self.elmo.output_dim
        self.spans = SpanEncoder(h_dim, x_dim, settings.width, settings.feature_dim)
        self.mention = nn.Sequential(
            nn.Linear(self.spans.dim, settings.scorer),
            *scorer_layers(settings.scorer, settings.dropout),
        )
        self.pairs = PairScorer(
            self.spans.dim,
            settings.scorer,
            settings.feature_dim,
            1 + len(self._genres),
            dropout=settings.dropout,
        )

    def loss(self, batch: Batch[Document]) -> Tensor:
        """Return -log p(a gold antecedent), summed over kept spans and averaged over documents.

        With `singletons`, the mention loss is added.
        """
        losses = []
        for row, document in enumerate(batch.examples):
            excerpt = self.excerpt(document)
            first, end = document.bounds[[excerpt.start, excerpt.stop]].tolist()
            inside = (document.gold[:, 0] >= first) & (document.gold[:, 1] <= end)
            gold = document.gold[inside] - [first, first, 0]
            h, x = self.encode(batch, row, excerpt)
            kept = self.keep(h, x, [len(document.sentences[i]) for i in excerpt])
            cluster = gold_cluster_ids(kept.starts, kept.ends, gold).to(h.device)
            index, mask = antecedents(len(cluster), self.settings.antecedents, h.device)
            same = (cluster[index] == cluster.unsqueeze(1)) & (cluster > 0).unsqueeze(1) & mask
            loss = marginal_loss(self.score_pairs(kept, document, first), same)
            if self.settings.singletons:
                loss = loss + self.mention_loss(kept, cluster, gold, h, x)
            losses.append(loss)
        return torch.stack(losses).mean()

    def decode(self, batch: Batch[Document]) -> list[Any]:
        """Return the clusters of each document, by linking spans to their best antecedents."""
        return [self._resolve(batch, row) for row in range(len(batch))]

    def excerpt(self, document: Document) -> range:
        """Return the sentences to train on: all, or a random excerpt of a long document."""
        settings, n, bounds = self.settings, len(document.sentences), document.bounds
        # The last possible excerpt ends with the document, so that every sentence can be drawn.
        last_start = max(
            n - settings.sentences, int(np.searchsorted(bounds, bounds[-1] - settings.tokens))
        )
        start = int(torch.randint(min(max(last_start, 0), n - 1) + 1, ()))
        end = int(np.searchsorted(bounds, bounds[start] + settings.tokens, side="right")) - 1
        return range(start, max(start + 1, min(start + settings.sentences, end)))

    def encode(self, batch: Batch[Document], row: int, sentences: range) -> tuple[Tensor, Tensor]:
        """Return h_k and x_k of all tokens of some sentences, (N, h_dim) and (N, x_dim)."""
        h, x = [], []
        lengths = np.array([len(sentence) for sentence in batch.examples[row].sentences])
        for part in group(sentences, lengths, len(lengths), _TOKENS_PER_CHUNK):
            tokens, layers = batch.part(row, part)
            vectors = [encoder(tokens) for encoder in (self.words, *self.chars)]
            x_k = self.word_dropout(torch.cat(vectors, dim=2))
            h_k = self.rnn(self.elmo.at_input(x_k, layers), tokens.lengths)  # [x_k; ELMo_k]
            h_k = self.elmo.at_output(self.dropout(h_k), layers)  # [h_k; ELMo_k]
            h.append(h_k[tokens.mask])
            x.append(x_k[tokens.mask])
        return torch.cat(h), torch.cat(x)

    def keep(self, h: Tensor, x: Tensor, lengths: Sequence[int]) -> KeptSpans:
        """Keep the spans that are most likely to be mentions.

        All spans are scored without gradients, because computing gradients would take most of the
        memory. Only the kept spans are used for training.
        """
        starts, ends = all_spans(lengths, self.settings.width)
        with torch.no_grad():
            spans = torch.stack([starts, ends]).to(h.device)
            chunks = torch.split(spans, _SPANS_PER_CHUNK, dim=1)
            scores = torch.cat([self.mention(self.spans(h, x, *chunk)) for chunk in chunks])
            order = scores.squeeze(1).argsort(descending=True, stable=True).tolist()
        n = max(1, int(self.settings.kept * len(h)))
        selected = torch.tensor(keep_best(starts, ends, order, n), dtype=torch.long)
        starts, ends = starts[selected], ends[selected]
        g = self.spans(h, x, starts.to(h.device), ends.to(h.device))
        return KeptSpans(starts, ends, g, self.mention(g).squeeze(1))

    def score_pairs(self, kept: KeptSpans, document: Document, first: int) -> Tensor:
        """Return s(i, j) for the candidate antecedents of each span, nearest first, (M, K).

        Args:
            kept: The kept spans.
            document: The document.
            first: The index of the excerpt's first token in the document.
        """
        device = kept.g.device
        index, mask = antecedents(len(kept.g), self.settings.antecedents, device)
        speakers = torch.from_numpy(document.speaker_ids)[kept.starts + first].to(device)
        genre = torch.tensor(self._genres.get(document.genre, 0), device=device)
        s_a: Tensor = self.pairs(kept.g, speakers, genre, index)
        s = kept.s_m.unsqueeze(1) + kept.s_m[index] + s_a
        return s.masked_fill(~mask, -torch.inf)

    def mention_loss(
        self, kept: KeptSpans, cluster: Tensor, gold: NDArray[np.int64], h: Tensor, x: Tensor
    ) -> Tensor:
        """Return -log p(mention or not), summed over kept spans and missed gold mentions."""
        loss = F.binary_cross_entropy_with_logits(kept.s_m, (cluster > 0).float(), reduction="sum")
        spans = set(zip(kept.starts.tolist(), kept.ends.tolist(), strict=True))
        missed = [
            (start, end)
            for start, end, _ in gold.tolist()
            if (start, end) not in spans and end - start <= self.settings.width
        ]
        if missed:
            g = self.spans(h, x, *torch.tensor(missed, device=h.device).T)
            loss = loss + F.softplus(-self.mention(g)).sum()
        return loss

    def _resolve(self, batch: Batch[Document], row: int) -> CorefPrediction:
        document = batch.examples[row]
        lengths = [len(sentence) for sentence in document.sentences]
        if not sum(lengths):
            return CorefPrediction([], self.settings.singletons)
        kept = self.keep(*self.encode(batch, row, range(len(lengths))), lengths)
        scores = F.pad(self.score_pairs(kept, document, 0), (1, 0))  # s(i, none) = 0
        distances = scores.argmax(dim=1).tolist()  # to the antecedent, in spans; 0: none
        spans = map(Mention, kept.starts.tolist(), kept.ends.tolist())
        cluster_of: list[list[Mention]] = []  # the cluster of each span
        for span, distance in zip(spans, distances, strict=True):
            cluster_of.append(cluster_of[-distance] if distance else [])
            cluster_of[-1].append(span)
        clusters = [
            cluster
            for cluster, distance, s_m in zip(cluster_of, distances, kept.s_m.tolist(), strict=True)
            if not distance and (len(cluster) > 1 or (self.settings.singletons and s_m > 0))
        ]
        return CorefPrediction(clusters, self.settings.singletons)


def gold_cluster_ids(starts: Tensor, ends: Tensor, gold: NDArray[np.int64]) -> Tensor:
    """Return the ID of the gold cluster of each span, or 0 if the span is not a gold mention."""
    cluster_ids = {(start, end): cluster_id for start, end, cluster_id in gold.tolist()}
    spans = zip(starts.tolist(), ends.tolist(), strict=True)
    return torch.tensor([cluster_ids.get(span, 0) for span in spans], dtype=torch.long)
