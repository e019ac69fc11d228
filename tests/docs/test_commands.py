"""All commands on pages are valid; they are not run here."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.docs.commands import complaint, find, flags, shown, spans
from tests.docs.pages import ROOT, name, pages

_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
_TARGETS = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("page", pages(), ids=name)
def test_elmo_commands_can_be_parsed(page: Path) -> None:
    wrong = [
        f"{name(page)}:{line}: {' '.join(words)}: {found}"
        for line, words in shown(page)
        if words[0] == "elmo" and len(words) > 1 and (found := complaint(words))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", pages(), ids=name)
def test_inline_commands_have_existing_options(page: Path) -> None:
    wrong = []
    for line, span in spans(page):
        words = span.split()
        if (
            words[0] != "elmo"
            or len(words) < 2
            or "|" in words[1]
            or words[1] in ("...", "COMMAND")
        ):
            continue
        command, _, rest = find(words)
        where = f"{name(page)}:{line}: {span}"
        if hasattr(command, "commands"):
            # `elmo task NAME train` and `elmo plot senses|layers` stand for several commands.
            if rest and not re.match(r"^([A-Z]+|.*\|.*|--help|--version|\.\.\.)$", rest[0]):
                wrong.append(f"{where}: no command {rest[0]}")
            continue
        known = flags(command)
        named = [word.split("=")[0] for word in rest if re.match(r"^--?[a-zA-Z]", word)]
        wrong += [f"{where}: no option {flag}" for flag in named if flag not in known]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", pages(), ids=name)
def test_other_commands_refer_to_existing_files(page: Path) -> None:
    wrong = []
    for line, words in shown(page):
        where = f"{name(page)}:{line}: {' '.join(words)}"
        if words[0] == "make":
            goals = [w for w in words[1:] if "=" not in w and not w.startswith("-")]
            wrong += [f"{where}: no target {goal}" for goal in goals if goal not in _TARGETS]
        scripts = [w for w in words if re.match(r"^(recipes|benchmarks|examples)/.*\.(py|sh)$", w)]
        wrong += [f"{where}: no file {s}" for s in scripts if not (ROOT / s).exists()]
    for found in re.finditer(r"elmokit\[([\w,-]+)\]", page.read_text("utf-8")):
        extras = found[1].split(",")
        wrong += [f"no extra {e}" for e in extras if e not in _PROJECT["optional-dependencies"]]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("elmo embed text.txt -o vectors.h5 --workers 2", ""),
        ("elmo embde text.txt", "none of the commands"),
        ("elmo embed text.txt -o vectors.h5 --worker-count 2", "--worker-count"),
        ("elmo embed text.txt -o vectors.h5 --workers many", "--workers"),
        ("elmo embed text.txt", "output"),
        ("elmo convert a b c", "c"),
        ("elmo task ner train a b -o c --seed 5", ""),
        ("elmo task my_task.py train a b -o c", ""),
        ("elmo task nre train a b -o c", "nre"),
        ("elmo serve --no-bundled --model news=models/news", ""),
    ],
)
def test_the_check_accepts_valid_and_rejects_invalid_commands(command: str, said: str) -> None:
    found = complaint(command.split())
    assert (said in found) if said else not found, found
