"""`elmo probe`: what each layer knows."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmokit.cli.options import (
    AnyModel,
    Device,
    Precision,
    PrecisionName,
    Quiet,
    State,
    StateName,
    StaticTable,
    TextAsJson,
    Weights,
)

if TYPE_CHECKING:
    from elmokit.analysis.pos_probe import PosReport, PosResult
    from elmokit.analysis.wsd import WsdReport

app = typer.Typer(help="Ask each layer what it knows.", no_args_is_help=True)

Layers = Annotated[
    list[str] | None,
    typer.Option(
        "--layer",
        metavar="LAYER",
        help="0, 1, ..., top, average, concat (all side by side), or all; several times for "
        "several. Nothing: every layer and the average.",
        show_default=False,
    ),
]


class Tags(StrEnum):
    """The tags of a treebank."""

    XPOS = "xpos"
    UPOS = "upos"


@app.callback()
def _probe() -> None:
    """Ask each layer what it knows."""


@app.command("pos")
def pos(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="FOLDER",
            help="A treebank of Universal Dependencies: *train.conllu, *dev.conllu, *test.conllu.",
            show_default=False,
        ),
    ] = None,
    train: Annotated[Path | None, typer.Option(help="CoNLL-U to train on.")] = None,
    dev: Annotated[Path | None, typer.Option(help="CoNLL-U to stop by.")] = None,
    test: Annotated[Path | None, typer.Option(help="CoNLL-U to test on.")] = None,
    tags: Annotated[
        Tags,
        typer.Option(
            help="xpos: the treebank's own tags, Penn Treebank tags in English, as in the paper. "
            "upos: the universal ones."
        ),
    ] = Tags.XPOS,
    layer: Layers = None,
    model: AnyModel = None,
    weights: Weights = None,
    state: State = StateName.RESET,
    static: StaticTable = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the first probe and the bootstrap.")] = 0,
    runs: Annotated[
        int,
        typer.Option(min=1, help="Train so many probes per layer, each with a seed of its own."),
    ] = 1,
    l2: Annotated[float, typer.Option(min=0, help="Penalty on the weights of a probe.")] = 1e-5,
    max_epochs: Annotated[int, typer.Option(min=1, help="Epochs of a probe at most.")] = 30,
    cache: Annotated[
        Path | None,
        typer.Option(
            help="A folder to keep the vectors in, so that the next run need not compute them.",
            show_default=False,
        ),
    ] = None,
    device: Device = "auto",
    precision: Precision = PrecisionName.EXACT,
    as_json: TextAsJson = False,
    quiet: Quiet = False,
) -> None:
    """Probe the layers for parts of speech.

    A linear classifier per layer is trained on the vectors of a treebank's
    words (its syntactic words: "didn't" is two). Beside the layers: the tag
    that a word had most often in training and, with --static, a probe on
    static vectors; both see the word alone. The paper found layer 1 better
    than layer 2.
    """
    from tqdm import tqdm

    from elmokit.analysis.conllu import Splits, find_splits, read_conllu
    from elmokit.analysis.linear import ProbeSettings
    from elmokit.analysis.pos_probe import Treebank, measure_pos
    from elmokit.analysis.spaces import probe_spaces
    from elmokit.analysis.static import load_static
    from elmokit.embed.model import load

    given = [file for file in (train, dev, test) if file is not None]
    if len(given) != (3 if folder is None else 0):
        raise typer.BadParameter("give either a FOLDER or all of --train, --dev and --test")
    files = Splits(*given) if folder is None else find_splits(folder)
    treebank = Treebank(*(read_conllu(file, tags.value) for file in files))
    table = None if static is None else load_static(static)
    elmo = load(model, weights, device, precision.value)
    spaces = probe_spaces(layer or ["all"], elmo.config.n_layers)
    tokens = sum(len(sentence.words) for part in treebank for sentence in part)
    shown = not quiet and sys.stderr.isatty()
    with tqdm(total=tokens, unit=" words", disable=not shown) as bar:

        def announce(result: PosResult, _: object) -> None:
            if shown:
                bar.write(f"{result.name}: {100 * result.accuracy:.2f}", file=sys.stderr)

        report = measure_pos(
            elmo,
            treebank,
            tags=tags.value,
            spaces=spaces,
            static=table,
            state=state.value,
            seeds=range(seed, seed + runs),
            settings=ProbeSettings(l2=l2, max_epochs=max_epochs),
            cache=cache,
            on_tokens=lambda done: bar.update(done - bar.n),
            on_result=announce,
        )
    _print(report, as_json)
    sizes = " / ".join(f"{n:,}" for n in report.words)
    typer.echo(
        f"{sizes} words to train on / stop by / test on, {report.classes} {tags.value.upper()} "
        f"tags; {report.untagged:,} words without a tag left out, {report.unknown_tags:,} with a "
        "tag that training has not count as wrong",
        err=True,
    )


@app.command("wsd")
def wsd(
    semcor: Annotated[
        Path,
        typer.Argument(
            metavar="SEMCOR",
            help="Sentences with senses, a JSON object a line.",
            show_default=False,
        ),
    ],
    evaluation: Annotated[
        Path,
        typer.Argument(
            metavar="SETS",
            help="Evaluation_Datasets of Raganato et al., one of its folders, or a NAME.data.xml.",
            show_default=False,
        ),
    ],
    wordnet: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="WordNet 3.0's index.sense or its folder. Nothing: $WNSEARCHDIR, or where "
            "packages put it (apt-get install wordnet-base wordnet-sense-index).",
            show_default=False,
        ),
    ] = None,
    layer: Layers = None,
    model: AnyModel = None,
    weights: Weights = None,
    state: State = StateName.RESET,
    static: StaticTable = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the bootstrap of the intervals.")] = 0,
    device: Device = "auto",
    precision: Precision = PrecisionName.EXACT,
    as_json: TextAsJson = False,
    quiet: Quiet = False,
) -> None:
    """Probe the layers for word senses.

    Each word gets the sense whose mean vector in SemCor is nearest, among
    those of its lemma and part of speech; a lemma that is not in SemCor gets
    the first sense of WordNet. F1 is that of Raganato et al. (2017). The paper
    found layer 2 better than layer 1.
    """
    from tqdm import tqdm

    from elmokit.analysis.raganato import read_sets
    from elmokit.analysis.semcor import read_semcor
    from elmokit.analysis.spaces import probe_spaces
    from elmokit.analysis.static import load_static
    from elmokit.analysis.wordnet import read_wordnet
    from elmokit.analysis.wsd import measure_wsd, tokens_to_read
    from elmokit.embed.model import load

    senses = read_wordnet(wordnet)
    sets = read_sets(evaluation)
    training = read_semcor(semcor)
    table = None if static is None else load_static(static)
    elmo = load(model, weights, device, precision.value)
    spaces = probe_spaces(layer or ["all"], elmo.config.n_layers)
    shown = not quiet and sys.stderr.isatty()
    with tqdm(total=tokens_to_read(training, sets), unit=" tokens", disable=not shown) as bar:
        report = measure_wsd(
            elmo,
            training,
            sets,
            senses,
            spaces=spaces,
            static=table,
            state=state.value,
            seed=seed,
            on_tokens=lambda done: bar.update(done - bar.n),
        )
    _print(report, as_json)
    last = list(report.instances)[-1]
    typer.echo(
        f"{report.senses:,} senses of {report.uses:,} words ({report.alternatives:,} with "
        f"alternatives; {report.unknown:,} senses that WordNet does not list left out); of the "
        f"{report.instances[last]:,} instances of {last} {report.backed_off[last]:,} had lemmas "
        f"never met and got the first sense, {report.unanswered[last]:,} got none",
        err=True,
    )


def _print(report: PosReport | WsdReport, as_json: bool) -> None:
    from elmokit.analysis.evidence import json_values

    values: dict[str, Any] = json_values(report)
    typer.echo(json.dumps(values, ensure_ascii=False) if as_json else str(report))
