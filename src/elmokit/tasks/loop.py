"""Training a task model: the loop, in one function that can be read from top to bottom.

Every step seeds its random numbers by (seed, step), so a run that is resumed, or that alternates
with others in one process, gives the same result as an uninterrupted run.
"""

from __future__ import annotations

import math
import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from elmokit.errors import ElmoError
from elmokit.progress import LogFn, ProgressFn, no_log
from elmokit.settings import Settings
from elmokit.shutdown import stop_signals
from elmokit.storage.atomic import replace_file
from elmokit.storage.lock import run_lock
from elmokit.tasks import checkpoint, saved
from elmokit.tasks.batches import Batch, Dataset, E, plan
from elmokit.tasks.checkpoint import Position, Run, weights_of
from elmokit.tasks.config import TaskConfig, TrainConfig
from elmokit.tasks.data import Data
from elmokit.tasks.folder import check_data, check_folder
from elmokit.tasks.task import Scores, Task, TaskModel
from elmokit.train.metrics import Metrics


class NotFiniteError(ElmoError):
    """The loss became NaN or infinite."""


class TaskResult(Settings):
    """The results of a run.

    Attributes:
        epochs: Epochs done.
        steps: Steps done.
        best_epoch: The epoch whose weights were saved, counted from 1.
        dev: Its scores on the dev set.
        test: Its scores on the test set, if there is one.
        mixes: s_j and gamma of each place where ELMo is added.
        seconds: Time spent training and evaluating.
        interrupted: Whether a signal stopped the run; it can be resumed.
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
    device: str | torch.device = "cpu",
    log: LogFn = no_log,
    progress: ProgressFn = no_log,
) -> TaskResult:
    """Train a task model and write a task directory.

    Args:
        task: The task.
        config: The settings.
        data: Result of `load_data` for the same device, or a function that returns it, which is
            called after the directory was checked.
        out: The directory to create.
        resume: Continue from the checkpoint; a finished run is not changed.
        device: Device to compute on.
        log: Callback for messages.
        progress: Callback for the number of batches done in an epoch.
    """
    out, device, how = Path(out), torch.device(device), config.train
    devices = [device] if device.type == "cuda" else []
    with run_lock(out), torch.random.fork_rng(devices=devices):
        previous = check_folder(out, task, config, resume=resume)
        data = data() if callable(data) else data
        if previous is not None:
            check_data(out, data, previous)
        if saved.is_task_dir(out):
            log(f"The run in {out} is already finished.")
            return TaskResult.from_dict(saved.read_config(out)["results"])

        torch.manual_seed(how.seed)
        model = task.model(config, data.facts, data.words, data.elmo).to(device)
        identity = {"task": task.name, "config": config.to_dict(), "data": data.digest}
        run = Run(out, identity, model, make_optimizer(model, how), Position(how.learning_rate))
        if (path := checkpoint.newest(out)) is not None:
            run.load(path)
            log(f"Resuming from step {run.position.step:,} in epoch {run.position.epoch + 1}.")
        elif resume:
            log(f"No checkpoint in {out}; starting from the beginning.")

        metrics = Metrics(out, run.position.step)
        with stop_signals() as stopped:
            while not stopped.is_set() and not _is_done(run.position, how):
                if _train_epoch(run, data.train, how, stopped, progress):
                    mean = run.position.loss / run.position.batch
                    scores = evaluate(task, model, data.dev, config)
                    _end_epoch(run, scores[task.metric], how)
                    _log_epoch(run, mean, scores, task.metric, metrics, log)
                if stopped.is_set() or run.unsaved_seconds() >= how.checkpoint_seconds:
                    run.save()
        metrics.close()
        if not _is_done(run.position, how):
            log(f"Stopped at step {run.position.step:,}; continue with --resume.")
            return _result(run, None, None, interrupted=True)

        assert run.best is not None
        model.load_state_dict(run.best)
        if not run.position.best or math.isnan(run.position.best):
            never = "was finite" if run.position.best else "exceeded 0"
            log(
                f"The dev {task.metric} never {never}; using the last epoch. Try more epochs, "
                "more data or another learning rate."
            )
        dev = evaluate(task, model, data.dev, config)
        test = None
        if data.test is not None:
            test = evaluate(task, model, data.test, config, out / saved.TEST)
        result = _result(run, dev, test)
        saved.save(out, task, config, data, run.best, result.to_dict())
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
    predictions = saved.predictions(model, dataset, config)
    if write_to is not None:
        with replace_file(write_to) as path, path.open("w", encoding="utf-8") as file:
            for example, prediction in zip(dataset.examples, predictions, strict=True):
                file.write(task.show(example, prediction, as_json=True) + "\n")
    return task.score(dataset.examples, predictions)


def make_optimizer(model: nn.Module, how: TrainConfig) -> torch.optim.Optimizer:
    """Create the optimizer of the trainable weights."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    kinds: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
        "adadelta": partial(torch.optim.Adadelta, rho=0.95),  # as published for SQuAD and SRL
        "adagrad": torch.optim.Adagrad,
        "sgd": partial(torch.optim.SGD, momentum=0.9),
    }
    make = kinds[how.optimizer]
    return make(parameters, lr=how.learning_rate, weight_decay=how.weight_decay)


# ------------------------------------------------------------------------------------------ parts


def _train_epoch(
    run: Run, data: Dataset[E], how: TrainConfig, stopped: threading.Event, progress: ProgressFn
) -> bool:
    """Continue the current epoch; return whether it was completed."""
    at = run.position
    batches = plan(data.sizes, how.batch_size, how.batch_tokens, seed=(how.seed, at.epoch))
    # Summed on the device: reading the value would synchronize after every step.
    total = torch.tensor(at.loss, dtype=torch.float64, device=data.device)
    run.model.train()
    while at.batch < len(batches) and not stopped.is_set():
        total += _step(run, data.batch(batches[at.batch]), how)
        at.step, at.batch = at.step + 1, at.batch + 1
        progress(f"epoch {at.epoch + 1}", at.batch, len(batches))
        if how.checkpoint_every and at.step % how.checkpoint_every == 0:
            at.loss = _finite(total, at, how)
            run.save()
    at.loss = _finite(total, at, how)
    return at.batch == len(batches)


def _step(run: Run, batch: Batch[E], how: TrainConfig) -> torch.Tensor:
    """Update the weights on one batch; return its loss without the penalty."""
    _seed(how.seed * 1_000_003 + run.position.step + 1, batch.device)
    run.optimizer.zero_grad(set_to_none=True)
    loss = run.model.loss(batch)
    (loss + run.model.elmo.penalty()).backward()  # type: ignore[no-untyped-call]
    if how.clip:
        nn.utils.clip_grad_norm_(run.model.parameters(), how.clip)
    run.optimizer.step()
    return loss.detach()


def _seed(seed: int, device: torch.device) -> None:
    """Seed the random generators for a step.

    `torch.manual_seed` seeds all device types, which takes a millisecond, as long as the kernels
    of a small model.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def _end_epoch(run: Run, score: float, how: TrainConfig) -> None:
    """Record the score of an epoch, keep the best weights, and set the learning rate.

    Epochs with a score of 0 count neither for `patience` nor for `halve_after`.
    """
    at = run.position
    at.epoch, at.batch, at.loss = at.epoch + 1, 0, 0.0
    at.seconds = run.seconds()
    # While all scores are equal, the latest epoch is the best. A score may be NaN, such as a
    # correlation with constant predictions.
    if at.best is None or math.isnan(at.best) or score > at.best or score == at.best == 0:
        at.best, at.best_epoch = score, at.epoch
        at.since_best = at.since_halved = 0
        run.best = weights_of(run.model)
        return
    at.since_best += 1
    at.since_halved += 1
    if how.halve_after and at.since_halved >= how.halve_after:
        at.since_halved = 0
        run.set_rate(at.rate / 2)


def _is_done(at: Position, how: TrainConfig) -> bool:
    return at.epoch >= how.epochs or (how.patience > 0 and at.since_best >= how.patience)


def _finite(total: torch.Tensor, position: Position, how: TrainConfig) -> float:
    """Return the sum of losses; raise an error if it is not finite, so that nothing is saved."""
    if not math.isfinite(loss := float(total)):
        raise NotFiniteError(
            f"The loss became {loss} in epoch {position.epoch + 1}. Restart in another directory "
            f"with a learning rate below {how.learning_rate:g} "
            "(--set train.learning_rate=...)."
        )
    return loss


def _log_epoch(
    run: Run, mean: float, scores: Scores, metric: str, metrics: Metrics, log: LogFn
) -> None:
    """Write and log the metrics of a finished epoch."""
    at = run.position
    values = {"step": at.step, "epoch": at.epoch, "loss": mean, "rate": at.rate}
    rest = {"seconds": round(at.seconds, 1), "dev": scores, "mixes": run.model.elmo.learned()}
    metrics.write({**values, **rest})
    is_best = at.best_epoch == at.epoch
    best = "best so far" if is_best else f"best {at.best:.2f} in epoch {at.best_epoch}"
    log(
        f"epoch {at.epoch}: loss {mean:.4f}, dev {metric} {scores[metric]:.2f} ({best}), "
        f"{at.seconds:.0f} s"
    )


def _result(
    run: Run, dev: Scores | None, test: Scores | None, *, interrupted: bool = False
) -> TaskResult:
    at, mixes = run.position, run.model.elmo.learned()
    seconds = round(at.seconds, 1)
    return TaskResult(at.epoch, at.step, at.best_epoch, dev, test, mixes, seconds, interrupted)
