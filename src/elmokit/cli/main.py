"""The `elmo` command: registers the subcommands and maps errors to exit codes.

Exit codes: 0 success, 1 invalid data or model, 2 usage error, 130 interrupted.
Data goes to stdout, everything else to stderr. Importing this file imports neither torch nor numpy,
so that `elmo --help` is fast; each command imports what it needs when it runs.
"""

from __future__ import annotations

import importlib
import re
import signal
import sys
import warnings
from typing import Annotated, Any

import typer

from elmokit.cli.app import App, Group
from elmokit.cli.output import INTERRUPTED, log
from elmokit.errors import ElmoError, ElmoWarning, optional_imports

#: Command modules by section of `elmo --help`. A module contains a function of the same name or, if
#: the command has subcommands, an `app`.
_SECTIONS = {
    "Embed and search": ("embed", "index", "neighbors", "serve"),
    "Train language models": ("prepare", "train", "finetune", "warm"),
    "Train task models": ("task",),
    "Analyze models": ("perplexity", "score", "substitutes", "probe", "plot"),
    "Models and tools": ("info", "convert", "package", "doctor", "bench"),
}


class _RootGroup(Group):
    def list_commands(self, ctx: Any) -> list[str]:
        return [name for names in _SECTIONS.values() for name in names]


app = App(
    name="elmo",
    cls=_RootGroup,
    help="ELMo: word vectors that depend on the whole sentence.",
    epilog="To get started: echo 'I read the book .' | elmo embed - -o vectors.h5",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _title, _names in _SECTIONS.items():
    for _name in _names:
        _module = importlib.import_module(f"elmokit.cli.{_name}")
        if hasattr(_module, "app"):
            app.add_typer(_module.app, name=_name, rich_help_panel=_title)
        else:
            app.command(_name, rich_help_panel=_title)(getattr(_module, _name))


def _print_version(is_set: bool) -> None:
    if is_set:
        from elmokit import __version__

        typer.echo(f"elmokit {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """ELMo: word vectors that depend on the whole sentence."""


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    log(f"Warning: {message}")


def run() -> None:
    """Run the `elmo` command and exit with its exit code."""
    warnings.simplefilter("always", ElmoWarning)
    warnings.showwarning = _show_warning
    # Treat SIGTERM, which `kill` and job schedulers send, in the same way as Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with optional_imports(None, "This command"):
            app()
    except (ElmoError, OSError) as error:  # OSError: cannot write to standard output
        log(f"Error: {error}")
        sys.exit(1)
    except UnicodeEncodeError as error:
        log(
            f"Error: Cannot print {error.object[error.start]!a} in the encoding {error.encoding}. "
            "Set the environment variable PYTHONIOENCODING=utf-8:surrogateescape."
        )
        sys.exit(1)
    except (MemoryError, RuntimeError) as error:  # raised by NumPy and torch
        reason = str(error).partition("\n")[0]
        if isinstance(error, RuntimeError) and not re.search("(allocate|out of) memory", reason):
            raise
        log(f"Error: Not enough memory: {reason.rstrip('.') or 'an allocation failed'}.")
        sys.exit(1)
    except KeyboardInterrupt:  # outside of typer
        log("Interrupted.")
        sys.exit(INTERRUPTED)
    except SystemExit as exit_:
        # typer prints nothing when a command is interrupted.
        if isinstance(getattr(exit_.__context__, "__cause__", None), KeyboardInterrupt):
            log("Interrupted.")
        raise
