"""The test tools themselves: blocks and markers are found, and wrong output is detected."""

from __future__ import annotations

import pytest
from docs.hooks.dialect import on_page_markdown

from tests.docs.commands import _commands
from tests.docs.outputs import differences, expected_output
from tests.docs.pages import Block, parse, without_blocks

PAGE = """# Title

<!-- file: a/notes.txt -->

```text
one
```

- in a list:

  ```python
  x = 1
  ```

<!-- not run: needs a GPU -->
```python
y = 2
```

```` ```py ```` is no block, and neither is ~~this~~.
"""


def test_blocks_have_their_markers() -> None:
    assert parse(PAGE) == [
        Block("text", "one\n", 5, "file", "a/notes.txt"),
        Block("python", "x = 1\n", 11),
        Block("python", "y = 2\n", 16, "not run", "needs a GPU"),
    ]
    assert "x = 1" not in without_blocks(PAGE)
    assert len(without_blocks(PAGE).splitlines()) == len(PAGE.splitlines())


def test_unclosed_block_is_an_error() -> None:
    with pytest.raises(AssertionError, match="page:1"):
        parse("```python\nx = 1\n")


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("a\nb\n", "a\nb\n"),
        ("a\n...\nd\n", "a\nb\nc\nd\n"),
        ("a  \n", "a\n\n"),
        ("0.72 of 3", "0.73 of 3"),
        ("-1.50", "-1.49"),
    ],
)
def test_equal_output_is_accepted(shown: str, printed: str) -> None:
    assert differences(shown, printed) == ""


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("a\n", "b\n"),
        ("a\n", "a\nb\n"),
        ("a\n...\nd\n", "a\nb\n"),
        ("0.72", "0.74"),
        ("0.72", "0.723"),
        ("3 words", "4 words"),
        ("x 0.5", "y 0.5"),
        ("a", ""),
    ],
)
def test_different_output_is_reported(shown: str, printed: str) -> None:
    assert differences(shown, printed)


def test_expected_output_is_read_from_comments_after_print() -> None:
    program = 'print(1)  # 1\nx = 2  # a note\nfor y in z:\n    print(y)  # (3, 4)\nprint("#")\n'
    assert expected_output(program) == ["1", "(3, 4)"]


def test_commands_are_extracted_from_lines() -> None:
    text = "$ VAR=1 elmo info x && elmo doctor > out.txt  # why\nelmo output\n"
    assert [words for _, words in _commands(Block("console", text, 0))] == [
        ["elmo", "info", "x"],
        ["elmo", "doctor"],
    ]
    text = "elmo train data/ -o run/ \\\n    --epochs 2\nelmo info A      elmo info B\n"
    assert [words for _, words in _commands(Block("", text, 7))] == [
        ["elmo", "train", "data/", "-o", "run/", "--epochs", "2"],
        ["elmo", "info", "A"],
        ["elmo", "info", "B"],
    ]


def test_escaped_bars_in_table_code_are_unescaped() -> None:
    assert on_page_markdown("| `a\\|b` | c \\| d |") == "| `a|b` | c \\| d |"
    assert on_page_markdown("`a\\|b`") == "`a\\|b`"
