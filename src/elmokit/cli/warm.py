"""`elmo warm`: give a model the state that `state="warm"` starts from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from elmokit.cli.options import (
    MODELS,
    Device,
    OneSentencePerLine,
    SkipBad,
    Tokenized,
    Weights,
    not_stdout,
)
from elmokit.progress import plural


def warm(
    model: Annotated[
        str,
        typer.Argument(
            help=MODELS,
            show_default=False,
        ),
    ],
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="TEXT...",
            help="Running text of the kind the model should feel at home in, best what it was "
            "trained on; '-' is standard input. Read as `elmo prepare` reads it, and no further "
            "than needed: 20,000 sentences.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The model folder to make. Default: MODEL itself, if it is a folder of elmokit.",
            callback=not_stdout,
            show_default=False,
        ),
    ] = None,
    weights: Weights = None,
    one_sentence_per_line: OneSentencePerLine = False,
    tokenized: Tokenized = False,
    skip_bad: SkipBad = False,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace a model in OUTPUT. Other files never are."),
    ] = False,
    device: Device = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on stdout.")
    ] = False,
) -> None:
    """Make the warm state of a model from text.

    It is the mean of (c, r) of each layer and direction where sentences of
    running text end: sentences that start from it start as if in mid-text, and
    yet each depends on nothing but itself. At least 10,000 sentence ends should
    be averaged.

    The folder is written beside and renamed at the end.
    """
    import warnings

    from elmokit.cli.progress import TokenBar
    from elmokit.data.reading import Reading, check_files, read_sentences
    from elmokit.device import choose_device
    from elmokit.errors import DataError, ElmoWarning
    from elmokit.progress import Progress
    from elmokit.sources import modeldir
    from elmokit.sources.card import is_generated
    from elmokit.sources.resolve import load_parts
    from elmokit.train.warm import SENTENCES, warm_state_of_text

    check_files(files)
    target = _target(model, output)
    place = choose_device(device)
    parts = load_parts(model, weights)
    skipped: list[str] = []
    text = read_sentences(
        files,
        Reading(one_sentence_per_line, tokenized),
        skip_bad=skip_bad,
        on_bad=skipped.append,
    )
    with TokenBar() as bar:
        made = warm_state_of_text(
            parts.bilm.to(place),
            parts.vocabulary,
            text,
            progress=lambda _, done, total: bar(Progress(done, done, total)),
        )
    if not made.sentences:
        raise DataError(
            "The text is too short for a warm state: it needs sentences that follow on others, "
            f"best {SENTENCES:,} of them. Give more text."
        )
    if parts.card is not None and is_generated(parts.card):
        parts.card = None  # it says that there is no warm state
    parts.bilm.cpu()
    parts.warm = made.state
    modeldir.save(parts, target, overwrite=overwrite or output is None)
    if skipped:
        typer.echo(f"{plural(len(skipped), 'line')} skipped, first {skipped[0]}", err=True)
    if made.sentences < SENTENCES:
        warnings.warn(
            f"The warm state is the mean of only {made.sentences:,} sentence ends; "
            f"{SENTENCES:,} or more make it dependable. Give more text.",
            ElmoWarning,
            stacklevel=2,
        )
    if as_json:
        typer.echo(json.dumps({"model": str(target), "sentences": made.sentences}))
    else:
        told = f"{target}: a warm state, the mean of {made.sentences:,} sentence ends"
        typer.echo(told, err=True)


def _target(model: str, output: Path | None) -> Path:
    """Return the folder to write."""
    from elmokit.sources.modeldir import is_model_dir

    if output is not None:
        return output
    if not is_model_dir(Path(model)):
        raise typer.BadParameter(
            f"{model} is not a folder of elmokit, which alone has a place for a warm state; name "
            "the folder to make.",
            param_hint="--output",
        )
    return Path(model)
