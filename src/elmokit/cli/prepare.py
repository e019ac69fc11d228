"""`elmo prepare`: convert text files to a corpus for `elmo train`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.options import (
    OneSentencePerLine,
    Paragraphs,
    Quiet,
    SkipBad,
    SummaryAsJson,
    Tokenized,
    as_settings,
    output_option,
    usage_errors,
)
from elmokit.cli.output import log, log_skipped, log_summary, print_json
from elmokit.progress import plural

if TYPE_CHECKING:
    from elmokit.data.prepare import Summary
    from elmokit.text.vocab import Vocabulary


def prepare(
    files: Paragraphs,
    output: Annotated[
        Path,
        output_option(
            "Directory to write. Takes about 4 bytes per token and 130 bytes per type, and "
            "twice as much while it is being written."
        ),
    ],
    one_sentence_per_line: OneSentencePerLine = False,
    tokenized: Tokenized = False,
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
            "`elmo evaluate`: a model directory, the name of an installed model (english), or a "
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
        typer.Option(
            "--valid-files",
            metavar="FILE",
            help="Hold out this file for evaluation. Can be repeated.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="With --valid: random seed for the split.")] = 0,
    skip_bad: SkipBad = False,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of worker processes. The output is byte-identical for any number. "
            "Default: one per core.",
        ),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite", help="Replace a prepared corpus in OUTPUT; never replaces other files."
        ),
    ] = False,
    as_json: SummaryAsJson = False,
    quiet: Quiet = False,
) -> None:
    """Convert text files to a corpus for training.

    Splits the text into sentences and tokens, builds a vocabulary and writes
    ids. If lines end mid-sentence, first join the lines of each paragraph. The
    same text and options give the same bytes. The output is written atomically.
    """
    from elmokit.cli.progress import TokenBar
    from elmokit.data.layout import PrepareSettings
    from elmokit.data.prepare import prepare as prepare_text
    from elmokit.settings import with_settings

    with usage_errors():
        settings = PrepareSettings(
            min_count=min_count,
            max_vocab=max_vocab,
            max_characters=max_characters,
            one_sentence_per_line=one_sentence_per_line,
            tokenized=tokenized,
            seed=seed,
        )
        settings = with_settings(settings, as_settings({"valid": valid}))
    with usage_errors(), TokenBar(shown=not quiet) as bar:
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
    _print_summary(summary, as_json=as_json)


def _read_vocabulary(vocab: Path) -> Vocabulary:
    from elmokit.data.prepare import given_vocabulary
    from elmokit.sources.resolve import named_models  # imports torch

    return given_vocabulary(named_models().get(str(vocab), vocab))


def _print_summary(summary: Summary, *, as_json: bool) -> None:
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
        nouns = ("document", "sentence", "token", "type")
        facts = [plural(counts[f"{noun}s"], noun) for noun in nouns]
        facts.append(f"{split.unknown_rate:.2%} of tokens out of vocabulary")
        facts.append(plural(split.truncated_tokens, "truncated token"))
        log_summary(name, facts)
    log_skipped(meta.skipped_lines, summary.first_skipped)
    log(
        f"{summary.output}: vocabulary of {meta.n_words:,} words; "
        f"{summary.n_bytes / 1e6:,.1f} MB of text at {summary.megabytes_per_second:,.1f} MB/s"
    )
