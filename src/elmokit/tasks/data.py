"""Load the data of a run: examples and their layers, labels and words."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

import numpy as np
import torch

from elmokit.embed.layer_cache import LayerCache
from elmokit.embed.model import ElmoModel
from elmokit.embed.static import load_static
from elmokit.errors import DataError, warn
from elmokit.progress import LogFn, no_log, plural
from elmokit.storage.fingerprint import fingerprint_texts
from elmokit.tasks.batches import Dataset, E, collect_texts
from elmokit.tasks.config import TaskConfig
from elmokit.tasks.nn.elmo import BilmInfo, ElmoMixes
from elmokit.tasks.task import LabelInfo, Task
from elmokit.tasks.words import WordTable

# A longer text usually means that a sentence boundary is missing in the file.
_LONG_TEXT = 1000


@dataclass(frozen=True, eq=False)
class Data(Generic[E]):
    """The data of a run. Runs that differ only in the seed or the model settings can share it."""

    train: Dataset[E]
    dev: Dataset[E]
    test: Dataset[E] | None
    label_info: LabelInfo
    words: WordTable
    elmo: BilmInfo | None

    @property
    def digest(self) -> str:
        """A digest of everything that affects the results: examples, labels, words, the biLM."""
        parts = [self.train, self.dev, *([] if self.test is None else [self.test])]
        examples = "\n\n".join("\n".join(map(repr, part.examples)) for part in parts)
        label_info = json.dumps(self.label_info, sort_keys=True)
        fingerprint = "" if self.elmo is None else self.elmo.fingerprint
        return fingerprint_texts([examples, label_info, self.words.digest, fingerprint])


def load_data(
    task: Task[E],
    config: TaskConfig,
    train: str,
    dev: str,
    test: str | None = None,
    *,
    elmo: ElmoModel | Callable[[], ElmoModel] | None = None,
    model: str | None = None,
    cache: LayerCache | None = None,
    device: str | torch.device = "cpu",
    log: LogFn = no_log,
) -> Data[E]:
    """Read a task's files and compute the layers of their texts.

    Args:
        task: The task.
        config: The settings.
        train: The training file.
        dev: The file for early stopping.
        test: The file to evaluate the final model on.
        elmo: The biLM, or a function that loads it. None: train without ELMo.
        model: The name or path that `elmo` was loaded from.
        cache: The layer cache. Default: a cache in the user's cache directory.
        device: Device of the task model.
        log: Callback for messages.
    """
    device = torch.device(device)
    cache = LayerCache(log=log) if cache is None else cache
    # Loaded first, because this fails if an optional package is missing.
    table = None if config.static.source == "none" else load_static(config.static.source)
    bilm = None
    if elmo is not None:
        elmo = elmo if isinstance(elmo, ElmoModel) else elmo()
        bilm = BilmInfo.of(elmo, model, config.elmo.state)
        ElmoMixes(config.elmo, bilm)  # raises if a fixed mix has the wrong number of layers
    examples: dict[str, list[E]] = {}
    for part, path in (("train", train), ("dev", dev), ("test", test)):
        if path is not None:
            examples[part] = read_examples(task, path)
            tokens = plural(sum(map(len, collect_texts(examples[part]))), "token")
            log(f"{part}: {plural(len(examples[part]), 'example')}, {tokens} ({path})")
    n_read = len(examples["train"])
    examples["train"] = task.training(
        sample_fraction(examples["train"], config.train.share), config
    )
    if len(examples["train"]) != n_read:
        log(f"train: {plural(len(examples['train']), 'training example')} from {n_read:,}")
    label_info = task.collect_labels(examples["train"])
    for part in examples.keys() - {"train"}:
        examples[part] = scored_examples(task, examples[part], config, label_info)
    texts = {part: collect_texts(items) for part, items in examples.items()}
    others = [*texts["dev"], *texts.get("test", [])]
    words = WordTable.build(config.static, table, texts["train"], others)
    options = {"state": config.elmo.state, "storage": config.elmo.storage}
    sets = {}
    for part in examples:
        layers = None if elmo is None else cache.layers(elmo, texts[part], device, **options)
        sets[part] = Dataset(examples[part], layers, device)
    return Data(sets["train"], sets["dev"], sets.get("test"), label_info, words, bilm)


def read_examples(task: Task[E], path: str) -> list[E]:
    """Read a file of labeled examples. Raise if it is empty, and warn about very long texts."""
    examples = task.read(path)
    if not examples:
        raise DataError(f"{path} contains no examples.")
    if (longest := max(map(len, collect_texts(examples)))) > _LONG_TEXT:
        warn(
            f"{path}: the longest text has {longest:,} tokens, which needs a lot of memory. Check "
            "for missing sentence boundaries."
        )
    return examples


def scored_examples(
    task: Task[E], examples: Sequence[E], config: TaskConfig, label_info: LabelInfo
) -> list[E]:
    """Select the examples to score, and warn about labels that a model does not know."""
    scored = task.scored(examples, config)
    counts = task.count_labels(scored)
    unknown = [x for x in sorted(counts) if all(x not in known for known in label_info.values())]
    if unknown:
        warn(
            f"Found {plural(sum(counts[label] for label in unknown), 'gold label')} not in the "
            f"training data, counted as errors: {', '.join(unknown)}."
        )
    return scored


def sample_fraction(examples: list[E], share: float) -> list[E]:
    """Return a fraction of the examples; a larger fraction includes all smaller ones."""
    order = np.random.default_rng(2018).permutation(len(examples))
    selected = order[: max(1, round(share * len(examples)))]
    return [examples[i] for i in sorted(selected.tolist())]
