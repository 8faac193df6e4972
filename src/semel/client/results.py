"""Results of job functions as JSON: a value that cannot be printed never undoes the work.

The function has had its effects when it returns, so a result that cannot be stored must not fail the job: the job would
run again, or end as failed although all was done. It is stored as done, with a note in the place of the result.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, get_type_hints

import orjson

from semel.client.errors import ConfigurationError

NO_RESULT = "no_result"
"""The one member of the note that replaces a result that could not be stored."""
MAX_LEVELS = 64
_SIMPLE = (str, int, float, bool, type(None))
_UNPRINTABLE = (bytes, bytearray, memoryview, set, frozenset, complex, Decimal)


def plain(value: Any) -> Any:
    """The value in plain JSON types: tuples, dataclasses, dates, times, UUIDs and enums become what orjson prints.

    TypeError for what it does not print, ValueError for what is nested too deeply.
    """
    return _plain(value, MAX_LEVELS)


def _plain(value: Any, levels_left: int) -> Any:
    if type(value) in _SIMPLE:
        return value
    if levels_left == 0:
        raise ValueError(f"it is nested more than {MAX_LEVELS} levels deep")
    if isinstance(value, list | tuple):
        return [_plain(one, levels_left - 1) for one in value]
    if isinstance(value, Mapping):
        return {_name(name): _plain(one, levels_left - 1) for name, one in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ((one.name, getattr(value, one.name)) for one in dataclasses.fields(value))
        return {name: _plain(one, levels_left - 1) for name, one in fields}
    return orjson.loads(orjson.dumps(value))


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"a member is named by a {type(name).__name__}, and not by a string")
    return name


def note(reason: str) -> dict[str, str]:
    """The note that is stored instead of a result that could not be."""
    return {NO_RESULT: reason}


def refuse_unprintable(kind: str, function: Callable[..., Any]) -> None:
    """Refuse a function whose own annotation says that its result cannot be stored: before it has had any effect."""
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        returned = get_type_hints(target).get("return")
    except Exception:  # noqa: BLE001 - an annotation that cannot be looked up here says nothing
        return
    if isinstance(returned, type) and issubclass(returned, _UNPRINTABLE):
        raise ConfigurationError(
            f"The function for jobs of the kind {kind} returns {returned.__name__}, which is not JSON: return what is."
        )
