"""Settings: frozen dataclasses, validated by pydantic, for JSON files and `--set NAME=VALUE`.

A subclass of `Settings` is a dataclass. Its constructor, `dataclasses.replace`, `from_dict` and
`with_settings` validate the values strictly: no coercion ("1" is not a number, true is not 1), no
unknown names, no infinities and no NaN. A single `ConfigError` reports all problems, one per line:

    Invalid value for optimizer.learning_rate: -1. Expected a number greater than 0.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
import reprlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Self,
    TypeVar,
    dataclass_transform,
    get_args,
    get_type_hints,
)

import pydantic.dataclasses
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from elmokit.errors import ConfigError, suggest

T = TypeVar("T")
S = TypeVar("S", bound="Settings")
Location = tuple[str | int, ...]

_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Expected:
    """Metadata for an `Annotated` type: a description of the valid values, for error messages."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Callable[[Any], CoreSchema]
    ) -> CoreSchema:
        return core_schema.custom_error_schema(
            handler(source), custom_error_type="expected", custom_error_message=self.text
        )


_EXPECTED = {
    "bool_type": "true or false",
    "dataclass_type": "a group of settings",
    "json_invalid": "valid Unicode and no deep nesting",
}

#: Metadata for an `Annotated` type: the limits of a number (`gt`, `ge`, `lt`, `le`).
Bounds = Field

#: A number of dimensions or components, bounded because files are untrusted.
Size = Annotated[int, Bounds(ge=1, le=2**16)]
#: Like `Size`, but 0 is allowed and means that a component is omitted.
SizeOrZero = Annotated[int, Bounds(ge=0, le=2**16)]
#: A number of layers. The limit is low, because each layer is a module.
Layers = Annotated[int, Bounds(ge=1, le=128)]
#: A number of steps, tokens or words. It alone does not determine memory usage.
Count = Annotated[int, Bounds(ge=1, le=10**9)]
CountOrZero = Annotated[int, Bounds(ge=0, le=10**9)]
#: A random seed. Seeds derived from it (up to two million times larger) must be below 2**64.
Seed = Annotated[int, Bounds(ge=0, lt=2**42)]
Positive = Annotated[float, Bounds(gt=0)]
NonNegative = Annotated[float, Bounds(ge=0)]
#: A dropout probability or decay rate.
Fraction = Annotated[float, Bounds(ge=0, lt=1)]
Probability = Annotated[float, Bounds(ge=0, le=1)]


@dataclass_transform(frozen_default=True)
class Settings:
    """Base class of all settings. See the module docstring.

    To validate combinations of fields, define a method with the decorator
    `pydantic.model_validator(mode="after")`. If a combination is invalid, the method must raise the
    result of `invalid`.

    Raises:
        ConfigError: A value is invalid. The message lists all invalid values.
    """

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __init_subclass__(cls) -> None:
        pydantic.dataclasses.dataclass(cls, frozen=True, config=_STRICT)
        validated: Any = cls.__init__

        @functools.wraps(validated)
        def init(self: Settings, *args: Any, **values: Any) -> None:
            # Pass all values by name, so that error messages contain the names.
            named = dict(zip(cls.__dataclass_fields__, args, strict=False))
            try:
                validated(self, *args[len(named) :], **named, **values)
            except ValidationError as error:
                raise ConfigError("\n".join(_describe(error, _setting_names(cls)))) from None

        cls.__init__ = init  # type: ignore[method-assign, assignment]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dictionary."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: object, model: type | None = None) -> Self:
        """Read JSON values. Missing settings get their default values.

        Args:
            values: The output of `to_dict`, or the contents of a file.
            model: The class of the field `model`, if it is declared as `Any`.
        """
        try:
            return parse(cls, values, model)
        except ValidationError as error:
            raise ConfigError("\n".join(_describe(error, _setting_names(cls, model)))) from None


def with_settings(config: S, settings: Iterable[str]) -> S:
    """Return a config with changed settings (`NAME=VALUE`), as in `optimizer.learning_rate=0.002`.

    Values are JSON, or plain text for settings of type str. The prefix `model.` can be omitted.

    Raises:
        ConfigError: A name is unknown, or a value is invalid.
    """
    kind, model = type(config), type(getattr(config, "model", None))
    values, known = config.to_dict(), _setting_names(kind, model)
    user_input: dict[Location, tuple[str, str]] = {}
    problems = []
    for setting in settings:
        name, equals, text = (part.strip() for part in setting.partition("="))
        path = name.split(".")
        if path[0] not in values and path[0] in values.get("model", ()):
            path = ["model", *path]
        group: Any = values
        for key in path[:-1]:
            group = group.get(key) if isinstance(group, dict) else None
        if not equals:
            problems.append(f"Invalid setting {setting!r}. Expected NAME=VALUE.")
        elif not isinstance(group, dict) or path[-1] not in group:
            problems.append(_unknown_setting(name, known))
        elif isinstance(group[path[-1]], dict):
            example = next(iter(group[path[-1]]))
            problems.append(
                f"Invalid value for {name}: {text!r}. {name} is a group of settings. Set one of "
                f"them, such as {name}.{example}."
            )
        else:
            group[path[-1]] = text if isinstance(group[path[-1]], str) else _parse_value(text)
            user_input[tuple(path)] = name, text
    try:
        config = parse(kind, values, model)
    except ValidationError as error:
        problems += _describe(error, known, user_input)
    if problems:
        raise ConfigError("\n".join(problems))
    return config


def validate(name: str, value: T, kind: Any) -> T:
    """Validate a single value against a type such as `Positive`.

    Raises:
        ConfigError: The value is invalid.
    """
    try:
        checked: T = TypeAdapter(kind, config=_STRICT).validate_python(value)
    except ValidationError as error:
        raise ConfigError("\n".join(_describe(error, [], prefix=name))) from None
    return checked


def invalid(name: str, value: object, expected: str) -> PydanticCustomError:
    """Return an error about an invalid field or combination of fields, to raise in a validator."""
    return PydanticCustomError(
        "invalid", "{text}", {"text": expected, "name": name, "value": value}
    )


def differences(a: Settings, b: Settings, ignore: Collection[str] = ()) -> list[str]:
    """Return the dotted names of the settings that differ between `a` and `b`."""
    other = dict(_flatten(b.to_dict()))
    return [
        name
        for name, value in _flatten(a.to_dict())
        if name not in ignore and other.get(name) != value
    ]


def parse(kind: type[T], values: object, model: type | None = None) -> T:
    """Read JSON values as settings. Use this in validators of other settings.

    Raises:
        pydantic.ValidationError: A value is invalid.
    """
    if isinstance(values, Mapping):
        values = dict(values)
    if not hasattr(kind, "__pydantic_config__"):  # a plain dataclass of a custom task
        kind.__pydantic_config__ = _STRICT  # type: ignore[attr-defined]
    return TypeAdapter(kind).validate_json(json.dumps(values, default=repr), context=model)


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _setting_names(kind: Any, model: type | None = None) -> list[str]:
    """Return the dotted names of all settings of a class."""
    names = []
    for name, hint in get_type_hints(kind).items():
        groups = [t for t in (hint, *get_args(hint)) if dataclasses.is_dataclass(t)]
        if name == "model" and model is not None:
            groups = [model]
        names += [f"{name}.{inner}" for t in groups for inner in _setting_names(t)] or [name]
    return names


def _describe(
    error: ValidationError,
    known: Iterable[str],
    user_input: Mapping[Location, tuple[str, Any]] = {},
    prefix: str = "",
) -> list[str]:
    """Return a message for each problem.

    Args:
        error: The error.
        known: The names of all settings.
        user_input: Maps the location of each setting to its name and value as the user wrote them.
        prefix: The name of the value that was validated, if it is not a group of settings.
    """
    problems = []
    for problem in error.errors(include_url=False):
        context = problem.get("ctx", {})
        path = (*problem["loc"], *([context["name"]] if "name" in context else []))
        value = context.get("value", problem["input"])
        dotted = ".".join(filter(None, [prefix, *map(str, path)])) or error.title
        name, value = user_input.get(path, (dotted, value))
        if problem["type"] == "unexpected_keyword_argument":
            problems.append(_unknown_setting(name, known))
        elif problem["type"] == "missing":
            problems.append(f"Missing setting '{name}'.")
        else:
            expected = _EXPECTED.get(problem["type"], problem["msg"])
            expected = expected.removeprefix("Input should be ")
            if expected.startswith(("greater than", "less than")):
                expected = f"a number {expected}"
            problems.append(_invalid_value(name, value, expected))
    return problems


def _invalid_value(name: str, value: object, expected: str) -> str:
    return f"Invalid value for {name}: {reprlib.repr(value)}. Expected {expected}."


def _unknown_setting(name: str, known: Iterable[str]) -> str:
    by_last_part = {setting.rpartition(".")[2]: setting for setting in known}
    matches = difflib.get_close_matches(name.rpartition(".")[2], by_last_part, n=1)
    if hint := suggest(name, known):
        return f"Unknown setting '{name}'.{hint}"
    if matches:
        return f"Unknown setting '{name}'. Did you mean '{by_last_part[matches[0]]}'?"
    return f"Unknown setting '{name}'. For all settings, see docs/reference/configuration.md."
