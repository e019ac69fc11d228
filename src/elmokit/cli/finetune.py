"""`elmo finetune`: go on with a trained model on other text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmokit.cli.options import Device, Weights

if TYPE_CHECKING:
    from elmokit.train.finetune import FinetuneResult

_INTERRUPTED = 130


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
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="The run's folder: checkpoints, metrics, model/.",
            show_default=False,
        ),
    ],
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
            min=0,
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
        typer.Option(min=1, help="Steps in all, instead of --epochs.", show_default=False),
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
    checkpoint_every: Annotated[
        int | None, typer.Option(help="Steps between two checkpoints.", show_default=False)
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on from the newest checkpoint in --output; give the other options again.",
        ),
    ] = False,
    export_hdf5: Annotated[
        bool, typer.Option("--export-hdf5", help="Also write files for AllenNLP and bilm-tf.")
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Log to TensorBoard, too.")
    ] = False,
    deterministic: Annotated[
        bool,
        typer.Option("--deterministic", help="On a GPU: the same bits every time, at a price."),
    ] = False,
    device: Device = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a summary as one JSON object on stdout.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress lines.")] = False,
) -> None:
    """Go on training a model on text of another kind, such as that of a task.

    A model with its language-model head goes on as a whole. Bare weights get
    a new head, which first learns alone, from the word frequencies of DATA on.
    The held-out perplexity is measured before, after the head's own steps, and
    after all. Ctrl-C saves a checkpoint before it stops.
    """
    import dataclasses
    import json

    from elmokit.data.corpus import Corpus
    from elmokit.embed.precision import choose_device
    from elmokit.errors import ConfigError
    from elmokit.sources.resolve import load_parts
    from elmokit.train import finetune as tuning

    if epochs is not None and max_steps is not None:
        raise ConfigError("Give one of --max-steps and --epochs.")
    corpus = Corpus.open(data)
    start = tuning.start_from(load_parts(model, weights), corpus, new_head=new_head)
    config = tuning.finetune_config(
        start,
        corpus,
        epochs=epochs,
        max_steps=max_steps,
        head_steps=head_steps,
        settings=settings or [],
        seed=seed,
    )
    if checkpoint_every is not None:
        config = dataclasses.replace(config, checkpoint_every=checkpoint_every)

    def tell(line: str) -> None:
        if not quiet:
            typer.echo(line, err=True)

    if start.new_head:
        tell(
            f"A new head for {corpus.n_words:,} words learns alone for "
            f"{config.optimizer.head_steps:,} of {config.max_steps:,} steps."
        )
    if start.parts.accumulators:
        tell(_told_of_accumulators(config.optimizer.kind))
    if "valid" not in corpus.splits:
        tell(f"{data} holds out no text: no perplexity is measured. See elmo prepare --valid.")
    result = tuning.finetune(
        config,
        start,
        corpus,
        output,
        resume=resume,
        device=choose_device(device),
        tell=tell,
        tensorboard=tensorboard,
        deterministic=deterministic,
    )
    if export_hdf5 and not result.run.interrupted:
        from elmokit.sources import hdf5dir, modeldir

        hdf5dir.save(modeldir.load(result.run.model), output / "hdf5", overwrite=True)
    if as_json:
        values: dict[str, Any] = {
            "steps": result.run.steps,
            "head_steps": config.optimizer.head_steps,
            "new_head": start.new_head,
            "tokens": result.run.tokens,
            "perplexity": result.perplexity,
            "interrupted": result.run.interrupted,
            "model": str(result.run.model),
        }
        typer.echo(json.dumps(values))
    if result.run.interrupted:
        raise typer.Exit(_INTERRUPTED)
    tell(_told(result))


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
