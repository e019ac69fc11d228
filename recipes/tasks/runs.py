"""The runs behind the tables, most important first. `run.py` executes them.

A cell of a table is a configuration, and its runs differ only in the seed. A run that several
tables need is listed once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

SEEDS = (0, 1, 2)

#: Training, dev and test data in the output directory of `prepare.py`.
FILES = {
    "ner": ("ner/train.txt", "ner/dev.txt", "ner/test.txt"),
    "sst5": ("sst5/train.txt", "sst5/dev.txt", "sst5/test.txt"),
    "snli": ("snli/train.txt", "snli/dev.txt", "snli/test.txt"),
    "squad": ("squad/train.json", "squad/dev.json", "squad/test.json"),
    "srl": ("srl/train.jsonl", "srl/dev.jsonl", "srl/test.jsonl"),
    "coref": ("coref/train", "coref/dev", "coref/test"),
}
#: Where ELMo is added, as in the paper's Table 1.
ELMO_PLACE = {
    "ner": "input",
    "sst5": "input",
    "snli": "both",
    "squad": "both",
    "srl": "input",
    "coref": "input",
}
#: Settings of all runs: concurrent runs would otherwise write too many checkpoints.
COMMON = ("train.checkpoint_seconds=300",)
#: Preset and settings of each task, the same with and without ELMo. They limit the run time.
SETTINGS: dict[str, tuple[str, tuple[str, ...]]] = {
    "ner": ("tuned", ("train.epochs=30", "train.patience=6")),
    "sst5": (
        "paper",
        ("model.distinct=true", "static.trainable=true", "train.epochs=10", "train.patience=3"),
    ),
    # With 1/30 of the paper's data, a baseline hardly learns with the paper's rate and dropout.
    "snli": (
        "paper",
        (
            "model.dropout=0.2",
            "train.learning_rate=0.001",
            "train.batch_size=64",
            "train.epochs=20",
            "train.halve_after=3",
            "train.patience=6",
        ),
    ),
    "squad": ("paper", ("train.epochs=10", "train.patience=4")),
    "srl": ("quick", ("train.batch_size=80", "train.batch_tokens=8192", "train.halve_after=2")),
    "coref": ("quick", ()),
}
#: The tasks, longest runs first: ten minutes, seven minutes, and one to five minutes.
BY_TIME = ("squad", "srl", "sst5", "ner", "snli", "coref")
#: These tasks have only one seed in all tables but the first.
LONGEST = BY_TIME[:2]
#: The tasks of each table whose columns are configurations, most important table first.
COMPARED = {
    "finetune": BY_TIME,
    "table2": ("srl", "sst5", "ner", "snli"),
    "table3": ("srl", "sst5", "ner", "snli"),
    "second-version": ("ner", "snli"),
    "models": BY_TIME,
    "static": ("sst5", "ner"),
}
#: lambda in the presets. A cell with this value is the same as one without, and is not repeated.
PENALTY = {"ner": 0.1, "sst5": 0.001, "snli": 0.001, "srl": 0.001}
SHARES = (0.01, 0.03, 0.1, 0.3, 1.0)
#: With a tenth of the data or less: smaller batches, more epochs and more patience.
SMALL_SHARE = 0.1
SMALL_SHARE_SETTINGS = {
    "ner": ("train.batch_size=8", "train.epochs=60", "train.patience=15", "train.halve_after=0"),
    "srl": ("train.batch_size=16", "train.epochs=40", "train.patience=10", "train.halve_after=0"),
}
#: Settings to try on the dev data, in addition to SETTINGS: as many without ELMo as with it.
TRIALS: dict[str, dict[str, dict[str, tuple[str, ...]]]] = {
    "ner": {
        "baseline": {
            "two-layers": ("model.layers=2",),
            "two-layers-dropout-0.5": ("model.layers=2", "model.dropout=0.5"),
            "dropout-0.3": ("model.dropout=0.3",),
            "hidden-300": ("model.hidden=300",),
        },
        "elmo": {
            "two-layers": ("model.layers=2",),
            "two-layers-dropout-0.5": ("model.layers=2", "model.dropout=0.5"),
            "elmo-dropout-0": ("elmo.dropout=0",),
            "elmo-dropout-0.2": ("elmo.dropout=0.2",),
        },
    },
    "snli": {
        "baseline": {
            "dropout-0.35": ("model.dropout=0.35",),
            "rate-0.0005": ("train.learning_rate=0.0005",),
            "dropout-0.1": ("model.dropout=0.1",),
        },
        "elmo": {
            "dropout-0.35": ("model.dropout=0.35",),
            "rate-0.0005": ("train.learning_rate=0.0005",),
            "elmo-dropout-0.5": ("elmo.dropout=0.5",),
        },
    },
    "sst5": {
        "baseline": {
            "frozen": ("static.trainable=false",),
            "rate-0.0005": ("train.learning_rate=0.0005",),
            "dropout-0.3": ("model.dropout=0.3",),
        },
        "elmo": {
            "frozen": ("static.trainable=false",),
            "rate-0.0005": ("train.learning_rate=0.0005",),
            "elmo-dropout-0.5": ("elmo.dropout=0.5",),
        },
    },
    # The depth of the paper's model. Deeper models need more epochs.
    "srl": {
        "baseline": {"eight-layers": ("model.layers=8", "train.epochs=60")},
        "elmo": {"eight-layers": ("model.layers=8", "train.epochs=60")},
    },
}
#: The trial with the best dev score. "current" means SETTINGS. SRL is not included, because the
#: runs with eight layers were stopped by the time limit.
TUNED = {
    "ner": {"baseline": "hidden-300", "elmo": "two-layers"},
    "sst5": {"baseline": "current", "elmo": "rate-0.0005"},
    "snli": {"baseline": "current", "elmo": "dropout-0.35"},
}
#: The biLM of the tables that were not yet measured with `english`: its first version.
TABLES_MODEL = "english-1"


@dataclass(frozen=True)
class Cell:
    """A configuration.

    Attributes:
        task: The task.
        elmo: Where ELMo is added. "none" is the baseline.
        layers: "all" for a learned mix, "top" for the top layer, or weights as in `elmo.mix`.
        penalty: The setting `elmo.penalty`. None uses the preset.
        static: The name of the static vectors. `run.py --static` specifies their path.
        model: The name of the biLM. `run.py --model` specifies its path.
        share: The fraction of the training data.
        trial: The name of additional settings in TRIALS.
    """

    task: str
    elmo: str = "none"
    layers: str = "all"
    penalty: float | None = None
    static: str = "glove"
    model: str = "english"
    share: float = 1.0
    trial: str = ""

    @property
    def name(self) -> str:
        """The task, the place of ELMo, and all values that differ from the defaults."""
        parts = [self.task, self.elmo]
        if self.layers != "all":
            parts.append(self.layers if self.layers == "top" else f"s-{self.layers}")
        if self.penalty is not None:
            parts.append(f"lambda-{self.penalty:g}")
        if self.static != "glove":
            parts.append(self.static)
        if self.model != "english":
            parts.append(self.model)
        if self.share != 1:
            parts.append(f"share-{self.share:g}")
        if self.trial:
            parts.append(f"trial-{self.trial}")
        return "_".join(parts)


@dataclass(frozen=True)
class Run:
    """A cell and a seed."""

    cell: Cell
    seed: int

    @property
    def name(self) -> str:
        """The name of the run's directory."""
        return f"{self.cell.name}_seed-{self.seed}"


def preset_and_settings(cell: Cell) -> tuple[str, tuple[str, ...]]:
    """Return the preset and the other settings of a cell."""
    preset, settings = SETTINGS[cell.task]
    small_share = SMALL_SHARE_SETTINGS[cell.task] if cell.share <= SMALL_SHARE else ()
    return preset, (*COMMON, *settings, *small_share, *trial_settings(cell))


def trial_settings(cell: Cell) -> tuple[str, ...]:
    """Return the additional settings of a trial."""
    side = "baseline" if cell.elmo == "none" else "elmo"
    return TRIALS[cell.task][side][cell.trial] if cell.trial else ()


def task_settings(task: str) -> dict[str, Any]:
    """Return the settings of a task as JSON values."""
    preset, settings = SETTINGS[task]
    values: dict[str, Any] = {"preset": preset, "set": list(settings)}
    if task in SMALL_SHARE_SETTINGS:
        values["little"] = {"share": SMALL_SHARE, "set": list(SMALL_SHARE_SETTINGS[task])}
    return values


def baseline(task: str) -> Cell:
    """Return the cell with only static vectors."""
    return Cell(task)


def with_elmo(task: str, model: str = "english") -> Cell:
    """Return the cell with ELMo at the place used in Table 1."""
    return Cell(task, ELMO_PLACE[task], model=model)


def trial_cells(task: str) -> dict[str, dict[str, Cell]]:
    """Return the cells of Table 1 and their trials, by side and name."""
    table1_cells = {"baseline": baseline(task), "elmo": with_elmo(task)}
    return {
        side: {"current": cell, **{name: replace(cell, trial=name) for name in TRIALS[task][side]}}
        for side, cell in table1_cells.items()
    }


def tuned_cells(task: str) -> tuple[Cell, Cell]:
    """Return the cells with the best settings on the dev set, without and with ELMo."""
    base, elmo = (trial_cells(task)[side][TUNED[task][side]] for side in ("baseline", "elmo"))
    return base, elmo


def table2_cells(task: str, model: str = TABLES_MODEL) -> dict[str, Cell]:
    """Return the columns of Table 2."""
    elmo = with_elmo(task, model)
    return {
        "baseline": baseline(task),
        "last only": replace(elmo, layers="top"),
        **{
            f"all, lambda {value:g}": replace(
                elmo, penalty=None if value == PENALTY[task] else value
            )
            for value in (1.0, 0.001)
        },
    }


def table3_cells(task: str, model: str = TABLES_MODEL) -> dict[str, Cell]:
    """Return the columns of Table 3."""
    names = {"input": "input", "input and output": "both", "output": "output"}
    return {name: Cell(task, place, model=model) for name, place in names.items()}


def second_version_cells(task: str) -> dict[str, Cell]:
    """Return the columns of Tables 2 and 3 for the second version of `english`."""
    return table2_cells(task, "english") | table3_cells(task, "english")


def model_cells(task: str) -> dict[str, Cell]:
    """Return the cells that compare biLMs."""
    return {name: with_elmo(task, name) for name in (TABLES_MODEL, "english", "english-original")}


def finetune_cells(task: str) -> dict[str, Cell]:
    """Return the cells without a biLM, with the original biLM, and with the fine-tuned biLM."""
    return {
        "static": baseline(task),
        "english": with_elmo(task, TABLES_MODEL),
        "fine-tuned": with_elmo(task, tuned_model(task)),
    }


def tuned_model(task: str) -> str:
    """Return the name of the biLM that was fine-tuned on a task's text."""
    return f"english-{task}"


def static_cells(task: str) -> dict[str, Cell]:
    """Return the cells that compare GloVe, word2vec on the biLM's text, layer 0 and ELMo."""
    glove, elmo = baseline(task), with_elmo(task, TABLES_MODEL)
    return {
        "GloVe": glove,
        "word2vec": replace(glove, static="word2vec"),
        "GloVe + word2vec": replace(glove, static="glove-word2vec"),
        "GloVe + layer 0": replace(elmo, layers="1,0,0"),
        "GloVe + ELMo": elmo,
    }


def share_cells(task: str) -> dict[float, tuple[Cell, Cell]]:
    """Return the cells without and with ELMo for each fraction of the data, as in Figure 1."""
    pair = (baseline(task), with_elmo(task, TABLES_MODEL))
    return {
        share: (replace(pair[0], share=share), replace(pair[1], share=share)) for share in SHARES
    }


def all_runs() -> dict[Run, str]:
    """Return all runs, most important first, with the first table that needs each.

    Table 1 comes first, then the trials with one seed and their best settings, then all other
    tables with one seed, with two, and with three, so that a time limit reduces the number of
    seeds, not of tables. Within a table, the longest runs start first.
    """
    runs: dict[Run, str] = {}
    for seed in SEEDS:
        for task in BY_TIME:
            runs |= {Run(cell, seed): "table1" for cell in (baseline(task), with_elmo(task))}
    for run, table in _trials_and_best():
        runs.setdefault(run, table)
    for seed in SEEDS:
        for table, task, cells in _cells_by_table():
            if seed == SEEDS[0] or (task not in LONGEST and table != "figure1"):
                for cell in cells:
                    runs.setdefault(Run(cell, seed), table)
    return runs


def _trials_and_best() -> Iterator[tuple[Run, str]]:
    for task in (task for task in BY_TIME if task in TRIALS):
        for cells in trial_cells(task).values():
            yield from ((Run(cell, SEEDS[0]), "trials") for cell in cells.values())
    for seed in SEEDS:
        for task in TUNED:
            yield from ((Run(cell, seed), "tuned") for cell in tuned_cells(task))


def _cells_by_table() -> Iterator[tuple[str, str, Iterable[Cell]]]:
    cells = {
        "finetune": finetune_cells,
        "table2": table2_cells,
        "table3": table3_cells,
        "second-version": second_version_cells,
        "models": model_cells,
        "static": static_cells,
    }
    for table, tasks in COMPARED.items():
        for task in tasks:
            yield table, task, cells[table](task).values()
        if table == "table3":
            for task in ("srl", "ner"):  # runs with little data are short
                pairs = share_cells(task).values()
                yield "figure1", task, [cell for pair in pairs for cell in pair]
