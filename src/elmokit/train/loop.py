"""Train a biLM: the main loop, with evaluation, checkpoints and early stopping."""

from __future__ import annotations

import dataclasses
import math
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit.data.corpus import Corpus
from elmokit.data.streams import Streams
from elmokit.errors import ConfigError, DataError, NotFiniteError
from elmokit.model.bilm import BiLM
from elmokit.model.engine import exact_engine
from elmokit.model.scoring import Scorer
from elmokit.model.softmax import LMHead
from elmokit.parallel import prefetch
from elmokit.progress import LogFn, no_log, plural
from elmokit.settings import differences
from elmokit.shutdown import StopSignal, stop_signals
from elmokit.sources import modeldir
from elmokit.sources.modeldir import ModelParts
from elmokit.storage.atomic import restore_directory
from elmokit.storage.lock import run_lock
from elmokit.storage.overwrite import check_directory
from elmokit.train import checkpoint, distributed
from elmokit.train.batches import needed_columns, read_batches
from elmokit.train.checkpoint import Progress, load_accumulators
from elmokit.train.config import RunConfig
from elmokit.train.distributed import SINGLE_PROCESS, Group
from elmokit.train.evaluate import Perplexity, evaluate, make_encoder, make_text_types
from elmokit.train.export import MODEL, export, has_model
from elmokit.train.metrics import Clock, Metrics
from elmokit.train.step import PlainStep, StepResult, TrainStep, explain_out_of_memory

# Settings that can be changed when a run is resumed: those for its length, logging, evaluation and
# checkpoints, and those that help if the loss has become NaN or infinite.
_CHANGEABLE_SETTINGS = (
    *("max_steps", "log_every", "evaluate_every", "checkpoint_every", "keep", "patience"),
    *("optimizer.learning_rate", "optimizer.head_rate", "optimizer.clip", "optimizer.skip_norm"),
)
_RECOVERY_HINT = (
    "Continue from the last checkpoint with --resume and a lower learning rate (--set "
    "optimizer.learning_rate=...). If that also fails, remove the newest directory in checkpoints/ "
    "and try again."
)

_PREFETCHED_BATCHES = 6


@dataclass(frozen=True)
class TrainResult:
    """The result of a training run.

    Attributes:
        steps: The step of the weights. With early stopping, this is the best evaluated step.
        tokens: Number of tokens read until this step.
        perplexity: The last held-out perplexity until this step; None without held-out text.
        interrupted: Whether a signal stopped the run. If so, the run can be resumed.
        model: The model directory.
    """

    steps: int
    tokens: int
    perplexity: Perplexity | None
    interrupted: bool
    model: Path


def train(
    config: RunConfig,
    corpus: Corpus,
    out: Path,
    *,
    resume: bool = False,
    device: str | torch.device = "cpu",
    log: LogFn = no_log,
    tensorboard: bool = False,
    deterministic: bool = False,
    initial: ModelParts | None = None,
    warm_state: bool = False,
) -> TrainResult:
    """Train a biLM. Processes started by torchrun share the work (see `train/distributed.py`).

    Args:
        config: All settings of the run, including the seed.
        corpus: The prepared text. Its "valid" split, if any, is used for evaluation.
        out: The run directory for checkpoints, metrics and the final model (`model/`).
        resume: Continue from the newest checkpoint in `out`.
        device: The device to train on. On CUDA devices, models with projections use `FastStep`.
        log: Called with each log message.
        tensorboard: Also log to TensorBoard.
        deterministic: Make repeated runs on a GPU bit-identical, at the cost of speed.
        initial: The initial biLM and head, which are evaluated before the first step (see
            `train/finetune.py`). Default: random weights.
        warm_state: At the end, also compute the warm state. This takes several minutes on a CPU.
    """
    with (
        distributed.join(torch.device(device)) as (group, device),
        explain_out_of_memory(config.step),
        run_lock(out) if group.is_first else nullcontext(),
    ):
        if group.is_first:  # otherwise, the model could not be written at the end
            restore_directory(out / MODEL)
            check_directory(out / MODEL, modeldir.KIND, overwrite=True)
        else:
            log = no_log
        if deterministic and device.type == "cuda":
            torch.use_deterministic_algorithms(True)
        step = make_step(
            *(config, corpus.chars, corpus.n_words, device),
            cuda_graphs=not deterministic,
            group=group,
            initial=initial,
        )
        load_accumulators(step, initial)
        streams = Streams(
            corpus.tokens(),
            corpus.documents(),
            rows=config.step.rows,
            steps=config.step.steps,
            seed=config.seed,
            restart=config.restart,
            local_rows=group.local_rows(config.step.rows),
        )
        _warn_about_few_documents(streams.n_documents, config.step.rows, log)
        progress = _start_or_resume(config, corpus, out, step, resume=resume, log=log)
        step.group.check_identical("initial weights", _tensors_to_compare(step, progress.step))
        if progress.position:
            streams.seek(progress.position)
        metrics = Metrics(out, progress.step, tensorboard=tensorboard) if group.is_first else None
        assert config.model.char_cnn is not None  # checked by `make_step`
        columns = needed_columns(corpus.chars, config.model.char_cnn.max_width)
        batches = prefetch(read_batches(streams, columns, corpus.n_words), _PREFETCHED_BATCHES)
        clock = Clock(config, progress.step)
        pending: list[tuple[int, StepResult]] = []
        try:
            with stop_signals(log) as stop:
                evaluated_step = progress.evaluated_step
                _evaluate(step, corpus, progress, metrics, config, log, stop, initial)
                if progress.evaluated_step != evaluated_step or _is_new_best(progress, config):
                    _save(out, step, progress, config, corpus, pending)
                while not _is_finished(progress, config) and not group.any(stop.is_set()):
                    batch, position = next(batches)
                    learning_rate = config.optimizer.learning_rate_at(
                        progress.step, config.max_steps
                    )
                    pending.append((progress.step + 1, step(batch, progress.step, learning_rate)))
                    progress.step, progress.position = progress.step + 1, position
                    if _is_due(progress.step, config.log_every, config.max_steps):
                        summary = _summarize(pending, learning_rate, clock, config, device)
                        _write_metrics(metrics, summary)
                        log(clock.format_line(summary))
                        pending = []
                    _evaluate(step, corpus, progress, metrics, config, log, stop, initial)
                    if _is_checkpoint_due(progress, config):
                        _save(out, step, progress, config, corpus, pending)
                interrupted = group.any(stop.is_set())
                if interrupted:  # further signals, for example from torchrun, are ignored here
                    _save(out, step, progress, config, corpus, pending)
                    log(f"Stopped at step {progress.step:,}; continue with --resume.")
        finally:
            batches.close()
            if metrics is not None:
                metrics.close()
        if not interrupted:
            progress = _use_best(out, step, progress, config, log)
            if has_model(out, progress, warm_state=warm_state):
                log(f"{out / MODEL} already contains the weights of step {progress.step:,}.")
            else:
                export(step, corpus, config, out, progress, initial, log, warm_state=warm_state)
    return TrainResult(
        steps=progress.step,
        tokens=progress.step * config.tokens_per_step,
        perplexity=progress.perplexity,
        interrupted=interrupted,
        model=out / MODEL,
    )


def make_step(
    config: RunConfig,
    chars: NDArray[np.uint16],
    n_words: int,
    device: torch.device,
    *,
    cuda_graphs: bool = True,
    group: Group = SINGLE_PROCESS,
    initial: ModelParts | None = None,
) -> TrainStep:
    """Create a model and its training step.

    Args:
        config: The settings of the run.
        chars: Character ids of all types in the corpus.
        n_words: Size of the vocabulary.
        device: The device to train on.
        cuda_graphs: Capture the step in a CUDA graph, if possible.
        group: The processes of the run.
        initial: The initial biLM and head. Default: random weights, derived from the seed.
    """
    if config.model.char_cnn is None:
        raise ConfigError("Only models with a character CNN (char_cnn) can be trained.")
    if config.model.char_cnn.max_characters_per_token != chars.shape[1]:
        raise ConfigError(
            f"The model has char_cnn.max_characters_per_token="
            f"{config.model.char_cnn.max_characters_per_token}, but the corpus was prepared with "
            f"{chars.shape[1]}. Change the setting, or prepare the corpus again with "
            "--max-characters."
        )
    generator_state = torch.get_rng_state()
    torch.manual_seed(config.seed)
    bilm = BiLM(config.model)
    head = LMHead(n_words, config.model.lstm.projection_dim)
    if initial is not None and initial.head is not None:
        bilm.load_state_dict(initial.bilm.state_dict())
        head.load_state_dict(initial.head.state_dict())
    torch.set_rng_state(generator_state)
    torch.manual_seed(config.seed + 1 + 1_000_003 * group.rank)  # for dropout in `PlainStep`
    bilm, head = bilm.to(device), head.to(device)
    local_config = dataclasses.replace(config.step, rows=len(group.local_rows(config.step.rows)))
    if device.type == "cuda" and config.model.lstm.has_projection:
        from elmokit.train.fast import FastStep

        return FastStep(
            bilm, head, chars, local_config, config.optimizer, cuda_graphs=cuda_graphs, group=group
        )
    return PlainStep(bilm, head, chars, local_config, config.optimizer, group=group)


def _warn_about_few_documents(documents: int, rows: int, log: LogFn) -> None:
    if documents < rows:
        log(
            f"Note: The corpus has only {plural(documents, 'document')} (counting each part of a "
            f"split document) for {rows:,} rows, so several rows read the same text at the same "
            "time. Training with fewer rows is faster and gives equally good results: --set "
            "step.rows=..."
        )


def _start_or_resume(
    config: RunConfig, corpus: Corpus, out: Path, step: TrainStep, *, resume: bool, log: LogFn
) -> Progress:
    """Return the progress of a new run, or load the newest checkpoint of an existing run.

    Raises:
        ConfigError: The directory contains a run but `resume` is False, or the settings of the run
            are different.
        DataError: The run was started with a different corpus.
    """
    newest = checkpoint.newest(out)
    if newest is None:
        if (out / MODEL).exists():  # the checkpoints of a finished run were removed
            raise ConfigError(
                f"{out} already contains a model, which would be overwritten. Choose another "
                "directory for the run."
            )
        if resume:
            log(f"No checkpoint in {out}; starting from the beginning.")
        return Progress(step=0, position={})
    if not resume:
        raise ConfigError(
            f"{out} already contains a run ({newest.name}). Resume training with --resume, or "
            "choose another directory."
        )
    path, progress, stored = checkpoint.newest_intact(out, log)
    if stored.get("corpus") != corpus.fingerprint:
        raise DataError(
            f"The run in {out} was not started with the corpus {corpus.path}. Use the original "
            "corpus, or start a new run in another directory."
        )
    previous = RunConfig.from_dict(stored.get("run"))
    changed = differences(config, previous, ignore=_CHANGEABLE_SETTINGS)
    if changed:
        raise ConfigError(
            f"The run in {out} was started with different settings: {', '.join(changed)}. Use the "
            "same settings, or start a new run in another directory."
        )
    checkpoint.load(path, step, progress.step)
    if progress.capacity is not None:
        step.set_capacity({int(k): v for k, v in progress.capacity.items()})
    log(f"Resuming from step {progress.step:,}.")
    return progress


def _is_finished(progress: Progress, config: RunConfig) -> bool:
    """Return whether all steps were run, or the perplexity has stopped improving."""
    is_exhausted = 0 < config.patience <= progress.evaluations_since_best
    return is_exhausted or progress.step >= config.max_steps


def _is_new_best(progress: Progress, config: RunConfig) -> bool:
    """Return whether early stopping is enabled and the current step is the best."""
    is_best = progress.best is not None and progress.best_step == progress.step
    return config.patience > 0 and is_best


def _is_checkpoint_due(progress: Progress, config: RunConfig) -> bool:
    is_due = _is_due(progress.step, config.checkpoint_every)
    return is_due or _is_new_best(progress, config) or _is_finished(progress, config)


def _use_best(
    out: Path, step: TrainStep, progress: Progress, config: RunConfig, log: LogFn
) -> Progress:
    """With early stopping, load the best weights, and return their progress."""
    if not config.patience or progress.best is None or _is_new_best(progress, config):
        return progress
    if progress.evaluations_since_best >= config.patience:
        n = plural(config.patience, "evaluation")
        log(f"No improvement in {n}; stopped early at step {progress.step:,}.")
    best = checkpoint.load_best(out, step, progress)
    if best is None:
        log(
            f"Using the last weights. Those of step {progress.best_step:,}, which have the lowest "
            "perplexity, were not saved, because early stopping was enabled later."
        )
        return progress
    log(f"Using the weights of step {best.step:,}.")
    return best


def _tensors_to_compare(step: TrainStep, n_steps: int) -> list[torch.Tensor]:
    """Return the tensors that must be identical on all ranks: the step count and all weights."""
    return [torch.tensor(n_steps), *step.bilm.parameters(), *step.head.parameters()]


def _save(
    out: Path,
    step: TrainStep,
    progress: Progress,
    config: RunConfig,
    corpus: Corpus,
    pending: list[tuple[int, StepResult]],
) -> None:
    """Save a checkpoint.

    Raises:
        NotFiniteError: A loss, gradient or weight is NaN or infinite.
    """
    _wait_for(pending)
    weights = _tensors_to_compare(step, progress.step)
    if not all(torch.isfinite(weight).all() for weight in weights):
        raise NotFiniteError(
            f"Step {progress.step:,} produced infinite or NaN weights. {_RECOVERY_HINT}"
        )
    step.group.check_identical("weights", weights)
    capacity = step.capacity
    progress.capacity = None if capacity is None else {str(k): v for k, v in capacity.items()}
    values = {"run": config.to_dict(), "corpus": corpus.fingerprint}
    checkpoint.save(out, step, progress, values, keep=config.keep)


def _evaluate(
    step: TrainStep,
    corpus: Corpus,
    progress: Progress,
    metrics: Metrics | None,
    config: RunConfig,
    log: LogFn,
    stop: StopSignal,
    initial: ModelParts | None,
) -> None:
    """Evaluate on rank 0 if an evaluation is due, and broadcast the result to all ranks.

    If a signal interrupts the evaluation, it is repeated when the run is resumed.
    """
    if "valid" not in corpus.splits or not _is_evaluation_due(progress, config, initial):
        return
    values: dict[str, Any] = {}
    if step.group.is_first:
        result = stop.run_unless_stopped(lambda: _held_out_perplexity(step, corpus))
        values = {} if result is None else result.to_dict()
    values = step.group.broadcast(values)
    if not values:
        return
    perplexity = Perplexity(**values)
    if not math.isfinite(perplexity.forward + perplexity.backward):
        raise NotFiniteError(
            f"The held-out perplexity at step {progress.step:,} is {perplexity.forward:.3g} / "
            f"{perplexity.backward:.3g}: the model has diverged. {_RECOVERY_HINT}"
        )
    progress.evaluated_step, progress.perplexity = progress.step, perplexity
    progress.evaluations_since_best += 1
    is_repeated = progress.best_step == progress.step  # a run was resumed from step 0
    if progress.best is None or is_repeated or perplexity.mean < progress.best:
        progress.best, progress.best_step = perplexity.mean, progress.step
        progress.evaluations_since_best = 0
    tokens = progress.step * config.tokens_per_step
    valid = {f"valid_{k}": v for k, v in values.items()}
    _write_metrics(metrics, {"step": progress.step, "tokens": tokens, **valid})
    log(
        f"step {progress.step:,}: held-out perplexity {perplexity.mean:.2f} "
        f"(forward {perplexity.forward:.2f}, backward {perplexity.backward:.2f})"
    )


def _held_out_perplexity(step: TrainStep, corpus: Corpus) -> Perplexity:
    bilm, head = step.bilm, step.head
    bilm.eval()
    try:
        engine = exact_engine(bilm)
        scorer = Scorer(engine, bilm.config.lstm, head, head.weight.device)
        types = make_text_types(make_encoder(engine, corpus.chars), len(head.bias))
        return evaluate(scorer, types, corpus.tokens("valid"), corpus.documents("valid"))
    finally:
        bilm.train()


def _is_evaluation_due(progress: Progress, config: RunConfig, initial: ModelParts | None) -> bool:
    if progress.step == 0:
        return initial is not None
    phase_ends = (config.optimizer.head_steps, config.max_steps)
    is_due = _is_due(progress.step, config.evaluate_every, *phase_ends)
    return is_due and progress.evaluated_step != progress.step


def _write_metrics(metrics: Metrics | None, values: dict[str, Any]) -> None:
    if metrics is not None:  # only rank 0 has metrics
        metrics.write(values)


def _summarize(
    pending: list[tuple[int, StepResult]],
    learning_rate: float,
    clock: Clock,
    config: RunConfig,
    device: torch.device,
) -> dict[str, Any]:
    """Summarize the steps since the last summary: mean losses, gradient norms and throughput."""
    values = _wait_for(pending)
    step = pending[-1][0]
    summary = {
        "step": step,
        "tokens": step * config.tokens_per_step,
        "sampled_loss_forward": float(values[:, 0].mean()),
        "sampled_loss_backward": float(values[:, 1].mean()),
        "gradient_norm": float(values[:, 2].max()),
        "gradient_norm_median": float(values[:, 2].median()),
        "learning_rate": learning_rate,
        "tokens_per_second": round(clock.tokens_per_second(step)),
    }
    if device.type == "cuda":
        summary["memory_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    return summary


def _wait_for(pending: list[tuple[int, StepResult]]) -> torch.Tensor:
    """Wait for pending steps, and return their losses and gradient norms, shape (steps, 3).

    Raises:
        NotFiniteError: A value is NaN or infinite.
    """
    rows = [torch.stack([r.forward_loss, r.backward_loss, r.gradient_norm]) for _, r in pending]
    values = torch.stack(rows).cpu() if rows else torch.empty(0, 3)
    for (step, _), (forward_loss, backward_loss, norm) in zip(pending, values, strict=True):
        if not torch.isfinite(forward_loss + backward_loss + norm):
            raise NotFiniteError(
                f"Step {step:,} produced the losses {forward_loss:.3g} and {backward_loss:.3g}, "
                f"and a gradient norm of {norm:.3g}. {_RECOVERY_HINT}"
            )
    return values


def _is_due(step: int, every: int, *extra_steps: int) -> bool:
    return step in extra_steps or (every > 0 and step % every == 0)
