"""`elmo prepare`: convert text files to a corpus for `elmo train`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli import options as opt
from elmokit.cli.output import log, log_skipped, log_summary, print_json
from elmokit.cli.progress import token_bar
from elmokit.progress import plural

if TYPE_CHECKING:
    from elmokit.text.vocab import Vocabulary


def prepare(
    files: opt.ParagraphFiles,
    output: opt.Output,
    one_sentence_per_line: opt.OneSentencePerLine = False,
    tokenized: opt.Tokenized = False,
    skip_bad: opt.SkipBad = False,
    min_count: int = 3,
    max_vocab: int | None = None,
    vocab: Annotated[Path | None, typer.Option(metavar="FILE|MODEL")] = None,
    max_characters: int = 50,
    valid: Annotated[str | None, typer.Option(metavar="N|FRACTION")] = None,
    valid_files: Annotated[list[str] | None, typer.Option("--valid-file", metavar="FILE")] = None,
    seed: opt.Seed = 0,
    workers: Annotated[int | None, typer.Option(min=1)] = None,
    overwrite: opt.Overwrite = False,
    as_json: opt.SummaryAsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """Convert text files to a corpus for training.

    Splits the text into sentences and words, builds a vocabulary and converts the words to ids. If
    your text has line breaks within sentences, first join the lines of each paragraph. The output
    is deterministic and written atomically.

    Args:
        output: Output directory. Needs about 4 bytes per token and 130 bytes per distinct word, and
            twice as much during preparation.
        min_count: Minimum number of occurrences of a vocabulary word. Rarer words become <UNK> as
            targets; as inputs, all words are encoded from their characters.
        max_vocab: Maximum vocabulary size, including <S>, </S> and <UNK>. Default: unlimited.
        vocab: Existing vocabulary, as required to fine-tune or evaluate an existing model: a model
            directory, the name of an installed model, or a file with one word on each line and <S>,
            </S> and <UNK> on the first three lines. Default: build a vocabulary from the text.
        max_characters: Maximum number of character ids per word, including two boundary ids; longer
            words are truncated. Must match the model.
        valid: Number (such as 500) or fraction (such as 0.01) of documents to hold out for
            evaluation, chosen at random and not used to build the vocabulary. Default: 0.
        valid_files: File with held-out text for evaluation, instead of --valid. Can be repeated.
        workers: Number of worker processes. Does not affect the output. Default: one per core.
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
    with opt.usage_errors(), token_bar(enabled=not quiet) as bar:
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
    from elmokit.data.prepare import read_vocabulary
    from elmokit.sources.resolve import named_models  # slow: imports torch

    return read_vocabulary(named_models().get(str(vocab), vocab))
