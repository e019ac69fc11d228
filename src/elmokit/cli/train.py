"""`elmo train`: a biLM from a prepared corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elmokit.cli.options import Device, SummaryAsJson, as_settings, usage_errors
from elmokit.cli.progress import stderr_logger
from elmokit.cli.run_options import (
    CheckpointEvery,
    Deterministic,
    ExportHdf5,
    NoLines,
    Resume,
    RunFolder,
    Tensorboard,
    WarmState,
    finish,
)


def train(
    data: Annotated[Path, typer.Argument(help="The folder that `elmo prepare` made.")],
    output: RunFolder,
    preset: Annotated[
        str, typer.Option(help="Shape and settings: toy (a laptop), small, medium, original.")
    ] = "toy",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Change any setting: lstm.dim=1024, step.rows=256, optimizer.kind=adagrad, ...",
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Decides weights, order and negatives.")] = None,
    max_steps: Annotated[int | None, typer.Option(help="Steps in all.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Stop after so many tokens.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Stop after so many passes.")] = None,
    checkpoint_every: CheckpointEvery = None,
    resume: Resume = False,
    warm_state: WarmState = False,
    export_hdf5: ExportHdf5 = False,
    tensorboard: Tensorboard = False,
    deterministic: Deterministic = False,
    device: Device = "auto",
    as_json: SummaryAsJson = False,
    quiet: NoLines = False,
) -> None:
    """Train a forward and a backward language model on prepared text.

    "sampled loss" is the training objective, over a sample of the vocabulary: it is smaller than
    the true loss and only good for watching. "held-out perplexity" is measured with the full
    softmax on the corpus's valid part: exp of the mean loss, forward, backward, and the geometric
    mean of both. Ctrl-C saves a checkpoint before it stops.
    """
    from elmokit.data.corpus import Corpus
    from elmokit.device import choose_device
    from elmokit.settings import with_settings
    from elmokit.train.config import run_preset, with_length
    from elmokit.train.loop import train as run_training

    before = as_settings({"seed": seed, "step.seed": seed})
    after = as_settings({"checkpoint_every": checkpoint_every})
    with usage_errors():
        config = with_settings(run_preset(preset), [*before, *(settings or []), *after])
    corpus = Corpus.open(data)
    with usage_errors():
        config = with_length(
            config,
            len(corpus.tokens()),
            max_steps=max_steps,
            max_tokens=max_tokens,
            epochs=epochs,
        )

    log = stderr_logger(shown=not quiet)
    result = run_training(
        config,
        corpus,
        output,
        resume=resume,
        device=choose_device(device),
        log=log,
        tensorboard=tensorboard,
        deterministic=deterministic,
        warm_state=warm_state,
    )
    found = None if result.perplexity is None else result.perplexity.to_dict()
    summary = {"perplexity": found} if as_json else None
    finish(result, output, export_hdf5=export_hdf5, summary=summary)
    log(f"The model is in {result.model}.")
