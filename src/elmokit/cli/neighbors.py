"""`elmo neighbors`: the nearest tokens in context."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmokit.cli.options import (
    AnyModel,
    Device,
    Layers,
    Mix,
    Quiet,
    SkipBad,
    SplitLines,
    StateName,
    StaticTable,
    TokenizedLines,
    Weights,
    read_mix,
)
from elmokit.cli.progress import TokenBar

if TYPE_CHECKING:
    from elmokit.bulk.input import Corpus
    from elmokit.embed.static import StaticVectors
    from elmokit.search.neighbors import Neighbors
    from elmokit.text.marked import Marked


class Distinct(StrEnum):
    """What is listed once."""

    TOKEN = "token"
    SENTENCE = "sentence"
    WORD = "word"


def neighbors(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILES",
            help="The text to search, read as `elmo embed` reads it: UTF-8, also .gz, .xz, .bz2, "
            ".zst; '-' is standard input; a line is a sentence. Or the folder of an index: then "
            "only the queries are computed.",
            show_default=False,
        ),
    ],
    query: Annotated[
        list[str] | None,
        typer.Option(
            help="A sentence with one word in brackets: 'The [play] was staged .' Several "
            "queries share one pass over the text: repeat the option.",
            show_default=False,
        ),
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option(
            help="A file of such sentences, one per line.", metavar="FILE", show_default=False
        ),
    ] = None,
    word: Annotated[
        str | None,
        typer.Option(
            help="The word that is meant, instead of brackets in the queries.", show_default=False
        ),
    ] = None,
    token: Annotated[
        list[int] | None,
        typer.Option(
            help="With an index: a token of it as the query, by its number (see --json); repeat "
            "for several.",
            min=0,
            show_default=False,
        ),
    ] = None,
    model: AnyModel = None,
    weights: Weights = None,
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="Neighbors per list.")] = 10,
    layer: Layers = None,
    mix: Mix = None,
    same_word: Annotated[
        bool, typer.Option("--same-word", help="List only other uses of the word of the query.")
    ] = False,
    other_words: Annotated[
        bool, typer.Option("--other-words", help="List only other words. Case makes no other word.")
    ] = False,
    other_sentences: Annotated[
        bool,
        typer.Option(
            "--other-sentences", help="Leave out the sentence of the query, if the text has it."
        ),
    ] = False,
    min_count: Annotated[
        int,
        typer.Option(min=1, help="With an index: only words that it has at least so many times."),
    ] = 1,
    distinct: Annotated[
        Distinct,
        typer.Option(
            help="What is listed once. token: nothing is left out. sentence: of sentences that are "
            "the same word by word only one counts. word: each word only by its nearest token."
        ),
    ] = Distinct.SENTENCE,
    max_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Search no more than about this many tokens.", show_default=False),
    ] = None,
    tokenized: TokenizedLines = False,
    split: SplitLines = False,
    state: Annotated[
        StateName,
        typer.Option(
            help="What each sentence starts from, the queries too. reset: zero. warm: the stored "
            "state of the model."
        ),
    ] = StateName.RESET,
    ann: Annotated[
        bool,
        typer.Option(
            "--ann",
            help="With an index: search approximately, with the recall that `elmo index --ann` has "
            "measured, instead of exactly.",
        ),
    ] = False,
    static: StaticTable = None,
    skip_bad: SkipBad = False,
    device: Device = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per query and line.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Find the tokens of a text that are nearest to a word in its sentence.

    Every token of the text is compared, by cosine, layer by layer: layer 0
    knows the word alone, the others its context. Memory does not grow with the
    text. For repeated queries, build an index first, with `elmo index`. With
    --static, also list the nearest words of a table of static vectors, which
    know no context.
    """
    if same_word and other_words:
        raise typer.BadParameter("not together with --same-word.", param_hint="--other-words")
    in_index = len(files) == 1 and Path(files[0]).is_dir()
    if in_index and (max_tokens or split or skip_bad or state is not StateName.RESET):
        raise typer.BadParameter(
            "--max-tokens, --split, --skip-bad and --state belong to `elmo index`.",
            param_hint="FILES",
        )
    if not in_index and (token or ann or min_count > 1):
        raise typer.BadParameter(
            "--token, --min-count and --ann go with the folder of an index.", param_hint="FILES"
        )
    mixed = read_mix(mix, layer)

    from elmokit.bulk.input import Corpus, check_inputs
    from elmokit.embed.static import load_static
    from elmokit.search.neighbors import Rules

    if not in_index:
        check_inputs(files)
    marked = _read_queries(query, queries, word, tokenized=tokenized)
    if not marked and not token:
        raise typer.BadParameter(
            "there is no query. Give --query 'The [play] was staged .'", param_hint="--query"
        )
    table = None if static is None else load_static(static)
    rules = Rules(
        "same" if same_word else "other" if other_words else "any", distinct.value, other_sentences
    )
    options: dict[str, Any] = {"k": k, "mix": mixed, "rules": rules}
    loading = (model, weights, device)
    if in_index:
        options |= {"layer": layer, "min_count": min_count, "ann": ann}
        found, summary = _search_index(Path(files[0]), [*marked, *(token or ())], loading, options)
    else:
        corpus = Corpus(files, tokenized=tokenized, split=split, skip_bad=skip_bad)
        options |= {"state": state.value, "max_tokens": max_tokens}
        if layer:
            options["layer"] = layer
        with TokenBar(shown=not quiet) as bar:
            found, summary = _search_text(corpus, marked, loading, options, bar)
    for result in found:
        near = None if table is None else _static_neighbors(table, result.query.word, k)
        if as_json:
            values = result.to_dict() if near is None else {**result.to_dict(), "static": near}
            typer.echo(json.dumps(values, ensure_ascii=False))
        else:
            typer.echo(f"{result}{_format_static(near)}\n")
    typer.echo(summary, err=True)


def _search_text(
    corpus: Corpus, queries: list[Marked], loading: Any, options: dict[str, Any], bar: TokenBar
) -> tuple[list[Neighbors], str]:
    from elmokit.embed.model import load
    from elmokit.progress import Progress
    from elmokit.search.neighbors import Passage, neighbors

    text = (
        Passage(s.tokens, f"{corpus.inputs[s.place.file]}:{s.place.line}")
        for s in corpus.sentences()
    )
    found = neighbors(
        load(*loading),
        queries,
        text,
        on_window=lambda tokens: bar(Progress(tokens, corpus.n_bytes, None)),
        **options,
    )
    summary = f"{found[0].tokens:,} tokens searched"
    if corpus.skipped:
        summary += f", {corpus.skipped:,} lines skipped, first {corpus.first_skipped}"
    return found, summary


def _search_index(
    folder: Path, queries: list[Marked | int], loading: Any, options: dict[str, Any]
) -> tuple[list[Neighbors], str]:
    from elmokit.embed.model import load
    from elmokit.search.index import TokenIndex

    index = TokenIndex.open(folder)
    ann = index.meta.ann
    if options["ann"] and options["layer"] is None and ann:
        options["layer"] = [choice for choice in index.choices if choice.label in ann]
    elmo = None if all(isinstance(query, int) for query in queries) else load(*loading)
    found = index.neighbors(queries, elmo, **options)
    summary = f"{index.tokens:,} tokens searched"
    if options["ann"]:
        recalls = [f"{name} {ann[name]['recall_at_10']:.3f}" for name in found[0].lists]
        summary += f", approximately (measured recall: {', '.join(recalls)})"
    return found, summary


def _read_queries(
    given: list[str] | None, file: Path | None, word: str | None, *, tokenized: bool
) -> list[Marked]:
    from elmokit.text.lines import read_lines
    from elmokit.text.marked import Marked, mark

    sentences = list(given or ())
    if file is not None:
        sentences += [line.text for line in read_lines([file]) if line.text.strip()]
    if word is None:
        return [Marked.read(sentence, tokenized=tokenized) for sentence in sentences]
    return [mark(sentence, word, tokenized=tokenized) for sentence in sentences]


def _static_neighbors(table: StaticVectors, word: str, k: int) -> dict[str, Any]:
    """Return the nearest words of a table; none for a word that it lacks."""
    found = table.neighbors(word, k) if word in table else []
    near = [{"word": word, "score": round(score, 6)} for word, score in found]
    return {"name": table.name, "neighbors": near}


def _format_static(near: dict[str, Any] | None) -> str:
    if near is None:
        return ""
    words = [f"{n['word']} {n['score']:.3f}" for n in near["neighbors"]]
    return f"\n{near['name']}: {', '.join(words) or 'the word is not in it'}"
