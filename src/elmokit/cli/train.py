"""`elmo train`: train a biLM on a prepared corpus."""

from __future__ import annotations

from elmokit.cli import options as opt
from elmokit.cli.output import log, print_training
from elmokit.progress import no_log


def train(
    data: opt.PreparedData,
    output: opt.Output,
    preset: opt.Preset = "toy",
    settings: opt.Settings = None,
    max_steps: int | None = None,
    max_tokens: int | None = None,
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
    """Train a forward and a backward language model on prepared text.

    The log shows the sampled loss, which is the training objective. It is smaller than the loss of
    the full softmax, so use it only to monitor training. Held-out perplexity is computed with the
    full softmax, as the geometric mean of both directions. Ctrl-C saves a checkpoint and stops.

    Args:
        output: Run directory for checkpoints, metrics and the model.
        max_steps: Number of training steps. Default: from the preset.
        max_tokens: Number of training tokens, instead of --max-steps.
        epochs: Number of epochs, instead of --max-steps.
    """
    from elmokit.data.corpus import Corpus
    from elmokit.device import choose_device
    from elmokit.settings import with_settings
    from elmokit.train.config import run_preset, with_length
    from elmokit.train.loop import train as run_training

    with opt.usage_errors():
        changes = [f"seed={seed}", f"step.seed={seed}", *(settings or [])]
        config = with_settings(run_preset(preset), changes)
    corpus = Corpus.open(data)
    with opt.usage_errors():
        config = with_length(
            config,
            len(corpus.tokens()),
            max_steps=max_steps,
            max_tokens=max_tokens,
            epochs=epochs,
        )
    report = no_log if quiet else log
    result = run_training(
        config,
        corpus,
        output,
        resume=resume,
        device=choose_device(device),
        log=report,
        tensorboard=tensorboard,
        deterministic=deterministic,
        warm_state=warm_state,
    )
    perplexity = None if result.perplexity is None else result.perplexity.to_dict()
    print_training(result, {"perplexity": perplexity}, as_json=as_json)
    report(f"Saved the model to {result.model}.")
