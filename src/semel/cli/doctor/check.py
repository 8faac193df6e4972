"""The result of one check of `semel doctor`."""

from __future__ import annotations

from typing import NamedTuple


class Check(NamedTuple):
    """The subject of a check, its result, and advice when that is a problem."""

    name: str
    is_ok: bool
    found: str
    advice: str = ""


def ok(name: str, found: str) -> Check:
    """As it should be."""
    return Check(name, True, found)


def problem(name: str, found: str, advice: str) -> Check:
    """Something to mend."""
    return Check(name, False, found, advice)
