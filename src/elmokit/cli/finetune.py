"""`elmo finetune`: continue training a model on other text."""

from __future__ import annotations

from typing import Annotated

import typer

from elmokit.cli import options as opt
from elmokit.cli.output import log, print_training
from elmokit.progress import no_log, plural

_ACCUMULATORS_USED = "Adagrad continues from the model's accumulators."
_ACCUMULATORS_IGNORED = (
    "The model contains Adagrad accumulators, which AdamW does not use. To continue training as "
    "with bilm-tf, use --set optimizer.kind=adagrad (see docs/how-to/formats.md)."
)


def finetune(
    model: opt.ModelArgument,
    data: opt.PreparedData,
    output: opt.Output,
    weights: opt.Weights = None,
    new_head: Annotated[bool, typer.Option("--new-head")] = False,
    head_steps: int | None = None,
    settings: opt.Settings = None,
    max_steps: int | None = None,
    epochs: float | None = None,
    seed: opt.Seed = 0,
    resume: opt.Resume = False,
    warm_state: opt.WarmState = False,
    tensorboard: opt.Tensorboard = False,
    deterministic: opt.Deterministic = False,
    device: opt.Device = "auto",
    as_json: opt.SummaryAsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """Continue training a language model on new text.

    If the model has an LM head, prepare the text with `elmo prepare --vocab MODEL`. A model without
    a head gets a new one, which is initialized from the word frequencies of DATA and trained
    first, with the biLM frozen. Default learning rates: optimizer.learning_rate=5e-4, and
    optimizer.head_rate=4e-3 while only the head is trained.

    Held-out perplexity is measured before and after training, and after the initial training of
    the head. Ctrl-C saves a checkpoint and stops.

    Args:
        model: ELMoForManyLangs models and models with word inputs cannot be fine-tuned.
        output: Run directory for checkpoints, metrics and the model.
        new_head: Replace the LM head with a new one for the vocabulary of DATA.
        head_steps: Number of initial steps that train only the head, with the biLM frozen. Default:
            half of all steps for a new head, 0 otherwise.
        max_steps: Number of training steps, instead of --epochs.
        epochs: Number of epochs. Default: 2 with a new head, 1 otherwise.
    """
    from elmokit.data.corpus import Corpus
    from elmokit.device import choose_device
    from elmokit.sources.resolve import load_parts
    from elmokit.train import finetune as finetuning
    from elmokit.train.loop import train as run_training

    corpus = Corpus.open(data)
    initial = finetuning.prepare_initial_model(
        load_parts(model, weights), corpus, new_head=new_head
    )
    with opt.usage_errors():
        config = finetuning.finetune_config(
            initial,
            corpus,
            epochs=epochs,
            max_steps=max_steps,
            head_steps=head_steps,
            settings=settings or [],
            seed=seed,
        )
    report = no_log if quiet else log
    if initial.has_new_head and config.optimizer.head_steps:
        report(
            f"Training only the new head ({plural(corpus.n_words, 'word')}) until step "
            f"{config.optimizer.head_steps:,} of {config.max_steps:,}."
        )
    if initial.parts.accumulators:
        report(_ACCUMULATORS_USED if config.optimizer.kind == "adagrad" else _ACCUMULATORS_IGNORED)
    if "valid" not in corpus.splits:
        report(
            f"{data} has no held-out text, so perplexity is not measured. To hold out text, use "
            "elmo prepare --valid."
        )
    result = run_training(
        config,
        corpus,
        output,
        resume=resume,
        device=choose_device(device),
        log=report,
        tensorboard=tensorboard,
        deterministic=deterministic,
        initial=initial.parts,
        warm_state=warm_state,
    )
    perplexity = finetuning.perplexity_by_stage(config, result)
    summary = {
        "head_steps": config.optimizer.head_steps,
        "new_head": initial.has_new_head,
        "perplexity": perplexity,
    }
    print_training(result, summary, as_json=as_json)
    stages = {"before": "before", "head": "after training the head", "after": "after"}
    if values := [f"{p['mean']:.2f} {stages[name]}" for name, p in perplexity.items()]:
        report(f"Held-out perplexity: {', '.join(values)}.")
    report(f"Saved the model to {result.model}.")
