"""`elmo probe`: what each layer knows."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.options import (
    AnyModel,
    Device,
    Layers,
    Mix,
    Precision,
    PrecisionName,
    Quiet,
    State,
    StateName,
    StaticTable,
    TextAsJson,
    Weights,
    read_mix,
)
from elmokit.cli.progress import part_bar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

app = typer.Typer(help="Measure what each layer knows.", no_args_is_help=True)


class Tags(StrEnum):
    """The tags of a treebank."""

    XPOS = "xpos"
    UPOS = "upos"


@app.callback()
def _probe() -> None:
    """Measure what each layer knows."""


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
    mix: Mix = None,
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
    from elmokit.embed.layer_choice import ALL_AND_AVERAGE
    from elmokit.embed.model import load
    from elmokit.embed.static import load_static
    from elmokit.probes.conllu import Splits, find_splits, read_conllu
    from elmokit.probes.linear import ProbeSettings
    from elmokit.probes.pos import Treebank, measure_pos

    given = [file for file in (train, dev, test) if file is not None]
    if len(given) != (3 if folder is None else 0):
        raise typer.BadParameter("give either a FOLDER or all of --train, --dev and --test")
    table = None if static is None else load_static(static)
    files = Splits(*given) if folder is None else find_splits(folder)
    treebank = Treebank(*(read_conllu(file, tags.value) for file in files))
    elmo = load(model, weights, device, precision.value)
    with part_bar(shown=not quiet) as progress:
        report = measure_pos(
            elmo,
            treebank,
            tags=tags.value,
            layer=layer or ALL_AND_AVERAGE,
            mix=read_mix(mix, layer),
            static=table,
            state=state.value,
            seeds=range(seed, seed + runs),
            settings=ProbeSettings(l2=l2, max_epochs=max_epochs),
            cache=cache,
            progress=progress,
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
    mix: Mix = None,
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
    from elmokit.embed.layer_choice import ALL_AND_AVERAGE
    from elmokit.embed.model import load
    from elmokit.embed.static import load_static
    from elmokit.probes.raganato import read_sets
    from elmokit.probes.semcor import read_semcor
    from elmokit.probes.wordnet import read_wordnet
    from elmokit.probes.wsd import measure_wsd

    table = None if static is None else load_static(static)
    senses = read_wordnet(wordnet)
    sets = read_sets(evaluation)
    training = read_semcor(semcor)
    elmo = load(model, weights, device, precision.value)
    with part_bar(shown=not quiet) as progress:
        report = measure_wsd(
            elmo,
            training,
            sets,
            senses,
            layer=layer or ALL_AND_AVERAGE,
            mix=read_mix(mix, layer),
            static=table,
            state=state.value,
            seed=seed,
            progress=progress,
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


@app.command("wic")
def wic(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="Pairs of MCL-WiC: NAME.data, in JSON.", show_default=False
        ),
    ],
    gold: Annotated[
        Path | None,
        typer.Option(
            help="The answers. Default: NAME.gold in the directory of FILE.", show_default=False
        ),
    ] = None,
    model: AnyModel = None,
    weights: Weights = None,
    state: State = StateName.RESET,
    static: StaticTable = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the bootstrap of the intervals.")] = 0,
    device: Device = "auto",
    as_json: TextAsJson = False,
    quiet: Quiet = False,
) -> None:
    """Probe the layers for word in context: the same sense in two sentences?

    Two tokens have the same sense if their cosine is above a threshold. The
    threshold is chosen on one half of the lemmas and tested on the other, and
    vice versa. Baselines: whether the two forms are equal and, with --static,
    the static vectors of the forms and their mean over each sentence.
    """
    from elmokit.embed.model import load
    from elmokit.embed.static import load_static
    from elmokit.probes.wic import measure_wic, read_wic

    table = None if static is None else load_static(static)
    pairs = read_wic(data, gold)
    elmo = load(model, weights, device)
    with part_bar(shown=not quiet) as progress:
        report = measure_wic(
            elmo,
            pairs,
            static=table,
            state=state.value,
            seed=seed,
            progress=progress,
        )
    _print(report, as_json)
    fits = ", ".join(f"{n:,} {fit}" for fit, n in report.fits.items())
    typer.echo(
        f"{report.pairs:,} pairs of {report.lemmas:,} lemmas, {len(report.left_out):,} skipped "
        f"because no token is at the given offsets; words in tokens: {fits}",
        err=True,
    )


@app.command("morphology")
def morphology(
    pairs: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="Lines of word, related word and kind, separated by tabs. Default: the bundled "
            "list.",
            show_default=False,
        ),
    ] = None,
    model: AnyModel = None,
    weights: Weights = None,
    words: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The words to rank among, one per line. Default: the most frequent words of the "
            "model's vocabulary, or else of the static vectors.",
            show_default=False,
        ),
    ] = None,
    max_words: Annotated[int, typer.Option(min=1, help="Rank among this many words.")] = 20_000,
    static: StaticTable = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random pairs.")] = 0,
    device: Device = "auto",
    as_json: TextAsJson = False,
) -> None:
    """Probe layer 0 for morphology: do related words find each other?

    Layer 0 reads the characters of a word, so it has a vector for any word.
    For each kind of relation: the mean cosine of related words and of random
    pairs, how often related words are nearer than random ones (AUC), and the
    rank of the related word among many words (mean reciprocal rank, share at
    rank 1, share in the first 10).
    """
    from elmokit.embed.model import load
    from elmokit.embed.static import load_static
    from elmokit.probes.morphology import (
        bundled_pairs,
        measure_morphology,
        read_pairs,
        read_words,
        vocabulary_of,
    )

    table = None if static is None else load_static(static)
    given = bundled_pairs() if pairs is None else read_pairs(pairs)
    listed = None if words is None else read_words(words, max_words)
    elmo = load(model, weights, device)
    vocabulary = vocabulary_of(elmo, table, max_words) if listed is None else listed
    report = measure_morphology(elmo, given, vocabulary, static=table, seed=seed)
    _print(report, as_json)
    typer.echo(f"{len(given):,} pairs, ranked among {report.vocabulary:,} words", err=True)


def _print(report: DataclassInstance, as_json: bool) -> None:
    from elmokit.probes.statistics import json_values

    typer.echo(json.dumps(json_values(report), ensure_ascii=False) if as_json else str(report))
