"""Commands with complete help: parameters described in docstrings, value names, full summaries."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

F = TypeVar("F", bound=Callable[..., Any])

_VALUE_NAMES = {"int": "INTEGER", "float": "FLOAT", "str": "TEXT", "path": "PATH"}


class _Command(TyperCommand):
    """A command whose parameters are described in the `Args` section of its docstring."""

    def __init__(self, name: str | None, *, help: str | None = None, **options: Any) -> None:
        help, _, described = (help or "").partition("\n\nArgs:\n")
        super().__init__(name, help=help, **options)
        descriptions = dict(re.findall(r"^    (\w+): (.+(?:\n     .+)*)", described, re.MULTILINE))
        parameter: Any
        for parameter in self.params:
            own = descriptions.get(parameter.name, "").split()
            parameter.help = " ".join([*(parameter.help or "").split(), *own])
            if parameter.param_type_name == "argument":
                parameter.metavar = parameter.metavar or str(parameter.name).upper()

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [re.sub(r"[{}]", "", piece) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for title, kind in (("Arguments", "argument"), ("Options", "option")):
            parameters = [p for p in self.get_params(ctx) if p.param_type_name == kind]
            records = filter(None, [p.get_help_record(ctx) for p in parameters])
            if rows := [(_readable(names, kind), text) for names, text in records]:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _readable(names: str, kind: str) -> str:
    """Replace the Python type behind the names of a parameter, for example `<int range>`."""
    names, _, python_type = names.removesuffix(">").partition(" <")
    if not python_type or kind == "argument":
        return names
    python_type = python_type.removesuffix(" range").removeprefix("list[").removesuffix("]")
    return f"{names} {_VALUE_NAMES.get(python_type, f'[{python_type}]')}"


class Group(TyperGroup):
    """Lists commands by the panels they belong to."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the names and summaries of all commands."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            title = command.rich_help_panel or "Commands"
            panels.setdefault(title, []).append((name, command.get_short_help_str(limit=200)))
        for title, rows in panels.items():
            with formatter.section(title):
                formatter.write_dl(rows)


class App(typer.Typer):
    """A group of commands; `options` are those of `typer.Typer`."""

    def __init__(self, *, cls: type[Group] = Group, **options: Any) -> None:
        # Tables of rich truncate long options in 80 columns.
        super().__init__(cls=cls, no_args_is_help=True, rich_markup_mode=None, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[F], F]:
        """Return a decorator that adds a command."""
        return super().command(name, cls=_Command, **options)
