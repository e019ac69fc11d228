"""Training: the loop, in one function that can be read from top to bottom."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from elmokit.data.corpus import Corpus
from elmokit.data.streams import Streams
from elmokit.errors import ConfigError, DataError, ElmoError
from elmokit.model.bilm import BiLM
from elmokit.model.softmax import LMHead
from elmokit.sources import modeldir
from elmokit.train import checkpoint
from elmokit.train.batches import columns_of
from elmokit.train.checkpoint import Progress
from elmokit.train.config import RunConfig
from elmokit.train.evaluate import Perplexity, encoder_of, evaluate
from elmokit.train.metrics import Metrics
from elmokit.train.prefetch import Prefetch
from elmokit.train.step import PlainStep, StepResult
from elmokit.train.warm import warm_state

MODEL = "model"

Tell = Callable[[str], None]


class NotFiniteError(ElmoError):
    """The loss or the gradient became NaN or infinite."""


@dataclass(frozen=True)
class TrainResult:
    """How a run ended.

    Attributes:
        steps: Steps done.
        tokens: Tokens read.
        perplexity: The last held-out evaluation, if there is held-out text.
        interrupted: Whether a signal stopped the run; it can be resumed.
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
    tell: Tell = lambda _: None,
    tensorboard: bool = False,
    deterministic: bool = False,
) -> TrainResult:
    """Train a biLM.

    Args:
        config: Everything that decides the run.
        corpus: The prepared text; its "valid" part, if any, is evaluated on.
        out: The run's folder: checkpoints, metrics and, at the end, `model/`.
        resume: Go on from the newest checkpoint there.
        device: Where to compute; on CUDA the fast step is used.
        tell: Called with lines for the user.
        tensorboard: Log to TensorBoard, too.
        deterministic: On a GPU, sum in a fixed order, so that two runs give the same bits; slower.
    """
    device = torch.device(device)
    out.mkdir(parents=True, exist_ok=True)
    if deterministic and device.type == "cuda":
        torch.use_deterministic_algorithms(True)
    step = make_step(config, corpus, device, graphs=not deterministic)
    streams = Streams(
        corpus.tokens(),
        corpus.documents(),
        rows=config.step.rows,
        steps=config.step.steps,
        seed=config.seed,
        restart=config.restart,
    )
    progress = _begin(config, corpus, out, step, resume=resume, tell=tell)
    if progress.position:
        streams.go_to(progress.position)
    metrics = Metrics(out, progress.step, tensorboard=tensorboard)
    columns = columns_of(corpus.chars, step.bilm.encoder.config.max_width)
    batches = Prefetch(streams, columns, corpus.n_words)
    identity = {"run": config.to_dict(), "corpus": corpus.fingerprint}
    clock = _Clock(config, progress.step)
    pending: list[tuple[int, StepResult]] = []
    found: Perplexity | None = None
    try:
        with _signals() as stopped:
            while progress.step < config.max_steps and not stopped.is_set():
                batch, position = next(batches)
                rate = config.optimizer.rate(progress.step, config.max_steps)
                pending.append((progress.step + 1, step(batch, progress.step, rate)))
                progress.step, progress.position = progress.step + 1, position
                if _due(progress.step, config.log_every, config.max_steps):
                    metrics.write(_line(pending, rate, clock, config, device))
                    tell(clock.told(progress.step, pending))
                    pending = []
                if _due(progress.step, config.evaluate_every, config.max_steps):
                    found = _evaluate(step, corpus, progress, metrics, config, tell) or found
                if _due(progress.step, config.checkpoint_every, config.max_steps):
                    _save(out, step, progress, identity, config)
                if config.patience and progress.evaluations_since_best >= config.patience:
                    tell(f"No better perplexity in {config.patience} evaluations: stopping early.")
                    break
        if stopped.is_set():
            _save(out, step, progress, identity, config)
            tell(f"Stopped at step {progress.step:,}; the run goes on with --resume.")
    finally:
        batches.close()
        metrics.close()
    if not stopped.is_set():
        export(step.bilm, step.head, corpus, config, out / MODEL, progress, found)
    return TrainResult(
        steps=progress.step,
        tokens=progress.step * config.tokens_per_step,
        perplexity=found,
        interrupted=stopped.is_set(),
        model=out / MODEL,
    )


def make_step(
    config: RunConfig, corpus: Corpus, device: torch.device, *, graphs: bool = True
) -> Any:
    """Make the model and the step that fits the device; the seed decides the initial weights."""
    if config.model.char_cnn is None:
        raise ConfigError("Training needs a model that reads characters (char_cnn).")
    if config.model.char_cnn.max_characters_per_token != corpus.max_characters:
        raise ConfigError(
            f"The model reads {config.model.char_cnn.max_characters_per_token} characters a token "
            f"and the corpus was prepared with {corpus.max_characters}. Set char_cnn."
            "max_characters_per_token, or prepare again with --max-characters."
        )
    generator_state = torch.get_rng_state()
    torch.manual_seed(config.seed)
    bilm = BiLM(config.model)
    head = LMHead(corpus.n_words, config.model.lstm.projection_dim)
    torch.set_rng_state(generator_state)
    torch.manual_seed(config.seed + 1)  # of dropout in the plain step
    bilm, head = bilm.to(device), head.to(device)
    if device.type == "cuda" and config.model.lstm.has_projection:
        from elmokit.train.fast import FastStep

        return FastStep(bilm, head, corpus.chars, config.step, config.optimizer, graphs=graphs)
    return PlainStep(bilm, head, corpus.chars, config.step, config.optimizer)


def export(
    bilm: BiLM,
    head: LMHead,
    corpus: Corpus,
    config: RunConfig,
    path: Path,
    progress: Progress,
    found: Perplexity | None,
) -> None:
    """Write the complete model directory."""
    warm = warm_state(bilm, encoder_of(bilm, corpus.chars), corpus.tokens())
    metadata = {
        "name": path.parent.name,
        "training": {
            "steps": progress.step,
            "tokens": progress.step * config.tokens_per_step,
            "corpus_tokens": len(corpus.tokens()),
            "vocabulary": corpus.n_words,
            "perplexity": None if found is None else found.to_dict(),
        },
    }
    parts = modeldir.ModelParts(
        bilm.eval(), vocabulary=corpus.vocabulary, head=head, warm=warm, metadata=metadata
    )
    modeldir.save(parts, path, overwrite=True)


# ------------------------------------------------------------------------------------------ parts


def _begin(
    config: RunConfig, corpus: Corpus, out: Path, step: Any, *, resume: bool, tell: Tell
) -> Progress:
    """Start anew or go on; a changed corpus or model is refused."""
    newest = checkpoint.newest(out)
    if newest is None:
        if resume:
            tell(f"Nothing to resume in {out}: starting anew.")
        return Progress(step=0, position={})
    if not resume:
        raise ConfigError(
            f"{out} already holds a run ({newest.name}). Go on with --resume, or choose another "
            "folder."
        )
    progress, identity = checkpoint.load(newest, step)
    if identity["corpus"] != corpus.fingerprint:
        raise DataError(
            f"The run in {out} was trained on another corpus than {corpus.path}. Give the same "
            "prepared folder, or start a new run."
        )
    before = RunConfig.from_dict(identity["run"])
    free = ("max_steps", "log_every", "evaluate_every", "checkpoint_every", "keep", "patience")
    now, then = config.to_dict(), before.to_dict()
    changed = [key for key in now if key not in free and now[key] != then[key]]
    if changed:
        raise ConfigError(
            f"The run in {out} was started with other settings: {', '.join(changed)} differ. "
            "Give the same ones, or start a new run."
        )
    if progress.capacity is not None and hasattr(step, "set_capacity"):
        step.set_capacity({int(k): v for k, v in progress.capacity.items()})
    tell(f"Going on from step {progress.step:,}.")
    return progress


def _save(
    out: Path, step: Any, progress: Progress, identity: dict[str, Any], config: RunConfig
) -> None:
    capacity = getattr(step, "capacity", None)
    progress.capacity = None if capacity is None else {str(k): v for k, v in capacity.items()}
    checkpoint.save(out, step, progress, identity, keep=config.keep)


def _evaluate(
    step: Any,
    corpus: Corpus,
    progress: Progress,
    metrics: Metrics,
    config: RunConfig,
    tell: Tell,
) -> Perplexity | None:
    if "valid" not in corpus.splits:
        return None
    found = evaluate(
        step.bilm,
        step.head,
        encoder_of(step.bilm, corpus.chars),
        corpus.tokens("valid"),
        corpus.documents("valid"),
    )
    progress.evaluations_since_best += 1
    if progress.best is None or found.mean < progress.best:
        progress.best, progress.best_step = found.mean, progress.step
        progress.evaluations_since_best = 0
    tokens = progress.step * config.tokens_per_step
    values = {f"valid_{k}": v for k, v in found.to_dict().items()}
    metrics.write({"step": progress.step, "tokens": tokens, **values})
    tell(
        f"step {progress.step:,}: held-out perplexity {found.mean:.2f} "
        f"(forward {found.forward:.2f}, backward {found.backward:.2f})"
    )
    return found


def _line(
    pending: list[tuple[int, StepResult]],
    rate: float,
    clock: _Clock,
    config: RunConfig,
    device: torch.device,
) -> dict[str, Any]:
    """Turn the steps since the last line into numbers; the first wait for the device is here."""
    values = torch.stack(
        [torch.stack([r.forward_loss, r.backward_loss, r.gradient_norm]) for _, r in pending]
    ).cpu()
    for (number, _), row in zip(pending, values, strict=True):
        if not torch.isfinite(row).all():
            raise NotFiniteError(
                f"Step {number:,} gave loss {row[0]:.3g} / {row[1]:.3g} and gradient norm "
                f"{row[2]:.3g}; the weights were not changed by it. Go on from the last checkpoint "
                "with --resume and a lower learning rate (--set optimizer.learning_rate=...)."
            )
    last = pending[-1][0]
    line = {
        "step": last,
        "tokens": last * config.tokens_per_step,
        "sampled_loss_forward": float(values[:, 0].mean()),
        "sampled_loss_backward": float(values[:, 1].mean()),
        "gradient_norm": float(values[:, 2].max()),
        "learning_rate": rate,
        "tokens_per_second": round(clock.rate(last)),
    }
    if device.type == "cuda":
        line["memory_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    return line


class _Clock:
    """Tokens per second since the last look, and the time left."""

    def __init__(self, config: RunConfig, step: int) -> None:
        self._config = config
        self._first, self._begin = step, time.perf_counter()
        self._last, self._then = step, self._begin
        self._now = 0.0

    def rate(self, step: int) -> float:
        now = time.perf_counter()
        done = (step - self._last) * self._config.tokens_per_step
        self._now = done / max(1e-9, now - self._then)
        self._last, self._then = step, now
        return self._now

    def told(self, step: int, pending: list[tuple[int, StepResult]]) -> str:
        elapsed = time.perf_counter() - self._begin
        left = elapsed / max(1, step - self._first) * (self._config.max_steps - step)
        result = pending[-1][1]
        return (
            f"step {step:,}/{self._config.max_steps:,}  sampled loss "
            f"{float(result.forward_loss):.3f} / {float(result.backward_loss):.3f}  "
            f"{self._now:,.0f} tokens/s  {left / 60:.1f} min left"
        )


def _due(step: int, every: int, last: int) -> bool:
    return step == last or (every > 0 and step % every == 0)


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """Turn SIGINT and SIGTERM into an event, so that a run saves before it stops."""
    stopped = threading.Event()

    def handle(_: int, __: FrameType | None) -> None:
        stopped.set()

    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    before = {s: signal.signal(s, handle) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
