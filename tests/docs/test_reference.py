"""The reference lists all public names and commands, and nothing that does not exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs.hooks.command_reference import MARKER, on_page_markdown, reference

import elmokit
from elmokit.tasks.registry import TASKS
from tests.docs.commands import find
from tests.docs.pages import ROOT, name
from tests.docs.test_links import _is_there

PAGES = sorted((ROOT / "docs" / "reference").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_names_on_reference_pages_exist(page: Path) -> None:
    shown = re.findall(r"^::: (\S+)", page.read_text("utf-8"), re.MULTILINE)
    assert [one for one in shown if not _is_there(one)] == []


def test_all_top_level_names_are_documented() -> None:
    text = (ROOT / "docs" / "reference" / "elmokit.md").read_text("utf-8")
    public = set(elmokit.__all__) - {"__version__"}
    named = set(re.findall(r"^::: elmokit\.(\w+)$", text, re.MULTILINE))
    listed = set(re.findall(r"`(\w+)`", text))
    assert public - named - listed == set()


def test_command_page_lists_all_commands_with_all_options() -> None:
    text = reference()
    group, _, _ = find(["elmo"])
    sections = dict(re.findall(r"^##+ (elmo .+)\n((?:(?!^##).*\n?)*)", text, re.MULTILINE))
    commands = {f"elmo {one}": command for one, command in group.commands.items()}
    for title, command in list(commands.items()):
        if title == "elmo task":
            below = command.commands[next(iter(TASKS))].commands
            commands |= {f"{title} NAME {one}": inner for one, inner in below.items()}
        elif hasattr(command, "commands"):
            commands |= {f"{title} {one}": inner for one, inner in command.commands.items()}
    assert set(sections) == set(commands)
    for title, command in commands.items():
        if hasattr(command, "commands"):
            continue
        shown = [p for p in command.params if not p.hidden and p.name != "help"]
        for parameter in shown:
            wanted = parameter.opts[0] if parameter.param_type_name == "option" else ""
            assert wanted in sections[title], (title, wanted)
            assert parameter.help, f"{title}: {parameter.name} has no help"


def test_options_show_choices_and_defaults() -> None:
    text = reference()
    assert "| `--state reset\\|warm\\|carry` |" in text
    assert "*(default `reset`)*" in text
    assert "elmo embed FILES... --output" in text


def test_tasks_are_listed() -> None:
    text = reference()
    for task in TASKS:
        assert f"| `{task}` |" in text


def test_commands_are_inserted_at_their_marker() -> None:
    page = (ROOT / "docs" / "reference" / "commands.md").read_text("utf-8")
    assert page.count(MARKER) == 1
    assert "## elmo embed" in on_page_markdown(page)
    assert on_page_markdown("a page without") == "a page without"
