"""Word sense disambiguation with each layer, using sense vectors (Table 5 of the paper).

The vector of a sense is the mean vector of its uses in SemCor. A word is assigned the sense with
the nearest vector by cosine, among the senses of its lemma and part of speech that occur in SemCor.
A lemma that does not occur in SemCor is assigned its first sense in WordNet. A lemma that occurs in
neither of them gets no answer. The vector of a multiword expression is the mean of the vectors of
its words. Sense keys that are not in WordNet are ignored and counted.

The mean of mixed vectors is the mix of the mean vectors of the layers, so all layer choices are
computed in one pass. The baselines are the first sense in WordNet, the most frequent sense in
SemCor, the static vector of the word, and the mean static vector of its sentence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from elmokit.embed.layer_choice import ALL_AND_AVERAGE, LayerChoice, Layers
from elmokit.embed.model import ElmoModel
from elmokit.embed.static import StaticVectors
from elmokit.embed.vectors import FloatArray, normalize
from elmokit.errors import DataError
from elmokit.probes.raganato import EvaluationSet, concatenate, f1_score
from elmokit.probes.reports import format_table
from elmokit.probes.statistics import Difference, Interval, clustered_interval, difference
from elmokit.probes.vectors import model_layers, span_vectors, static_choices, static_layers
from elmokit.probes.wordnet import Entry, SenseSentence, WordNet, first_sense, parse_sense_key
from elmokit.progress import ProgressFn, no_log

COMPARED_LAYERS = ("layer 2", "layer 1")
FIRST_SENSE = "first sense of WordNet"
FREQUENT_SENSE = "most frequent sense of SemCor"


@dataclass(frozen=True)
class WsdResult:
    """The scores of one method.

    Attributes:
        name: A layer or a baseline.
        f1: F1 for each dataset.
        interval: 95% confidence interval of F1 on the last dataset, bootstrapped over sentences.
        by_pos: F1 on the last dataset for each part of speech.
    """

    name: str
    f1: dict[str, float]
    interval: Interval
    by_pos: dict[str, float]


@dataclass(frozen=True)
class WsdReport:
    """The scores of all methods.

    Attributes:
        instances: Number of words to disambiguate in each dataset.
        backed_off: Number of instances in each dataset whose lemma is not in the training data.
            Their answer is the first sense in WordNet, if there is one.
        unanswered: Number of instances in each dataset whose lemma is not in WordNet either.
        senses: Number of senses with a mean vector.
        uses: Number of annotated words in the training data.
        alternatives: Number of words that are annotated with several senses.
        unknown: Number of annotated senses that are not in WordNet.
        results: The scores of each method.
        difference: F1 of layer 2 minus that of layer 1 on the last dataset, if both were measured.
    """

    instances: dict[str, int]
    backed_off: dict[str, int]
    unanswered: dict[str, int]
    senses: int
    uses: int
    alternatives: int
    unknown: int
    results: tuple[WsdResult, ...]
    difference: Difference | None

    def __str__(self) -> str:
        """Return a table."""
        table = format_table([{"F1": r.name, **r.f1, "95%": r.interval} for r in self.results])
        return table if self.difference is None else f"{table}\n{self.difference}"


# ------------------------------------------------------------------------------------------- senses


@dataclass(frozen=True)
class Senses:
    """The senses that occur in the training data.

    Attributes:
        keys: The keys of the S senses.
        vectors: Mean vector of each sense in each of R layers, shape (R, S, D).
        counts: Number of uses of each sense, shape (S,).
        wordnet: All senses in WordNet.
        candidates: The indices of the senses of each lemma and part of speech, in WordNet's order.
    """

    keys: list[str]
    vectors: FloatArray
    counts: NDArray[np.int64]
    wordnet: WordNet
    candidates: dict[Entry, list[int]]

    def choose(self, entry: Entry, features: NDArray[Any], query: NDArray[Any]) -> str | None:
        """Return the highest-scoring sense of a word or, for an unseen lemma, the first sense.

        Args:
            entry: The lemma and part of speech of the word.
            features: Features of all senses, shape (S, D).
            query: A vector of shape (D,). The score of a sense is the dot product of `query`
                and the features of the sense. Ties are broken in WordNet's order.
        """
        rows = self.candidates.get(entry)
        if rows is None:
            return first_sense(self.wordnet, entry)
        return self.keys[rows[int(np.argmax(features[rows] @ query))]]


def collect_senses(
    layers: Iterable[FloatArray], sentences: Sequence[SenseSentence], wordnet: WordNet
) -> Senses:
    """Compute the mean vector of each sense that occurs in sentences and is in WordNet.

    A use that is annotated with several senses counts as a full use of each of them.
    """
    counts: Counter[str] = Counter()
    sums: dict[str, FloatArray] = {}
    for sentence, vectors in zip(sentences, layers, strict=True):
        for span in sentence.spans:
            mean = vectors[:, span.start : span.end].mean(axis=1)
            for key in span.keys:
                if is_known(key, wordnet):
                    counts[key] += 1
                    sums.setdefault(key, np.zeros_like(mean))
                    sums[key] += mean
    if not sums:
        raise DataError(
            "None of the senses in the training data is in WordNet. Expected sense keys of WordNet "
            "3.0. Check the versions of both."
        )
    rows = {key: row for row, key in enumerate(sums)}
    candidates = {
        entry: [rows[key] for key in wordnet[entry] if key in rows]
        for entry in map(parse_sense_key, rows)
    }
    means = np.stack([sums[key] / np.float32(counts[key]) for key in rows], axis=1)
    return Senses(list(rows), means, np.array(list(counts.values())), wordnet, candidates)


def is_known(key: str, wordnet: WordNet) -> bool:
    """Return whether WordNet contains a sense."""
    return key in wordnet.get(parse_sense_key(key), ())


# -------------------------------------------------------------------------------------- measurement


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
        training: Sentences annotated with senses.
        sets: The test datasets. Intervals are computed for the last dataset.
        wordnet: All senses in WordNet; see `read_wordnet`.
        layer: The layers to compare, as in `LayerChoice.parse_all`.
        mix: The weights of the layers, for layer "mix".
        static: Static vectors for comparison.
        state: Initial state of each sentence.
        seed: Random seed for the bootstrap.
        progress: Callback for the number of processed tokens.
    """
    choices = LayerChoice.parse_all(layer, model.config.n_layers, mix)
    annotated = [sentence for sentence in training if sentence.spans]
    training_words = [sentence.words for sentence in annotated]
    test = concatenate(sets)
    layers = model_layers(model, [*training_words, *test.sentences], state, progress)
    senses = collect_senses(islice(layers, len(annotated)), annotated, wordnet)
    entries = [instance.entry for instance in test.instances]
    spans = [(instance.sentence, instance.start, instance.end) for instance in test.instances]
    frequencies = senses.counts[:, None]
    # For each method, the predicted sense of each instance, or None.
    answers: dict[str, list[str | None]] = {
        FIRST_SENSE: [first_sense(wordnet, entry) for entry in entries],
        FREQUENT_SENSE: [senses.choose(entry, frequencies, np.ones(1)) for entry in entries],
    }
    if static is not None:
        static_senses = collect_senses(static_layers(static, training_words), annotated, wordnet)
        queries = span_vectors(static_layers(static, test.sentences), spans)
        for name, choice in static_choices(static).items():
            answers[name] = _nearest(static_senses, choice, queries, entries)
    queries = span_vectors(layers, spans)
    for choice in choices:
        answers[choice.label] = _nearest(senses, choice, queries, entries)
    results, layer_difference = _score_methods(answers, sets, seed)
    uses = [span for sentence in annotated for span in sentence.spans]
    return WsdReport(
        instances={s.name: len(s.instances) for s in sets},
        backed_off={
            s.name: sum(i.entry not in senses.candidates for i in s.instances) for s in sets
        },
        unanswered={s.name: sum(i.entry not in wordnet for i in s.instances) for s in sets},
        senses=len(senses.keys),
        uses=len(uses),
        alternatives=sum(len(span.keys) > 1 for span in uses),
        unknown=sum(not is_known(key, wordnet) for span in uses for key in span.keys),
        results=results,
        difference=layer_difference,
    )


def _nearest(
    senses: Senses, choice: LayerChoice, queries: FloatArray, entries: Sequence[Entry]
) -> list[str | None]:
    """Return the sense with the nearest mean vector, by cosine, for each instance."""
    means, vectors = normalize(choice.apply(senses.vectors)), choice.apply(queries)
    return [senses.choose(entry, means, v) for entry, v in zip(entries, vectors, strict=True)]


def _score_methods(
    answers: Mapping[str, Sequence[str | None]], sets: Sequence[EvaluationSet], seed: int
) -> tuple[tuple[WsdResult, ...], Difference | None]:
    """Score the answers of each method, and compare two layers on the last dataset."""
    instances = [instance for s in sets for instance in s.instances]
    datasets = np.repeat([s.name for s in sets], [len(s.instances) for s in sets])
    by_dataset = {s.name: datasets == s.name for s in sets}
    last = by_dataset[sets[-1].name]
    pos = np.array([instance.pos for instance in instances])
    by_pos = {tag: last & (pos == tag) for tag, _ in Counter(pos[last].tolist()).most_common()}
    clusters = np.array([instance.sentence for instance in sets[-1].instances])
    # All methods answer the same instances. F1 = 2 correct / (instances + answers).
    answered = np.array([answer is not None for answer in answers[FIRST_SENSE]])
    sizes = (1 + answered[last]) / 2

    def f1(hits: NDArray[np.bool_], groups: Mapping[str, NDArray[np.bool_]]) -> dict[str, float]:
        return {name: f1_score(hits[rows], answered[rows]) for name, rows in groups.items()}

    correct: dict[str, NDArray[np.bool_]] = {}
    results = []
    for name, senses in answers.items():
        hits = np.array([sense in i.gold for sense, i in zip(senses, instances, strict=True)])
        correct[name] = hits[last]
        interval = clustered_interval(correct[name], clusters, sizes=sizes, seed=seed)
        results.append(WsdResult(name, f1(hits, by_dataset), interval, f1(hits, by_pos)))
    return tuple(results), difference(correct, clusters, *COMPARED_LAYERS, sizes=sizes, seed=seed)
