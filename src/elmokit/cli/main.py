"""The `elmo` command: registers the subcommands and maps errors to exit codes.

Exit codes: 0 success, 1 invalid data or model, 2 usage error, 130 interrupted.
Data goes to stdout, everything else to stderr. Importing this file imports neither torch nor numpy,
so that `elmo --help` is fast; each command imports what it needs when it runs.
"""

from __future__ import annotations

import signal
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
from elmokit.cli.output import log
from elmokit.errors import DependencyError, ElmoError, ElmoWarning

#: Groups of commands in the order of `elmo --help`. Each command is the function of its module's
#: name, or the module's `app` if it has subcommands.
_GROUPS = {
    "Embed and search": (embed, index, neighbors, serve),
    "Train language models": (prepare, train, finetune, evaluate, warm),
    "Train task models": (task,),
    "Analyze models": (score, perplexity, substitutes, probe, plot),
    "Models and tools": (info, convert, package, doctor, bench),
}


class _GroupedCommands(TyperGroup):
    """Lists commands by group, with help texts that are not truncated."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows: dict[str, list[tuple[str, str]]] = {title: [] for title in _GROUPS}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            row = (name, command.get_short_help_str(limit=200))
            rows[command.rich_help_panel].append(row)
        for title in _GROUPS:
            with formatter.section(title):
                formatter.write_dl(rows[title])


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
for _title, _modules in _GROUPS.items():
    for _module in _modules:
        _name = _module.__name__.rpartition(".")[2]
        if hasattr(_module, "app"):
            app.add_typer(_module.app, name=_name, rich_help_panel=_title)
        else:
            app.command(_name, rich_help_panel=_title)(getattr(_module, _name))


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
    log(f"warning: {message}")


def run() -> None:
    """Run the command line: the entry point of the package."""
    warnings.simplefilter("always", ElmoWarning)
    warnings.showwarning = _show_warning
    # `kill` and job schedulers send SIGTERM: interrupt the command, as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app()
    except (ElmoError, OSError) as error:  # OSError: standard output cannot be written
        log(f"error: {error}")
        sys.exit(1)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        log(f"error: {DependencyError('torch', None, 'This command')}")
        sys.exit(1)
    except SystemExit as stop:
        # typer prints nothing when a command is interrupted.
        if isinstance(getattr(stop.__context__, "__cause__", None), KeyboardInterrupt):
            log("Interrupted.")
        raise
