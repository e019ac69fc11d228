"""The examples of docs/how-to/integrations.md run and print what they announce."""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from pathlib import Path

import pytest

from tests.integrations.hub_server import running

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "integrations.md"

# Extra -> import name of the package that it installs.
PACKAGES = {
    "spacy": "spacy",
    "sklearn": "sklearn",
    "gensim": "gensim",
    "flair": "flair",
    "sentence-transformers": "sentence_transformers",
    "hub": "huggingface_hub",
    "arrow": "pyarrow",
}


def examples() -> dict[str, str]:
    """Return the programs of the page by the extra they need, in the order of its table."""
    text = PAGE.read_text("utf-8")
    extras = re.findall(r"pip install 'elmokit\[([\w-]+)\]'", text)
    programs = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return dict(zip(extras, programs, strict=True))


def expected_output(program: str) -> list[str]:
    """Return the output that the program announces in comments."""
    return re.findall(r"^print\(.*\)  # (.+)$", program, re.MULTILINE)


def test_every_integration_has_an_example() -> None:
    assert set(examples()) == set(PACKAGES)
    for program in examples().values():
        assert expected_output(program)
        assert len(program.splitlines()) <= 14


@pytest.mark.slow
@pytest.mark.parametrize("extra", PACKAGES)
def test_examples_print_the_documented_output(
    extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(PACKAGES[extra], reason=f"the extra `{extra}` is not installed")
    monkeypatch.chdir(tmp_path)
    program, printed = examples()[extra], io.StringIO()
    with contextlib.ExitStack() as stack:
        if extra == "hub":
            from huggingface_hub import constants

            hub = stack.enter_context(running())
            hub.serve_folder("you/my-elmo", tmp_path / "my-elmo")
            monkeypatch.setenv("HF_ENDPOINT", hub.url)
            monkeypatch.setenv("no_proxy", "*")
            monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(contextlib.redirect_stdout(printed))
        exec(compile(program, f"{PAGE.name}, {extra}", "exec"), {"__name__": "example"})
    assert printed.getvalue().splitlines() == expected_output(program)
