"""`elmo probe`: measure what each layer encodes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from elmokit.cli import options as opt
from elmokit.cli.app import App
from elmokit.cli.output import log, print_result
from elmokit.cli.progress import step_bar
from elmokit.progress import plural

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

app = App(help="Measure what each layer encodes.")


@app.command("pos")
def pos(
    directory: Annotated[Path, typer.Argument(metavar="DIR")],
    tags: Literal["xpos", "upos"] = "xpos",
    model: opt.Model = None,
    weights: opt.Weights = None,
    layer: opt.Layers = None,
    mix: opt.Mix = None,
    state: opt.State = "reset",
    static: opt.StaticTable = None,
    seed: opt.Seed = 0,
    runs: Annotated[int, typer.Option(min=1)] = 1,
    max_epochs: Annotated[int, typer.Option(min=1)] = 30,
    cache_dir: Path | None = None,
    device: opt.Device = "auto",
    precision: opt.Precision = "exact",
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """Predict parts of speech from each layer.

    Trains a linear classifier per layer on the word vectors of a treebank. Words are syntactic
    words, so "didn't" counts as two. Baselines without context: the most frequent tag of each word
    in the training data and, with --static, a classifier on static vectors. In the ELMo paper,
    layer 1 is better than layer 2.

    Args:
        directory: Universal Dependencies treebank with the files *train.conllu, *dev.conllu and
            *test.conllu.
        tags: Tags to predict. xpos: language-specific tags (in English, Penn Treebank tags as in
            the paper). upos: universal tags.
        layer: Default: every layer and the average.
        runs: Number of classifiers per layer, with consecutive seeds.
        max_epochs: Maximum number of epochs.
        cache_dir: Directory for the layer cache. Default: no cache.
    """
    from elmokit.embed.layer_choice import ALL_AND_AVERAGE
    from elmokit.embed.loading import load
    from elmokit.embed.static import load_static
    from elmokit.probes.conllu import read_treebank
    from elmokit.probes.linear import ProbeSettings
    from elmokit.probes.pos import measure_pos

    opt.check_layers(layer, mix)
    table = None if static is None else load_static(static)
    treebank = read_treebank(directory, tags)
    elmo = load(model, weights, device, precision, "torch")
    with step_bar(enabled=not quiet) as progress:
        report = measure_pos(
            elmo,
            treebank,
            tags=tags,
            layer=layer or ALL_AND_AVERAGE,
            mix=mix,
            static=table,
            state=state,
            seeds=range(seed, seed + runs),
            settings=ProbeSettings(max_epochs=max_epochs),
            cache=cache_dir,
            progress=progress,
        )
    _print(report, as_json)
    sizes = " / ".join(f"{n:,}" for n in report.words)
    log(
        f"{sizes} words in train / dev / test, {report.classes} {tags.upper()} tags; "
        f"{plural(report.untagged, 'untagged word')} skipped; counted as errors because their tag "
        f"does not occur in the training data: {report.unknown_tags:,}"
    )


@app.command("wsd")
def wsd(
    semcor: Annotated[Path, typer.Argument(metavar="SEMCOR")],
    evaluation: Annotated[Path, typer.Argument(metavar="SETS")],
    wordnet: Annotated[Path | None, typer.Option(metavar="PATH")] = None,
    model: opt.Model = None,
    weights: opt.Weights = None,
    layer: opt.Layers = None,
    mix: opt.Mix = None,
    state: opt.State = "reset",
    static: opt.StaticTable = None,
    seed: opt.Seed = 0,
    device: opt.Device = "auto",
    precision: opt.Precision = "exact",
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """Disambiguate word senses with each layer.

    Each word is assigned a sense of its lemma and part of speech: the sense whose mean vector in
    SemCor is nearest to the vector of the word. Lemmas that are not in SemCor are assigned their
    first sense in WordNet. F1 is computed as in Raganato et al. (2017). In the ELMo paper, layer 2
    is better than layer 1.

    Args:
        semcor: Training sentences annotated with senses, one JSON object per line.
        evaluation: Test sets: the Evaluation_Datasets directory of Raganato et al., one of its
            subdirectories, or a NAME.data.xml file.
        wordnet: WordNet 3.0: its directory or index.sense file. Default: $WNSEARCHDIR, or the files
            of the Debian packages wordnet-base and wordnet-sense-index.
        layer: Default: every layer and the average.
    """
    from elmokit.embed.layer_choice import ALL_AND_AVERAGE
    from elmokit.embed.loading import load
    from elmokit.embed.static import load_static
    from elmokit.probes.raganato import read_sets
    from elmokit.probes.wordnet import read_semcor, read_wordnet
    from elmokit.probes.wsd import measure_wsd

    opt.check_layers(layer, mix)
    table = None if static is None else load_static(static)
    senses, sets, training = read_wordnet(wordnet), read_sets(evaluation), read_semcor(semcor)
    elmo = load(model, weights, device, precision, "torch")
    with step_bar(enabled=not quiet) as progress:
        report = measure_wsd(
            elmo,
            training,
            sets,
            senses,
            layer=layer or ALL_AND_AVERAGE,
            mix=mix,
            static=table,
            state=state,
            seed=seed,
            progress=progress,
        )
    _print(report, as_json)
    last = list(report.instances)[-1]
    log(
        f"{report.senses:,} senses of {report.uses:,} words ({report.alternatives:,} with "
        f"alternatives; skipped because they are not in WordNet: {report.unknown:,}); "
        f"{plural(report.instances[last], 'instance')} in {last}: {report.backed_off[last]:,} with "
        f"unseen lemmas assigned the first sense, {report.unanswered[last]:,} assigned no sense"
    )


@app.command("wic")
def wic(
    data: Annotated[Path, typer.Argument(metavar="FILE")],
    gold: Path | None = None,
    model: opt.Model = None,
    weights: opt.Weights = None,
    state: opt.State = "reset",
    static: opt.StaticTable = None,
    seed: opt.Seed = 0,
    device: opt.Device = "auto",
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """Predict whether a word has the same sense in two sentences (WiC).

    The prediction is yes if the cosine similarity of the two tokens is above a threshold, which is
    chosen on one half of the lemmas and tested on the other, and vice versa. Baselines: whether the
    two word forms are equal and, with --static, the static vectors of the words and the mean static
    vectors of the sentences.

    Args:
        data: MCL-WiC sentence pairs: NAME.data.
        gold: MCL-WiC labels. Default: NAME.gold in the same directory.
    """
    from elmokit.embed.loading import load
    from elmokit.embed.static import load_static
    from elmokit.probes.wic import measure_wic, read_wic

    table = None if static is None else load_static(static)
    pairs = read_wic(data, gold)
    elmo = load(model, weights, device, backend="torch")
    with step_bar(enabled=not quiet) as progress:
        report = measure_wic(elmo, pairs, static=table, state=state, seed=seed, progress=progress)
    _print(report, as_json)
    log(
        f"{plural(report.pairs, 'pair')} of {plural(report.lemmas, 'lemma')}, "
        f"{len(report.left_out):,} skipped because no token is at the given offsets"
    )


@app.command("morphology")
def morphology(
    pairs: Annotated[Path | None, typer.Argument(metavar="FILE")] = None,
    model: opt.Model = None,
    weights: opt.Weights = None,
    words: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    max_words: Annotated[int, typer.Option(min=1)] = 20_000,
    static: opt.StaticTable = None,
    seed: opt.Seed = 0,
    device: opt.Device = "auto",
    as_json: opt.AsJson = False,
) -> None:
    """Compare morphologically related words in layer 0.

    Layer 0 is computed from the characters of a word, so any word has a vector. Reports for each
    kind of relation: the mean cosine similarity of related words and of random pairs, how often
    related words are more similar than random ones (AUC), and the rank of the related word among
    all candidate words (mean reciprocal rank, hits at 1 and 10).

    Args:
        pairs: Tab-separated file with a word, a related word and the kind of relation per line.
            Default: a bundled list.
        words: Candidate words, one per line. Default: the most frequent words of the model's
            vocabulary or, if the model has none, of the static vectors.
        max_words: Maximum number of candidate words.
    """
    from elmokit.embed.loading import load
    from elmokit.embed.static import load_static
    from elmokit.probes.morphology import (
        candidate_words,
        measure_morphology,
        read_pairs,
        read_words,
    )

    table = None if static is None else load_static(static)
    related = read_pairs(pairs)
    candidates = None if words is None else read_words(words, max_words)
    elmo = load(model, weights, device, backend="torch")
    vocabulary = candidates or candidate_words(elmo, table, max_words)
    report = measure_morphology(elmo, related, vocabulary, static=table, seed=seed)
    _print(report, as_json)
    log(f"{plural(len(related), 'pair')}, ranked among {plural(report.vocabulary, 'word')}")


def _print(report: DataclassInstance, as_json: bool) -> None:
    from elmokit.probes.reports import json_values

    print_result(json_values(report), report, as_json=as_json)
