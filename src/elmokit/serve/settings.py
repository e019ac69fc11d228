"""The settings and limits of `elmo serve`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from elmokit import settings
from elmokit.errors import ConfigError
from elmokit.settings import Bounds, Count, Expected, Positive

#: The name of the bundled model.
BUNDLED = "english"

Origin = Annotated[
    str,
    Field(pattern=r"^(\*|https?://[^/\s]+)$"),
    Expected('"*" or an origin such as https://example.org'),
]


class Limits(settings.Settings):
    """The limits that can be set with options of `elmo serve`.

    Attributes:
        body: Maximum size of a request body in bytes.
        tokens: Maximum number of tokens per request.
        sentences: Maximum number of sentences per request.
        values: Maximum number of floating-point values per response.
        queue: Maximum number of waiting requests. Further requests are rejected.
        connections: Maximum number of open connections. At this limit, the longest-idle
            connection is closed.
        timeout: Time limit in seconds for each step: receiving a request, computing the response,
            and sending the response.
    """

    body: Count = 2 * 2**20
    tokens: Count = 4096
    sentences: Count = 256
    values: Count = 2**24
    queue: Count = 256
    connections: Count = 1024
    timeout: Positive = 60.0


class Settings(settings.Settings):
    """The settings of `elmo serve`.

    Attributes:
        host: The address to listen on.
        port: The port to listen on; 0 selects a free port.
        models: Arguments of `elmokit.load` by name; None is the bundled model. The first model
            is the default for requests.
        tasks: Directories of trained task models by name.
        task_files: Python files that define custom tasks.
        index: A directory written by `elmo index`, for nearest-neighbor search.
        static: Static vectors for comparison.
        device: The device to compute on.
        precision: "exact" or "fast".
        threads: Number of CPU threads. Default: chosen by PyTorch.
        token: The token that clients must send in the header `Authorization: Bearer TOKEN`.
            Default: no authentication.
        allowed_hosts: Accepted host names, in addition to IP addresses, "localhost" and the name of
            this machine. "*" accepts any name.
        cors: Allowed origins of cross-origin requests. "*" allows all origins.
        limits: The limits on requests, responses, the queue and connections.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Bounds(ge=0, le=65535)] = 8017
    models: Mapping[str, str | None] = field(default_factory=lambda: {BUNDLED: None})
    tasks: Mapping[str, Path] = field(default_factory=dict)
    task_files: Sequence[Path] = ()
    index: Path | None = None
    static: str | None = None
    device: str = "auto"
    precision: str = "exact"
    threads: Count | None = None
    token: str | None = None
    allowed_hosts: Sequence[str] = ()
    cors: Sequence[Origin] = ()
    limits: Limits = field(default_factory=Limits)

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        if not self.models:
            raise ConfigError("There is no model to serve. Specify one with --model NAME=PATH.")
        if self.token is not None and (not self.token.isascii() or not self.token.strip()):
            raise ConfigError("Invalid value for token: expected non-empty ASCII text.")
        if self.task_files and not self.tasks:
            raise ConfigError(
                "--task-file requires a trained task model. Specify one with --task NAME=DIR."
            )
        return self


def parse_named_paths(arguments: Sequence[str], option: str) -> dict[str, str]:
    """Parse the NAME=PATH arguments of an option. Names must be unique."""
    paths: dict[str, str] = {}
    for argument in arguments:
        name, _, path = argument.partition("=")
        if not path or not name.replace("-", "").replace("_", "").isalnum():
            raise ConfigError(
                f"Invalid --{option} '{argument}': expected NAME=PATH, where NAME consists of "
                "letters, digits, - and _."
            )
        if name in paths:
            raise ConfigError(
                f"Duplicate name '{name}' in --{option}. Use a unique name for each {option}."
            )
        paths[name] = path
    return paths
