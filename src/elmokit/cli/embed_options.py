"""The options of `elmo embed`, and what each of them means."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from elmokit.cli.options import not_stdout


class State(StrEnum):
    """What each sentence starts from."""

    RESET = "reset"
    WARM = "warm"
    CARRY = "carry"


class Engine(StrEnum):
    """Who does the work."""

    LOCAL = "local"
    RAY = "ray"


class Numbers(StrEnum):
    """The number types of a vector file."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"


# ------------------------------------------------------------------------------- text and output

Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILES",
        help="Text files in UTF-8, also .gz, .xz, .bz2, .zst; '-' is standard input. "
        "A line is a sentence; an empty line is a sentence without tokens, so that line 8 is "
        "always sentence 7. Also Parquet files, whose rows are lines, and addresses such as "
        "s3://bucket/file.",
        show_default=False,
    ),
]
Output = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        help="The file to write. Its name chooses the format: .h5 as AllenNLP's elmo command "
        "wrote it, .npz, .safetensors, or .parquet (one row per token). A name without a "
        "suffix is a folder, which is filled with Parquet shards.",
        callback=not_stdout,
        show_default=False,
    ),
]
Split = Annotated[
    bool,
    typer.Option(
        "--split",
        help="Each line is a paragraph: find its sentences. Empty lines give nothing. Text "
        "whose lines end in mid-sentence should be joined to one line per paragraph first.",
    ),
]
SkipBad = Annotated[
    bool,
    typer.Option(
        "--skip-bad",
        help="Skip and count lines that are not UTF-8; the sentences after them move up.",
    ),
]
ChunkBytes = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Bytes of text in a chunk, about. A chunk is what is computed again at most after an "
        "interruption, and what a shard holds. Default: 262144.",
        show_default=False,
    ),
]

# --------------------------------------------------------------------------------- which vectors

StateChoice = Annotated[
    State,
    typer.Option(
        help="What each sentence starts from. reset: zero, so its vectors depend on the "
        "sentence alone. warm: the stored state of the model. carry: where the sentence before "
        "it ended, as bilm-tf and AllenNLP always do.",
    ),
]
Rows = Annotated[
    int,
    typer.Option(
        help="With --state carry: texts read side by side; sentence i goes on where sentence "
        "i - ROWS ended, like row i % ROWS of bilm-tf's batches.",
    ),
]
NumberType = Annotated[
    Numbers,
    typer.Option(help="float16 takes half the space and keeps three digits."),
]

# ------------------------------------------------------------------------------------- who works

NWorkers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        help="Processes that share the work, each with its own model in memory. The file is "
        "the same, byte by byte, for any number of them.",
        show_default=False,
    ),
]
Devices = Annotated[
    str | None,
    typer.Option(
        metavar="0,1,...",
        help="One worker on each of these devices: the numbers of GPUs, or cpu,cpu,...",
        show_default=False,
    ),
]
EngineChoice = Annotated[
    Engine,
    typer.Option(
        help="Who fills a folder: this machine, or a Ray cluster (pip install "
        "'elmokit[ray]'), whose machines must all see the model and the folder. The rows are "
        "the same.",
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        help="With --engine ray: the cluster. Default: one on this machine, for this run.",
        show_default=False,
    ),
]
TextColumn = Annotated[
    str,
    typer.Option(help="The column of the text in Parquet inputs."),
]
