"""What `elmo train` and `elmo finetune` have in common: the options of a run, and its end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmokit.cli.options import not_stdout
from elmokit.cli.signals import INTERRUPTED

if TYPE_CHECKING:
    from elmokit.train.loop import TrainResult

RunFolder = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        help="The run's folder: checkpoints, metrics, model/.",
        callback=not_stdout,
        show_default=False,
    ),
]
CheckpointEvery = Annotated[
    int | None, typer.Option(help="Steps between two checkpoints.", show_default=False)
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Go on from the newest checkpoint in --output; give the other options again.",
    ),
]
WarmState = Annotated[
    bool,
    typer.Option(
        "--warm-state",
        help='Also make the state of state="warm" (minutes on a CPU); `elmo warm` makes it later.',
    ),
]
ExportHdf5 = Annotated[
    bool, typer.Option("--export-hdf5", help="Also write files for AllenNLP and bilm-tf.")
]


def _check_tensorboard(wanted: bool) -> bool:
    """Report a missing TensorBoard before data and models are opened."""
    if wanted:
        from elmokit.train.metrics import check_tensorboard

        check_tensorboard()
    return wanted


Tensorboard = Annotated[
    bool,
    typer.Option("--tensorboard", callback=_check_tensorboard, help="Log to TensorBoard, too."),
]
Deterministic = Annotated[
    bool,
    typer.Option("--deterministic", help="On a GPU: the same bits every time, at a price."),
]
NoLines = Annotated[bool, typer.Option("--quiet", "-q", help="No progress lines.")]


def finish(
    run: TrainResult, output: Path, *, export_hdf5: bool, summary: dict[str, Any] | None
) -> None:
    """End a command after a run.

    Args:
        run: How the run ended.
        output: Its folder.
        export_hdf5: Write the files of AllenNLP and bilm-tf next to the model.
        summary: What to print as JSON beside the facts of every run; None prints nothing.
    """
    if export_hdf5 and not run.interrupted:
        from elmokit.sources import hdf5dir, modeldir

        hdf5dir.save(modeldir.load(run.model), output / "hdf5", overwrite=True)
    if summary is not None:
        values = {
            "steps": run.steps,
            "tokens": run.tokens,
            "interrupted": run.interrupted,
            "model": str(run.model),
        }
        typer.echo(json.dumps(values | summary))
    if run.interrupted:
        raise typer.Exit(INTERRUPTED)
