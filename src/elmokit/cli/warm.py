"""`elmo warm`: compute the warm state of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elmokit.cli.options import (
    PARAGRAPHS,
    Device,
    ModelArgument,
    OneSentencePerLine,
    SkipBad,
    SummaryAsJson,
    Tokenized,
    Weights,
    output_option,
)
from elmokit.cli.output import log, log_skipped, print_json
from elmokit.progress import plural


def warm(
    model: ModelArgument,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="TEXT...",
            help=f"In-domain text, preferably the training text: 20,000 sentences are used. "
            f"{PARAGRAPHS}",
        ),
    ],
    output: Annotated[
        Path | None,
        output_option("Model directory to write. Default: MODEL, if it is a model directory."),
    ] = None,
    weights: Weights = None,
    one_sentence_per_line: OneSentencePerLine = False,
    tokenized: Tokenized = False,
    skip_bad: SkipBad = False,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace a model in OUTPUT; never replaces other files."),
    ] = False,
    device: Device = "auto",
    as_json: SummaryAsJson = False,
) -> None:
    """Compute the warm state of a model from text.

    The warm state is the mean LSTM state (c, r) of each layer and direction at
    the sentence boundaries of continuous text. Sentences that start from it are
    processed as if they were in the middle of a text, but still independently.
    Use text with at least 10,000 sentences.

    The output is written atomically.
    """
    from elmokit.cli.progress import TokenBar
    from elmokit.data.reading import Reading, check_files, read_sentences
    from elmokit.device import choose_device
    from elmokit.errors import DataError, warn
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
    reading = Reading(one_sentence_per_line, tokenized)
    text = read_sentences(files, reading, skip_bad=skip_bad, on_bad=skipped.append)
    with TokenBar() as bar:
        result = warm_state_of_text(
            parts.bilm.to(place),
            parts.vocabulary,
            text,
            progress=lambda _, done, total: bar(Progress(done, done, total)),
        )
    if not result.sentences:
        raise DataError(
            "The text is too short for a warm state: expected documents of several sentences, "
            f"preferably {SENTENCES:,} sentences in all. Give more text."
        )
    if parts.card is not None and is_generated(parts.card):
        parts.card = None  # it is generated again, with the warm state
    parts.bilm.cpu()
    parts.warm = result.state
    modeldir.save(parts, target, overwrite=overwrite or output is None)
    log_skipped(len(skipped), *skipped[:1])
    count = plural(result.sentences, "sentence")
    if result.sentences < SENTENCES:
        warn(
            f"The warm state is the mean over only {count}; {SENTENCES:,} or more are recommended. "
            "Give more text."
        )
    if as_json:
        print_json({"model": str(target), "sentences": result.sentences})
    else:
        log(f"{target}: saved a warm state, the mean over {count}")


def _target(model: str, output: Path | None) -> Path:
    """Return the directory to write."""
    from elmokit.sources.modeldir import is_model_dir

    if output is not None:
        return output
    if not is_model_dir(Path(model)):
        raise typer.BadParameter(
            f"required, because {model} is not an elmokit model directory and cannot store a warm "
            "state.",
            param_hint="--output",
        )
    return Path(model)
