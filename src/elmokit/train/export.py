"""Export the model of a training run to a model directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elmokit.data.corpus import Corpus
from elmokit.model.engine import exact_engine
from elmokit.progress import LogFn, no_log
from elmokit.sources import modeldir
from elmokit.sources.modeldir import WARM, ModelParts
from elmokit.sources.modelfiles import CARD, CONFIG, read_card, read_config
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
    path = out / MODEL
    parts = ModelParts(
        bilm.eval(),
        vocabulary=corpus.vocabulary,
        head=step.head,
        warm=warm,
        card=read_card(path / CARD) if modeldir.is_model_dir(path) else None,
        metadata=metadata,
    )
    modeldir.save(parts, path, overwrite=True)


def has_model(out: Path, progress: Progress, *, warm_state: bool = False) -> bool:
    """Return whether a run directory contains the model of this step (with a warm state)."""
    path = out / MODEL
    if not modeldir.is_model_dir(path) or (warm_state and not (path / WARM).is_file()):
        return False
    _, metadata = read_config(path / CONFIG, modeldir.FORMAT, modeldir.FORMAT_VERSION)
    training = metadata.get("training", {})
    perplexity = None if progress.perplexity is None else progress.perplexity.to_dict()
    return (training.get("steps"), training.get("perplexity")) == (progress.step, perplexity)
