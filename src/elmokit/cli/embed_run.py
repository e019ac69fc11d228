"""From the options of `elmo embed` to the work.

What can be refused is refused before a model is loaded; then somebody is asked to do the rest.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from elmokit.cli.embed_options import Engine
from elmokit.cli.embed_told import is_folder

if TYPE_CHECKING:
    from elmokit.bulk.ray_engine import RayCluster
    from elmokit.bulk.settings import EmbedSettings, Summary
    from elmokit.bulk.workers import Workers
    from elmokit.embed.embedder import Embedder


class Loading(NamedTuple):
    """The model, and how it is loaded."""

    model: str | None
    weights: str | None
    precision: str
    device: str


class Crew(NamedTuple):
    """Who is to do the work."""

    engine: Engine
    workers: int | None
    devices: str | None
    address: str | None


# ----------------------------------------------------------------------------------- wrong usage


def check_crew(crew: Crew, output: str) -> None:
    """Raise if the engine cannot do what was asked for."""
    if crew.engine is Engine.LOCAL:
        if crew.address is not None:
            raise typer.BadParameter("only --engine ray has an address.", param_hint="--address")
        return
    if crew.devices is not None:
        raise typer.BadParameter(
            "a Ray cluster deals out its devices itself: use --workers and --device.",
            param_hint="--devices",
        )
    if not is_folder(output):
        raise typer.BadParameter(
            "--engine ray writes a folder of shards: give a name without a suffix.",
            param_hint="--output",
        )


def check_paths(
    files: list[str], output: str, settings: EmbedSettings, *, resume: bool, overwrite: bool
) -> None:
    """Find what was mistyped before a model is fetched."""
    if is_folder(output):
        from elmokit.bulk.documents import check_documents
        from elmokit.bulk.files.parquet import check_available
        from elmokit.bulk.shard_folder import ShardFolder
        from elmokit.bulk.shards import check_state

        check_available()
        check_state(settings)
        ShardFolder(output).check(resume=resume, overwrite=overwrite)
        check_documents(files)
    else:
        from elmokit.bulk.corpus import check_output
        from elmokit.bulk.input import check_inputs

        check_output(Path(output), resume=resume, overwrite=overwrite)
        check_inputs(files)


# -------------------------------------------------------------------------------------- the work


def run(
    crew: Crew,
    loading: Loading,
    files: list[str],
    output: str,
    settings: EmbedSettings,
    *,
    column: str,
    shard_bytes: int | None,
    **options: Any,
) -> Summary:
    """Load the model, or let others load it, and embed the files."""
    if is_folder(output):
        from elmokit.bulk.documents import CHUNK_BYTES
        from elmokit.bulk.shards import embed_shards

        hands = _cluster(crew, loading) if crew.engine is Engine.RAY else _hands(crew, loading)
        options |= {"column": column, "chunk_bytes": shard_bytes or CHUNK_BYTES}
        return embed_shards(hands, files, output, settings, **options)
    from elmokit.bulk.corpus import embed_corpus

    return embed_corpus(_hands(crew, loading), files, output, settings, **options)


def _hands(crew: Crew, loading: Loading) -> Embedder[Any] | Workers:
    from elmokit.bulk.workers import Workers, choose_devices
    from elmokit.embed.loading import load

    model, weights, precision, device = loading
    if crew.workers is None and crew.devices is None:
        return load(model, weights, device, precision)
    devices = choose_devices(crew.workers, crew.devices, device, model)
    return Workers(devices, model, weights, precision)


def _cluster(crew: Crew, loading: Loading) -> RayCluster:
    from elmokit.bulk.ray_engine import RayCluster

    return RayCluster(*loading, crew.workers, crew.address)
