"""Options that several commands share, so that each has one name and one help text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer

from elmokit.errors import ConfigError

#: What `elmokit.load` opens with torch.
MODELS = (
    "Model to load: a model directory, an AllenNLP or bilm-tf options.json with its HDF5 file, "
    "an ELMoForManyLangs directory, a zip file of one of these, a bilm-tf training checkpoint, "
    "hf://user/model, or a name such as english or allennlp:original."
)
#: Only for commands that need neither the head nor training.
ONNX_TOO = " ONNX directories (elmo convert MODEL OUT --to onnx) also work, without torch."
DEFAULT_MODEL = " Default: the bundled English model."

ModelArgument = Annotated[str, typer.Argument(help=MODELS)]
AnyModel = Annotated[str | None, typer.Option("--model", help=MODELS + DEFAULT_MODEL)]
EmbeddingModel = Annotated[
    str | None, typer.Option("--model", help=MODELS + ONNX_TOO + DEFAULT_MODEL)
]
HeadModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="Model directory with an LM head, as written by `elmo train` and `elmo finetune`."
        + DEFAULT_MODEL,
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(help="HDF5 weights for an options.json that is in a different directory."),
]
Precision = Annotated[
    Literal["exact", "fast"],
    typer.Option(
        help="Numeric precision. exact: float32. fast: several times faster, with reduced "
        "precision (cosine similarity to exact vectors at least 0.999); `elmo doctor` shows what "
        "it uses on this machine."
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
    str, typer.Option(help="Device: auto (a GPU if available), cpu, cuda, cuda:1, ...")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Do not show progress.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON to standard output.")]
TextAsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
LinesAsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object per line instead of text.")
]
SummaryAsJson = Annotated[
    bool, typer.Option("--json", help="Print a summary as one JSON object to standard output.")
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Skip and count lines that are not valid UTF-8.")
]
PreparedData = Annotated[Path, typer.Argument(help="Directory written by `elmo prepare`.")]

# For commands that read text like `elmo embed`: one sentence per line.
TEXT_FILES = (
    "UTF-8 text files, optionally compressed (.gz, .xz, .bz2, .zst); '-' reads standard input."
)
TokenizedLines = Annotated[
    bool,
    typer.Option(
        "--tokenized", help="The text is already tokenized: split lines at whitespace only."
    ),
]
SplitLines = Annotated[
    bool,
    typer.Option(
        "--split", help="Lines are paragraphs: split them into sentences. Empty lines are ignored."
    ),
]

# For commands that read text like `elmo prepare`: one paragraph per line.
PARAGRAPHS = (
    f"{TEXT_FILES} Each line is a paragraph; empty lines and file boundaries separate documents."
)
Paragraphs = Annotated[list[str], typer.Argument(metavar="FILES...", help=PARAGRAPHS)]
OneSentencePerLine = Annotated[
    bool,
    typer.Option(
        "--one-sentence-per-line", help="Lines are sentences: do not split them into sentences."
    ),
]
Tokenized = Annotated[
    bool,
    typer.Option(
        "--tokenized",
        help="The text is already tokenized, with one sentence per line: split lines at "
        "whitespace only.",
    ),
]

# For commands that compare ELMo with static vectors.
StaticTable = Annotated[
    str | None,
    typer.Option(
        "--static",
        metavar="NAME|FILE",
        help="Static vectors to compare with: glove-6b-50d (pip install 'elmokit[static]') or a "
        "text file in word2vec or GloVe format.",
    ),
]

# For commands that can be interrupted and resumed.
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Resume an interrupted run: finished work is kept, and the output is "
        "byte-identical. Repeat the original command; standard input must provide the same text "
        "from its beginning.",
    ),
]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Replace an existing output. Without --resume, also discard the finished work of an "
        "interrupted run.",
    ),
]

# Layer choices; see embed/layer_choice.py.
LAYER_CHOICES = (
    "Layers to use: a layer number, top, average (the mean of all layers), concat (all layers "
    "concatenated), mix (a weighted sum, see --mix) or all (each layer separately)"
)
Layer = Annotated[str, typer.Option("--layer", metavar="LAYER", help=f"{LAYER_CHOICES}.")]
Layers = Annotated[
    list[str] | None,
    typer.Option(
        "--layer",
        metavar="LAYER",
        help=f"{LAYER_CHOICES}. Can be repeated. Default: every layer and the average.",
    ),
]
Mix = Annotated[
    str | None,
    typer.Option(
        metavar="S0,S1,...",
        help="With --layer mix: the weights s_j of gamma * sum_j s_j h_j, one per layer, lowest "
        "layer first. They are used directly, without a softmax.",
    ),
]
Gamma = Annotated[float, typer.Option(help="With --layer mix: the scale gamma of the mix.")]


Path_ = TypeVar("Path_", str, Path, Path | None)


def not_stdout(path: Path_) -> Path_:
    """Reject `-` as an output path; used as an option callback."""
    if path is not None and str(path) == "-":
        raise typer.BadParameter("cannot write to standard output. Specify a path.")
    return path


def output_option(help: str) -> Any:
    """Return the --output option of a command that writes a file or a directory."""
    return typer.Option("--output", "-o", help=help, callback=not_stdout)


class _UsageError(typer.BadParameter):
    """A usage error that is not about a single option."""

    def format_message(self) -> str:
        return self.message


@contextmanager
def usage_errors() -> Iterator[None]:
    """Report settings that the library rejects as usage errors, with exit code 2."""
    try:
        yield
    except ConfigError as error:
        raise _UsageError(str(error)) from None


def as_settings(options: Mapping[str, object]) -> list[str]:
    """Return the options that have a value, as `--set` expects them: NAME=VALUE."""
    return [f"{name}={value}" for name, value in options.items() if value is not None]


def read_mix(mix: str | None, layers: Sequence[str] | None) -> tuple[float, ...] | None:
    """Parse --mix; check it and --layer, as far as possible without a model."""
    from elmokit.embed.layer_choice import check_layer, check_mix

    try:
        weights = None if mix is None else tuple(float(weight) for weight in mix.split(","))
    except ValueError:
        raise typer.BadParameter(
            f"'{mix}' is not a list of numbers, for example 0.2,0.3,0.5.", param_hint="--mix"
        ) from None
    with usage_errors():
        check_mix([check_layer(layer) for layer in layers or ()], weights)
    return weights
