"""What a run leaves: the complete model directory, with its warm state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elmokit.data.corpus import Corpus
from elmokit.model.bilm import BiLM
from elmokit.model.engine import exact_engine
from elmokit.model.softmax import LMHead
from elmokit.sources import modeldir
from elmokit.sources.modeldir import ModelParts
from elmokit.telling import Tell, every_seconds, silent
from elmokit.train.checkpoint import Progress
from elmokit.train.config import RunConfig
from elmokit.train.evaluate import Perplexity, encoder_of
from elmokit.train.warm import average_state


def export(
    bilm: BiLM,
    head: LMHead,
    corpus: Corpus,
    config: RunConfig,
    path: Path,
    progress: Progress,
    found: Perplexity | None,
    start: ModelParts | None = None,
    tell: Tell = silent,
) -> None:
    """Write the complete model directory.

    Args:
        bilm: The trained biLM.
        head: Its language-model head.
        corpus: The text it was trained on, from which the warm state is made.
        config: The settings of the run.
        path: The folder to make; a model that is there is replaced.
        progress: How far the run has come.
        found: The last held-out perplexity.
        start: What the run started from, if it was a model.
        tell: Called with lines for the user: on a CPU the warm state may take minutes.
    """
    tell("Making the warm state: reading the beginning of the corpus once more.")
    warm = average_state(
        bilm,
        encoder_of(exact_engine(bilm), corpus.chars),
        corpus.tokens(),
        progress=every_seconds(tell),
    ).state
    metadata: dict[str, Any] = {
        "name": path.parent.name,
        "training": {
            "steps": progress.step,
            "tokens": progress.step * config.tokens_per_step,
            "corpus_tokens": len(corpus.tokens()),
            "vocabulary": corpus.n_words,
            "perplexity": None if found is None else found.to_dict(),
        },
    }
    if start is not None:
        metadata["finetuned_from"] = start.source
    parts = ModelParts(
        bilm.eval(), vocabulary=corpus.vocabulary, head=head, warm=warm, metadata=metadata
    )
    modeldir.save(parts, path, overwrite=True)
