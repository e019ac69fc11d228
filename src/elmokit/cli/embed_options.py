"""The options of `elmo embed`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from elmokit.cli.options import not_stdout


class State(StrEnum):
    """Initial states of a sentence."""

    RESET = "reset"
    WARM = "warm"
    CARRY = "carry"


class Engine(StrEnum):
    """Where the work is done."""

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
        help="UTF-8 text files with one sentence per line, optionally compressed (.gz, .xz, .bz2, "
        ".zst); '-' reads standard input. An empty line is a sentence without tokens, so that "
        "line 8 is always sentence 7. Parquet files, with one sentence per row, and URLs such as "
        "s3://bucket/file also work.",
    ),
]
Output = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        help="File to write. The suffix selects the format: .h5 (the layout of AllenNLP's elmo "
        "command), .npz, .safetensors, or .parquet (one row per token). Without a suffix: a "
        "directory of Parquet shards.",
        callback=not_stdout,
    ),
]
Split = Annotated[
    bool,
    typer.Option(
        "--split",
        help="Lines are paragraphs: split them into sentences. Empty lines are ignored. If lines "
        "end in mid-sentence, first join the lines of each paragraph.",
    ),
]
SkipBad = Annotated[
    bool,
    typer.Option(
        "--skip-bad",
        help="Skip and count lines that are not valid UTF-8; this shifts the numbers of later "
        "sentences.",
    ),
]
ChunkBytes = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Approximate bytes of text per chunk. A chunk is the unit of resuming and the content "
        "of a shard. Default: 262144.",
    ),
]

# --------------------------------------------------------------------------------- which vectors

StateChoice = Annotated[
    State,
    typer.Option(
        help="Initial LSTM state of each sentence. reset: zero, so that vectors depend only on the "
        "sentence. warm: the state stored with the model. carry: the final state of the previous "
        "sentence, as in bilm-tf and AllenNLP."
    ),
]
Rows = Annotated[
    int,
    typer.Option(
        help="With --state carry: number of parallel streams. Sentence i starts with the final "
        "state of sentence i - ROWS, like row i % ROWS of bilm-tf's batches."
    ),
]
NumberType = Annotated[
    Numbers,
    typer.Option(help="Number type of vectors. float16 is half the size, with three digits."),
]

# ---------------------------------------------------------------------------------------- workers

NWorkers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        help="Number of worker processes, each with its own copy of the model. The output is "
        "byte-identical for any number. Default: 1; on Ray, one per GPU or per two CPU cores.",
    ),
]
Devices = Annotated[
    str | None,
    typer.Option(
        metavar="0,1,...",
        help="Run one worker on each of these devices: GPU numbers, or cpu,cpu,...",
    ),
]
EngineChoice = Annotated[
    Engine,
    typer.Option(
        help="Where a directory of shards is computed. local: this machine. ray: a Ray cluster "
        "(pip install 'elmokit[ray]') whose machines can all access the model and the directory. "
        "The rows are the same."
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        help="With --engine ray: address of the cluster. Default: start one on this machine for "
        "this run."
    ),
]
TextColumn = Annotated[str, typer.Option(help="Text column of Parquet inputs.")]
