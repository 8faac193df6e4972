"""JSON objects of answers, parsed strictly: a name given twice, `NaN` and invalid UTF-8 are refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from semel.client.errors import BadAnswerError
from semel.kernel.json.canonical import Json, JsonError, JsonKind, parse

Facts = Mapping[str, Any]
T = TypeVar("T")
UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What parsing an answer of another shape raises."""


def facts_of(body: bytes) -> dict[str, Json]:
    """The JSON object of an answer's body. Raises ValueError for anything else."""
    value = value_of(body)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def value_of(body: bytes) -> Json:
    """The JSON value of an answer's body. Raises ValueError if it is not JSON."""
    try:
        return parse(body)
    except JsonError as error:
        if error.kind is not JsonKind.DEPTH:
            raise
    # Content of the allowed depth is a few levels deeper in an answer.
    try:
        value: Json = json.loads(body)
    except RecursionError:
        raise ValueError("nested too deep") from None
    return value


def flag(facts: Facts, name: str) -> bool:
    """A member that is true or false. Raises KeyError or TypeError if it is not."""
    value = facts[name]
    if not isinstance(value, bool):
        raise TypeError(f"{name} is not true or false")
    return value


def read(make: Callable[[], T]) -> T:
    """Parse an answer. Raises `BadAnswerError` if it is incomplete."""
    try:
        return make()
    except UNREADABLE as error:
        raise BadAnswerError(f"The server's answer is incomplete ({type(error).__name__}: {error}).") from None
