"""`elmo plot`: figures of what the layers know."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmokit.cli.options import (
    LAYER_CHOICES,
    AnyModel,
    Device,
    HeadModel,
    Mix,
    State,
    StateName,
    TokenizedLines,
    Weights,
    read_mix,
)

if TYPE_CHECKING:
    from elmokit.plot.figure import Picture

app = typer.Typer(
    help="Draw what the layers know: SVG or PNG, by the suffix of the output. "
    "Needs pip install 'elmokit[plot]'.",
    no_args_is_help=True,
)

Output = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        help="The file to write: .svg or .png.",
        show_default=False,
    ),
]
DrawnLayers = Annotated[
    list[str] | None,
    typer.Option(
        "--layer",
        metavar="LAYER",
        help=f"{LAYER_CHOICES}; repeat for several. Default: all.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the numbers of the figure as JSON.")]


@app.command("senses")
def senses(
    text: Annotated[
        str,
        typer.Argument(
            metavar="FILE|INDEX",
            help="Sentences with the word in brackets, one per line, each maybe followed by a tab "
            "and its sense; '-' is standard input. Or the folder of an index, with --word.",
            show_default=False,
        ),
    ],
    output: Output,
    word: Annotated[
        str | None,
        typer.Option(help="With an index: the word, in any case.", show_default=False),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=3, help="With an index: draw so many uses at most, from all over it.")
    ] = 200,
    clusters: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Without senses: color by so many clusters. Nothing: as many as separate best.",
            show_default=False,
        ),
    ] = None,
    layer: DrawnLayers = None,
    mix: Mix = None,
    model: AnyModel = None,
    weights: Weights = None,
    tokenized: TokenizedLines = False,
    state: State = StateName.RESET,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Draw one word in many sentences on a plane, layer by layer.

    Layer 0 knows the word alone and has one vector for all uses; in the layers
    above, the uses of a sense come together. Colors are the senses that were
    given, or clusters.
    """
    in_index = Path(text).is_dir()
    if in_index != (word is not None):
        raise typer.BadParameter("--word goes with an index, and an index with --word.")
    mixed = read_mix(mix, layer)

    from elmokit.embed.model import load
    from elmokit.plot.figure import check_picture
    from elmokit.plot.senses import draw_senses, read_uses, senses_in, senses_of

    check_picture(output)
    if word is not None:
        from elmokit.search.index import TokenIndex

        index = TokenIndex.open(text)
        found = senses_in(index, word, layer=layer, mix=mixed, limit=limit, clusters=clusters)
    else:
        uses = read_uses(text, tokenized=tokenized)
        elmo = load(model, weights, device)
        found = senses_of(
            elmo, uses, layer=layer or "all", mix=mixed, state=state.value, clusters=clusters
        )
    _finish(draw_senses(found), output, found.to_dict(), as_json=as_json)


@app.command("similarity")
def similarity(
    first: Annotated[
        str, typer.Argument(metavar="SENTENCE", help="Its tokens are the rows.", show_default=False)
    ],
    output: Output,
    second: Annotated[
        str | None,
        typer.Argument(
            metavar="OTHER",
            help="Another sentence, the columns. Nothing: the same once more.",
            show_default=False,
        ),
    ] = None,
    layer: DrawnLayers = None,
    mix: Mix = None,
    model: AnyModel = None,
    weights: Weights = None,
    tokenized: TokenizedLines = False,
    state: State = StateName.RESET,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Draw the cosine of every token of a sentence with every token of another.

    One heat map for each layer, or for the average or a mix of them.
    """
    mixed = read_mix(mix, layer)

    from elmokit.embed.model import load
    from elmokit.plot.figure import check_picture
    from elmokit.plot.similarity import draw_similarity, similarity_of

    check_picture(output)
    elmo = load(model, weights, device)
    given = [s.split() if tokenized and s is not None else s for s in (first, second)]
    assert given[0] is not None
    found = similarity_of(
        elmo, given[0], given[1], layer=layer or "all", mix=mixed, state=state.value
    )
    _finish(draw_similarity(found), output, found.to_dict(), as_json=as_json)


@app.command("layers")
def layers(
    tasks: Annotated[
        list[Path],
        typer.Argument(
            metavar="FOLDERS", help="Folders that `elmo task` has trained.", show_default=False
        ),
    ],
    output: Output,
    as_json: AsJson = False,
) -> None:
    """Draw the layer weights that task models learned, as in Figure 2 of the paper.

    A column for each task; a block for the mix at the input and one for that at
    the output.
    """
    from elmokit.plot.figure import check_picture
    from elmokit.plot.layers import draw_layers, mixes_to_dict, read_mixes

    check_picture(output)
    learned = read_mixes(tasks)
    _finish(draw_layers(learned), output, mixes_to_dict(learned), as_json=as_json)


@app.command("surprise")
def surprise(
    sentences: Annotated[
        list[str],
        typer.Argument(metavar="SENTENCES", help="Each gets its own bars.", show_default=False),
    ],
    output: Output,
    model: HeadModel = None,
    tokenized: TokenizedLines = False,
    state: State = StateName.RESET,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Draw how much each token surprises the forward and the backward language model.

    Bars above a token are bits of surprise given what stands before it, bars
    below given what follows.
    """
    from elmokit.embed.model import load
    from elmokit.plot.figure import check_picture
    from elmokit.plot.surprise import draw_surprise

    check_picture(output)
    elmo = load(model, None, device)
    tokens = [s.split() for s in sentences]
    scores = elmo.score(tokens if tokenized else sentences, state.value)
    values = {"sentences": [score.to_dict() for score in scores]}
    _finish(draw_surprise(scores), output, values, as_json=as_json)


def _finish(picture: Picture, output: Path, values: dict[str, Any], *, as_json: bool) -> None:
    from elmokit.plot.figure import write_picture

    write_picture(picture, output)
    if as_json:
        typer.echo(json.dumps({"output": str(output), **values}, ensure_ascii=False))
    typer.echo(f"{output}: {picture.title}", err=True)
