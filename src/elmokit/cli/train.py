"""`elmo train`: train a biLM on a prepared corpus."""

from __future__ import annotations

from typing import Annotated

import typer

from elmokit.cli import run_options as run
from elmokit.cli.options import (
    Device,
    PreparedData,
    Quiet,
    SummaryAsJson,
    as_settings,
    usage_errors,
)
from elmokit.cli.progress import stderr_logger


def train(
    data: PreparedData,
    output: run.RunDirectory,
    preset: Annotated[
        str,
        typer.Option(
            help="Model size and settings: toy (for a laptop), small, medium or original."
        ),
    ] = "toy",
    settings: run.Settings = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Random seed for initial weights, data order and negative samples. Default: from "
            "the preset."
        ),
    ] = None,
    max_steps: Annotated[
        int | None, typer.Option(help="Number of steps. Default: from the preset.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Number of tokens to train on, instead of --max-steps.")
    ] = None,
    epochs: Annotated[
        float | None, typer.Option(help="Number of epochs, instead of --max-steps.")
    ] = None,
    checkpoint_every: run.CheckpointEvery = None,
    resume: run.Resume = False,
    warm_state: run.WarmState = False,
    export_hdf5: run.ExportHdf5 = False,
    tensorboard: run.Tensorboard = False,
    deterministic: run.Deterministic = False,
    device: Device = "auto",
    as_json: SummaryAsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train a forward and a backward language model on prepared text.

    The log shows the sampled loss, which is the training objective. It is smaller than the loss of
    the full softmax, so use it only to monitor training. Held-out perplexity is computed with the
    full softmax on the validation split: the exponential of the mean loss in each direction, and
    the geometric mean of the two. Ctrl-C saves a checkpoint and stops.
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
    perplexity = None if result.perplexity is None else result.perplexity.to_dict()
    summary = {"perplexity": perplexity} if as_json else None
    run.finish(result, output, export_hdf5=export_hdf5, summary=summary)
    log(f"Saved the model to {result.model}.")
