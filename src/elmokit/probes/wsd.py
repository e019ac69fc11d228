"""Word senses in each layer: the nearest sense by cosine, as in the paper (Table 5).

A sense is the mean vector of its uses in SemCor. A word is assigned the sense with the nearest mean
among those of its lemma and part of speech that occur in SemCor. A lemma that does not occur there
is assigned the first sense of WordNet, and one that WordNet does not contain has no answer. The
vector of a multiword expression is the mean of its words. Keys that WordNet does not contain cannot
be correct; they are ignored and counted.

The mean of a mix of layers is the mix of their means, so all layer choices are computed in one
pass. Baselines: the first sense of WordNet, the most frequent sense of SemCor, and static vectors
of the word and of its sentence (the mean).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from elmokit.embed.cosine import unit
from elmokit.embed.layer_choice import ALL_AND_AVERAGE, LayerChoice, Layers
from elmokit.embed.model import ElmoModel
from elmokit.embed.static import StaticVectors
from elmokit.embed.vectors import FloatArray
from elmokit.errors import DataError
from elmokit.probes.raganato import EvaluationSet, Instance, f1_score
from elmokit.probes.reports import format_table
from elmokit.probes.semcor import SenseSentence
from elmokit.probes.static_layers import static_choices, static_layers
from elmokit.probes.statistics import Difference, Interval, clustered_interval, difference
from elmokit.probes.wordnet import Entry, WordNet, entry_of, first_sense
from elmokit.progress import ProgressFn, no_log

COMPARED = ("layer 2", "layer 1")
FIRST_SENSE = "first sense of WordNet"
FREQUENT_SENSE = "most frequent sense of SemCor"
# The layers of each sentence, (R, T, D); R = L + 1 for a model.
SentenceLayers = Iterable[FloatArray]
# By method: the answers for the instances of each dataset; None: no answer.
Answers = dict[str, list[list[str | None]]]


@dataclass(frozen=True)
class WsdResult:
    """The scores of one method.

    Attributes:
        name: A layer or a baseline.
        f1: F1 by dataset.
        interval: The 95% interval of F1 on the last dataset, by a bootstrap over sentences.
        by_pos: F1 on the last dataset by part of speech.
    """

    name: str
    f1: dict[str, float]
    interval: Interval
    by_pos: dict[str, float]


@dataclass(frozen=True)
class WsdReport:
    """The scores of all methods.

    Attributes:
        instances: Words to disambiguate, by dataset.
        backed_off: Instances whose lemma is not in the training text, by dataset.
        unanswered: Instances that are not in WordNet either, by dataset.
        senses: Senses with a mean vector.
        uses: Words with a sense in the training text.
        alternatives: Uses with several senses.
        unknown: Annotated senses that are not in WordNet.
        static_unknown: Instances of the last dataset without a static vector; None without static
            vectors.
        results: One per method.
        difference: Layer 2 minus layer 1 on the last dataset, if both were measured.
    """

    instances: dict[str, int]
    backed_off: dict[str, int]
    unanswered: dict[str, int]
    senses: int
    uses: int
    alternatives: int
    unknown: int
    static_unknown: int | None
    results: tuple[WsdResult, ...]
    difference: Difference | None

    def __str__(self) -> str:
        """Return a table."""
        table = format_table([{"F1": r.name, **r.f1, "95%": r.interval} for r in self.results])
        return table if self.difference is None else f"{table}\n{self.difference}"


# ------------------------------------------------------------------------------------------- senses


@dataclass(frozen=True)
class Senses:
    """The senses that occur in the training text.

    Attributes:
        keys: Their S sense keys.
        vectors: Their mean vectors, shape (R, S, D).
        counts: Their numbers of uses, shape (S,).
        wordnet: All senses.
        candidates: The rows of the senses of each lemma and part of speech, in WordNet's order.
    """

    keys: list[str]
    vectors: FloatArray
    counts: NDArray[np.int64]
    wordnet: WordNet
    candidates: dict[Entry, list[int]]

    def choose(self, entry: Entry, features: NDArray[Any], query: NDArray[Any]) -> str | None:
        """Return the sense of a word with the highest score; for unseen lemmas, the first sense.

        Args:
            entry: The word.
            features: Features of all senses, shape (S, D).
            query: The score of a sense is the dot product of its features with this vector, (D,).
                If several senses have the highest score, the first one in WordNet is returned.
        """
        rows = self.candidates.get(entry)
        if rows is None:
            return first_sense(self.wordnet, entry)
        return self.keys[rows[int(np.argmax(features[rows] @ query))]]


def collect_senses(
    layers: SentenceLayers, sentences: Sequence[SenseSentence], wordnet: WordNet
) -> Senses:
    """Return the senses in sentences that WordNet contains, with the mean vectors of their uses.

    A use with alternatives counts fully for each of them.
    """
    used = dict.fromkeys(key for s in sentences for span in s.spans for key in span.keys)
    keys = [key for key in used if is_known(key, wordnet)]
    rows = {key: row for row, key in enumerate(keys)}
    counts = np.zeros(len(keys), dtype=np.int64)
    sums: FloatArray | None = None  # (S, R, D): contiguous by sense
    for sentence, vectors in zip(sentences, layers, strict=True):
        if sums is None:
            sums = np.zeros((len(keys), vectors.shape[0], vectors.shape[2]), dtype=np.float32)
        for span in sentence.spans:
            span_rows = [rows[key] for key in span.keys if key in rows]
            if span_rows:
                sums[span_rows] += vectors[:, span.first : span.last].mean(axis=1)
                counts[span_rows] += 1
    if sums is None or not keys:
        raise DataError(
            "No sense of the training data is in WordNet. Expected sense keys of WordNet 3.0."
        )
    sums /= counts[:, None, None]
    candidates = {
        entry: [rows[key] for key in wordnet[entry] if key in rows] for entry in map(entry_of, keys)
    }
    return Senses(keys, np.moveaxis(sums, 1, 0), counts, wordnet, candidates)


def is_known(key: str, wordnet: WordNet) -> bool:
    """Return whether WordNet contains a sense."""
    return key in wordnet.get(entry_of(key), ())


# ---------------------------------------------------------------------------------------- measuring


def measure_wsd(
    model: ElmoModel,
    training: Sequence[SenseSentence],
    sets: Sequence[EvaluationSet],
    wordnet: WordNet,
    *,
    layer: Layers = ALL_AND_AVERAGE,
    mix: Sequence[float] | None = None,
    static: StaticVectors | None = None,
    state: Literal["reset", "warm"] = "reset",
    seed: int = 0,
    progress: ProgressFn = no_log,
) -> WsdReport:
    """Disambiguate words with the layers of a model.

    Args:
        model: The model.
        training: Sentences with senses.
        sets: The test data; intervals are computed for the last dataset.
        wordnet: All senses, see `read_wordnet`.
        layer: The layers to compare, as for `LayerChoice.parse_all`.
        mix: With layer "mix", its weights.
        static: Static vectors to compare with.
        state: Initial state of each sentence.
        seed: Random seed for the bootstrap.
        progress: Callback for the number of tokens done.
    """
    if not sets:
        raise DataError("No test data: expected at least one dataset.")
    choices = LayerChoice.parse_all(layer, model.config.n_layers, mix)
    tagged = [sentence for sentence in training if sentence.spans]
    total = sum(len(s.words) for s in tagged) + sum(len(w) for s in sets for w in s.sentences)
    done = 0

    def read(sentences: Sequence[Sequence[str]]) -> Iterator[FloatArray]:
        nonlocal done
        for vectors in model.stream(sentences, state):
            yield vectors.layers
            done += len(vectors)
            progress("tokens", done, total)

    senses = collect_senses(read([s.words for s in tagged]), tagged, wordnet)
    uses, one = senses.counts[:, None], np.ones(1)
    answers: Answers = {
        FIRST_SENSE: [[first_sense(wordnet, i.entry) for i in s.instances] for s in sets],
        FREQUENT_SENSE: [[senses.choose(i.entry, uses, one) for i in s.instances] for s in sets],
    }
    static_unknown = None
    if static is not None:
        layers = static_layers(static, [s.words for s in tagged])
        static_senses = collect_senses(layers, tagged, wordnet)
        queries = [_queries(static_layers(static, s.sentences), s) for s in sets]
        for name, choice in static_choices(static).items():
            answers[name] = _nearest(static_senses, choice, queries, sets)
        static_unknown = int((~queries[-1][0].any(axis=1)).sum())
    queries = [_queries(read(s.sentences), s) for s in sets]
    for choice in choices:
        answers[choice.label] = _nearest(senses, choice, queries, sets)
    spans = [span for s in tagged for span in s.spans]
    unseen = {
        s.name: [i.entry for i in s.instances if i.entry not in senses.candidates] for s in sets
    }
    results, compared = _results(answers, sets, seed)
    return WsdReport(
        instances={s.name: len(s.instances) for s in sets},
        backed_off={name: len(entries) for name, entries in unseen.items()},
        unanswered={
            name: sum(e not in wordnet for e in entries) for name, entries in unseen.items()
        },
        senses=len(senses.keys),
        uses=len(spans),
        alternatives=sum(len(span.keys) > 1 for span in spans),
        unknown=sum(not is_known(key, wordnet) for span in spans for key in span.keys),
        static_unknown=static_unknown,
        results=results,
        difference=compared,
    )


def _queries(layers: SentenceLayers, evaluation: EvaluationSet) -> FloatArray:
    """Return the vectors of the instances of a dataset, shape (R, n, D)."""
    by_sentence: dict[int, list[Instance]] = {}
    for instance in evaluation.instances:
        by_sentence.setdefault(instance.sentence, []).append(instance)
    vectors = [
        sentence[:, instance.first : instance.last].mean(axis=1)
        for number, sentence in enumerate(layers)
        for instance in by_sentence.get(number, [])
    ]
    return np.stack(vectors, axis=1)


def _nearest(
    senses: Senses,
    choice: LayerChoice,
    queries: Sequence[FloatArray],
    sets: Sequence[EvaluationSet],
) -> list[list[str | None]]:
    """Return for each instance of each dataset the sense with the nearest mean by cosine."""
    means = unit(choice.apply(senses.vectors))
    return [
        [
            senses.choose(instance.entry, means, query)
            for instance, query in zip(s.instances, choice.apply(vectors), strict=True)
        ]
        for s, vectors in zip(sets, queries, strict=True)
    ]


def _results(
    answers: Answers, sets: Sequence[EvaluationSet], seed: int
) -> tuple[tuple[WsdResult, ...], Difference | None]:
    """Score the answers of each method, and compare two layers on the last dataset."""
    last = sets[-1].instances
    clusters = np.array([instance.sentence for instance in last])
    tags = [pos for pos, _ in Counter(instance.pos for instance in last).most_common()]
    # F1 = 2 correct / (instances + answers): an instance without an answer counts as one half. All
    # methods answer the same instances.
    sizes = np.array([0.5 if answer is None else 1.0 for answer in answers[FIRST_SENSE][-1]])
    correct: dict[str, NDArray[np.float64]] = {}
    results = []
    for name, by_set in answers.items():
        pairs = [
            list(zip(s.instances, own, strict=True)) for s, own in zip(sets, by_set, strict=True)
        ]
        correct[name] = np.array([float(answer in i.gold) for i, answer in pairs[-1]])
        results.append(
            WsdResult(
                name,
                {s.name: f1_score(own) for s, own in zip(sets, pairs, strict=True)},
                clustered_interval(correct[name], clusters, sizes=sizes, seed=seed),
                {pos: f1_score([pair for pair in pairs[-1] if pair[0].pos == pos]) for pos in tags},
            )
        )
    return tuple(results), difference(correct, clusters, *COMPARED, sizes=sizes, seed=seed)
