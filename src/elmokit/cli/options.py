"""Options that several commands have, said once: the same name means the same everywhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from elmokit.errors import ConfigError

#: What `elmokit.load` opens with torch; said once, for all commands that take a model.
MODELS = (
    "A model folder, an options.json of AllenNLP or bilm-tf with its HDF5 file, a folder of "
    "ELMoForManyLangs, a zip of one of these, a checkpoint of bilm-tf's training, hf://user/model, "
    "or a name such as english or allennlp:original."
)
#: What can be embedded with and looked at, and no more.
ONNX_TOO = " Also a folder of ONNX (elmo convert MODEL OUT --to onnx), which needs no torch."
NOTHING = " Nothing: the model that comes with the package."


class PrecisionName(StrEnum):
    """The precisions of `elmokit.load`."""

    EXACT = "exact"
    FAST = "fast"


Precision = Annotated[
    PrecisionName,
    typer.Option(
        help="exact: float32. fast: several times as fast with rounded numbers (cosine to exact "
        "vectors at least 0.999); `elmo doctor` tells what it is on this machine."
    ),
]


class StateName(StrEnum):
    """What a sentence of its own can start from."""

    RESET = "reset"
    WARM = "warm"


State = Annotated[
    StateName,
    typer.Option(
        help="What each sentence starts from. reset: zero. warm: the stored state of the model."
    ),
]
Device = Annotated[str, typer.Option(help="auto (a GPU if there is one), cpu, cuda, cuda:1, ...")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress bar.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
TextAsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
SummaryAsJson = Annotated[
    bool, typer.Option("--json", help="Print a summary as one JSON object on stdout.")
]
Weights = Annotated[
    str | None,
    typer.Option(
        help="The HDF5 file, if the model is an options.json and they do not lie side by side.",
        show_default=False,
    ),
]
AnyModel = Annotated[str | None, typer.Option("--model", help=MODELS + NOTHING, show_default=False)]
EmbeddingModel = Annotated[
    str | None, typer.Option("--model", help=MODELS + ONNX_TOO + NOTHING, show_default=False)
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

# How text is read that is read line by line, as `elmo embed` reads it.
TokenizedLines = Annotated[
    bool,
    typer.Option(
        "--tokenized",
        help="Text is tokenized: tokens are what whitespace separates, taken as they are.",
    ),
]
SplitLines = Annotated[
    bool,
    typer.Option(
        "--split", help="Each line is a paragraph: find its sentences. Empty lines give nothing."
    ),
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
        help="The text is tokenized, one sentence per line: words are what whitespace separates, "
        "taken as they are.",
    ),
]

# For commands that compare.
StaticTable = Annotated[
    str | None,
    typer.Option(
        "--static",
        metavar="NAME|FILE",
        help="Static vectors to compare with: glove-6b-50d (pip install 'elmokit[static]') or a "
        "text file of word2vec or GloVe.",
        show_default=False,
    ),
]

# For commands whose runs can be interrupted and continued.
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Continue an interrupted run: nothing that was finished is computed again, and "
        "the output is the same, byte by byte. Repeat the command as it was; standard "
        "input must be the same text from its beginning.",
    ),
]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Replace an existing output. Without --resume, also discard what an interrupted run "
        "has finished.",
    ),
]

# Which layers: the same names everywhere, see embed/layer_choice.py.
LAYER_CHOICES = (
    "A layer number, top, average (the mean of all layers), concat (all layers side by side), mix "
    "(a weighted sum, see --mix) or all (every layer by itself)"
)
Layer = Annotated[str, typer.Option("--layer", metavar="LAYER", help=f"{LAYER_CHOICES}.")]
Layers = Annotated[
    list[str] | None,
    typer.Option(
        "--layer",
        metavar="LAYER",
        help=f"{LAYER_CHOICES}; repeat for several. Default: every layer and the average.",
        show_default=False,
    ),
]
Mix = Annotated[
    str | None,
    typer.Option(
        metavar="S0,S1,...",
        help="With --layer mix: one weight per layer, lowest first. They are the normalized "
        "weights s of gamma * sum_j s_j h_j and are used as they are, without a softmax.",
        show_default=False,
    ),
]
Gamma = Annotated[float, typer.Option(help="With --layer mix: the scale of the mix.")]


Path_ = TypeVar("Path_", str, Path, Path | None)


def not_stdout(path: Path_) -> Path_:
    """Refuse `-` where a file or folder is written: a callback of options."""
    if path is not None and str(path) == "-":
        raise typer.BadParameter("results are not written to standard output. Give a name.")
    return path


class _UsageError(typer.BadParameter):
    """Wrong usage that no single option stands for: the message says it all."""

    def format_message(self) -> str:
        return self.message


@contextmanager
def usage_errors() -> Iterator[None]:
    """Report settings that the library refuses as wrong usage, with exit code 2."""
    try:
        yield
    except ConfigError as error:
        raise _UsageError(str(error)) from None


def as_settings(options: Mapping[str, object]) -> list[str]:
    """Return options that were given as `--set` takes them, by the names of their settings."""
    return [f"{name}={value}" for name, value in options.items() if value is not None]


def read_mix(mix: str | None, layers: Sequence[str] | None) -> tuple[float, ...] | None:
    """Read --mix and check it and --layer, as far as that needs no model."""
    from elmokit.embed.layer_choice import check_layer, check_mix

    weights = None if mix is None else _read_weights(mix)
    with usage_errors():
        check_mix([check_layer(layer) for layer in layers or ()], weights)
    return weights


def _read_weights(mix: str) -> tuple[float, ...]:
    try:
        return tuple(float(weight) for weight in mix.split(","))
    except ValueError:
        raise typer.BadParameter(
            f"'{mix}' is not a list of numbers such as 0.2,0.3,0.5.", param_hint="--mix"
        ) from None
