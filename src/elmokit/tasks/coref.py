"""Coreference resolution: data, labels, scores and output.

The network is in `coref_model.py`, and the data formats are described in `documents.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from elmokit.errors import DataError, warn
from elmokit.tasks.config import ElmoConfig, StaticConfig, TaskConfig, TrainConfig
from elmokit.tasks.coref_model import CorefConfig, CorefModel, CorefPrediction
from elmokit.tasks.documents import (
    DataIssues,
    Document,
    Mention,
    format_columns,
    read_columns,
    read_jsonl,
    read_text,
)
from elmokit.tasks.metrics.coref import coref_scores, without_singletons
from elmokit.tasks.metrics.spans import span_to_dict
from elmokit.tasks.task import LabelInfo, Reader, Scores, Task
from elmokit.text.lines import read_lines

__all__ = ["Coref", "CorefConfig", "CorefModel", "CorefPrediction"]


class Coref(Task[Document]):
    """Coreference resolution."""

    name = "coref"
    metric = "conll"
    # As in the paper: the model of Lee et al., ELMo at the input, lambda 0. Unlike
    # this preset, the original uses 300-dimensional GloVe vectors and decays the learning rate by
    # 0.1% every 100 steps.
    presets: ClassVar[Mapping[str, TaskConfig]] = {
        "paper": TaskConfig(
            CorefConfig(),
            ElmoConfig(penalty=0.0),
            StaticConfig(trainable=False),
            TrainConfig(batch_size=1, epochs=150, patience=20),
        ),
        # For quick experiments: a smaller model that stops earlier.
        "quick": TaskConfig(
            CorefConfig(char_widths="3", hidden=100, scorer=100, antecedents=100, sentences=15),
            ElmoConfig(penalty=0.0),
            StaticConfig(trainable=False),
            TrainConfig(learning_rate=2e-3, batch_size=1, epochs=40, patience=10),
        ),
    }
    inputs: ClassVar[Mapping[str, Reader[Document]]] = {
        "text": read_text,
        "conll": partial(read_columns, labeled=False),
        "jsonl": read_jsonl,
    }
    network = CorefModel

    def read(self, path: str) -> list[Document]:
        """Read a file in column format, or all such files in a directory.

        In a directory, all *.conll files are read or, if there are none, all *gold_conll files.
        """
        issues = DataIssues()
        documents = list(read_columns(read_lines(_list_files(path)), issues, labeled=True))
        usable = [d for d in documents if d.tokens and not d.is_redacted]
        issues["empty documents, skipped"] = sum(not d.tokens for d in documents)
        issues["documents with redacted text (____), skipped"] = sum(
            d.is_redacted for d in documents
        )
        crossing = "mentions that cross a sentence boundary and cannot be predicted"
        issues[crossing] = sum(d.n_crossing for d in usable)
        if problems := [f"{issue}: {count:,}" for issue, count in issues.items() if count]:
            warn(f"{path}: {'; '.join(problems)}.")
        return usable

    def collect_labels(self, examples: Sequence[Document]) -> LabelInfo:
        """Collect the genres."""
        if not any(document.clusters for document in examples):
            raise DataError(
                "The training data has no mentions. Expected mentions such as '(3)', '(3' or '3)' "
                "in the last column."
            )
        return {"genres": sorted({document.genre for document in examples} - {""})}

    def score(self, examples: Sequence[Document], predictions: Sequence[Any]) -> Scores:
        """Return the mean F1 of MUC, B3 and CEAFe, and the individual metrics.

        If the model predicts singletons, they are scored, and the scores without singletons are
        also returned.
        """
        gold = [document.clusters or () for document in examples]
        predicted = [prediction.clusters for prediction in predictions]
        no_singletons = coref_scores(
            [without_singletons(clusters) for clusters in gold],
            [without_singletons(clusters) for clusters in predicted],
        )
        if not any(prediction.singletons for prediction in predictions):
            return no_singletons
        scores = coref_scores(gold, predicted)
        for name, measure in no_singletons["measures"].items():
            scores["measures"][f"{name} without singletons"] = measure
        return {**scores, "conll_without_singletons": no_singletons["conll"]}

    def format_prediction(self, example: Document, prediction: Any, *, as_json: bool) -> str:
        """Return CoNLL-2012 columns, or a JSON object with sentences and clusters."""
        if not as_json:
            return format_columns(example, prediction.clusters)
        values: dict[str, Any] = {"name": example.name} if example.name else {}
        values["sentences"] = example.sentences
        values["clusters"] = _clusters_to_json(example, prediction.clusters)
        if example.clusters is not None:
            values["gold"] = _clusters_to_json(example, example.clusters)
        return json.dumps(values, ensure_ascii=False)


def _clusters_to_json(document: Document, clusters: Iterable[Iterable[Mention]]) -> list[list[Any]]:
    """Return the sentence, position and text of each mention as JSON values."""

    def to_dict(mention: Mention) -> dict[str, Any]:
        sentence, start, end = document.locate(mention)
        values = span_to_dict(document.tokens, document.offsets, *mention)
        return {"sentence": sentence, **values, "start": start, "end": end}

    return [[to_dict(mention) for mention in cluster] for cluster in clusters]


def _list_files(path: str) -> list[Path | str]:
    folder = Path(path)
    if not folder.is_dir():
        return [path]
    for pattern in ("*.conll", "*gold_conll"):
        if files := sorted(folder.rglob(pattern)):
            return list(files)
    raise DataError(f"{path} contains no *.conll or *gold_conll files.")
