"""Commands shown on pages, parsed by the real command line but not run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import typer

from elmokit.cli.main import app
from tests.docs.pages import SHELLS, Block, blocks, without_blocks

_SEPARATORS = {"|", "||", "&&", ";", "&", "(", ")", ">", ">>", "<", "2>", "`"}
_ASSIGNMENT = re.compile(r"^[A-Za-z_]\w*=")


def shown(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and words of each command in the shell blocks of a page."""
    for block in blocks(path):
        if block.language in SHELLS and block.mark not in ("file", "output"):
            yield from _commands(block)


def spans(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line number and text of each inline `code` of a page, even across lines."""
    text = without_blocks(path.read_text("utf-8"))
    for found in re.finditer(r"(?<![`\\])`([^`]+)`(?!`)", text):
        yield text.count("\n", 0, found.start()) + 1, " ".join(found[1].split())


def _commands(block: Block) -> Iterator[tuple[int, list[str]]]:
    text = block.text
    if block.language != "console" and not re.search(r"^\$ ", text, re.MULTILINE):
        lines = list(enumerate(text.splitlines(), block.line + 1))
    else:  # lines without a prompt are output
        lines = [
            (n, line.removeprefix("$ "))
            for n, line in enumerate(text.splitlines(), block.line + 1)
            if line.startswith("$ ")
        ]
    lines = _joined(lines)
    for number, line in lines:
        # Some lists have several commands on a line, separated by many spaces.
        for part in re.split(r"\s{3,}(?=elmo )", line):
            yield from ((number, words) for words in _words(part))


def _joined(lines: list[tuple[int, str]]) -> list[tuple[int, str]]:
    joined: list[tuple[int, str]] = []
    for number, line in lines:
        if joined and joined[-1][1].endswith("\\"):
            joined[-1] = joined[-1][0], joined[-1][1][:-1] + " " + line.strip()
        else:
            joined.append((number, line))
    return joined


def _words(line: str) -> list[list[str]]:
    """Return the simple commands of a line; nothing if it is not a shell command."""
    if not re.search(r"\b(elmo|python|make|pip|torchrun)\b", line):
        return []
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;()<>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    try:
        words = list(lexer)
    except ValueError:
        return []
    commands: list[list[str]] = [[]]
    skip = False
    for word in words:
        if word in _SEPARATORS or set(word) <= set("|&;()<>"):
            skip = ">" in word or "<" in word  # a file name follows
            if not skip:
                commands.append([])
        elif skip:
            skip = False
        else:
            commands[-1].append(word)
    return [found for command in commands if (found := _without_settings(command))]


def _without_settings(words: list[str]) -> list[str]:
    while words and _ASSIGNMENT.match(words[0]):
        words = words[1:]
    return words


@cache
def _elmo() -> Any:
    return typer.main.get_command(app)


def complaint(words: list[str]) -> str:
    """Return the parser error for an `elmo` command; empty if it is valid."""
    command, context, rest = find(words)
    if not hasattr(command, "commands"):
        return _parse(command, context, rest)
    if {"--help", "-h", "--version"} & set(rest):
        return ""
    return f"'{' '.join(rest[:1])}' is none of the commands {', '.join(command.commands)}"


def find(words: list[str]) -> tuple[Any, Any, list[str]]:
    """Return the command for words such as `elmo task ner train ...`, its context, and the rest."""
    command = _elmo()
    context = command.context_class(command, info_name="elmo")
    rest = words[1:]
    while rest and hasattr(command, "commands"):
        below = command.get_command(context, rest[0])
        if below is None:
            break
        context = below.context_class(below, info_name=rest[0], parent=context)
        command, rest = below, rest[1:]
    return command, context, rest


def flags(command: Any) -> set[str]:
    """Return all options of a command under all of their names."""
    named = {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
    return {name for name in named if name.startswith("-")} | {"--help", "-h"}


def _parse(command: Any, context: Any, rest: list[str]) -> str:
    if {"--help", "-h"} & set(rest):
        return ""
    try:
        # Reads and validates all values as in a run, but stops before the command itself.
        command.make_context(context.info_name, list(rest), parent=context.parent).close()
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        return str(error.format_message())
    return ""
