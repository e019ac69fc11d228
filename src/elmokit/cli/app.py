"""Typer commands whose parameters are documented in docstrings, with plain `--help` output."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

F = TypeVar("F", bound=Callable[..., Any])

# Patterns in the messages of typer and pydantic, and their replacements.
_REPLACEMENTS = (
    (r"^dir (?=')", "directory "),
    (r"^Value error, ", ""),
    (r"^Input should be ((?:greater|less) than .*)$", r"expected a number \1."),
    (r"^Input should be a valid integer.*$", "expected an integer."),
    (r"^Input should be a valid number.*$", "expected a number."),
)
_VALUE_NAMES = {"int": "INTEGER", "float": "FLOAT", "str": "TEXT", "path": "PATH"}


class _Command(TyperCommand):
    """A command whose parameters are described in the `Args` section of its docstring."""

    def __init__(self, name: str | None, *, help: str | None = None, **options: Any) -> None:
        help, _, args = (help or "").partition("\n\nArgs:\n")
        super().__init__(name, help=help, **options)
        descriptions = dict(re.findall(r"^    (\w+): (.+(?:\n     .+)*)", args, re.MULTILINE))
        parameter: Any
        for parameter in self.params:
            description = descriptions.get(parameter.name, "")
            parameter.help = " ".join(f"{parameter.help or ''} {description}".split())
            if parameter.param_type_name == "argument":
                parameter.metavar = parameter.metavar or str(parameter.name).upper()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            for pattern, replacement in _REPLACEMENTS:  # typer passes on messages of pydantic
                error.message = re.sub(pattern, replacement, error.message)
            raise

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            # Library errors name the Python argument. Name the option instead.
            for parameter in self.params:
                if getattr(ctx.get_parameter_source(parameter.name), "name", "") == "COMMANDLINE":
                    name = rf"Invalid value for {parameter.name}(\.\d+)?:"
                    option = f"Invalid value for {parameter.opts[0]}:"
                    error.message = re.sub(name, option, error.message)
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [re.sub(r"[{}]", "", piece) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for title, kind in (("Arguments", "argument"), ("Options", "option")):
            parameters = [p for p in self.get_params(ctx) if p.param_type_name == kind]
            records = filter(None, [p.get_help_record(ctx) for p in parameters])
            if rows := [(_replace_type(names, kind), text) for names, text in records]:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _replace_type(names: str, kind: str) -> str:
    """Replace a Python type such as `<int range>` with `INTEGER`, or remove it for an argument."""
    names, _, python_type = names.removesuffix(">").partition(" <")
    if not python_type or kind == "argument":
        return names
    python_type = python_type.removesuffix(" range").removeprefix("list[").removesuffix("]")
    return f"{names} {_VALUE_NAMES.get(python_type, f'[{python_type}]')}"


class Group(TyperGroup):
    """A command group that lists its subcommands in sections."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the names and summaries of the subcommands."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            title = command.rich_help_panel or "Commands"
            sections.setdefault(title, []).append((name, command.get_short_help_str(limit=200)))
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)


class App(typer.Typer):
    """A Typer application. `options` are passed to `typer.Typer`."""

    def __init__(self, *, cls: type[Group] = Group, **options: Any) -> None:
        # Rich's tables would truncate long options on narrow terminals.
        super().__init__(cls=cls, no_args_is_help=True, rich_markup_mode=None, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[F], F]:
        """Return a decorator that adds a command."""
        return super().command(name, cls=_Command, **options)
