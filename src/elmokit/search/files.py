"""The files of a token index: a manifest and three Lance tables.

index.json        what was indexed and how, and the versions of the tables
tokens.lance      one row per token: word, sentence, position, offsets, vector of each stored layer
words.lance       one row per distinct word: its spelling, and its vector in layer 0, which depends
                  only on the word
sentences.lance   one row per sentence: file, line, text, words
unfinished.json   the manifest of a running or interrupted build; renamed to index.json when the
                  build is finished

Lance tables are versioned. A build adds new versions, but readers use the versions in index.json,
so the changes become visible only when the build is finished.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from elmokit.embed.layer_choice import LayerChoice
from elmokit.embed.vectors import FloatArray
from elmokit.errors import ConfigError, DataError, ElmoError, optional_imports
from elmokit.progress import plural
from elmokit.settings import Bounds, Settings
from elmokit.storage.atomic import move_into_place
from elmokit.storage.lock import RUN_LOCK
from elmokit.storage.manifest import check_format, read_json, write_json
from elmokit.storage.regular import check_regular_files

FORMAT = "elmokit-index"
VERSION = 3
MANIFEST = "index.json"
UNFINISHED = "unfinished.json"
TABLES = ("tokens", "words", "sentences")
INDEX_FILES = {MANIFEST, UNFINISHED, RUN_LOCK, *(f"{name}.lance" for name in TABLES)}

_Number = Annotated[int, Bounds(ge=0)]
_Positive = Annotated[int, Bounds(ge=1)]


class IndexMeta(Settings):
    """The manifest of an index.

    Attributes:
        model: Fingerprint of the model.
        source: Where the model was loaded from.
        state: Initial LSTM state of each sentence.
        stored: Label and weights of each stored layer choice.
        n_layers: Number of layers of the model, L + 1.
        dim: Number of dimensions of a layer, 2 * D.
        inputs: The input files, as specified.
        run: All other settings that determine the content.
        tokens: Number of tokens.
        sentences: Number of sentences.
        words: Number of distinct words.
        digests: The digests of the texts of all builds before the last one.
        versions: The version of each table.
        ann: The parameters and the measured recall of each approximate index, by layer choice.
        records: The records of the chunks of the last build.
        text_digest: The digest of the text of the last build; empty until it is finished.
    """

    model: str
    source: str
    state: Literal["reset", "warm"]
    stored: dict[str, list[float]]
    n_layers: Annotated[int, Bounds(ge=1, le=129)]
    dim: _Positive
    inputs: list[str]
    run: dict[str, Any]
    tokens: _Number = 0
    sentences: _Number = 0
    words: _Number = 0
    digests: list[str] = field(default_factory=list)
    versions: dict[str, _Positive] = field(default_factory=dict)
    ann: dict[str, dict[str, Any]] = field(default_factory=dict)
    records: list[dict[str, Any]] = field(default_factory=list)
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
        """The numbers of the stored layers."""
        return sorted(j for choice in self.choices if (j := choice.number) is not None)

    def write(self, path: Path) -> None:
        """Write the manifest atomically."""
        values = {"format": FORMAT, "format_version": VERSION, **self.to_dict()}
        write_json(path, values, ensure_ascii=False)

    @classmethod
    def read(cls, folder: Path, name: str = MANIFEST) -> IndexMeta:
        """Read the manifest.

        Raises:
            DataError: The directory is not an index, or the index is unfinished, damaged or of
                another version.
        """
        if not (folder / name).exists():
            raise DataError(_describe_missing_index(folder))
        path, hint = folder / name, _rebuild_hint(folder)
        values = read_json(path, error=DataError, hint=hint)
        check_format(values, path, FORMAT, VERSION, oldest=VERSION, error=DataError, hint=hint)
        del values["format"], values["format_version"]
        try:
            meta = cls.from_dict(values)
            _ = meta.choices
        except ConfigError as error:
            raise _damaged_index_error(folder, f"{name}: {error}") from error
        return meta


def publish(folder: Path) -> None:
    """Make a finished build visible to readers."""
    move_into_place(folder / UNFINISHED, folder / MANIFEST)


def _describe_missing_index(folder: Path) -> str:
    if not folder.is_dir():
        problem = "is a file" if folder.exists() else "does not exist"
        return (
            f"{folder} {problem}: expected an index directory. Build one with: elmo index "
            f"TEXT -o {folder}"
        )
    if (folder / UNFINISHED).exists():
        return (
            f"The index {folder} is not finished: its build was interrupted or is still running. "
            "If it was interrupted, repeat the command with --resume."
        )
    return f"{folder} is not an index: it has no {MANIFEST}. Build one with: elmo index TEXT -o DIR"


def _damaged_index_error(folder: Path, reason: object) -> DataError:
    """Return the error for an index with missing or invalid content."""
    return DataError(f"The index {folder} is damaged ({reason}). {_rebuild_hint(folder)}")


def _rebuild_hint(folder: Path) -> str:
    return f"Rebuild it with: elmo index TEXT -o {folder} --overwrite"


# -------------------------------------------------------------------------------------- the tables


def import_lance() -> Any:
    """Import Lance, the database library, which is an optional dependency."""
    os.environ.setdefault("LANCE_LOG", "error")  # Lance warns about every small table
    with optional_imports("search", "Using a token index"):
        import lance
    return lance


def table_path(folder: Path, name: str) -> str:
    """Return the path of a table."""
    return str(folder / f"{name}.lance")


def column_name(choice: LayerChoice) -> str:
    """Return the name of the column of a stored choice."""
    return choice.label.replace(" ", "_")


@contextmanager
def database_errors(folder: Path) -> Iterator[None]:
    """Convert database errors to errors that say that the index is damaged."""
    try:
        yield
    except (ElmoError, MemoryError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # panics in Lance are not derived from Exception
        # Omit the location in Lance's source code.
        reason = str(error).split("\n")[0].split(", /")[0]
        raise _damaged_index_error(folder, reason) from error


def open_tables(folder: Path, meta: IndexMeta) -> dict[str, Any]:
    """Open the tables of an index and check their sizes and columns."""
    lance = import_lance()
    rows = {"tokens": meta.tokens, "words": meta.words, "sentences": meta.sentences}
    dims = {column_name(choice): choice.dim(meta.dim) for choice in meta.choices}
    token_vectors = dims.keys() - {"layer_0"}
    word_vectors = dims.keys() - token_vectors
    columns = {"tokens": {"token", "word", *token_vectors}, "words": {"word", *word_vectors}}
    check_regular_files(folder, DataError)
    tables = {}
    for name in TABLES:
        with database_errors(folder):
            table = lance.dataset(table_path(folder, name), version=meta.versions[name])
            _check_file_sizes(table)  # Lance allocates the declared size before it reads a file
            if (n_rows := table.count_rows()) != rows[name]:
                raise ValueError(f"table {name} has {plural(n_rows, 'row')}, expected {rows[name]}")
            if missing := columns.get(name, set()) - set(table.schema.names):
                raise ValueError(f"table {name} has no column {missing.pop()}")
            for column in dims.keys() & set(table.schema.names):
                column_type, dim = table.schema.field(column).type, dims[column]
                if str(column_type.value_type) != "halffloat" or column_type.list_size != dim:
                    raise ValueError(
                        f"column {column} has type {column_type}, expected float16 vectors with "
                        f"{dim} dimensions"
                    )
        tables[name] = table
    return tables


def _check_file_sizes(table: Any) -> None:
    files = (file for fragment in table.get_fragments() for file in fragment.data_files())
    for file in files:
        size = Path(table.uri, "data", file.path).stat().st_size
        if size != file.file_size_bytes:
            raise ValueError(f"{file.path} has {size:,} bytes, expected {file.file_size_bytes:,}")


def vector_column(vectors: FloatArray) -> Any:
    """Return vectors, (n, D), as an Arrow array of float16 vectors."""
    import pyarrow as pa

    values = pa.array(vectors.astype(np.float16).ravel())
    return pa.FixedSizeListArray.from_arrays(values, vectors.shape[1])
