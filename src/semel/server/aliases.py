"""Aliases of settings: environment variables of an earlier system that still work.

Pure. The variable with our own prefix wins over every alias, and an earlier alias over a later one. Two that are set
and do not mean the same are told as a warning that names the variables and never shows a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Named(NamedTuple):
    """An environment variable that is set."""

    variable: str
    value: str


def set_for(own: str, aliases: Sequence[str], environment: Mapping[str, str]) -> list[Named]:
    """The variables of one setting that are set, the one that counts first; `own` is ours."""
    variables = (own, *aliases)
    return [Named(variable, environment[variable]) for variable in variables if variable in environment]
