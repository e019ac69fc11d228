"""`elmo plot`: plot senses, similarities, layer weights and surprisal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmokit.cli import options as opt
from elmokit.cli.app import App
from elmokit.cli.output import log, print_json

if TYPE_CHECKING:
    from elmokit.plot.figure import ElmoFigure

app = App(
    help="Plot senses, similarities, layer weights and surprisal. Requires the plot extra: "
    "pip install 'elmokit[plot]'."
)


def _check_output(output: Path) -> Path:
    from elmokit.plot.figure import check_figure_path

    check_figure_path(output)
    return output


Output = Annotated[
    Path,
    typer.Option("--output", "-o", callback=_check_output, help="Output file: .svg, .png or .pdf."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Also print the plotted values as JSON.")]


@app.command("senses")
def senses(
    text: Annotated[str, typer.Argument(metavar="FILE|INDEX")],
    output: Output,
    word: str | None = None,
    limit: Annotated[int, typer.Option(min=3)] = 200,
    clusters: Annotated[int | None, typer.Option(min=1)] = None,
    model: opt.Model = None,
    weights: opt.Weights = None,
    layer: opt.Layers = None,
    mix: opt.Mix = None,
    tokenized: opt.Tokenized = False,
    state: opt.State = "reset",
    device: opt.Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Plot the uses of a word, one panel per layer.

    Layer 0 depends only on the word, so all of its uses have the same vector. In higher layers,
    uses with the same sense form clusters. Colors show the sense labels in the input, or
    automatic clusters if there are no labels.

    Args:
        text: File with one sentence per line, or '-' for standard input. One word of each sentence
            must be in brackets. A tab and the sense of the word can follow the sentence.
            Alternatively, an index directory, together with --word.
        word: Word to plot (case-insensitive). Requires an index.
        limit: Maximum number of uses from an index. If there are more, they are sampled evenly.
        clusters: Number of automatic clusters. Default: the number with the best silhouette score.
        layer: Default: all.
    """
    is_index = Path(text).is_dir()
    if is_index and word is None:
        raise typer.BadParameter(
            f"{text} is a directory. To plot the uses of a word in an index, specify --word.",
            param_hint="FILE|INDEX",
        )
    if word is not None and not is_index:
        raise opt.UsageError(f"--word requires an index directory, but {text} is not a directory.")
    opt.check_layers(layer, mix)

    from elmokit.embed.loading import load
    from elmokit.plot.senses import draw_senses, project_index_senses, project_senses, read_uses

    if word is not None:
        from elmokit.search.index import TokenIndex

        index = TokenIndex.open(text)
        result = project_index_senses(
            index, word, layer=layer, mix=mix, limit=limit, clusters=clusters
        )
    else:
        uses = read_uses(text, tokenized=tokenized)
        elmo = load(model, weights, device, backend="torch")
        result = project_senses(
            elmo, uses, layer=layer or "all", mix=mix, state=state, clusters=clusters
        )
    _save(draw_senses(result), output, result.to_dict(), as_json=as_json)


@app.command("similarity")
def similarity(
    first: Annotated[str, typer.Argument(metavar="SENTENCE")],
    output: Output,
    second: Annotated[str | None, typer.Argument(metavar="OTHER")] = None,
    model: opt.Model = None,
    weights: opt.Weights = None,
    layer: opt.Layers = None,
    mix: opt.Mix = None,
    tokenized: opt.Tokenized = False,
    state: opt.State = "reset",
    device: opt.Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Plot the similarity between all tokens of two sentences.

    Draws a heat map of cosine similarities for each layer.

    Args:
        first: Sentence for the rows.
        second: Sentence for the columns. Default: the same sentence.
        layer: Default: all.
    """
    opt.check_layers(layer, mix)

    from elmokit.embed.loading import load
    from elmokit.plot.similarity import compute_similarity, draw_similarity

    elmo = load(model, weights, device, backend="torch")
    sentences = [s.split() if tokenized and s is not None else s for s in (first, second)]
    assert sentences[0] is not None
    result = compute_similarity(
        elmo, sentences[0], sentences[1], layer=layer or "all", mix=mix, state=state
    )
    _save(draw_similarity(result), output, result.to_dict(), as_json=as_json)


@app.command("layers")
def layers(
    tasks: Annotated[list[Path], typer.Argument(metavar="DIRS")],
    output: Output,
    as_json: AsJson = False,
) -> None:
    """Plot the learned layer weights of task models.

    Draws a heat map as in Figure 2 of the ELMo paper, with one column per task and separate panels
    for ELMo at the input and at the output.

    Args:
        tasks: Directories written by `elmo task NAME train`.
    """
    from elmokit.plot.layers import draw_layers, read_mixes

    mixes = read_mixes(tasks)
    _save(draw_layers(mixes), output, {**mixes}, as_json=as_json)


@app.command("surprise")
def surprise(
    sentences: Annotated[list[str], typer.Argument()],
    output: Output,
    model: opt.HeadModel = None,
    tokenized: opt.Tokenized = False,
    state: opt.State = "reset",
    device: opt.Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Plot the surprisal of each token, forward and backward.

    Bars above a token show its surprisal in bits given the preceding tokens; bars below, given the
    following tokens.

    Args:
        sentences: Sentences to plot.
    """
    from elmokit.embed.loading import load
    from elmokit.plot.surprise import draw_surprise

    elmo = load(model, device=device, backend="torch")
    tokens = [s.split() for s in sentences]
    scores = elmo.score(tokens if tokenized else sentences, state)
    values = {"sentences": [score.to_dict() for score in scores]}
    _save(draw_surprise(scores), output, values, as_json=as_json)


def _save(figure: ElmoFigure, output: Path, values: dict[str, Any], *, as_json: bool) -> None:
    from elmokit.plot.figure import save_figure

    save_figure(figure, output)
    if as_json:
        print_json({"output": str(output), **values})
    log(f"{output}: {figure.title}")
