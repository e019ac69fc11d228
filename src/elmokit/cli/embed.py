"""`elmo embed`: the vectors of text files, in one file or in a folder of Parquet shards."""

from __future__ import annotations

import dataclasses
import json
from enum import StrEnum
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmokit.cli.options import Device, Precision, PrecisionName, Quiet, Weights
from elmokit.cli.signals import interruptible
from elmokit.errors import ElmoError

if TYPE_CHECKING:
    from elmokit.embed.bulk_settings import EmbedSettings, Summary
    from elmokit.embed.model import ElmoModel
    from elmokit.embed.ray_engine import RayCluster
    from elmokit.embed.workers import Workers

_INTERRUPTED = 130
_NOTHING = "nothing was finished, nothing is kept."


class Layers(StrEnum):
    """What is stored for each token."""

    ALL = "all"
    TOP = "top"
    AVERAGE = "average"
    MIX = "mix"


class State(StrEnum):
    """What each sentence starts from."""

    RESET = "reset"
    WARM = "warm"
    CARRY = "carry"


class Engine(StrEnum):
    """Who does the work."""

    LOCAL = "local"
    RAY = "ray"


class Numbers(StrEnum):
    """The number types of a vector file."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"


def embed(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILES",
            help="Text files in UTF-8, also .gz, .xz, .bz2, .zst; '-' is standard input. "
            "A line is a sentence; an empty line is a sentence without tokens, so that line 8 is "
            "always sentence 7. For a folder of shards also Parquet files, whose rows are lines, "
            "and addresses such as s3://bucket/file.",
            show_default=False,
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            help="The file to write. Its name chooses the format: .h5 as AllenNLP's elmo command "
            "wrote it, .npz, .safetensors, or .parquet (one row per token). A name without a "
            "suffix is a folder, which is filled with Parquet shards.",
            show_default=False,
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            help="A model folder, a zip, an options.json of AllenNLP or bilm-tf, or a name such as "
            "allennlp:original. Nothing: the model that comes with the package.",
            show_default=False,
        ),
    ] = None,
    weights: Weights = None,
    tokenized: Annotated[
        bool,
        typer.Option(
            "--tokenized",
            help="The text is tokenised: tokens are what whitespace separates, taken as they are.",
        ),
    ] = False,
    split: Annotated[
        bool,
        typer.Option(
            "--split",
            help="Each line is a paragraph: find its sentences. Empty lines give nothing. Text "
            "whose lines end in mid-sentence should be joined to one line per paragraph first.",
        ),
    ] = False,
    layers: Annotated[
        Layers,
        typer.Option(
            help="What is stored per token: all layers, the top one, their average, or a mix."
        ),
    ] = Layers.ALL,
    mix: Annotated[
        str | None,
        typer.Option(
            metavar="S0,S1,...",
            help="With --layers mix: one weight per layer, lowest first. They are the normalised "
            "weights s of gamma * sum_j s_j h_j and are used as they are, without a softmax.",
            show_default=False,
        ),
    ] = None,
    gamma: Annotated[float, typer.Option(help="With --layers mix: the scale of the mix.")] = 1.0,
    state: Annotated[
        State,
        typer.Option(
            help="What each sentence starts from. reset: zero, so its vectors depend on the "
            "sentence alone. warm: the stored state of the model. carry: where the sentence before "
            "it ended, as bilm-tf and AllenNLP always do."
        ),
    ] = State.RESET,
    rows: Annotated[
        int,
        typer.Option(
            min=1,
            help="With --state carry: texts read side by side; sentence i goes on where sentence "
            "i - ROWS ended, like row i % ROWS of bilm-tf's batches.",
        ),
    ] = 1,
    dtype: Annotated[
        Numbers, typer.Option(help="float16 takes half the space and keeps three digits.")
    ] = Numbers.FLOAT32,
    device: Device = "auto",
    precision: Precision = PrecisionName.EXACT,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Processes that share the work, each with its own model in memory. The file is "
            "the same, byte by byte, for any number of them.",
            show_default=False,
        ),
    ] = None,
    devices: Annotated[
        str | None,
        typer.Option(
            metavar="0,1,...",
            help="One worker on each of these devices: the numbers of GPUs, or cpu,cpu,...",
            show_default=False,
        ),
    ] = None,
    engine: Annotated[
        Engine,
        typer.Option(
            help="Who fills a folder: this machine, or a Ray cluster (pip install "
            "'elmokit\\[ray]'), whose machines must all see the model and the folder. The rows are "
            "the same."
        ),
    ] = Engine.LOCAL,
    address: Annotated[
        str | None,
        typer.Option(
            help="With --engine ray: the cluster. Nothing: one on this machine, for this run.",
            show_default=False,
        ),
    ] = None,
    column: Annotated[
        str, typer.Option(help="The column of the text in Parquet files (for a folder).")
    ] = "text",
    shard_bytes: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Bytes of text that become a shard of a folder, about: 1048576.",
            show_default=False,
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on with an interrupted run: nothing that was finished is computed again, and "
            "the file becomes the same, byte by byte. Repeat the command as it was; standard "
            "input must be the same text from its beginning.",
        ),
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Replace the output, if it is there. Without --resume, also throw away what an "
            "interrupted run has finished.",
        ),
    ] = False,
    skip_bad: Annotated[
        bool,
        typer.Option(
            "--skip-bad",
            help="Leave out and count lines that are not UTF-8; the sentences after them move up.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a summary as one JSON object on stdout.")
    ] = False,
    quiet: Quiet = False,
    part_tokens: Annotated[int | None, typer.Option(hidden=True, min=1)] = None,
) -> None:
    """Compute the vectors of every token of text files.

    Work goes to a folder beside the output and becomes one file at the end:
    memory does not grow with the text, and an interrupted run goes on with
    --resume. Until then twice the size of the output is needed on the disk
    (for a folder of shards, nothing but the shards).

    In Python elmokit.embed.files.open_vectors reads the file, sentence by
    sentence.
    """
    weights_of_mix = _mix(layers, mix)
    if layers is not Layers.MIX and gamma != 1.0:
        raise typer.BadParameter("only --layers mix has a scale.", param_hint="--gamma")
    if state is not State.CARRY and rows != 1:
        raise typer.BadParameter("only --state carry has rows.", param_hint="--rows")
    is_folder = _is_folder(output)
    _check_engine(engine, is_folder=is_folder, devices=devices, address=address)
    with interruptible():
        from elmokit.cli.progress import TokenBar
        from elmokit.embed.bulk_settings import PART_TOKENS, EmbedSettings

        settings = EmbedSettings(
            layers=layers.value,
            mix=weights_of_mix,
            gamma=gamma,
            dtype=dtype.value,
            state=state.value,
            rows=rows,
            tokenized=tokenized,
            split=split,
            part_tokens=part_tokens or PART_TOKENS,
        )
        _check_paths(files, output, is_folder=is_folder, resume=resume, overwrite=overwrite)
        bar = TokenBar(shown=not quiet)
        options: dict[str, Any] = {
            "resume": resume,
            "overwrite": overwrite,
            "skip_bad": skip_bad,
            "on_progress": bar,
        }
        if is_folder:
            options |= {"column": column, "chunk_bytes": shard_bytes}
        try:
            with bar:
                loading = (model, weights, precision.value)
                if engine is Engine.RAY:
                    hands: Any = _cluster(*loading, device, workers, address)
                else:
                    hands = _hands(*loading, device, workers, devices)
                summary = _embed(hands, files, output, settings, options)
        except KeyboardInterrupt:
            typer.echo(f"interrupted: {_kept(output)}", err=True)
            raise typer.Exit(_INTERRUPTED) from None
        except ElmoError:
            if bar.started and (kept := _kept(output)) != _NOTHING:
                typer.echo(f"note: {kept}", err=True)
            raise
    _tell(summary, as_json=as_json)


def _is_folder(output: str) -> bool:
    return output.endswith("/") or not PurePath(output).suffix


def _check_engine(
    engine: Engine, *, is_folder: bool, devices: str | None, address: str | None
) -> None:
    if engine is Engine.LOCAL and address is not None:
        raise typer.BadParameter("only --engine ray has an address.", param_hint="--address")
    if engine is Engine.RAY and devices is not None:
        raise typer.BadParameter(
            "a Ray cluster deals out its devices itself: use --workers and --device.",
            param_hint="--devices",
        )
    if engine is Engine.RAY and not is_folder:
        raise typer.BadParameter(
            "--engine ray writes a folder of shards: give a name without a suffix.",
            param_hint="--output",
        )


def _check_paths(
    files: list[str], output: str, *, is_folder: bool, resume: bool, overwrite: bool
) -> None:
    """Find what was mistyped before a model is fetched."""
    if is_folder:
        from elmokit.embed.documents import check_documents
        from elmokit.embed.files.parquet import check_available
        from elmokit.embed.shard_folder import ShardFolder

        check_available()
        ShardFolder(output).check(resume=resume, overwrite=overwrite)
        check_documents(files)
    else:
        from elmokit.embed.bulk import check_output
        from elmokit.embed.bulk_input import check_inputs

        check_output(Path(output), resume=resume, overwrite=overwrite)
        check_inputs(files)


def _hands(
    model: str | None,
    weights: str | None,
    precision: str,
    device: str,
    workers: int | None,
    devices: str | None,
) -> ElmoModel | Workers:
    from elmokit.embed.model import load
    from elmokit.embed.workers import Workers, choose_devices

    if workers is None and devices is None:
        return load(model, weights, device, precision)
    return Workers(choose_devices(workers, devices, device), model, weights, precision)


def _cluster(
    model: str | None,
    weights: str | None,
    precision: str,
    device: str,
    workers: int | None,
    address: str | None,
) -> RayCluster:
    from elmokit.embed.ray_engine import RayCluster

    return RayCluster(model, weights, precision, device, workers, address)


def _embed(
    hands: ElmoModel | Workers | RayCluster,
    files: list[str],
    output: str,
    settings: EmbedSettings,
    options: dict[str, Any],
) -> Summary:
    if "column" in options:
        from elmokit.embed.documents import CHUNK_BYTES
        from elmokit.embed.shards import embed_shards

        options["chunk_bytes"] = options["chunk_bytes"] or CHUNK_BYTES
        return embed_shards(hands, files, output, settings, **options)
    from elmokit.embed.bulk import embed_corpus

    return embed_corpus(hands, files, output, settings, **options)  # type: ignore[arg-type]


def _mix(layers: Layers, mix: str | None) -> tuple[float, ...] | None:
    if mix is None:
        if layers is Layers.MIX:
            raise typer.BadParameter(
                "--layers mix needs the weights: --mix S0,S1,... "
                "(for equal weights there is --layers average).",
                param_hint="--mix",
            )
        return None
    if layers is not Layers.MIX:
        raise typer.BadParameter("weights are used by --layers mix only.", param_hint="--mix")
    try:
        return tuple(float(weight) for weight in mix.split(","))
    except ValueError:
        raise typer.BadParameter(
            f"'{mix}' is not a list of numbers such as 0.2,0.3,0.5.", param_hint="--mix"
        ) from None


def _kept(output: str) -> str:
    if _is_folder(output):
        return "the shards that are finished are kept; go on with the same command and --resume."
    from elmokit.embed.bulk import kept_sentences

    kept = kept_sentences(Path(output))
    if not kept:
        return _NOTHING
    return (
        f"{kept:,} sentences are finished and kept; go on with the same command and --resume "
        "(or throw them away with --overwrite)."
    )


def _tell(summary: Summary, *, as_json: bool) -> None:
    if as_json:
        values = {**dataclasses.asdict(summary), "output": str(summary.output)}
        typer.echo(json.dumps(values, ensure_ascii=False))
    told = [f"{summary.sentences:,} sentences", f"{summary.tokens:,} tokens"]
    if summary.tokens_per_second:
        told.append(f"{summary.tokens_per_second:,.0f} tokens/s")
    if summary.resumed_sentences:
        told.append(f"{summary.resumed_sentences:,} sentences of them from before")
    told.append(f"{summary.cut_tokens:,} tokens cut")
    if summary.skipped_lines:
        told.append(f"{summary.skipped_lines:,} lines skipped")
    typer.echo(f"{summary.output}: {', '.join(told)}", err=True)
