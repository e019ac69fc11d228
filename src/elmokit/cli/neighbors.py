"""`elmo neighbors`: find the nearest neighbors of a word in context."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from elmokit.cli import options as opt
from elmokit.cli.output import log, log_skipped, print_result
from elmokit.cli.progress import token_bar
from elmokit.progress import Progress, plural

if TYPE_CHECKING:
    from elmokit.embed.model import ElmoModel
    from elmokit.search.neighbors import Neighbors, Words
    from elmokit.text.marked import MarkedWord


def neighbors(
    files: Annotated[list[str], typer.Argument(metavar="FILES|INDEX", help=opt.SENTENCES)],
    query: list[str] | None = None,
    token: Annotated[list[int] | None, typer.Option(min=0)] = None,
    k: Annotated[int, typer.Option("--k", "-k", min=1)] = 10,
    model: opt.Model = None,
    weights: opt.Weights = None,
    layer: opt.Layers = None,
    mix: opt.Mix = None,
    tokenized: opt.Tokenized = False,
    split: opt.SplitLines = False,
    skip_bad: opt.SkipBad = False,
    state: opt.State = "reset",
    same_word: Annotated[bool, typer.Option("--same-word")] = False,
    other_words: Annotated[bool, typer.Option("--other-words")] = False,
    other_sentences: Annotated[bool, typer.Option("--other-sentences")] = False,
    distinct: Literal["token", "sentence", "word"] = "sentence",
    min_count: Annotated[int, typer.Option(min=1)] = 1,
    max_tokens: Annotated[int | None, typer.Option(min=1)] = None,
    ann: Annotated[bool, typer.Option("--ann")] = False,
    static: opt.StaticTable = None,
    device: opt.Device = "auto",
    as_json: opt.LinesAsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """Find the nearest neighbors of a word in context.

    For each layer, computes the cosine similarity between a word in a sentence and every token of a
    text. Layer 0 represents only the word; the other layers also represent its context. Memory
    usage does not depend on the size of the text. For repeated queries, build an index first with
    `elmo index`. With --static, also lists the nearest neighbors according to static vectors, which
    ignore the context.

    Args:
        files: Alternatively, a directory written by `elmo index`.
        query: Sentence with one word in brackets, for example 'The [play] was long .' Can be
            repeated.
        token: Id of an indexed token to use as a query. --json prints the ids of neighbors.
            Requires an index. Can be repeated.
        k: Number of neighbors per query and layer.
        layer: Default: every layer and the average.
        same_word: Only list occurrences of the query word.
        other_words: Only list other words (case-insensitive).
        other_sentences: Exclude the query sentence, if the text contains it.
        distinct: How to remove duplicates. token: keep all tokens. sentence: list identical
            sentences once. word: list only the nearest token of each word.
        min_count: Only list words that occur at least this many times. Requires an index.
        max_tokens: Approximate maximum number of tokens to search. Default: all.
        ann: Use approximate search (see `elmo index --ann`). Requires an index.
    """
    if same_word and other_words:
        raise opt.UsageError("--other-words cannot be used with --same-word.")
    is_index = len(files) == 1 and Path(files[0]).is_dir()
    if is_index and (max_tokens or split or skip_bad or state != "reset"):
        raise opt.UsageError(
            "--max-tokens, --split, --skip-bad and --state cannot be used with an index. To change "
            "how the text is read, use --split, --skip-bad and --state with `elmo index`."
        )
    if not is_index and (token or ann or min_count > 1):
        raise opt.UsageError(
            "--token, --min-count and --ann require an index. Pass an index directory instead of "
            "text files."
        )
    if not query and not token:
        raise opt.UsageError("Missing option '--query'. Example: --query 'The [play] was staged .'")
    opt.check_layers(layer, mix)

    from elmokit.bulk.input import read_sentences
    from elmokit.embed.layer_choice import ALL_AND_AVERAGE
    from elmokit.embed.loading import load
    from elmokit.embed.static import load_static
    from elmokit.search.neighbors import NeighborFilter, Passage
    from elmokit.search.neighbors import neighbors as search_text
    from elmokit.text.lines import SkippedLines, check_files
    from elmokit.text.marked import MarkedWord

    marked = [MarkedWord.parse(sentence, tokenized=tokenized) for sentence in query or ()]
    if not is_index:
        check_files(files)
    table = None if static is None else load_static(static)
    scope: Words = "same" if same_word else "other" if other_words else "any"
    options = {"k": k, "mix": mix, "filter": NeighborFilter(scope, distinct, other_sentences)}
    elmo = load(model, weights, device, backend="torch") if marked else None
    if is_index:
        options |= {"layer": layer, "min_count": min_count, "ann": ann}
        results, summary = _search_index(files[0], [*marked, *(token or ())], elmo, options)
    else:
        assert elmo is not None
        skipped = SkippedLines(skip_bad)
        sentences = read_sentences(files, tokenized=tokenized, split=split, skipped=skipped)
        text = (Passage(s.tokens, f"{s.file}:{s.line}") for s in sentences)
        options |= {"layer": layer or ALL_AND_AVERAGE, "state": state, "max_tokens": max_tokens}
        with token_bar(enabled=not quiet) as bar:
            options["on_window"] = lambda tokens: bar(Progress(tokens, 0, None))
            results = search_text(elmo, marked, text, **options)
        summary = f"{plural(results[0].searched_tokens, 'token')} searched"
        log_skipped(skipped.count, skipped.first)
    for result in results:
        values, output = result.to_dict(), str(result)
        if table is not None:
            word = result.query.word
            nearest = table.neighbors(word, k) if word in table else []
            entries = [{"word": word, "score": round(score, 6)} for word, score in nearest]
            values["static"] = {"name": table.name, "neighbors": entries}
            words = ", ".join(f"{word} {score:.3f}" for word, score in nearest)
            output += f"\n{table.name}: {words or 'unknown word'}"
        print_result(values, f"{output}\n", as_json=as_json)
    log(summary)


def _search_index(
    directory: str, queries: list[MarkedWord | int], elmo: ElmoModel | None, options: dict[str, Any]
) -> tuple[list[Neighbors], str]:
    from elmokit.search.index import TokenIndex

    index = TokenIndex.open(directory)
    ann = index.meta.ann
    if options["ann"] and options["layer"] is None and ann:
        options["layer"] = [choice for choice in index.default_choices if choice.label in ann]
    results = index.neighbors(queries, elmo, **options)
    summary = f"{plural(index.n_tokens, 'token')} searched"
    if options["ann"]:
        recalls = [f"{name} {ann[name]['recall_at_10']:.3f}" for name in results[0].by_layer]
        summary += f", approximately (measured recall: {', '.join(recalls)})"
    return results, summary
