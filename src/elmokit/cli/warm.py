"""`elmo warm`: compute the warm state of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from elmokit.cli import options as opt
from elmokit.cli.output import log, log_skipped, print_json
from elmokit.cli.progress import step_bar
from elmokit.progress import plural


def warm(
    model: opt.ModelArgument,
    files: opt.ParagraphFiles,
    output: Annotated[Path | None, opt.OUTPUT] = None,
    weights: opt.Weights = None,
    one_sentence_per_line: opt.OneSentencePerLine = False,
    tokenized: opt.Tokenized = False,
    skip_bad: opt.SkipBad = False,
    overwrite: opt.Overwrite = False,
    device: opt.Device = "auto",
    as_json: opt.SummaryAsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """Compute an initial LSTM state (the warm state) from text.

    The warm state is the mean LSTM state of each layer and direction at the sentence boundaries of
    continuous text. A sentence that starts from this state is processed as if it were in the middle
    of a text, but still independently of other sentences. Use text with at least 10,000 sentences;
    only the first 20,000 are used.

    Args:
        files: Use in-domain text, preferably the training text.
        output: Output model directory. Default: MODEL, if it is a model directory.
    """
    from elmokit.data.reading import LineSplitter, read_sentences
    from elmokit.device import choose_device
    from elmokit.errors import DataError, warn
    from elmokit.sources import modeldir
    from elmokit.sources.resolve import load_parts
    from elmokit.storage.overwrite import check_directory
    from elmokit.text.lines import SkippedLines, check_files
    from elmokit.train.warm import N_SENTENCES, warm_state_of_text

    check_files(files)
    target = Path(model) if output is None else output
    if output is None and not modeldir.is_model_dir(target):
        raise opt.UsageError(
            f"Missing option '--output' / '-o'. It is required because {model} is not a model "
            "directory in which the warm state can be stored."
        )
    if output is not None:
        check_directory(output, modeldir.KIND, overwrite=overwrite)
    parts = load_parts(model, weights)
    skipped = SkippedLines(skip_bad)
    splitter = LineSplitter(one_sentence_per_line, tokenized)
    with step_bar(enabled=not quiet) as progress:
        result = warm_state_of_text(
            parts.bilm.to(choose_device(device)),
            parts.vocabulary,
            read_sentences(files, splitter, skipped),
            progress=progress,
        )
    if not result.sentences:
        raise DataError(
            "The text is too short to compute a warm state: expected documents of several "
            f"sentences, preferably at least {N_SENTENCES:,} sentences in total. Add more text."
        )
    parts.bilm.cpu()
    parts.warm = result.state
    if output is None:
        modeldir.save_warm_state(parts, target)
    else:
        modeldir.save(parts, target, overwrite=overwrite)
    log_skipped(skipped.count, skipped.first)
    count = plural(result.sentences, "sentence")
    if result.sentences < N_SENTENCES:
        warn(
            f"The warm state is the mean over only {count}. Use more text: at least "
            f"{N_SENTENCES:,} sentences are recommended."
        )
    if as_json:
        print_json({"model": str(target), "sentences": result.sentences})
    log(f"{target}: saved the warm state (mean over {count})")
