"""`elmo neighbors`: the nearest tokens in context."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

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

if TYPE_CHECKING:
    from elmokit.bulk.input import Corpus
    from elmokit.embed.layer_choice import LayerChoice
    from elmokit.embed.static import StaticVectors
    from elmokit.search.index import IndexNeighbors
    from elmokit.search.neighbors import Neighbors, Rules
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
            help="A sentence with one word in brackets: 'The \\[play] was staged .' Several "
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
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="Neighbours per list.")] = 10,
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
    mixed = read_mix(mix, layer)
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
    given = _queries(query, queries, optional=bool(token))

    from elmokit.bulk.input import check_inputs
    from elmokit.embed.static import load_static
    from elmokit.search.neighbors import Rules

    if not in_index:
        check_inputs(files)
    marked = [_marked(sentence, word, tokenized=tokenized) for sentence in given]
    table = None if static is None else load_static(static)
    asked = _Asked(
        marked=marked,
        tokens=token or [],
        k=k,
        layer=layer,
        mix=mixed,
        rules=Rules(
            "same" if same_word else "other" if other_words else "any",
            distinct.value,
            other_sentences,
        ),
    )
    found: Sequence[Neighbors]
    if in_index:
        found, told = _in_index(
            asked, Path(files[0]), (model, weights, device), min_count=min_count, ann=ann
        )
    else:
        from elmokit.bulk.input import Corpus

        corpus = Corpus(files, tokenized=tokenized, split=split, skip_bad=skip_bad)
        found, told = _in_text(
            asked, corpus, (model, weights, device), state.value, max_tokens, quiet=quiet
        )
    for result in found:
        near = {} if table is None else _static_neighbors(table, result.query.word, k)
        if as_json:
            typer.echo(json.dumps({**result.to_dict(), **near}, ensure_ascii=False))
        else:
            typer.echo(f"{result}{_static_lines(near)}\n")
    typer.echo(told, err=True)


class _Asked(NamedTuple):
    """What is looked for, wherever."""

    marked: list[Marked]
    tokens: list[int]
    k: int
    layer: list[str] | None
    mix: tuple[float, ...] | None
    rules: Rules


def _in_text(
    asked: _Asked,
    corpus: Corpus,
    loading: tuple[str | None, str | None, str],
    state: Literal["reset", "warm"],
    max_tokens: int | None,
    *,
    quiet: bool,
) -> tuple[list[Neighbors], str]:
    from elmokit.bulk.settings import Progress
    from elmokit.cli.progress import TokenBar
    from elmokit.embed.layer_choice import ALL_AND_AVERAGE
    from elmokit.embed.model import load
    from elmokit.search.neighbors import Passage
    from elmokit.search.neighbors import neighbors as find

    elmo = load(*loading)
    text = (
        Passage(s.tokens, f"{corpus.inputs[s.place.file]}:{s.place.line}")
        for s in corpus.sentences()
    )
    total = None if max_tokens else _size(corpus.inputs)
    with TokenBar(shown=not quiet) as bar:
        found = find(
            elmo,
            asked.marked,
            text,
            k=asked.k,
            layer=asked.layer or ALL_AND_AVERAGE,
            mix=asked.mix,
            rules=asked.rules,
            state=state,
            max_tokens=max_tokens,
            on_window=lambda tokens: bar(Progress(tokens, corpus.n_bytes, total)),
        )
    told = f"{found[0].tokens:,} tokens searched"
    if corpus.skipped:
        told += f", {corpus.skipped:,} lines skipped, first {corpus.first_skipped}"
    return found, told


def _in_index(
    asked: _Asked,
    folder: Path,
    loading: tuple[str | None, str | None, str],
    *,
    min_count: int,
    ann: bool,
) -> tuple[list[IndexNeighbors], str]:
    from elmokit.embed.model import load
    from elmokit.search.index import TokenIndex

    index = TokenIndex.open(folder)
    elmo = None
    if asked.marked:
        elmo = load(*loading)
    layer: Sequence[str | LayerChoice] | None = asked.layer
    if layer is None and ann:
        layer = [choice for choice in index.choices if choice.label in index.meta.ann] or None
    found = index.neighbors(
        [*asked.marked, *asked.tokens],
        elmo,
        k=asked.k,
        layer=layer,
        mix=asked.mix,
        rules=asked.rules,
        min_count=min_count,
        ann=ann,
    )
    told = f"{index.tokens:,} tokens searched"
    if ann:
        reached = [
            f"{name} {about['recall_at_10']:.3f}"
            for name, about in index.meta.ann.items()
            if name in found[0].lists
        ]
        told += f", approximately (measured recall: {', '.join(reached)})"
    return found, told


def _marked(sentence: str, word: str | None, *, tokenized: bool) -> Marked:
    from elmokit.text.marked import Marked, mark

    if word is None:
        return Marked.read(sentence, tokenized=tokenized)
    return mark(sentence, word, tokenized=tokenized)


def _queries(query: list[str] | None, file: Path | None, *, optional: bool = False) -> list[str]:
    given = list(query or ())
    if file is not None:
        from elmokit.text.lines import read_lines

        given += [line.text for line in read_lines([file]) if line.text.strip()]
    if not given and not optional:
        raise typer.BadParameter(
            "there is no query. Give --query 'The [play] was staged .'", param_hint="--query"
        )
    return given


def _size(files: list[str]) -> int | None:
    """Return the bytes of all files, if they are plain text that can be measured."""
    packed = (".gz", ".xz", ".bz2", ".zst")
    if any(name == "-" or name.endswith(packed) or not Path(name).is_file() for name in files):
        return None
    return sum(Path(name).stat().st_size for name in files)


def _static_neighbors(table: StaticVectors, word: str, k: int) -> dict[str, Any]:
    """Return the nearest words of a table; none for a word that it lacks."""
    found = table.neighbors(word, k) if word in table else []
    near = [{"word": word, "score": round(score, 6)} for word, score in found]
    return {"static": {"name": table.name, "neighbors": near}}


def _static_lines(near: dict[str, Any]) -> str:
    if not near:
        return ""
    words = [f"{n['word']} {n['score']:.3f}" for n in near["static"]["neighbors"]]
    shown = ", ".join(words) if words else "the word is not in it"
    return f"\n{near['static']['name']}: {shown}"
