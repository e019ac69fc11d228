"""The exceptions of elmokit.

A message says what is wrong, what was expected and how to fix it. The `elmo` command prints it
without a traceback and exits with code 1.
"""

from __future__ import annotations

import difflib
import errno
import warnings
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


class ElmoError(Exception):
    """Base class of all elmokit exceptions."""


class ConfigError(ElmoError):
    """Raised for an invalid argument, setting or configuration."""


class WeightsError(ElmoError):
    """Raised if model or weight files are missing or damaged, or do not match the configuration."""


class DataError(ElmoError):
    """Raised for invalid data. If the data is in a file, the message names the file and line."""


class OutputError(ElmoError):
    """Raised if an output cannot be written: no permission, no space, or an existing file."""


class DownloadError(ElmoError):
    """Raised if a model cannot be downloaded."""


class NotFiniteError(ElmoError):
    """Raised if a loss, gradient or weight becomes NaN or infinite during training."""


class DependencyError(ElmoError):
    """Raised if a package that a feature requires is not installed."""


class ElmoWarning(UserWarning):
    """The category of all elmokit warnings."""


def warn(message: str, stacklevel: int = 3) -> None:
    """Issue an `ElmoWarning`, by default with the location of the caller's caller."""
    warnings.warn(message, ElmoWarning, stacklevel=stacklevel)


#: The distribution names of packages that are imported under a different name.
_DISTRIBUTIONS = {"lance": "pylance", "sklearn": "scikit-learn"}


@contextmanager
def optional_imports(extra: str | None, purpose: str, hint: str = "") -> Iterator[None]:
    """Convert import errors in a `with` block into helpful errors about missing packages.

    Import optional packages before any work starts, so that the error is raised early.

    Args:
        extra: The extra of elmokit that installs the package, or None if no extra does.
        purpose: The feature that needs the package, for the message.
        hint: Text to append to the message, for example another way to fix the problem.

    Raises:
        DependencyError: A package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name == "elmokit":
            raise
        package = _DISTRIBUTIONS.get(name, name.replace("_", "-"))
        requirement = package if extra is None else f"'elmokit[{extra}]'"
        raise DependencyError(
            f"{purpose} requires the package '{package}', which is not installed. "
            f"Install it with: pip install {requirement}{hint}"
        ) from None


def output_error(path: Path, error: OSError) -> OutputError:
    """Return an error that explains why `path` cannot be written."""
    # Errors from libraries written in Rust have no errno.
    if error.errno in (errno.ENOSPC, errno.EDQUOT) or f"os error {errno.ENOSPC}" in str(error):
        return OutputError(f"Cannot write {path}: no space left on the device. Free some space.")
    reason = error.strerror or str(error)
    return OutputError(f"Cannot write {path}: {reason}. Check the path and its permissions.")


def join_names(names: Iterable[str]) -> str:
    """List up to 12 names and the number of further names, for a message.

    If there are no names, return "nothing".
    """
    names = list(names)
    more = f" and {len(names) - 12:,} more" if len(names) > 12 else ""
    return f"{', '.join(names[:12])}{more}" or "nothing"


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Raise a `ConfigError` if a value is not one of the choices.

    Args:
        name: The name of the argument, for the message.
        value: The value.
        choices: The valid values.
    """
    if value not in choices:
        raise ConfigError(
            f"Invalid {name} '{value}'.{suggest(value, choices)} Expected one of: "
            f"{', '.join(choices)}."
        )


def suggest(word: object, known: Iterable[str]) -> str:
    """Return " Did you mean ...?" with the known word closest to `word`, or an empty string."""
    matches = difflib.get_close_matches(str(word), list(known), n=1)
    return f" Did you mean '{matches[0]}'?" if matches else ""
