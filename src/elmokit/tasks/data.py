"""Load the data of a run: the examples and their layers, the labels and the words."""

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

# A longer text usually means that sentence boundaries are missing in the file.
_LONG_TEXT = 1000


@dataclass(frozen=True, eq=False)
class Data(Generic[E]):
    """The data of a run. Runs that differ only in the seed or the model settings can share it.

    Attributes:
        train: The training examples.
        dev: The examples for early stopping.
        test: The examples for evaluating the final model.
        label_info: The result of `Task.collect_labels`.
        words: The words and their initial vectors.
        bilm: The biLM that computed the layers; None without ELMo.
    """

    train: Dataset[E]
    dev: Dataset[E]
    test: Dataset[E] | None
    label_info: LabelInfo
    words: WordTable
    bilm: BilmInfo | None

    @property
    def digest(self) -> str:
        """The digest of all data that affects the results: examples, labels, words and biLM."""
        splits = [split for split in (self.train, self.dev, self.test) if split is not None]
        examples = "\n\n".join("\n".join(map(repr, split.examples)) for split in splits)
        label_info = json.dumps(self.label_info, sort_keys=True)
        fingerprint = "" if self.bilm is None else self.bilm.fingerprint
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
    """Read the files of a task and compute the layers of their texts.

    Args:
        task: The task.
        config: The settings.
        train: The training file.
        dev: The file for early stopping.
        test: The file for evaluating the final model.
        elmo: The biLM, or a function that loads it; None to train without ELMo.
        model: The argument of `elmokit.load` with which `elmo` was loaded.
        cache: The layer cache. Default: a cache in the user's cache directory.
        device: Device of the task model.
        log: Callback for messages.
    """
    device = torch.device(device)
    cache = LayerCache(log=log) if cache is None else cache
    # Loaded first, to fail early if the file or an optional package is missing.
    table = None if config.static.source == "none" else load_static(config.static.source)
    elmo = elmo() if callable(elmo) else elmo
    bilm = None if elmo is None else BilmInfo.of(elmo, model, config.elmo.state)
    ElmoMixes(config.elmo, bilm)  # raises an error if the number of fixed weights is wrong
    examples: dict[str, list[E]] = {}
    for split, path in (("train", train), ("dev", dev), ("test", test)):
        if path is not None:
            examples[split] = read_examples(task, path)
            n_tokens = sum(map(len, collect_texts(examples[split])))
            counts = f"{plural(len(examples[split]), 'example')}, {plural(n_tokens, 'token')}"
            log(f"{split}: {counts} ({path})")
    n_read = len(examples["train"])
    sample = sample_fraction(examples["train"], config.train.share)
    examples["train"] = task.training(sample, config)
    if len(examples["train"]) != n_read:
        n_training = plural(len(examples["train"]), "training example")
        log(f"train: {n_training} created from {plural(n_read, 'example')}")
    label_info = task.collect_labels(examples["train"])
    for split in examples:
        if split != "train":
            examples[split] = select_scored_examples(task, examples[split], config, label_info)
    texts = {split: collect_texts(items) for split, items in examples.items()}
    other_texts = [*texts["dev"], *texts.get("test", [])]
    words = WordTable.build(config.static, table, texts["train"], other_texts)
    options = {"state": config.elmo.state, "storage": config.elmo.storage}
    datasets = {}
    for split in examples:
        layers = None if elmo is None else cache.layers(elmo, texts[split], device, **options)
        datasets[split] = Dataset(examples[split], layers, device)
    return Data(datasets["train"], datasets["dev"], datasets.get("test"), label_info, words, bilm)


def read_examples(task: Task[E], path: str) -> list[E]:
    """Read a file of labeled examples, and warn about very long texts.

    Raises:
        DataError: The file contains no examples.
    """
    examples = task.read(path)
    if not examples:
        raise DataError(f"{path} contains no examples; expected at least one.")
    if (longest := max(map(len, collect_texts(examples)))) > _LONG_TEXT:
        warn(
            f"{path}: the longest text has {longest:,} tokens and requires a lot of memory. "
            "Check the file for missing sentence boundaries."
        )
    return examples


def select_scored_examples(
    task: Task[E], examples: Sequence[E], config: TaskConfig, label_info: LabelInfo
) -> list[E]:
    """Select the examples to score, and warn about labels that are not in the training data."""
    scored = task.scored(examples, config)
    counts = task.count_labels(scored)
    unknown = [
        label
        for label in sorted(counts)
        if all(label not in known for known in label_info.values())
    ]
    if unknown:
        warn(
            f"Found {plural(sum(counts[label] for label in unknown), 'gold label')} absent from "
            f"the training data (counted as errors): {', '.join(unknown)}."
        )
    return scored


def sample_fraction(examples: list[E], share: float) -> list[E]:
    """Return a random fraction of the examples. A larger fraction includes all smaller ones."""
    order = np.random.default_rng(2018).permutation(len(examples))
    selected = order[: max(1, round(share * len(examples)))]
    return [examples[i] for i in sorted(selected.tolist())]
