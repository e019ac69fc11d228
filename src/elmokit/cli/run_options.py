"""The options that `elmo train` and `elmo finetune` share, and what both do after a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmokit.cli.options import output_option
from elmokit.cli.output import INTERRUPTED, print_json

if TYPE_CHECKING:
    from elmokit.train.loop import TrainResult

RunDirectory = Annotated[Path, output_option("Run directory, for checkpoints, metrics and model/.")]
CheckpointEvery = Annotated[
    int | None, typer.Option(help="Steps between checkpoints. Default: from the preset.")
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume", help="Resume from the newest checkpoint in --output. Repeat the other options."
    ),
]
WarmState = Annotated[
    bool,
    typer.Option(
        "--warm-state",
        help="Also compute the warm state, which takes minutes on a CPU. You can also add it later "
        "with `elmo warm`.",
    ),
]
ExportHdf5 = Annotated[
    bool, typer.Option("--export-hdf5", help="Also write HDF5 files for AllenNLP and bilm-tf.")
]


def _check_tensorboard(is_set: bool) -> bool:
    """Report a missing TensorBoard before data and models are loaded."""
    if is_set:
        from elmokit.train.metrics import check_tensorboard

        check_tensorboard()
    return is_set


Tensorboard = Annotated[
    bool,
    typer.Option("--tensorboard", callback=_check_tensorboard, help="Also log to TensorBoard."),
]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="On a GPU: bit-identical runs, but slower.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Change a setting, for example step.rows=256, optimizer.learning_rate=1e-4 or "
        "evaluate_every=100. Can be repeated. See docs/reference/configuration.md.",
    ),
]


def finish(
    run: TrainResult, output: Path, *, export_hdf5: bool, summary: dict[str, Any] | None
) -> None:
    """Export the model, print the summary and set the exit code.

    Args:
        run: The result of the run.
        output: The run directory.
        export_hdf5: Also write HDF5 files for AllenNLP and bilm-tf.
        summary: Values to add to the JSON summary; None prints no summary.
    """
    if export_hdf5 and not run.interrupted:
        from elmokit.sources import hdf5dir, modeldir

        hdf5dir.save(modeldir.load(run.model), output / "hdf5", overwrite=True)
    if summary is not None:
        values = {"steps": run.steps, "tokens": run.tokens, "interrupted": run.interrupted}
        print_json({**values, "model": str(run.model), **summary})
    if run.interrupted:
        raise typer.Exit(INTERRUPTED)
