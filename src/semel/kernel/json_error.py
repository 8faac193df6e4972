"""The error of invalid JSON input.

Promise: every refusal of the JSON modules is a JsonError. Its `kind` says which rule was broken, so that each
contract can choose its own answer, and its message is one sentence that never carries more than a short
prefix of the input.
"""

from __future__ import annotations

from enum import StrEnum

_SHOWN_CHARACTERS = 32


class JsonKind(StrEnum):
    """Which rule the input broke."""

    SYNTAX = "syntax"
    UTF8 = "utf8"
    DUPLICATE_NAME = "duplicate_name"
    NOT_A_NUMBER = "not_a_number"
    OVERFLOW = "overflow"
    INTEGER = "integer"
    SURROGATE = "surrogate"
    DEPTH = "depth"
    DIGITS = "digits"


class JsonError(ValueError):
    """The input is not JSON that this server accepts."""

    def __init__(self, kind: JsonKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind

    def __reduce__(self) -> tuple[type[JsonError], tuple[JsonKind, str]]:
        return type(self), (self.kind, str(self))


_OF_VALUES = frozenset({JsonKind.OVERFLOW, JsonKind.DIGITS, JsonKind.INTEGER, JsonKind.SURROGATE, JsonKind.DEPTH})


def is_flaw_of_value(error: JsonError) -> bool:
    """Whether one value cannot be taken, and nothing is wrong with the text around it."""
    return error.kind in _OF_VALUES


def shown(text: str) -> str:
    """A short prefix of the input in plain ASCII, safe to log and to send whatever the input was."""
    return ascii(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "...")
