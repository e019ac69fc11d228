"""Options that several commands have, said once: the same name means the same everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

Device = Annotated[str, typer.Option(help="auto (a GPU if there is one), cpu, cuda, cuda:1, ...")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress bar.")]
Weights = Annotated[
    str | None,
    typer.Option(
        help="The HDF5 file, if the model is an options.json and they do not lie side by side.",
        show_default=False,
    ),
]
HeadModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="A model folder with its LM head, as `elmo train` and `elmo finetune` make it. "
        "Nothing: the model that comes with the package.",
        show_default=False,
    ),
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Leave out and count lines that are not UTF-8.")
]

# How text is read that is read as `elmo prepare` reads it.
OneSentencePerLine = Annotated[
    bool,
    typer.Option("--one-sentence-per-line", help="A line is a sentence: look for no others in it."),
]
Tokenized = Annotated[
    bool,
    typer.Option(
        "--tokenized",
        help="The text is tokenised, one sentence per line: words are what whitespace separates, "
        "taken as they are.",
    ),
]
