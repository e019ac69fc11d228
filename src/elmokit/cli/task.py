"""`elmo task`: train, evaluate and apply task models, with and without ELMo."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from elmokit.cli import options as opt
from elmokit.cli.app import App, Group
from elmokit.cli.output import INTERRUPTED, log, print_json
from elmokit.cli.progress import step_bar
from elmokit.errors import check_choice
from elmokit.progress import no_log, plural
from elmokit.tasks.registry import TASKS, is_task_file

if TYPE_CHECKING:
    from elmokit.tasks.task import Task

# Number of examples that are processed together before their predictions are printed.
_WINDOW = 512

TaskDirectory = Annotated[
    Path, typer.Argument(metavar="DIR", help="Directory written by `elmo task NAME train`.")
]
MovedModel = Annotated[
    str | None,
    typer.Option("--model", help="biLM to load. Required if its path has changed since training."),
]


def train(
    context: typer.Context,
    train: str,
    dev: str,
    test: Annotated[str | None, typer.Argument()] = None,
    *,
    output: opt.Output,
    model: opt.Model = None,
    elmo: Annotated[str | None, typer.Option(metavar="none|input|output|both")] = None,
    static: Annotated[str | None, typer.Option(metavar="NAME|FILE|none")] = None,
    preset: str | None = None,
    settings: opt.Settings = None,
    seed: opt.Seed = 0,
    cache_gb: Annotated[float, typer.Option(min=0, max=10**6)] = 8.0,
    cache_dir: Path | None = None,
    resume: opt.Resume = False,
    device: opt.Device = "auto",
    precision: opt.Precision = "exact",
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """Train a task model, with ELMo or without (--elmo none).

    The biLM is frozen; its layers are computed once and cached. Training stops early if the score
    on DEV no longer improves; the model from the best epoch is saved and evaluated on TEST. At the
    end, the learned layer weights s_j and gamma are printed. Ctrl-C saves a checkpoint and stops.

    Args:
        train: Training data.
        dev: Development data, used to select the best epoch.
        test: Test data, used to evaluate the model from the best epoch.
        output: Output directory.
        elmo: Where to add ELMo. none: nowhere. input: to the input of the task's RNN. output: to
            its output. both: to both. Default: from the preset.
        static: Static word vectors for the task model: glove-6b-50d (pip install
            'elmokit[static]'), a text file in word2vec or GloVe format, or none. Default: from the
            preset.
        preset: Named set of settings, such as paper or quick (see docs/how-to/tasks.md). Default:
            the first preset of the task, which is paper for all built-in tasks.
        cache_gb: Maximum size of the layer cache in GB; 0 recomputes the layers in every epoch.
        cache_dir: Directory for the layer cache. Default: $ELMOKIT_HOME/layers.
    """
    from elmokit.device import choose_device
    from elmokit.embed.layer_cache import GIB, LayerCache
    from elmokit.embed.loading import load
    from elmokit.settings import with_settings
    from elmokit.tasks.config import Place
    from elmokit.tasks.data import load_data
    from elmokit.tasks.loop import train as run_training
    from elmokit.tasks.saved import format_mix

    task = _load_task(context)
    options = {"train.seed": seed, "elmo.place": elmo, "static.source": static}
    with opt.usage_errors():
        if elmo is not None:
            check_choice("--elmo", elmo, get_args(Place))
        config = task.presets[_choose("preset", preset, task.presets)]
        config = with_settings(config, [*opt.as_settings(options), *(settings or [])])
    torch_device = choose_device(device)

    report = no_log if quiet else log
    with step_bar(enabled=not quiet) as progress:
        size = round(cache_gb * GIB)
        cache = LayerCache(cache_dir, max_bytes=size, log=report, progress=progress)
        load_bilm = partial(load, model, None, torch_device, precision, "torch")
        read_data = partial(
            load_data,
            *(task, config, train, dev, test),
            elmo=None if config.elmo.place == "none" else load_bilm,
            model=model,
            cache=cache,
            device=torch_device,
            log=report,
        )
        result = run_training(
            task, config, read_data, output, resume=resume, log=report, progress=progress
        )
    if as_json:
        print_json({"output": str(output), **result.to_dict()})
    if result.interrupted:
        raise typer.Exit(INTERRUPTED)
    log_result = no_log if quiet and as_json else log
    for split, scores in (("dev", result.dev), ("test", result.test)):
        if scores is not None:
            log_result(f"{split}: {_format_scores(scores)} (epoch {result.best_epoch})")
    for place, mix in result.mixes.items():
        log_result(f"mix at the {place}: {format_mix(mix)}")
    log_result(f"Saved the model to {output}.")


def evaluate(
    context: typer.Context,
    directory: TaskDirectory,
    file: str,
    model: MovedModel = None,
    device: opt.Device = "auto",
    as_json: opt.AsJson = False,
) -> None:
    """Evaluate a trained task model on labeled data.

    Args:
        file: Labeled data.
    """
    from elmokit.tasks.data import read_examples, select_scored_examples
    from elmokit.tasks.saved import load_saved

    task = _load_task(context)
    examples = read_examples(task, file)
    saved = load_saved(directory, task, model=model, device=device)
    examples = select_scored_examples(task, examples, saved.config, saved.label_info)
    scores = task.score(examples, saved.predict(examples))
    if as_json:
        print_json({"file": file, "examples": len(examples), **scores})
        return
    counted = scores.pop("examples", len(examples))  # some tasks skip examples
    typer.echo(f"{plural(counted, 'example')}: {_format_scores(scores)}")
    for name, groups in scores.items():  # for example, the scores of each label under "labels"
        if isinstance(groups, dict):
            for group, values in groups.items():
                typer.echo(f"{name.removesuffix('s')} {group}: {_format_scores(values)}")


def predict(
    context: typer.Context,
    directory: TaskDirectory,
    file: str,
    input_format: Annotated[str | None, typer.Option("--input", metavar="FORMAT")] = None,
    model: MovedModel = None,
    device: opt.Device = "auto",
    as_json: opt.LinesAsJson = False,
) -> None:
    """Print the predictions of a trained task model.

    Args:
        file: Input file, or '-' for standard input.
        input_format: Format of FILE: text (raw text) or another format that the task supports,
            such as conll or jsonl. Default: the first format of the task.
    """
    from elmokit.tasks.saved import load_saved
    from elmokit.text.lines import read_lines

    task = _load_task(context)
    input_format = _choose("input format", input_format, task.inputs)
    saved = load_saved(directory, task, model=model, device=device)
    examples = task.parse(read_lines([file]), input_format)
    while window := list(islice(examples, _WINDOW)):
        for example, prediction in zip(window, saved.predict(window), strict=True):
            typer.echo(task.format_prediction(example, prediction, as_json=as_json))


# ---------------------------------------------------------------------------------------- helpers


def _make_commands(title: str) -> App:
    """Return the subcommands of a task. They are registered under the name of the task."""
    group = App(help=title, add_completion=False)
    group.command("train")(train)
    group.command("evaluate")(evaluate)
    group.command("predict")(predict)
    return group


class _Tasks(Group):
    """The subcommands of `elmo task`: built-in tasks, and Python files that define a task."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if is_task_file(cmd_name):
            return typer.main.get_command(_make_commands(f"The task in {cmd_name}."))
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        with opt.usage_errors():
            if self.get_command(ctx, args[0]) is None:
                check_choice("task", args[0], TASKS)
        return super().resolve_command(ctx, args)


app = App(
    cls=_Tasks,
    help="Train, evaluate and apply task models, with and without ELMo.",
    epilog="For a custom task: elmo task my_task.py train ... (see docs/how-to/tasks.md).",
)
for _name, _title in TASKS.items():
    app.add_typer(_make_commands(_title), name=_name)


def _load_task(context: typer.Context) -> Task[Any]:
    from elmokit.tasks.registry import load_task

    assert context.parent is not None
    return load_task(str(context.parent.info_name))


def _choose(kind: str, name: str | None, choices: Iterable[str]) -> str:
    """Validate and return the name of a preset or format. None selects the first choice."""
    names = list(choices)
    if name is not None:
        check_choice(kind, name, names)
    return name or names[0]


def _format_scores(scores: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:.2f}" if isinstance(value, float) else f"{name} {value:,}"
        for name, value in scores.items()
        if isinstance(value, int | float)
    )
