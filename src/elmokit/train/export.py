"""Export the model of a training run to a model directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elmokit.data.corpus import Corpus
from elmokit.model.engine import exact_engine
from elmokit.progress import LogFn, no_log
from elmokit.sources import modeldir
from elmokit.sources.card import training_rows, update_rows
from elmokit.sources.modeldir import WARM, ModelParts
from elmokit.sources.modelfiles import CARD, read_card
from elmokit.train.checkpoint import Progress
from elmokit.train.config import RunConfig
from elmokit.train.evaluate import make_encoder
from elmokit.train.metrics import read_evaluations
from elmokit.train.step import TrainStep
from elmokit.train.warm import average_state

MODEL = "model"


def export(
    step: TrainStep,
    corpus: Corpus,
    config: RunConfig,
    out: Path,
    progress: Progress,
    initial: ModelParts | None = None,
    log: LogFn = no_log,
    *,
    warm_state: bool = False,
) -> None:
    """Write the model directory of a run, on rank 0. An existing model directory is replaced.

    Args:
        step: The training step, which contains the biLM and its head.
        corpus: The training text.
        config: The settings of the run.
        out: The run directory.
        progress: The progress of the run.
        initial: The initial model of a fine-tuning run.
        log: Called with each log message.
        warm_state: Also compute the warm state from the beginning of the corpus.
    """
    if not step.group.is_first:
        return
    bilm = step.bilm
    warm = None
    if warm_state:
        log("Computing the warm state from the beginning of the corpus.")
        encode = make_encoder(exact_engine(bilm), corpus.chars)
        warm = average_state(bilm, encode, corpus.tokens()).state
    perplexity = progress.perplexity
    metadata: dict[str, Any] = {
        "name": out.name,
        "training": {
            "steps": progress.step,
            "tokens": progress.step * config.tokens_per_step,
            "corpus_tokens": len(corpus.tokens()),
            "vocabulary": corpus.n_words,
            "perplexity": None if perplexity is None else perplexity.to_dict(),
        },
    }
    if initial is not None:
        metadata["finetuned_from"] = str(initial.metadata.get("name") or initial.source)
        metadata["training"]["perplexity_before"] = read_evaluations(out).get(0)
    card = read_card(out / MODEL / CARD) if has_model(out) else None
    parts = ModelParts(
        bilm.eval(),
        vocabulary=corpus.vocabulary,
        head=step.head,
        warm=warm,
        card=None if card is None else update_rows(card, training_rows(metadata)),
        metadata=metadata,
    )
    modeldir.save(parts, out / MODEL, overwrite=True)


def has_model(out: Path, *, warm_state: bool = False) -> bool:
    """Return whether a run directory contains a model, if required with a warm state."""
    path = out / MODEL
    return modeldir.is_model_dir(path) and (not warm_state or (path / WARM).is_file())
