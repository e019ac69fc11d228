"""The files of a token index: a manifest and three Lance tables.

index.json        what was indexed and how, and the versions of the tables
tokens.lance      a row per token: word, sentence, position, offsets, a vector per stored layer
words.lance       a row per distinct word: its spelling and its vector in layer 0, which depends on
                  the word alone
sentences.lance   a row per sentence: file, line, text, words
unfinished.json   the manifest of a build while it runs and after it was interrupted; renamed to
                  index.json when the build is finished

Lance tables are versioned: a build adds versions, and readers see those that index.json names. So a
build that adds to an index or replaces it is invisible until it is finished.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError

from elmokit.embed.layer_choice import LayerChoice
from elmokit.embed.vectors import FloatArray
from elmokit.errors import ConfigError, DataError, ElmoError, optional_imports
from elmokit.storage.atomic import move_into_place
from elmokit.storage.lock import RUN_LOCK
from elmokit.storage.manifest import check_format, read_json, write_json
from elmokit.storage.regular import check_regular_files

FORMAT = "elmokit-index"
FORMAT_VERSION = 3
MANIFEST = "index.json"
UNFINISHED = "unfinished.json"
TABLES = ("tokens", "words", "sentences")
OWN_NAMES = {MANIFEST, UNFINISHED, RUN_LOCK, *(f"{name}.lance" for name in TABLES)}
# Rows that are read and compared at once: their float32 vectors fit into the processor's cache.
BATCH_ROWS = 4096

_REBUILD = "Rebuild it with: elmo index"
_OLD_MANIFEST = "meta.json"  # format version 1
# Written by earlier versions, for builds that were interrupted.
_OLD_KEYS = ("place", "chunks", "digest", "n_bytes", "cut_tokens")


class IndexMeta(BaseModel):
    """The manifest of an index.

    Attributes:
        model: Fingerprint of the model.
        source: Where the model was loaded from.
        state: Initial LSTM state of each sentence.
        stored: Label and weights of each stored layer choice.
        n_layers: Layers of the model, L + 1.
        dim: Length of a vector.
        tokens: Number of tokens.
        sentences: Number of sentences.
        words: Number of distinct words.
        inputs: Input files, as they were named.
        digests: Digests of the texts of earlier builds, to which the last one added.
        run: Everything else that the content depends on.
        versions: The version of each table.
        ann: For each layer choice with an approximate index: its parameters and measured recall.
        records: The records of the chunks of the last build.
        text_digest: The digest of the text of the last build, when the build is finished.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    model: str
    source: str
    state: Literal["reset", "warm"]
    stored: dict[str, list[float]]
    n_layers: Annotated[int, Field(ge=1, le=129)]
    dim: PositiveInt
    tokens: NonNegativeInt = 0
    sentences: NonNegativeInt = 0
    words: NonNegativeInt = 0
    inputs: list[str]
    digests: list[str] = []
    run: dict[str, Any]
    versions: dict[str, PositiveInt] = {}
    ann: dict[str, dict[str, Any]] = {}
    records: list[dict[str, Any]] = []
    text_digest: str = ""

    @property
    def choices(self) -> list[LayerChoice]:
        """The stored layer choices."""
        return [
            LayerChoice.parse(
                label.removeprefix("layer "), self.n_layers, weights if label == "mix" else None
            )
            for label, weights in self.stored.items()
        ]

    @property
    def layers(self) -> list[int]:
        """The stored layers, by number."""
        return sorted(j for choice in self.choices if (j := choice.number) is not None)

    def write(self, path: Path) -> None:
        """Write the manifest atomically."""
        values = {"format": FORMAT, "format_version": FORMAT_VERSION, **self.model_dump()}
        write_json(path, values, ensure_ascii=False)

    @classmethod
    def read(cls, folder: Path, name: str = MANIFEST) -> IndexMeta:
        """Read the manifest.

        Raises:
            DataError: The directory is not an index, not finished, damaged or of another version.
        """
        if not (folder / name).exists():
            raise DataError(_not_an_index(folder))
        values = read_json(folder / name, error=DataError, hint=f"{_REBUILD}.")
        check_format(
            values,
            folder / name,
            FORMAT,
            FORMAT_VERSION,
            oldest=FORMAT_VERSION,
            error=DataError,
            hint=f"{_REBUILD}.",
        )
        del values["format"], values["format_version"]
        if name == MANIFEST:
            for key in _OLD_KEYS:
                values.pop(key, None)
        try:
            meta = cls.model_validate(values)
            _ = meta.choices
        except (ValidationError, ConfigError) as error:
            reason: object = error
            if isinstance(error, ValidationError):
                first = error.errors()[0]
                reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            raise damaged(folder, f"{name}: {reason}") from error
        return meta


def publish(folder: Path) -> None:
    """Make the manifest of a finished build, and the versions that it names, visible."""
    move_into_place(folder / UNFINISHED, folder / MANIFEST)


def _not_an_index(folder: Path) -> str:
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        return (
            f"{folder} {what}: expected the directory of an index. Build one with: elmo index "
            f"TEXT -o {folder}"
        )
    if (folder / UNFINISHED).exists():
        return (
            f"The index {folder} is not finished: its build was interrupted or is still running. "
            "Repeat the command with --resume."
        )
    if (folder / _OLD_MANIFEST).exists():
        return (
            f"{folder} is an index of format version 1, which is no longer supported. Remove "
            "the directory and build it again with: elmo index"
        )
    return f"{folder} is not an index: it has no {MANIFEST}. Build one with: elmo index TEXT -o DIR"


def damaged(folder: Path, reason: object) -> DataError:
    """Return the error for an index with missing or invalid content."""
    return DataError(f"The index {folder} is damaged ({reason}). {_REBUILD} --overwrite")


# -------------------------------------------------------------------------------------- the tables


def import_lance() -> Any:
    """Import the database library, an optional dependency."""
    os.environ.setdefault("LANCE_LOG", "error")  # it warns about every small table
    with optional_imports("search", "A token index"):
        import lance
    return lance


def table_path(folder: Path, name: str) -> str:
    """Return the path of a table."""
    return str(folder / f"{name}.lance")


def column_name(choice: LayerChoice) -> str:
    """Return the name of the column of a stored choice."""
    return choice.label.replace(" ", "_")


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Report the errors of the database as a damaged index."""
    try:
        yield
    except (ElmoError, MemoryError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # a panic of Lance is no Exception
        reason = str(error).split("\n")[0].split(", /")[0]  # without positions in Lance's source
        raise damaged(folder, reason) from error


def open_tables(folder: Path, meta: IndexMeta) -> dict[str, Any]:
    """Open the tables of an index and check their sizes and columns."""
    lance = import_lance()
    rows = {"tokens": meta.tokens, "words": meta.words, "sentences": meta.sentences}
    dims = {column_name(choice): choice.dim(meta.dim) for choice in meta.choices}
    by_token = dims.keys() - {"layer_0"}
    columns = {"tokens": {"token", "word", *by_token}, "words": {"word", *dims.keys() - by_token}}
    check_regular_files(folder, DataError)
    tables = {}
    for name in TABLES:
        with reading(folder):
            table = lance.dataset(table_path(folder, name), version=meta.versions[name])
            found = table.count_rows()
        if found != rows[name]:
            raise damaged(folder, f"table {name} has {found} rows, expected {rows[name]}")
        if missing := columns.get(name, set()) - set(table.schema.names):
            raise damaged(folder, f"table {name} has no column {missing.pop()}")
        for column in dims.keys() & set(table.schema.names):
            kind = table.schema.field(column).type
            if str(kind.value_type) != "halffloat" or kind.list_size != dims[column]:
                raise damaged(folder, f"column {column} does not have {dims[column]} dimensions")
        tables[name] = table
    return tables


def vector_column(vectors: FloatArray) -> Any:
    """Return vectors, (n, D), as an Arrow array of float16 vectors."""
    import pyarrow as pa

    halves = np.ascontiguousarray(vectors.astype(np.float16))
    return pa.FixedSizeListArray.from_arrays(pa.array(halves.ravel()), halves.shape[1])


def scan(folder: Path, table: Any, **options: Any) -> Iterator[Any]:
    """Yield the rows of a table in batches; the options are those of Lance's scanner."""
    with reading(folder):
        yield from table.scanner(batch_size=BATCH_ROWS, **options).to_batches()


def take(
    folder: Path, table: Any, rows: Sequence[int], columns: Sequence[str] | None = None
) -> Any:
    """Return some rows of a table in the given order."""
    with reading(folder):
        return table.take(list(rows), columns=columns)
