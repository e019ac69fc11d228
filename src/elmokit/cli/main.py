"""The `elmo` command: registers the subcommands and maps errors to exit codes.

Exit codes: 0 success, 1 invalid data or model, 2 usage error, 130 interrupted.
Data goes to stdout, everything else to stderr. Importing this file imports neither torch nor numpy,
so that `elmo --help` is fast; each command imports what it needs when it runs.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import typer
from typer.core import TyperGroup

from elmokit.cli import (
    bench,
    convert,
    doctor,
    embed,
    evaluate,
    finetune,
    index,
    info,
    neighbors,
    package,
    perplexity,
    plot,
    prepare,
    probe,
    score,
    serve,
    substitutes,
    task,
    train,
    warm,
)
from elmokit.cli.signals import interrupt_on_sigterm
from elmokit.errors import DependencyError, ElmoError, ElmoWarning


class _GroupedCommands(TyperGroup):
    """Lists commands by group, with help texts that are not truncated."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        titles = (_EMBED, _TRAIN, _TASKS, _INSPECT, _TOOLS)
        groups: dict[str, list[tuple[str, str]]] = {title: [] for title in titles}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            row = (name, command.get_short_help_str(limit=200))
            groups[command.rich_help_panel].append(row)
        for title, rows in groups.items():
            with formatter.section(title):
                formatter.write_dl(rows)


app = typer.Typer(
    name="elmo",
    cls=_GroupedCommands,
    help="ELMo: word vectors that depend on the whole sentence.",
    epilog="Start with: echo 'I read the book .' | elmo embed - -o vectors.h5",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich tables truncate long options in 80 columns
    context_settings={"help_option_names": ["-h", "--help"]},
)
# Groups of commands, in the order of `elmo --help`.
_EMBED, _TRAIN, _TASKS = "Embed and search", "Train language models", "Train task models"
_INSPECT, _TOOLS = "Look inside", "Models and tools"
app.command("embed", rich_help_panel=_EMBED)(embed.embed)
app.command("index", rich_help_panel=_EMBED)(index.index)
app.command("neighbors", rich_help_panel=_EMBED)(neighbors.neighbors)
app.command("serve", rich_help_panel=_EMBED)(serve.serve)
app.command("prepare", rich_help_panel=_TRAIN)(prepare.prepare)
app.command("train", rich_help_panel=_TRAIN)(train.train)
app.command("finetune", rich_help_panel=_TRAIN)(finetune.finetune)
app.command("evaluate", rich_help_panel=_TRAIN)(evaluate.evaluate)
app.command("warm", rich_help_panel=_TRAIN)(warm.warm)
app.add_typer(task.app, name="task", rich_help_panel=_TASKS)
app.command("score", rich_help_panel=_INSPECT)(score.score)
app.command("perplexity", rich_help_panel=_INSPECT)(perplexity.perplexity)
app.command("substitutes", rich_help_panel=_INSPECT)(substitutes.substitutes)
app.add_typer(probe.app, name="probe", rich_help_panel=_INSPECT)
app.add_typer(plot.app, name="plot", rich_help_panel=_INSPECT)
app.command("info", rich_help_panel=_TOOLS)(info.info)
app.command("convert", rich_help_panel=_TOOLS)(convert.convert)
app.command("package", rich_help_panel=_TOOLS)(package.package)
app.command("doctor", rich_help_panel=_TOOLS)(doctor.doctor)
app.add_typer(bench.app, name="bench", rich_help_panel=_TOOLS)


def _version(value: bool) -> None:
    if value:
        from elmokit import __version__

        typer.echo(f"elmokit {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """ELMo: word vectors that depend on the whole sentence."""


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    typer.echo(f"warning: {message}", err=True)


def run() -> None:
    """Run the command line: the entry point of the package."""
    warnings.simplefilter("always", ElmoWarning)
    warnings.showwarning = _show_warning
    interrupt_on_sigterm()
    try:
        app()
    except ElmoError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        typer.echo(f"error: {DependencyError('torch', None, 'This command')}", err=True)
        sys.exit(1)
    except OSError as error:  # for example, if standard output cannot be written
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)
    except SystemExit as stop:
        # Commands without a message of their own: typer prints nothing, either.
        if isinstance(getattr(stop.__context__, "__cause__", None), KeyboardInterrupt):
            typer.echo("Interrupted.", err=True)
        raise
