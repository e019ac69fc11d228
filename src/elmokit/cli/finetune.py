"""`elmo finetune`: continue training a model on other text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elmokit.cli import run_options as run
from elmokit.cli.options import Device, Quiet, SummaryAsJson, Weights, as_settings, usage_errors
from elmokit.cli.progress import stderr_logger

_OLD_ACCUMULATORS = (
    "The model contains Adagrad accumulators, which adamw does not use. To continue training like "
    "bilm-tf, use --set optimizer.kind=adagrad (see docs/how-to/formats.md)."
)


def finetune(
    model: Annotated[
        str,
        typer.Argument(
            help="Model to start from: a model directory, a bilm-tf training checkpoint, or "
            "published weights without a head (a directory, a zip file, an options.json, or a name "
            "such as allennlp:original)."
        ),
    ],
    data: Annotated[
        Path,
        typer.Argument(
            help="Directory written by `elmo prepare`. Use its option --vocab MODEL if the model "
            "has an LM head, and --valid or --valid-files to hold out text for evaluation."
        ),
    ],
    output: run.RunDirectory,
    weights: Weights = None,
    new_head: Annotated[
        bool,
        typer.Option(
            "--new-head",
            help="Replace the model's LM head with a new one for the vocabulary of DATA. Always "
            "done for models without a head.",
        ),
    ] = False,
    head_steps: Annotated[
        int | None,
        typer.Option(
            help="Number of initial steps that train only the head, with the biLM frozen. Default: "
            "half of all steps for a new head, otherwise 0."
        ),
    ] = None,
    epochs: Annotated[
        float | None,
        typer.Option(
            help="Number of epochs, including --head-steps. Default: 2 with a new head, "
            "otherwise 1."
        ),
    ] = None,
    max_steps: Annotated[
        int | None, typer.Option(help="Number of steps, instead of --epochs.")
    ] = None,
    settings: run.Settings = None,
    seed: Annotated[
        int, typer.Option(help="Random seed for data order, negative samples and dropout.")
    ] = 0,
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
    """Continue training a model on other text.

    For example, train on the text of a task. A model with an LM head is trained
    as a whole. A model without one gets a new head, initialized from the word
    frequencies of DATA, which is first trained alone. Default learning rates:
    optimizer.learning_rate=5e-4, and optimizer.head_rate=4e-3 while the head is
    trained alone. Held-out perplexity is measured before and after training, and
    after the steps of the head. Ctrl-C saves a checkpoint before it stops.
    """
    from elmokit.data.corpus import Corpus
    from elmokit.device import choose_device
    from elmokit.sources.resolve import load_parts
    from elmokit.train import finetune as tuning

    corpus = Corpus.open(data)
    start = tuning.start_from(load_parts(model, weights), corpus, new_head=new_head)
    with usage_errors():
        config = tuning.finetune_config(
            start,
            corpus,
            epochs=epochs,
            max_steps=max_steps,
            head_steps=head_steps,
            settings=[*(settings or []), *as_settings({"checkpoint_every": checkpoint_every})],
            seed=seed,
        )

    log = stderr_logger(shown=not quiet)
    if start.new_head:
        log(
            f"Training a new head for {corpus.n_words:,} words alone for the first "
            f"{config.optimizer.head_steps:,} of {config.max_steps:,} steps."
        )
    if start.parts.accumulators:
        continues = "Adagrad continues with the accumulators of the model."
        log(continues if config.optimizer.kind == "adagrad" else _OLD_ACCUMULATORS)
    if "valid" not in corpus.splits:
        log(
            f"{data} has no held-out text, so perplexity is not measured. To hold out text, use "
            "elmo prepare --valid."
        )
    result = tuning.finetune(
        config,
        start,
        corpus,
        output,
        resume=resume,
        device=choose_device(device),
        log=log,
        tensorboard=tensorboard,
        deterministic=deterministic,
        warm_state=warm_state,
    )
    summary = {
        "head_steps": config.optimizer.head_steps,
        "new_head": start.new_head,
        "perplexity": result.perplexity,
    }
    run.finish(result.run, output, export_hdf5=export_hdf5, summary=summary if as_json else None)
    names = {"before": "before", "head": "after training the head", "after": "after"}
    if values := [f"{p['mean']:.2f} {names[name]}" for name, p in result.perplexity.items()]:
        log(f"Held-out perplexity: {', '.join(values)}.")
    log(f"Saved the model to {result.run.model}.")
