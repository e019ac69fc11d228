"""The `elmo` command: registers the subcommands and turns errors into exit codes.

Exit codes: 0 done, 1 bad data or model (the message says which), 2 wrong usage, 130 interrupted.
Data goes to stdout, everything else to stderr. Importing this file imports neither torch nor numpy,
so that `elmo --help` answers at once; each command imports what it needs when it runs.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import typer

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

app = typer.Typer(
    name="elmo",
    help="ELMo: word vectors that depend on the whole sentence.",
    epilog="Start with: echo 'I read the book .' | elmo embed - -o vectors.h5",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("embed")(embed.embed)
app.command("prepare")(prepare.prepare)
app.command("train")(train.train)
app.command("finetune")(finetune.finetune)
app.command("evaluate")(evaluate.evaluate)
app.command("perplexity")(perplexity.perplexity)
app.command("score")(score.score)
app.command("substitutes")(substitutes.substitutes)
app.command("index")(index.index)
app.command("neighbors")(neighbors.neighbors)
app.command("warm")(warm.warm)
app.command("serve")(serve.serve)
app.command("info")(info.info)
app.command("convert")(convert.convert)
app.command("package")(package.package)
app.command("doctor")(doctor.doctor)
app.add_typer(plot.app, name="plot")
app.add_typer(probe.app, name="probe")
app.add_typer(task.app, name="task")
app.add_typer(bench.app, name="bench")


def _version(value: bool) -> None:
    if value:
        from elmokit import __version__

        typer.echo(f"elmokit {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and stop."
    ),
) -> None:
    """ELMo: word vectors that depend on the whole sentence."""


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    typer.echo(f"warning: {message}", err=True)


def run() -> None:
    """Run the command line; the entry point of the package."""
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
    except OSError as error:  # what is left of them: standard output that cannot be written
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)
    except SystemExit as stop:
        # A command that has nothing to say of its interruption: typer says nothing either.
        if isinstance(getattr(stop.__context__, "__cause__", None), KeyboardInterrupt):
            typer.echo("interrupted", err=True)
        raise
