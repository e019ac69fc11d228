"""`elmo prepare`: convert text files to a corpus for `elmo train`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli import options as opt
from elmokit.cli.output import log, log_skipped, log_summary, print_json
from elmokit.cli.progress import TokenBar
from elmokit.progress import plural

if TYPE_CHECKING:
    from elmokit.text.vocab import Vocabulary


def prepare(
    files: Annotated[list[str], typer.Argument(help=opt.PARAGRAPHS)],
    output: Annotated[
        Path,
        opt.output_option(
            "Directory to write. Needs about 4 bytes per token and 130 bytes per distinct word, "
            "and twice as much while it is being written."
        ),
    ],
    one_sentence_per_line: opt.OneSentencePerLine = False,
    tokenized: opt.Tokenized = False,
    skip_bad: opt.SkipBad = False,
    min_count: Annotated[
        int,
        typer.Option(
            help="Minimum count of a vocabulary word. Rarer words are <UNK> as targets; as "
            "inputs they are encoded from their characters, like all words."
        ),
    ] = 3,
    max_vocab: Annotated[
        int | None,
        typer.Option(
            help="Maximum size of the vocabulary, including <S>, </S> and <UNK>; keeps the most "
            "frequent words. Default: no limit."
        ),
    ] = None,
    vocab: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE|MODEL",
            help="Use the vocabulary of an existing model, as required by `elmo finetune` and "
            "`elmo perplexity`: a model directory, the name of an installed model (english), or a "
            "file with one word per line that starts with <S>, </S>, <UNK>. Other words are <UNK> "
            "as targets. Default: build a vocabulary from the text.",
        ),
    ] = None,
    max_characters: Annotated[
        int,
        typer.Option(
            help="Maximum number of character ids per word, including two boundary ids; longer "
            "words are truncated. Must be the same in training."
        ),
    ] = 50,
    valid: Annotated[
        str | None,
        typer.Option(
            metavar="N|FRACTION",
            help="Hold out random documents for evaluation: a number (500) or a fraction (0.01). "
            "They do not contribute to the vocabulary. Default: none.",
        ),
    ] = None,
    valid_files: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="File to hold out for evaluation. Can be repeated."),
    ] = None,
    seed: opt.Seed = 0,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of worker processes. The output is byte-identical for any number. "
            "Default: one per core.",
        ),
    ] = None,
    overwrite: opt.Overwrite = False,
    as_json: opt.SummaryAsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """Convert text files to a corpus for training.

    Splits the text into sentences and tokens, builds a vocabulary and writes ids. If lines end in
    the middle of a sentence, first join the lines of each paragraph. The same text and options give
    the same bytes. The output is written atomically.
    """
    from elmokit.data.layout import PrepareSettings
    from elmokit.data.prepare import prepare as prepare_text
    from elmokit.settings import with_settings

    with opt.usage_errors():
        settings = PrepareSettings(
            min_count=min_count,
            max_vocab=max_vocab,
            max_characters=max_characters,
            one_sentence_per_line=one_sentence_per_line,
            tokenized=tokenized,
            seed=seed,
        )
        settings = with_settings(settings, opt.as_settings({"valid": valid}))
    with opt.usage_errors(), TokenBar(shown=not quiet) as bar:
        summary = prepare_text(
            files,
            output,
            settings,
            valid_files=valid_files or (),
            skip_bad=skip_bad,
            overwrite=overwrite,
            workers=workers,
            on_progress=bar,
            vocabulary=None if vocab is None else _read_vocabulary(vocab),
        )
    meta = summary.meta
    if as_json:
        print_json(
            {
                "output": str(summary.output),
                **meta.to_dict(),
                "bytes": summary.n_bytes,
                "seconds": round(summary.seconds, 3),
                "megabytes_per_second": round(summary.megabytes_per_second, 3),
                "workers": summary.workers,
            }
        )
    for name, split in meta.splits.items():
        counts = dataclasses.asdict(split)
        log_summary(
            name,
            *(plural(counts[f"{n}s"], n) for n in ("document", "sentence", "token", "type")),
            f"{split.unknown_rate:.2%} of tokens out of vocabulary",
            plural(split.truncated_tokens, "truncated token"),
        )
    log_skipped(meta.skipped_lines, summary.first_skipped)
    log(
        f"{summary.output}: vocabulary of {meta.n_words:,} words; "
        f"{summary.n_bytes / 1e6:,.1f} MB of text at {summary.megabytes_per_second:,.1f} MB/s"
    )


def _read_vocabulary(vocab: Path) -> Vocabulary:
    from elmokit.data.prepare import given_vocabulary
    from elmokit.sources.resolve import named_models  # imports torch

    return given_vocabulary(named_models().get(str(vocab), vocab))
