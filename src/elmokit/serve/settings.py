"""What to serve, and where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from elmokit.errors import ConfigError
from elmokit.serve.limits import Limits

DEFAULT_PORT = 8017
#: The name of the model that comes with the package.
BUNDLED = "english"


@dataclass(frozen=True)
class Settings:
    """What `elmo serve` was asked for.

    Attributes:
        host: The address to listen on.
        port: The port; 0 lets the system choose one.
        models: Models by name, as `elmokit.load` takes them; None is the one of the package. The
            first is used where a request names none.
        tasks: Directories of trained tasks by name.
        task_files: Python files that define tasks of the user's own.
        index: A directory of `elmo index`, for neighbors.
        static: Static vectors to compare with.
        device: Where to compute.
        precision: "exact" or "fast".
        threads: CPU threads; None is torch's own choice.
        token: What clients must send as `Authorization: Bearer`; None asks for nothing.
        allowed_hosts: Names by which clients may address the service, besides IP addresses,
            "localhost" and the name of this machine; "*" is any.
        cors: Origins whose pages may read answers; "*" is all.
        limits: How much one request may ask for.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    models: Mapping[str, str | None] = field(default_factory=lambda: {BUNDLED: None})
    tasks: Mapping[str, Path] = field(default_factory=dict)
    task_files: Sequence[Path] = ()
    index: Path | None = None
    static: str | None = None
    device: str = "auto"
    precision: str = "exact"
    threads: int | None = None
    token: str | None = None
    allowed_hosts: Sequence[str] = ()
    cors: Sequence[str] = ()
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        """Find all that is wrong at once."""
        wrong = []
        if not self.models:
            wrong.append("no model (add one with --model NAME=PATH)")
        if self.threads is not None and self.threads < 1:
            wrong.append(f"threads must be at least 1, found {self.threads}")
        if not 0 <= self.port < 65536:
            wrong.append(f"port must be between 0 and 65535, found {self.port}")
        if self.token is not None and (not self.token.isascii() or not self.token.strip()):
            wrong.append("the token must be non-empty ASCII text")
        if self.task_files and not self.tasks:
            wrong.append("--task-file requires a trained model (--task NAME=DIR)")
        if wrong:
            raise ConfigError(f"Invalid settings: {'; '.join(wrong)}.")


def named(given: Sequence[str], what: str) -> dict[str, str]:
    """Read `NAME=VALUE` arguments; a name may stand once."""
    found: dict[str, str] = {}
    for argument in given:
        name, equals, value = argument.partition("=")
        if not (name and equals and value) or not name.replace("-", "").replace("_", "").isalnum():
            raise ConfigError(
                f"Invalid --{what} '{argument}': expected NAME=PATH, where NAME consists of "
                "letters, digits, - and _."
            )
        if name in found:
            raise ConfigError(
                f"Duplicate name '{name}' in --{what}. Give each {what} a unique name."
            )
        found[name] = value
    return found
