"""Parts of speech in each layer: linear probes on a treebank in CoNLL-U.

The paper's finding (Table 6): layer 1 represents syntax better than layer 2. Baselines without
context: the most frequent tag of the word in the training data, and a probe on static vectors. The
words are those of the treebank, see `conllu`. Accuracy is per word. Its interval is a bootstrap
over sentences, because accuracies within a sentence are correlated. Differences are paired: both
sides use the same samples.
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
from elmokit.progress import ProgressFn, no_log

Correct = NDArray[np.float64]
COMPARED = ("layer 1", "layer 2")


@dataclass(frozen=True)
class PosResult:
    """The scores of one method.

    Attributes:
        name: A layer or a baseline.
        accuracy: Fraction of words with the correct tag, the mean over the seeds.
        interval: Its 95% interval, by a bootstrap over sentences.
        unseen: Accuracy on forms that are not in the training data.
        by_seed: Accuracy with each seed; a single value for deterministic baselines.
        dev_accuracy: Accuracy on the dev data with each seed.
        epochs: Epochs of each probe.
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
        classes: Distinct tags in the training data.
        words: Words with a tag in the training, dev and test data.
        sentences: Sentences in each.
        untagged: Words without a tag, which are skipped, in all data.
        unknown_tags: Test words whose tag is not in the training data; they count as errors.
        unseen: Test words that are not in the training data.
        static_unknown: Test words without a static vector; None without static vectors.
        results: One per method.
        difference: Layer 1 minus layer 2, if both were probed.
    """

    tags: str
    classes: int
    words: tuple[int, int, int]
    sentences: tuple[int, int, int]
    untagged: int
    unknown_tags: int
    unseen: int
    static_unknown: int | None
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
class Words:
    """The words of the training, dev and test data in one list, and their labels by split.

    Attributes:
        sentences: The sentences of all splits.
        forms: Their words.
        tags: The tags in the training data; the index of a tag is its class.
        rows: The indices of the words with a tag, by split.
        labels: Their classes; len(tags) for a tag that is not in the training data.
        clusters: The index of their sentence.
        unseen: Whether a test word is not in the training data.
        untagged: Number of words without a tag.
    """

    sentences: list[tuple[str, ...]]
    forms: list[str]
    tags: list[str]
    rows: tuple[NDArray[np.int64], ...]
    labels: tuple[NDArray[np.int64], ...]
    clusters: tuple[NDArray[np.int64], ...]
    unseen: NDArray[np.bool_]
    untagged: int

    def examples(self, vectors: HalfArray | LayerTable) -> tuple[Examples, Examples, Examples]:
        """Return training, dev and test examples with these vectors."""
        train, dev, test = (
            Examples(vectors, r, y) for r, y in zip(self.rows, self.labels, strict=True)
        )
        return train, dev, test


def words_of(treebank: Treebank) -> Words:
    """Collect the words of a treebank."""
    tags = sorted({tag for s in treebank.train for tag in s.tags if tag is not None})
    if len(tags) < 2:
        raise DataError(f"The training data has {len(tags)} distinct tags, expected at least 2.")
    classes = {tag: i for i, tag in enumerate(tags)}
    splits = []
    n_words = 0
    for split in treebank:
        flat = [(i, tag) for i, sentence in enumerate(split) for tag in sentence.tags]
        splits.append(
            [
                (n_words + k, classes.get(tag, len(tags)), i)
                for k, (i, tag) in enumerate(flat)
                if tag is not None
            ]
        )
        n_words += len(flat)
    if not all(splits):
        raise DataError("The train, dev or test data has no tagged words.")
    columns = (np.array(split, dtype=np.int64).T for split in splits)
    rows, labels, clusters = zip(*columns, strict=True)
    sentences = [sentence.words for split in treebank for sentence in split]
    forms = [word for words in sentences for word in words]
    seen = {forms[k] for k in rows[0]}
    unseen = np.array([forms[k] not in seen for k in rows[2]], dtype=np.bool_)
    untagged = n_words - sum(map(len, splits))
    return Words(sentences, forms, tags, rows, labels, clusters, unseen, untagged)


# --------------------------------------------------------------------------------------- measuring


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
        tags: The kind of tags, for the report.
        layer: The layers to probe, as for `LayerChoice.parse_all`.
        mix: With layer "mix", its weights.
        static: Static vectors to compare with.
        state: Initial state of each sentence.
        seeds: The seeds; one probe is trained per layer and seed.
        settings: How the probes are trained.
        cache: Directory of the layer cache. Default: a temporary directory.
        progress: Callback for the number of words embedded.
        on_result: Called with each result and the correctness of each word (0 to 1).
    """
    choices = LayerChoice.parse_all(layer, model.config.n_layers, mix)
    words = words_of(treebank)
    correct: dict[str, Correct] = {}
    results: list[PosResult] = []

    def record(name: str, hits: NDArray[np.bool_], probes: Sequence[LinearProbe] = ()) -> None:
        """Add the result of a method; `hits` has a row for each seed."""
        mean = hits.mean(axis=0)
        correct[name] = mean
        result = PosResult(
            name,
            float(mean.mean()),
            clustered_interval(mean, words.clusters[2], seed=seeds[0]),
            float(mean[words.unseen].mean()) if words.unseen.any() else float("nan"),
            tuple(hits.mean(axis=1).tolist()),
            tuple(probe.dev_accuracy for probe in probes),
            tuple(probe.epochs for probe in probes),
        )
        results.append(result)
        if on_result is not None:
            on_result(result, mean)

    def probe(name: str, vectors: HalfArray | LayerTable) -> None:
        train, dev, test = words.examples(vectors)
        probes = [
            train_probe(
                train, dev, len(words.tags), settings=settings, seed=seed, device=model.device
            )
            for seed in seeds
        ]
        record(name, np.stack([p.predict(test) == test.labels for p in probes]), probes)

    record("most frequent tag", most_frequent_tag(words)[None] == words.labels[2])
    static_unknown = None
    if static is not None:
        table, known = static.table(words.forms)
        static_unknown = int((~known[words.rows[2]]).sum())
        probe(f"{static.name}, the word", table.astype(np.float16))
    with tempfile.TemporaryDirectory(prefix="elmo-probe-") as temporary:
        folder = Path(temporary if cache is None else cache)
        store = LayerCache(folder, max_bytes=sys.maxsize, progress=progress)
        layers = store.table(model, words.sentences, state=state)
        assert layers is not None  # the cache has no bound
        for choice in choices:
            probe(choice.label, LayerTable(layers, choice))
        del layers  # Windows cannot remove a mapped file
    return PosReport(
        tags,
        len(words.tags),
        (len(words.rows[0]), len(words.rows[1]), len(words.rows[2])),
        (len(treebank.train), len(treebank.dev), len(treebank.test)),
        words.untagged,
        int((words.labels[2] == len(words.tags)).sum()),
        int(words.unseen.sum()),
        static_unknown,
        tuple(results),
        difference(correct, words.clusters[2], *COMPARED, seed=seeds[0]),
    )


# --------------------------------------------------------------------------------------- baseline


def most_frequent_tag(words: Words) -> NDArray[np.int64]:
    """Return for each test word its most frequent tag in the training data.

    An unseen form is looked up in lower case; otherwise, the most frequent tag of all is used. Of
    equally frequent tags, the first in alphabetical order is chosen.
    """
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    folded: dict[str, Counter[int]] = defaultdict(Counter)
    total: Counter[int] = Counter()
    for row, label in zip(words.rows[0].tolist(), words.labels[0].tolist(), strict=True):
        form = words.forms[row]
        counts[form][label] += 1
        folded[form.lower()][label] += 1
        total[label] += 1
    forms = (words.forms[row] for row in words.rows[2].tolist())
    return np.array(
        [_top(counts.get(form) or folded.get(form.lower()) or total) for form in forms],
        dtype=np.int64,
    )


def _top(counts: Counter[int]) -> int:
    return min(counts, key=lambda label: (-counts[label], label))
