"""Generate the command reference from the help texts when the site is built.

In a page, the line `<!-- commands -->` is replaced by the result of `reference()`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import typer

MARKER = "<!-- commands -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Insert the command reference (MkDocs event)."""
    return markdown.replace(MARKER, reference()) if MARKER in markdown else markdown


def reference() -> str:
    """Return all commands with their arguments and options in Markdown."""
    from elmokit.cli.main import app

    group: Any = typer.main.get_command(app)
    parts = ["| Command | Description |\n|---|---|\n" + "\n".join(_contents(group))]
    for name, command in group.commands.items():
        parts += _section(f"elmo {name}", command, level=2)
    return "\n\n".join(parts)


def _contents(group: Any) -> Iterator[str]:
    for name, command in group.commands.items():
        first = _paragraphs(command.help)[0]
        yield f"| [`elmo {name}`](#elmo-{name}) | {_cell(first)} |"


def _section(path: str, command: Any, level: int) -> Iterator[str]:
    yield f"{'#' * level} elmo {path.removeprefix('elmo ')}"
    yield from _paragraphs(command.help)
    if not hasattr(command, "commands"):
        yield _usage(path, command)
        yield from _tables(command)
        if command.epilog:
            yield _text(command.epilog)
        return
    commands = command.commands
    if path == "elmo task":
        # All tasks have the same three commands.
        rows = [f"| `{name}` | {_cell(task.help)} |" for name, task in commands.items()]
        yield "| NAME | Task |\n|---|---|\n" + "\n".join(rows)
        path, commands = "elmo task NAME", next(iter(commands.values())).commands
    if command.epilog:
        yield _text(command.epilog)
    for name, subcommand in commands.items():
        yield from _section(f"{path} {name}", subcommand, level + 1)


def _usage(path: str, command: Any) -> str:
    words = [path]
    for parameter in _shown(command):
        if _is_argument(parameter):
            name = _metavar(parameter).removesuffix("...")
            name += "..." if parameter.nargs == -1 else ""
            words.append(name if parameter.required else f"[{name}]")
        elif parameter.required:
            words.append(f"{parameter.opts[0]} {_metavar(parameter)}")
    return f"```text\n{' '.join(words)} [OPTIONS]\n```"


def _tables(command: Any) -> Iterator[str]:
    shown = list(_shown(command))
    for title, kind in (("Argument", True), ("Option", False)):
        rows = [_row(parameter) for parameter in shown if _is_argument(parameter) is kind]
        if rows:
            yield f"| {title} | Description |\n|---|---|\n" + "\n".join(rows)


def _row(parameter: Any) -> str:
    if _is_argument(parameter):
        name = f"`{_metavar(parameter)}`"
    else:
        # Long names first, then short names, then the option that disables a flag.
        names = sorted(parameter.opts, key=lambda option: not option.startswith("--"))
        names += parameter.secondary_opts
        value = "" if parameter.is_flag else f" {_metavar(parameter)}"
        name = ", ".join(f"`{option}{value if i == 0 else ''}`" for i, option in enumerate(names))
    description = _text(parameter.help or "")
    notes = []
    if parameter.required:
        notes.append("required")
    elif (default := _default(parameter)) is not None:
        notes.append(f"default `{default}`")
    if parameter.envvar:
        notes.append(f"can also be set with the environment variable `{parameter.envvar}`")
    return f"| {name.replace('|', chr(92) + '|')} | {_cell(description)}{_notes(notes)} |"


def _notes(notes: list[str]) -> str:
    return f" *({', '.join(notes)})*" if notes else ""


def _default(parameter: Any) -> str | None:
    value = parameter.default
    if callable(value) or value in (None, False, (), [], "") or not parameter.show_default:
        return None
    if parameter.is_flag and not parameter.secondary_opts:
        return None
    if parameter.is_flag:
        return str(parameter.opts[0])
    return str(value)


def _metavar(parameter: Any) -> str:
    if parameter.metavar:
        return str(parameter.metavar)
    if choices := _choices(parameter):
        return "|".join(choices)
    return (
        str(parameter.name).upper().replace("_", "-")
        if _is_argument(parameter)
        else _kind(parameter)
    )


def _choices(parameter: Any) -> list[str]:
    kind = _annotation(parameter)
    if get_origin(kind) is Literal:
        return [str(choice) for choice in get_args(kind)]
    return [str(choice) for choice in getattr(getattr(parameter, "type", None), "choices", ())]


def _kind(parameter: Any) -> str:
    kind = _annotation(parameter)
    if kind is None:  # older versions of typer
        return str(parameter.type.name).upper()
    inner = getattr(kind, "__args__", None)
    names = {int: "INTEGER", float: "FLOAT", str: "TEXT"}
    return names.get(inner[0] if inner else kind, "PATH")


def _annotation(parameter: Any) -> Any:
    described = getattr(parameter, "type_descriptor", None)
    return getattr(described, "annotation", None)


def _is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def _shown(command: Any) -> Iterator[Any]:
    # `--help` is a parameter only in some versions of typer.
    return (p for p in command.params if not p.hidden and p.name != "help")


def _paragraphs(text: str | None) -> list[str]:
    cleaned = inspect.cleandoc(text or "").split("\f")[0]
    return [_text(" ".join(part.split())) for part in cleaned.split("\n\n") if part.strip()]


def _text(text: str) -> str:
    """Escape Markdown and HTML outside of `code`."""
    parts = text.replace("\\[", "[").split("`")
    for i in range(0, len(parts), 2):
        for mark in ("\\", "*", "_", "["):
            parts[i] = parts[i].replace(mark, "\\" + mark)
        parts[i] = parts[i].replace("<", "&lt;")  # a backslash does not escape <UNK>
    return " ".join("`".join(parts).split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
