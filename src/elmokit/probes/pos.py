"""Parts of speech in each layer: linear probes on a treebank in CoNLL-U.

The paper found that layer 1 represents syntax better than layer 2 (Table 6). There are two
baselines without context: the most frequent tag of the word in the training data, and a probe on
static vectors. The words are those of the treebank, see `conllu`. Accuracy is measured per word.
Its confidence interval is bootstrapped over sentences, because errors within a sentence are
correlated. Differences are paired: both methods are scored on the same bootstrap samples.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from elmokit.embed.layer_cache import LayerCache
from elmokit.embed.layer_choice import ALL_AND_AVERAGE, LayerChoice, Layers
from elmokit.embed.model import ElmoModel
from elmokit.embed.static import StaticVectors
from elmokit.errors import DataError
from elmokit.probes.conllu import Treebank
from elmokit.probes.linear import (
    Examples,
    HalfArray,
    LayerTable,
    LinearProbe,
    ProbeSettings,
    train_probe,
)
from elmokit.probes.reports import format_table
from elmokit.probes.statistics import Difference, Interval, clustered_interval, difference
from elmokit.progress import ProgressFn, no_log, plural

#: For each test word, the fraction of probes that tag it correctly.
Correct = NDArray[np.float64]
COMPARED_LAYERS = ("layer 1", "layer 2")


@dataclass(frozen=True)
class PosResult:
    """The scores of one method.

    Attributes:
        name: A layer or a baseline.
        accuracy: Fraction of words with the correct tag, averaged over the seeds.
        interval: 95% confidence interval, bootstrapped over sentences.
        unseen: Accuracy on words that are not in the training data.
        by_seed: Accuracy with each seed; a single value for deterministic baselines.
        dev_accuracy: Accuracy on the dev data with each seed.
        epochs: Number of training epochs with each seed.
    """

    name: str
    accuracy: float
    interval: Interval
    unseen: float
    by_seed: tuple[float, ...]
    dev_accuracy: tuple[float, ...] = ()
    epochs: tuple[int, ...] = ()


@dataclass(frozen=True)
class PosReport:
    """The scores of all methods.

    Attributes:
        tags: The kind of tags: "upos" or "xpos".
        classes: Number of distinct tags in the training data.
        words: Numbers of tagged words in the training, dev and test data.
        sentences: Numbers of sentences in the training, dev and test data.
        untagged: Number of words without a tag, which are skipped.
        unknown_tags: Number of test words whose tag is not in the training data. They count as
            errors.
        unseen: Number of test words that are not in the training data.
        results: The scores of each method.
        difference: Accuracy of layer 1 minus that of layer 2, if both were probed.
    """

    tags: str
    classes: int
    words: tuple[int, ...]
    sentences: tuple[int, ...]
    untagged: int
    unknown_tags: int
    unseen: int
    results: tuple[PosResult, ...]
    difference: Difference | None

    def __str__(self) -> str:
        """Return a table."""
        table = format_table(
            [
                {
                    "": result.name,
                    "accuracy": result.accuracy,
                    "95%": result.interval,
                    "unseen words": result.unseen,
                }
                for result in self.results
            ]
        )
        return table if self.difference is None else f"{table}\n{self.difference}"


# ------------------------------------------------------------------------------------------- words


@dataclass(frozen=True)
class LabeledWords:
    """The words of the training, dev and test data in one list, with their labels.

    Attributes:
        sentences: The sentences of all splits.
        forms: The words of all sentences.
        clusters: The index of the sentence of each word.
        tags: The tags in the training data; the index of a tag is its class.
        labels: The class of each word: len(tags) for a tag that is not in the training data, -1 for
            a word without a tag.
        rows: For each split, the indices of the words with a tag.
        unseen: Whether each test word is absent from the training data.
    """

    sentences: list[tuple[str, ...]]
    forms: list[str]
    clusters: NDArray[np.int64]
    tags: list[str]
    labels: NDArray[np.int64]
    rows: tuple[NDArray[np.int64], ...]
    unseen: NDArray[np.bool_]


def collect_words(treebank: Treebank) -> LabeledWords:
    """Collect the words of a treebank and their labels."""
    tags = sorted({tag for s in treebank.train for tag in s.tags if tag is not None})
    if len(tags) < 2:
        raise DataError(
            f"Found {plural(len(tags), 'distinct tag')} in the training data; expected at least 2."
        )
    classes: dict[str | None, int] = {tag: i for i, tag in enumerate(tags)} | {None: -1}
    sentences = [sentence for split in treebank for sentence in split]
    forms = [form for sentence in sentences for form in sentence.words]
    clusters = np.repeat(np.arange(len(sentences)), [len(s.words) for s in sentences])
    labels = np.array([classes.get(tag, len(tags)) for s in sentences for tag in s.tags])
    splits = np.repeat(range(3), [sum(len(s.words) for s in split) for split in treebank])
    rows = tuple(np.flatnonzero((splits == split) & (labels >= 0)) for split in range(3))
    if not all(map(len, rows)):
        raise DataError(
            "The training, dev or test data has no tagged words. All three must have tagged words."
        )
    seen = {forms[row] for row in rows[0]}
    unseen = np.array([forms[row] not in seen for row in rows[2]])
    return LabeledWords([s.words for s in sentences], forms, clusters, tags, labels, rows, unseen)


# ------------------------------------------------------------------------------------- measurement


def measure_pos(
    model: ElmoModel,
    treebank: Treebank,
    *,
    tags: str = "xpos",
    layer: Layers = ALL_AND_AVERAGE,
    mix: Sequence[float] | None = None,
    static: StaticVectors | None = None,
    state: Literal["reset", "warm"] = "reset",
    seeds: Sequence[int] = (0,),
    settings: ProbeSettings | None = None,
    cache: str | Path | None = None,
    progress: ProgressFn = no_log,
    on_result: Callable[[PosResult, Correct], None] | None = None,
) -> PosReport:
    """Probe the layers of a model for parts of speech.

    Args:
        model: The model.
        treebank: The data.
        tags: The kind of tags, "xpos" or "upos", for the report.
        layer: The layers to probe, as in `LayerChoice.parse_all`.
        mix: The weights of the layers, for layer "mix".
        static: Static vectors for comparison.
        state: Initial state of each sentence.
        seeds: The seeds; one probe is trained per layer and seed.
        settings: Settings for training the probes.
        cache: Directory for the layer cache. Default: a temporary directory.
        progress: Callback for the number of embedded words.
        on_result: Called with each result and an array: for each test word, the fraction of probes
            that tag it correctly.
    """
    choices = LayerChoice.parse_all(layer, model.config.n_layers, mix)
    words = collect_words(treebank)
    test = words.rows[2]
    clusters = words.clusters[test]
    correct: dict[str, Correct] = {}
    results: list[PosResult] = []

    def add_result(name: str, hits: NDArray[np.bool_], probes: Sequence[LinearProbe] = ()) -> None:
        """Add the result of a method; `hits` has one row per seed."""
        mean = hits.mean(axis=0)
        correct[name] = mean
        result = PosResult(
            name,
            accuracy=float(mean.mean()),
            interval=clustered_interval(mean, clusters, seed=seeds[0]),
            unseen=float(mean[words.unseen].mean()) if words.unseen.any() else float("nan"),
            by_seed=tuple(hits.mean(axis=1).tolist()),
            dev_accuracy=tuple(probe.dev_accuracy for probe in probes),
            epochs=tuple(probe.epochs for probe in probes),
        )
        results.append(result)
        if on_result is not None:
            on_result(result, mean)

    def add_probes(name: str, vectors: HalfArray | LayerTable) -> None:
        """Train one probe per seed, and add their joint result."""
        train, dev, held_out = (Examples(vectors, rows, words.labels[rows]) for rows in words.rows)
        probes = [
            train_probe(
                train, dev, len(words.tags), settings=settings, seed=seed, device=model.device
            )
            for seed in seeds
        ]
        hits = np.stack([probe.predict(held_out) == held_out.labels for probe in probes])
        add_result(name, hits, probes)

    add_result("most frequent tag", most_frequent_tag(words)[None] == words.labels[test])
    if static is not None:
        table, _ = static.look_up(words.forms)
        add_probes(f"{static.name}, the word", table.astype(np.float16))
    with tempfile.TemporaryDirectory(prefix="elmo-probe-") as temporary:
        folder = Path(temporary if cache is None else cache)
        layer_cache = LayerCache(folder, max_bytes=sys.maxsize, progress=progress)
        layers = layer_cache.get_array(model, words.sentences, state=state)
        assert layers is not None  # the size of the cache is not limited
        for choice in choices:
            add_probes(choice.label, LayerTable(layers, choice))
        del layers  # Windows cannot remove a memory-mapped file
    return PosReport(
        tags=tags,
        classes=len(words.tags),
        words=tuple(map(len, words.rows)),
        sentences=tuple(map(len, treebank)),
        untagged=int((words.labels < 0).sum()),
        unknown_tags=int((words.labels[test] == len(words.tags)).sum()),
        unseen=int(words.unseen.sum()),
        results=tuple(results),
        difference=difference(correct, clusters, *COMPARED_LAYERS, seed=seeds[0]),
    )


# --------------------------------------------------------------------------------------- baseline


def most_frequent_tag(words: LabeledWords) -> NDArray[np.int64]:
    """Return, for each test word, its most frequent tag in the training data.

    An unseen form is looked up in lowercase. If the lowercase form is also unseen, the most
    frequent tag overall is used. Ties are broken alphabetically.
    """
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    lowercase_counts: dict[str, Counter[int]] = defaultdict(Counter)
    total: Counter[int] = Counter()
    for row in words.rows[0]:
        form, label = words.forms[row], int(words.labels[row])
        counts[form][label] += 1
        lowercase_counts[form.lower()][label] += 1
        total[label] += 1
    forms = (words.forms[row] for row in words.rows[2])
    counters = (counts.get(form) or lowercase_counts.get(form.lower()) or total for form in forms)
    return np.array([max(sorted(tags), key=tags.__getitem__) for tags in counters])
