"""One setting: its declaration, the conversion of a given value, and its alias variables.

Variables of an earlier system are still accepted (`ALIASES`). The variable with the prefix of Semel wins over every
alias, and an earlier alias over a later one. Two variables with different values give a warning that names the
variables and never shows a value. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, field
from typing import Any, NamedTuple


class NamedVariable(NamedTuple):
    """An environment variable that is set."""

    variable: str
    value: str


def set_for(own: str, aliases: Sequence[str], environment: Mapping[str, str]) -> list[NamedVariable]:
    """The variables of one setting that are set, the one that is used first; `own` is the variable of Semel."""
    variables = (own, *aliases)
    return [NamedVariable(variable, environment[variable]) for variable in variables if variable in environment]


MANY = 1_000_000_000
"""The largest value of a setting that is a count."""
LARGE = 16 * 1024 * 1024
CENTURY = 100 * 366 * 86_400

_SWITCHES = {"1": True, "true": True, "0": False, "false": False}


class SettingsError(ValueError):
    """A setting is invalid; the message says which and why."""


class GivenValue(NamedTuple):
    """A value as it was given."""

    value: Any
    place: str
    """Where the value was given: the name of the variable, the file or the flag."""
    origin: str = "environment"
    """The kind of its source: file, environment or flag."""


def setting(default: Any, about: str, least: float | None = None, most: float | None = None) -> Any:
    """Declare a switch, a text or a number; the bounds are the range of a number."""
    return field(default=default, metadata={"about": about, "least": least, "most": most})


def choice(default: str, about: str, *others: str) -> Any:
    """Declare a text with a fixed set of values."""
    return field(default=default, metadata={"about": about, "choices": (default, *others)})


def checked(check: Callable[[str], object], about: str, default: str = "") -> Any:
    """Declare a text that is empty or passes a check, which raises `ValueError`."""
    return field(default=default, metadata={"about": about, "check": check})


def secret(about: str) -> Any:
    """Declare a secret text: it appears in no error and no representation, and has no command-line flag."""
    return field(default="", repr=False, metadata={"about": about, "secret": True})


def is_secret(one: Field[Any]) -> bool:
    """Whether a setting's value must not be shown."""
    return bool(one.metadata.get("secret"))


def convert(one: Field[Any], given: GivenValue) -> Any:
    """The value that is used, from the given one."""
    try:
        return _CONVERTERS[str(one.type)](one, given.value)
    except (ValueError, TypeError, KeyError, OverflowError):
        shown = "the given value" if is_secret(one) else repr(given.value)
        why = f"The setting {one.name} ({given.place}): {shown} is not valid{_allowed(one)}."
        raise SettingsError(f"{why} Its meaning: {one.metadata['about']}.") from None


def _allowed(one: Field[Any]) -> str:
    """The valid values, as the end of a sentence; empty if the description lists them."""
    if one.metadata.get("choices"):
        choices = ", ".join(filter(None, one.metadata["choices"]))
        return f": give one of {choices}{', or leave it empty' if '' in one.metadata['choices'] else ''}"
    if str(one.type) == "bool":
        return ": give true or false"
    if str(one.type) == "str":
        return ""
    kind = "a whole number" if str(one.type) == "int" else "a number"
    least, most = one.metadata["least"], one.metadata["most"]
    lower, upper = ("" if least is None else f" from {least}"), (" up" if most is None else f" to {most}")
    return f": give {kind}{lower}{upper}"


def _whole(one: Field[Any], value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError
    return int(_bounded(one, int(value)))


def _number(one: Field[Any], value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError
    return float(_bounded(one, float(value)))


def _bounded(one: Field[Any], number: float) -> float:
    least, most = one.metadata["least"], one.metadata["most"]
    if not math.isfinite(number) or (least is not None and number < least) or (most is not None and number > most):
        raise ValueError
    return number


def _switch(one: Field[Any], value: Any) -> bool:
    return value if isinstance(value, bool) else _SWITCHES[value.lower() if isinstance(value, str) else value]


def _text(one: Field[Any], value: Any) -> str:
    choices = one.metadata.get("choices")
    if choices is not None:
        # TOML reads some of these words as a number or a boolean: 429, true.
        value = str(value).lower()
        if value not in choices:
            raise ValueError
    if not isinstance(value, str):
        raise TypeError
    if value and "check" in one.metadata:
        one.metadata["check"](value)
    return value


_CONVERTERS = {"int": _whole, "float": _number, "bool": _switch, "str": _text}
