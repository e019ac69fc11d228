"""`elmo neighbors`: the nearest tokens in context."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmokit.cli.options import AnyModel, Device, Quiet, SkipBad, StaticTable, Weights
from elmokit.cli.score import State

if TYPE_CHECKING:
    from elmokit.analysis.static import StaticVectors


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
            ".zst; '-' is standard input; a line is a sentence.",
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
    model: AnyModel = None,
    weights: Weights = None,
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="Neighbours per list.")] = 10,
    layer: Annotated[
        list[str] | None,
        typer.Option(
            help="0, 1, ..., top, average, mix or all; repeat for several. Nothing: all.",
            show_default=False,
        ),
    ] = None,
    mix: Annotated[
        str | None,
        typer.Option(
            metavar="S0,S1,...",
            help="With --layer mix: one weight per layer, lowest first, used as they are.",
            show_default=False,
        ),
    ] = None,
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
    tokenized: Annotated[
        bool,
        typer.Option(
            "--tokenized",
            help="Text and queries are tokenised: tokens are what whitespace separates.",
        ),
    ] = False,
    split: Annotated[
        bool, typer.Option("--split", help="Each line is a paragraph: find its sentences.")
    ] = False,
    state: Annotated[
        State,
        typer.Option(
            help="What each sentence starts from, the queries too. reset: zero. warm: the stored "
            "state of the model."
        ),
    ] = State.RESET,
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
    text. With --static, also list the nearest words of a table of static
    vectors, which know no context.
    """
    if same_word and other_words:
        raise typer.BadParameter("not together with --same-word.", param_hint="--other-words")
    given = _queries(query, queries)
    weights_of_mix = _mix(mix, layer)

    from elmokit.analysis.neighbors import Passage, Rules
    from elmokit.analysis.neighbors import neighbors as find
    from elmokit.analysis.spaces import choose_spaces
    from elmokit.analysis.static import load_static
    from elmokit.cli.progress import TokenBar
    from elmokit.embed.bulk_input import Corpus, check_inputs
    from elmokit.embed.bulk_settings import Progress
    from elmokit.embed.model import load
    from elmokit.text.marked import Marked

    check_inputs(files)
    marked = [Marked.read(sentence, tokenized=tokenized) for sentence in given]
    table = None if static is None else load_static(static)
    elmo = load(model, weights, device)
    spaces = choose_spaces(layer or ["all"], elmo.config.n_layers, weights_of_mix)
    corpus = Corpus(files, tokenized=tokenized, split=split, skip_bad=skip_bad)
    text = (
        Passage(s.tokens, f"{corpus.inputs[s.place.file]}:{s.place.line}")
        for s in corpus.sentences()
    )
    total = None if max_tokens else _size(files)
    with TokenBar(shown=not quiet) as bar:
        found = find(
            elmo,
            marked,
            text,
            k=k,
            spaces=spaces,
            rules=Rules(
                "same" if same_word else "other" if other_words else "any",
                distinct.value,
                other_sentences,
            ),
            state=state.value,
            max_tokens=max_tokens,
            on_window=lambda tokens: bar(Progress(tokens, corpus.n_bytes, total)),
        )
    for result in found:
        near = {} if table is None else _static_neighbors(table, result.query.word, k)
        if as_json:
            typer.echo(json.dumps({**result.to_dict(), **near}, ensure_ascii=False))
        else:
            typer.echo(f"{result}{_static_lines(near)}\n")
    told = f"{found[0].tokens:,} tokens searched"
    if corpus.skipped:
        told += f", {corpus.skipped:,} lines skipped, first {corpus.first_skipped}"
    typer.echo(told, err=True)


def _queries(query: list[str] | None, file: Path | None) -> list[str]:
    given = list(query or ())
    if file is not None:
        from elmokit.text.lines import read_lines

        given += [line.text for line in read_lines([file]) if line.text.strip()]
    if not given:
        raise typer.BadParameter(
            "there is no query. Give --query 'The [play] was staged .'", param_hint="--query"
        )
    return given


def _mix(mix: str | None, layer: list[str] | None) -> tuple[float, ...] | None:
    if (mix is not None) != ("mix" in (layer or ())):
        raise typer.BadParameter("--layer mix and --mix go together.", param_hint="--mix")
    try:
        return None if mix is None else tuple(float(weight) for weight in mix.split(","))
    except ValueError:
        raise typer.BadParameter(
            f"'{mix}' is not a list of numbers such as 0.2,0.3,0.5.", param_hint="--mix"
        ) from None


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
