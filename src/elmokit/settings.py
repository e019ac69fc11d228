"""Settings: frozen dataclasses validated by pydantic, JSON in and out, `--set NAME=VALUE`.

A subclass of `Settings` is a dataclass whose values are validated by its constructor,
`dataclasses.replace`, `from_dict` and `with_settings`: no coercion ("1" is not a number, true is
not 1), no unknown names, no infinities or NaN. All problems are reported in one `ConfigError`, one
per line:

    Invalid value for optimizer.learning_rate: 'fast'. Expected a number > 0.
"""

from __future__ import annotations

import dataclasses
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
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from elmokit.errors import ConfigError, nearest

T = TypeVar("T")
S = TypeVar("S", bound="Settings")
Location = tuple[str | int, ...]

_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
_SIGNS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


class Expected:
    """Describe in an error what a type accepts, as metadata of an `Annotated` type."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Callable[[Any], CoreSchema]
    ) -> CoreSchema:
        return _explained(handler(source), self.text)


class Bounds:
    """Limit a number, as metadata of an `Annotated` type; the arguments are pydantic's."""

    def __init__(self, **limits: float) -> None:
        self.limits = limits

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Callable[[Any], CoreSchema]
    ) -> CoreSchema:
        schema: Any = handler(source)
        number = schema["schema"] if schema["type"] == "nullable" else schema
        for choice in number.get("choices", [number]):  # of `int | float`
            choice.update(self.limits)
        limits = " and ".join(f"{_SIGNS[key]} {limit}" for key, limit in self.limits.items())
        kind = "an integer" if number["type"] == "int" else "a number"
        return _explained(schema, f"{kind} {limits}" + (" or null" if schema is not number else ""))


def _explained(schema: CoreSchema, text: str) -> CoreSchema:
    return core_schema.custom_error_schema(
        schema, custom_error_type="expected", custom_error_message=text
    )


_EXPECTED = {
    "bool_type": "true or false",
    "dataclass_type": "a group of settings",
    "json_invalid": "valid Unicode and no deep nesting",
}

#: A dimension or number of parts, bounded because files are untrusted.
Size = Annotated[int, Bounds(ge=1, le=2**16)]
#: Like `Size`, but 0 is allowed and omits a component.
SizeOrZero = Annotated[int, Bounds(ge=0, le=2**16)]
#: A number of layers, each of which is a module.
Layers = Annotated[int, Bounds(ge=1, le=128)]
#: A number of steps, tokens or words, which does not determine memory on its own.
Count = Annotated[int, Bounds(ge=1, le=10**9)]
CountOrZero = Annotated[int, Bounds(ge=0, le=10**9)]
#: Random seeds are multiplied by a million and added to; torch accepts them below 2**64.
Seed = Annotated[int, Bounds(ge=0, lt=2**42)]
Positive = Annotated[float, Bounds(gt=0)]
NonNegative = Annotated[float, Bounds(ge=0)]
#: A dropout or decay.
Fraction = Annotated[float, Bounds(ge=0, lt=1)]
Probability = Annotated[float, Bounds(ge=0, le=1)]


@dataclass_transform(frozen_default=True)
class Settings:
    """Base of all groups of settings; see the module.

    Rules over several fields are methods decorated with `pydantic.model_validator(mode="after")`
    that raise what `invalid` returns.

    Raises:
        ConfigError: Values are invalid; the message names all of them.
    """

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __init_subclass__(cls) -> None:
        pydantic.dataclasses.dataclass(cls, frozen=True, config=_STRICT)
        validated: Any = cls.__init__

        @functools.wraps(validated)
        def init(self: Settings, *args: Any, **values: Any) -> None:
            named = dict(zip(cls.__dataclass_fields__, args, strict=False))  # for errors by name
            try:
                validated(self, *args[len(named) :], **named, **values)
            except ValidationError as error:
                raise ConfigError("\n".join(_problems(error, _names(cls)))) from None

        cls.__init__ = init  # type: ignore[method-assign, assignment]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: object, model: type | None = None) -> Self:
        """Read JSON values; missing settings have their defaults.

        Args:
            values: The output of `to_dict`, or the contents of a file.
            model: The class of the group `model`, if it is declared as `Any`.
        """
        try:
            return parse(cls, values, model)
        except ValidationError as error:
            raise ConfigError("\n".join(_problems(error, _names(cls, model)))) from None


def with_settings(config: S, settings: Iterable[str]) -> S:
    """Change values by dotted names, as `--set optimizer.learning_rate=0.002` does.

    A value is JSON, or plain text if the setting is text. `model.` may be omitted.

    Raises:
        ConfigError: A name is unknown, or a value is invalid.
    """
    kind, model = type(config), type(getattr(config, "model", None))
    values, known = config.to_dict(), _names(kind, model)
    typed: dict[Location, tuple[str, str]] = {}
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
            problems.append(_unknown(name, known))
        elif isinstance(group[path[-1]], dict):
            example = next(iter(group[path[-1]]))
            problems.append(_wrong(name, text, f"one of its settings, such as {name}.{example}"))
        else:
            group[path[-1]] = text if isinstance(group[path[-1]], str) else _value(text)
            typed[tuple(path)] = name, text
    try:
        config = parse(kind, values, model)
    except ValidationError as error:
        problems += _problems(error, known, typed)
    if problems:
        raise ConfigError("\n".join(problems))
    return config


def check(name: str, value: T, kind: Any) -> T:
    """Validate a single value of one of the types above, such as `Positive`.

    Raises:
        ConfigError: It is invalid.
    """
    try:
        checked: T = TypeAdapter(kind, config=_STRICT).validate_python(value)
    except ValidationError as error:
        raise ConfigError("\n".join(_problems(error, [], {(): (name, value)}))) from None
    return checked


def invalid(name: str, value: object, expected: str) -> PydanticCustomError:
    """Return the error to raise if a rule over several fields is violated."""
    return PydanticCustomError(
        "invalid", "{text}", {"text": expected, "name": name, "value": value}
    )


def differences(a: Settings, b: Settings, ignore: Collection[str] = ()) -> list[str]:
    """Return the dotted names of the settings in which two values of a class differ."""
    before = dict(_flat(b.to_dict()))
    return [
        name
        for name, value in _flat(a.to_dict())
        if name not in ignore and before.get(name) != value
    ]


def parse(kind: type[T], values: object, model: type | None = None) -> T:
    """Read JSON values as a group of settings, for validators: pydantic collects their errors.

    Raises:
        pydantic.ValidationError: Values are invalid.
    """
    if isinstance(values, Mapping):
        values = dict(values)
    return _adapter(kind).validate_json(json.dumps(values, default=repr), context=model)


# ------------------------------------------------------------------------------------------ parts


def _adapter(kind: type[T]) -> TypeAdapter[T]:
    """Return the validator of a class; custom tasks may use plain dataclasses."""
    if not hasattr(kind, "__pydantic_config__"):
        kind.__pydantic_config__ = _STRICT  # type: ignore[attr-defined]
    return TypeAdapter(kind)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _names(kind: Any, model: type | None = None) -> list[str]:
    """Return the dotted names of all settings of a class."""
    names = []
    for name, hint in get_type_hints(kind).items():
        groups = [t for t in (hint, *get_args(hint)) if dataclasses.is_dataclass(t)]
        if name == "model" and model is not None:
            groups = [model]
        names += [f"{name}.{inner}" for t in groups for inner in _names(t)] or [name]
    return names


def _problems(
    error: ValidationError, known: Iterable[str], typed: Mapping[Location, tuple[str, Any]] = {}
) -> list[str]:
    """Format problems; `typed` contains the user's input by the location of the setting."""
    problems = []
    for problem in error.errors(include_url=False):
        context = problem.get("ctx", {})
        path = (*problem["loc"], *([context["name"]] if "name" in context else []))
        value = context.get("value", problem["input"])
        name, value = typed.get(path, (".".join(map(str, path)) or error.title, value))
        if problem["type"] == "unexpected_keyword_argument":
            problems.append(_unknown(name, known))
        elif problem["type"] == "missing":
            problems.append(f"Missing setting '{name}'.")
        else:
            expected = _EXPECTED.get(problem["type"], problem["msg"])
            expected = expected.removeprefix("Input should be ")
            problems.append(_wrong(name, value, expected))
    return problems


def _wrong(name: str, value: object, expected: str) -> str:
    return f"Invalid value for {name}: {reprlib.repr(value)}. Expected {expected}."


def _unknown(name: str, known: Iterable[str]) -> str:
    near = nearest(name, known) or f" Known settings: {', '.join(known)}."
    return f"Unknown setting '{name}'.{near}"
