"""`elmo finetune`: go on with a trained model on other text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.options import Device, SummaryAsJson, Weights, as_settings, usage_errors
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

if TYPE_CHECKING:
    from elmokit.train.finetune import FinetuneResult


def finetune(
    model: Annotated[
        str,
        typer.Argument(
            help="What to start from: a model folder, a checkpoint of bilm-tf, or bare weights as "
            "AllenNLP and bilm-tf published them (folder, zip, options.json, or a name such as "
            "allennlp:original).",
            show_default=False,
        ),
    ],
    data: Annotated[
        Path,
        typer.Argument(
            help="The folder that `elmo prepare` made: with --vocab MODEL if the model has a "
            "language-model head, and with --valid or --valid-files, so that there is text to "
            "measure on.",
            show_default=False,
        ),
    ],
    output: RunFolder,
    weights: Weights = None,
    new_head: Annotated[
        bool,
        typer.Option(
            "--new-head",
            help="Give up the model's head and learn a new one for the vocabulary of DATA. Bare "
            "weights always get one.",
        ),
    ] = False,
    head_steps: Annotated[
        int | None,
        typer.Option(
            help="First steps in which only the head learns and the biLM stays as it is. Nothing: "
            "half of all steps for a new head, none for the model's own.",
            show_default=False,
        ),
    ] = None,
    epochs: Annotated[
        float | None,
        typer.Option(
            help="Passes over the text, those of the head included. Nothing: one, and one more "
            "for a new head.",
            show_default=False,
        ),
    ] = None,
    max_steps: Annotated[
        int | None,
        typer.Option(help="Steps in all, instead of --epochs.", show_default=False),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Change any setting: optimizer.learning_rate=1e-4 (5e-4 unless told), "
            "optimizer.head_rate=2e-3 (4e-3, while the head learns alone), step.rows=64, "
            "step.dropout=0.2, evaluate_every=100, ...",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides order, negatives and dropout.")] = 0,
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
    """Go on training a model on text of another kind, such as that of a task.

    A model with its language-model head goes on as a whole. Bare weights get
    a new head, which first learns alone, from the word frequencies of DATA on.
    The held-out perplexity is measured before, after the head's own steps, and
    after all. Ctrl-C saves a checkpoint before it stops.
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
            f"A new head for {corpus.n_words:,} words learns alone for "
            f"{config.optimizer.head_steps:,} of {config.max_steps:,} steps."
        )
    if start.parts.accumulators:
        log(_told_of_accumulators(config.optimizer.kind))
    if "valid" not in corpus.splits:
        log(f"{data} holds out no text: no perplexity is measured. See elmo prepare --valid.")
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
    finish(result.run, output, export_hdf5=export_hdf5, summary=summary if as_json else None)
    log(_told(result))


def _told_of_accumulators(kind: str) -> str:
    if kind == "adagrad":
        return "Adagrad goes on with the accumulators of the model."
    return (
        "The model brings the accumulators of Adagrad, which adamw does not use. To go on as "
        "bilm-tf would: --set optimizer.kind=adagrad (see docs/how-to/formats.md)."
    )


def _told(result: FinetuneResult) -> str:
    """Say what has become better, and where the model is."""
    names = {"before": "before", "head": "after the head's own steps", "after": "after"}
    told = [f"{p['mean']:.2f} {names[name]}" for name, p in result.perplexity.items()]
    measured = f"Held-out perplexity: {', '.join(told)}. " if told else ""
    return f"{measured}The model is in {result.run.model}."
