"""`elmo neighbors`: find the nearest tokens in context."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from elmokit.cli.options import (
    TEXT_FILES,
    AnyModel,
    Device,
    Layers,
    LinesAsJson,
    Mix,
    Quiet,
    SkipBad,
    SplitLines,
    State,
    StaticTable,
    TokenizedLines,
    Weights,
    read_mix,
)
from elmokit.cli.output import log, log_skipped, print_json
from elmokit.cli.progress import TokenBar
from elmokit.progress import plural

if TYPE_CHECKING:
    from elmokit.bulk.input import Corpus
    from elmokit.embed.static import StaticVectors
    from elmokit.search.neighbors import Neighbors, Words
    from elmokit.text.marked import Marked


def neighbors(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILES",
            help=f"{TEXT_FILES} Each line is a sentence. Or an index directory: then only "
            "the queries are embedded.",
        ),
    ],
    query: Annotated[
        list[str] | None,
        typer.Option(
            help="Sentence with one word in brackets: 'The [play] was staged .' Can be repeated; "
            "all queries share one pass over the text."
        ),
    ] = None,
    queries: Annotated[
        Path | None, typer.Option(help="File with queries, one per line.", metavar="FILE")
    ] = None,
    word: Annotated[
        str | None, typer.Option(help="Word to search for, instead of brackets in the queries.")
    ] = None,
    token: Annotated[
        list[int] | None,
        typer.Option(
            help="With an index: use the indexed token with this number (see --json) as a query. "
            "Can be repeated.",
            min=0,
        ),
    ] = None,
    model: AnyModel = None,
    weights: Weights = None,
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="Number of neighbors per list.")] = 10,
    layer: Layers = None,
    mix: Mix = None,
    same_word: Annotated[
        bool, typer.Option("--same-word", help="Only list other uses of the query word.")
    ] = False,
    other_words: Annotated[
        bool,
        typer.Option("--other-words", help="Only list other words; matching is case-insensitive."),
    ] = False,
    other_sentences: Annotated[
        bool,
        typer.Option(
            "--other-sentences", help="Exclude the sentence of the query, if the text contains it."
        ),
    ] = False,
    min_count: Annotated[
        int,
        typer.Option(min=1, help="With an index: only list words that occur at least this often."),
    ] = 1,
    distinct: Annotated[
        Literal["token", "sentence", "word"],
        typer.Option(
            help="How to remove duplicates. token: list every token. sentence: list identical "
            "sentences once. word: list only the nearest token of each word."
        ),
    ] = "sentence",
    max_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Approximate maximum number of tokens to search. Default: all."),
    ] = None,
    tokenized: TokenizedLines = False,
    split: SplitLines = False,
    state: State = "reset",
    ann: Annotated[
        bool,
        typer.Option(
            "--ann",
            help="With an index: use approximate search, with the recall reported by "
            "`elmo index --ann`.",
        ),
    ] = False,
    static: StaticTable = None,
    skip_bad: SkipBad = False,
    device: Device = "auto",
    as_json: LinesAsJson = False,
    quiet: Quiet = False,
) -> None:
    """Find the nearest neighbors of a word in context.

    Compares a word in a sentence with every token of a text by cosine similarity, layer by layer.
    Layer 0 represents only the word; the other layers also represent its context. Memory
    does not grow with the text. For repeated queries, build an index first with
    `elmo index`. With --static, also lists the nearest words according to static
    vectors, which ignore context.
    """
    if same_word and other_words:
        raise typer.BadParameter("cannot be used with --same-word.", param_hint="--other-words")
    in_index = len(files) == 1 and Path(files[0]).is_dir()
    if in_index and (max_tokens or split or skip_bad or state != "reset"):
        raise typer.BadParameter(
            "--max-tokens, --split, --skip-bad and --state cannot be used with an index. Use them "
            "with `elmo index`.",
            param_hint="FILES",
        )
    if not in_index and (token or ann or min_count > 1):
        raise typer.BadParameter(
            "--token, --min-count and --ann require the directory of an index.", param_hint="FILES"
        )
    options: dict[str, Any] = {"k": k, "mix": read_mix(mix, layer)}

    from elmokit.bulk.input import Corpus, check_inputs
    from elmokit.embed.static import load_static
    from elmokit.search.neighbors import Rules

    marked = _read_queries(query or [], queries, word, tokenized=tokenized)
    if not marked and not token:
        raise typer.BadParameter(
            "no query. Give, for example, --query 'The [play] was staged .'", param_hint="--query"
        )
    if not in_index:
        check_inputs(files)
    table = None if static is None else load_static(static)
    words: Words = "same" if same_word else "other" if other_words else "any"
    options["rules"] = Rules(words, distinct, other_sentences)
    loading = (model, weights, device)
    if in_index:
        options |= {"layer": layer, "min_count": min_count, "ann": ann}
        results, summary = _search_index(files[0], [*marked, *(token or ())], loading, options)
    else:
        corpus = Corpus(files, tokenized=tokenized, split=split, skip_bad=skip_bad)
        options |= {"state": state, "max_tokens": max_tokens, **({"layer": layer} if layer else {})}
        with TokenBar(shown=not quiet) as bar:
            results = _search_text(corpus, marked, loading, options, bar)
        summary = f"{plural(results[0].tokens, 'token')} searched"
        log_skipped(corpus.skipped, corpus.first_skipped)
    for result in results:
        near = None if table is None else _static_neighbors(table, result.query.word, k)
        if as_json:
            print_json(result.to_dict() | ({} if near is None else {"static": near}))
        else:
            typer.echo(f"{result}{_format_static(near)}\n")
    log(summary)


def _search_text(
    corpus: Corpus, queries: list[Marked], loading: Any, options: dict[str, Any], bar: TokenBar
) -> list[Neighbors]:
    from elmokit.embed.model import load
    from elmokit.progress import Progress
    from elmokit.search.neighbors import Passage, neighbors

    text = (
        Passage(s.tokens, f"{corpus.inputs[s.place.file]}:{s.place.line}")
        for s in corpus.sentences()
    )
    return neighbors(
        load(*loading),
        queries,
        text,
        on_window=lambda tokens: bar(Progress(tokens, corpus.n_bytes, None)),
        **options,
    )


def _search_index(
    directory: str, queries: list[Marked | int], loading: Any, options: dict[str, Any]
) -> tuple[list[Neighbors], str]:
    from elmokit.embed.model import load
    from elmokit.search.index import TokenIndex

    index = TokenIndex.open(directory)
    ann = index.meta.ann
    if options["ann"] and options["layer"] is None and ann:
        options["layer"] = [choice for choice in index.choices if choice.label in ann]
    elmo = None if all(isinstance(query, int) for query in queries) else load(*loading)
    results = index.neighbors(queries, elmo, **options)
    summary = f"{plural(index.tokens, 'token')} searched"
    if options["ann"]:
        recalls = [f"{name} {ann[name]['recall_at_10']:.3f}" for name in results[0].lists]
        summary += f", approximately (measured recall: {', '.join(recalls)})"
    return results, summary


def _read_queries(
    sentences: list[str], file: Path | None, word: str | None, *, tokenized: bool
) -> list[Marked]:
    from elmokit.text.lines import read_lines
    from elmokit.text.marked import Marked, mark

    if file is not None:
        lines = (line.text for line in read_lines([file]))
        sentences = [*sentences, *(line for line in lines if line.strip())]
    if word is None:
        return [Marked.read(sentence, tokenized=tokenized) for sentence in sentences]
    return [mark(sentence, word, tokenized=tokenized) for sentence in sentences]


def _static_neighbors(table: StaticVectors, word: str, k: int) -> dict[str, Any]:
    """Return the nearest words of a table; an empty list for unknown words."""
    nearest = table.neighbors(word, k) if word in table else []
    near = [{"word": word, "score": round(score, 6)} for word, score in nearest]
    return {"name": table.name, "neighbors": near}


def _format_static(near: dict[str, Any] | None) -> str:
    if near is None:
        return ""
    words = [f"{n['word']} {n['score']:.3f}" for n in near["neighbors"]]
    return f"\n{near['name']}: {', '.join(words) or 'unknown word'}"
