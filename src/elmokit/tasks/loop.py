"""The training loop for task models.

Before each step, the random number generators are seeded with a combination of the step number
and the seed of the run. A run that is resumed, or that alternates with other runs in one process,
therefore gives the same results as an uninterrupted run.
"""

from __future__ import annotations

import math
import shutil
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from elmokit.errors import DataError, NotFiniteError
from elmokit.progress import LogFn, ProgressFn, no_log
from elmokit.settings import Settings
from elmokit.shutdown import stop_signals
from elmokit.storage.atomic import replace_file
from elmokit.storage.lock import run_lock
from elmokit.tasks import checkpoint, saved
from elmokit.tasks.batches import Batch, Dataset, E, plan_batches
from elmokit.tasks.checkpoint import Position, Run, copy_weights
from elmokit.tasks.config import TaskConfig
from elmokit.tasks.data import Data
from elmokit.tasks.registry import task_command
from elmokit.tasks.task import Scores, Task, TaskModel
from elmokit.train.metrics import Metrics

_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adadelta": partial(torch.optim.Adadelta, rho=0.95),  # as published for SQuAD and SRL
    "adagrad": torch.optim.Adagrad,
    "sgd": partial(torch.optim.SGD, momentum=0.9),
}


class TaskResult(Settings):
    """The results of a run.

    Attributes:
        epochs: Number of completed epochs.
        steps: Number of completed steps.
        best_epoch: The epoch with the best dev score, counted from 1.
        dev: The scores of the best epoch on the dev set.
        test: The scores of the best epoch on the test set, if there is a test set.
        mixes: The weights s_j and gamma for each place where ELMo is added.
        seconds: Time spent training and evaluating.
        interrupted: Whether a signal stopped the run. Such a run can be resumed.
    """

    epochs: int
    steps: int
    best_epoch: int
    dev: Scores | None
    test: Scores | None
    mixes: dict[str, Any]
    seconds: float
    interrupted: bool = False


def train(
    task: Task[E],
    config: TaskConfig,
    data: Data[E] | Callable[[], Data[E]],
    out: Path,
    *,
    resume: bool = False,
    log: LogFn = no_log,
    progress: ProgressFn = no_log,
) -> TaskResult:
    """Train a task model and write a task directory.

    Args:
        task: The task.
        config: The settings.
        data: The result of `load_data`, or a function that returns it. The function is called after
            the directory has been checked. The model is trained on the device of the data.
        out: The directory to create.
        resume: Whether to continue from the newest checkpoint. A finished run is not changed.
        log: Callback for messages.
        progress: Callback for the number of completed batches in the current epoch.
    """
    out, settings = Path(out), config.train
    with run_lock(out), ExitStack() as stack:
        previous = saved.check_folder(out, task, config, resume=resume)
        data = data() if callable(data) else data
        if previous is not None and previous["data"] != data.digest:
            raise DataError(
                f"The run in {out} was started with different data: the files, the word vectors or "
                "the biLM have changed. Restore them, or start a new run in another directory. To "
                "score a finished run on another file, use: "
                f"{task_command(task.name)} evaluate {out} FILE"
            )
        if saved.is_task_dir(out):
            log(f"The run in {out} is already finished.")
            return TaskResult.from_dict(saved.read_config(out)["results"])

        device = data.train.device
        devices = [device] if device.type == "cuda" else []
        stack.enter_context(torch.random.fork_rng(devices=devices))
        torch.manual_seed(settings.seed)
        model = type(task).network(config, data.label_info, data.words, data.bilm).to(device)
        optimizer = _OPTIMIZERS[settings.optimizer](
            [parameter for parameter in model.parameters() if parameter.requires_grad],
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
        )
        identity = {"task": task.name, "config": config.to_dict(), "data": data.digest}
        run = Run(out, identity, model, optimizer, settings, Position(settings.learning_rate))
        if (path := checkpoint.newest(out)) is not None:
            run.load(path)
            log(f"Resuming from step {run.position.step:,} in epoch {run.position.epoch + 1}.")
        elif resume:
            log(f"No checkpoint in {out}; starting from the beginning.")

        metrics = Metrics(out, run.position.step)
        with stop_signals() as stop:
            while not stop.is_set() and not _is_finished(run):
                if _train_epoch(run, data.train, stop, progress):
                    scores = evaluate(task, model, data.dev, config)
                    _end_epoch(run, scores, task.metric, metrics, log)
                if stop.is_set() or run.unsaved_seconds() >= settings.checkpoint_seconds:
                    run.save()
        metrics.close()
        if not _is_finished(run):
            log(f"Stopped at step {run.position.step:,}. Resume training with --resume.")
            return _make_result(run, None, None, interrupted=True)

        assert run.best_weights is not None
        model.load_state_dict(run.best_weights)
        if not run.position.best or math.isnan(run.position.best):
            problem = "was never finite" if run.position.best else "never exceeded 0"
            log(
                f"The dev {task.metric} {problem}, so the last epoch is used. Try more epochs, "
                "more data or a different learning rate."
            )
        dev = evaluate(task, model, data.dev, config)
        test = None
        if data.test is not None:
            test = evaluate(task, model, data.test, config, out / saved.TEST)
        result = _make_result(run, dev, test)
        saved.save(run, task, config, data, result.to_dict())
        shutil.rmtree(out / checkpoint.FOLDER, ignore_errors=True)
        return result


def evaluate(
    task: Task[E],
    model: TaskModel[E],
    dataset: Dataset[E],
    config: TaskConfig,
    write_to: Path | None = None,
) -> Scores:
    """Score a model on a dataset, and optionally write its predictions."""
    predictions = saved.predict(model, dataset, config)
    if write_to is not None:
        with replace_file(write_to) as path, path.open("w", encoding="utf-8") as file:
            for example, prediction in zip(dataset.examples, predictions, strict=True):
                file.write(task.format_prediction(example, prediction, as_json=True) + "\n")
    return task.score(dataset.examples, predictions)


# ---------------------------------------------------------------------------------------- helpers


def _train_epoch(run: Run, data: Dataset[E], stop: threading.Event, progress: ProgressFn) -> bool:
    """Train until the epoch ends or a signal arrives. Return whether the epoch is complete."""
    position, settings = run.position, run.settings
    seed = (settings.seed, position.epoch)
    batches = plan_batches(data.sizes, settings.batch_size, settings.batch_tokens, seed=seed)
    # Summed on the device, because reading each loss would synchronize the device.
    total = torch.tensor(position.loss, dtype=torch.float64, device=data.device)
    run.model.train()
    while position.batch < len(batches) and not stop.is_set():
        total += _train_step(run, data.batch(batches[position.batch]))
        position.step, position.batch = position.step + 1, position.batch + 1
        progress(f"epoch {position.epoch + 1}", position.batch, len(batches))
        if settings.checkpoint_every and position.step % settings.checkpoint_every == 0:
            position.loss = _check_finite(total, run)
            run.save()
    position.loss = _check_finite(total, run)
    return position.batch == len(batches)


def _train_step(run: Run, batch: Batch[E]) -> torch.Tensor:
    """Update the weights with one batch. Return its loss without the penalty."""
    _set_seed(run.settings.seed * 1_000_003 + run.position.step + 1, batch.device)
    run.optimizer.zero_grad(set_to_none=True)
    loss = run.model.loss(batch)
    (loss + run.model.elmo.penalty()).backward()  # type: ignore[no-untyped-call]
    if run.settings.clip:
        nn.utils.clip_grad_norm_(run.model.parameters(), run.settings.clip)
    run.optimizer.step()
    return loss.detach()


def _set_seed(seed: int, device: torch.device) -> None:
    """Seed the random number generators for a step.

    `torch.manual_seed` is not used, because it seeds all device types, which takes a millisecond,
    as long as a training step of a small model.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def _check_finite(total: torch.Tensor, run: Run) -> float:
    """Return the sum of the losses as a number, or raise an error if it is not finite."""
    if not math.isfinite(loss := float(total)):
        raise NotFiniteError(
            f"The loss became {loss} in epoch {run.position.epoch + 1}. Start a new run in another "
            f"directory with a learning rate below {run.settings.learning_rate:g} "
            "(--set train.learning_rate=...)."
        )
    return loss


def _end_epoch(run: Run, scores: Scores, metric: str, metrics: Metrics, log: LogFn) -> None:
    """Store the best weights, set the learning rate, and report the scores of an epoch.

    Epochs before the first nonzero score do not count toward `patience` and `halve_after`.
    """
    position, score = run.position, scores[metric]
    loss = position.loss / position.batch
    position.epoch, position.batch, position.loss = position.epoch + 1, 0, 0.0
    best, seconds = position.best, run.seconds()
    # While all scores are 0, the latest epoch counts as the best. A score can be NaN, for example
    # a correlation if all predictions are equal.
    if best is None or math.isnan(best) or score > best or score == best == 0:
        position.best, position.best_epoch = score, position.epoch
        run.best_weights = copy_weights(run.model)
        comparison = "best so far"
    else:
        halve_after = run.settings.halve_after
        if halve_after and (position.epoch - position.best_epoch) % halve_after == 0:
            run.set_learning_rate(position.rate / 2)
        comparison = f"best {best:.2f} in epoch {position.best_epoch}"
    values = {"step": position.step, "epoch": position.epoch, "loss": loss, "rate": position.rate}
    mixes = run.model.elmo.learned_weights()
    metrics.write({**values, "seconds": round(seconds, 1), "dev": scores, "mixes": mixes})
    log(
        f"epoch {position.epoch}: loss {loss:.4f}, dev {metric} {score:.2f} ({comparison}), "
        f"{seconds:.0f} s"
    )


def _is_finished(run: Run) -> bool:
    position, settings = run.position, run.settings
    epochs_since_best = position.epoch - position.best_epoch
    return position.epoch >= settings.epochs or 0 < settings.patience <= epochs_since_best


def _make_result(
    run: Run, dev: Scores | None, test: Scores | None, *, interrupted: bool = False
) -> TaskResult:
    counts = run.position.epoch, run.position.step, run.position.best_epoch
    mixes, seconds = run.model.elmo.learned_weights(), round(run.seconds(), 1)
    return TaskResult(*counts, dev, test, mixes, seconds, interrupted)
