"""`elmo prepare`: from text files to what `elmo train` reads."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmokit.cli.options import (
    OneSentencePerLine,
    Quiet,
    SkipBad,
    SummaryAsJson,
    Tokenized,
    as_settings,
    not_stdout,
    usage_errors,
)
from elmokit.cli.signals import INTERRUPTED
from elmokit.progress import plural

if TYPE_CHECKING:
    from elmokit.data.prepare import Summary
    from elmokit.text.vocab import Vocabulary


def prepare(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILES...",
            help="Text files in UTF-8, also .gz, .xz, .bz2, .zst; '-' is standard input. A line is "
            "a paragraph, and empty lines separate documents, as the end of a file does.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="The folder to make: about 4 bytes per token and 130 per word type. "
            "Twice that is needed while it is made.",
            callback=not_stdout,
            show_default=False,
        ),
    ],
    one_sentence_per_line: OneSentencePerLine = False,
    tokenized: Tokenized = False,
    min_count: Annotated[
        int,
        typer.Option(
            help="Leave words seen less often out of the vocabulary. As a target they are <UNK>; "
            "as an input they are spelled by their characters like all words.",
        ),
    ] = 3,
    max_vocab: Annotated[
        int | None,
        typer.Option(
            help="The most words in the vocabulary, with <S>, </S> and <UNK>: the frequent ones "
            "stay. Nothing: no limit.",
            show_default=False,
        ),
    ] = None,
    vocab: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE|MODEL",
            help="Take this vocabulary, so that the ids are those of an existing model, as "
            "`elmo finetune` and `elmo evaluate` need: a model's folder, the name of one that came "
            "with elmokit (english), or a file with one word per line that starts with <S>, </S>, "
            "<UNK>. All other words are <UNK> as targets.",
            show_default=False,
        ),
    ] = None,
    max_characters: Annotated[
        int,
        typer.Option(
            help="Character ids per word, two of them for its begin and end; longer words are cut. "
            "A model has to be trained with the same number.",
        ),
    ] = 50,
    valid: Annotated[
        str | None,
        typer.Option(
            metavar="N|FRACTION",
            help="Hold out documents for evaluation, chosen at random: a number of them (500) or a "
            "fraction (0.01). Their words do not count for the vocabulary.",
            show_default=False,
        ),
    ] = None,
    valid_files: Annotated[
        list[str] | None,
        typer.Option(
            "--valid-files",
            metavar="FILE",
            help="Hold out this file; give it again for more files.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="With --valid: another seed chooses other documents.")
    ] = 0,
    skip_bad: SkipBad = False,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Processes that work side by side. The result is the same with any number. "
            "Nothing: one per core.",
            show_default=False,
        ),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Replace a prepared corpus in the output folder. Nothing else is ever replaced.",
        ),
    ] = False,
    as_json: SummaryAsJson = False,
    quiet: Quiet = False,
) -> None:
    """Make text ready for training: sentences, words, a vocabulary, ids.

    Text whose lines end in mid-sentence should be joined to one line per
    paragraph first. The same text and options give the same bytes.

    The folder is written beside and renamed at the end: it is there whole or
    not at all.
    """
    if valid is not None and valid_files:
        raise typer.BadParameter("give --valid or --valid-files, not both.", param_hint="--valid")
    try:
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
        with TokenBar(shown=not quiet) as bar:
            summary = prepare_text(
                files,
                output,
                settings,
                valid_files=valid_files or (),
                skip_bad=skip_bad,
                overwrite=overwrite,
                workers=workers,
                on_progress=bar,
                vocabulary=None if vocab is None else _given(vocab),
            )
    except KeyboardInterrupt:
        typer.echo("interrupted: nothing is written, nothing was changed.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    _tell(summary, as_json=as_json)


def _given(vocab: Path) -> Vocabulary:
    from elmokit.data.prepare import given_vocabulary
    from elmokit.sources.resolve import named_models  # brings torch

    return given_vocabulary(named_models().get(str(vocab), vocab))


def _tell(summary: Summary, *, as_json: bool) -> None:
    meta = summary.meta
    if as_json:
        values: dict[str, Any] = {
            "output": str(summary.output),
            **meta.to_dict(),
            "bytes": summary.n_bytes,
            "seconds": round(summary.seconds, 3),
            "megabytes_per_second": round(summary.megabytes_per_second, 3),
            "workers": summary.workers,
        }
        typer.echo(json.dumps(values, ensure_ascii=False))
    for name, split in meta.splits.items():
        counts = dataclasses.asdict(split)
        nouns = ("document", "sentence", "token", "type")
        told = [plural(counts[f"{noun}s"], noun) for noun in nouns]
        told.append(f"{split.unknown_rate:.2%} of the tokens out of vocabulary")
        told.append(f"{split.truncated_tokens:,} too long and cut")
        typer.echo(f"{name}: {', '.join(told)}", err=True)
    if meta.skipped_lines:
        typer.echo(
            f"{plural(meta.skipped_lines, 'line')} skipped, first {summary.first_skipped}", err=True
        )
    typer.echo(
        f"{summary.output}: a vocabulary of {meta.n_words:,} words; "
        f"{summary.n_bytes / 1e6:,.1f} MB of text at {summary.megabytes_per_second:,.1f} MB/s",
        err=True,
    )
