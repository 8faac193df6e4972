"""Every setting with its value and its origin, for `semel config show` and `GET /v1/settings`. Shows no secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields
from typing import Any, NamedTuple

from semel.server.setting_values import GivenValue, is_secret
from semel.server.settings import ServerSettings
from semel.store.open import shown

HIDDEN = "(set, not shown)"


class SettingLine(NamedTuple):
    """One setting as it is in effect."""

    name: str
    value: Any
    origin: str
    """default, file, environment or flag."""
    place: str
    """The file, variable or flag; empty for a default."""


def lines_of(settings: ServerSettings, given: Mapping[str, GivenValue]) -> list[SettingLine]:
    """A line for every setting; a secret and the password of a store are not shown."""
    return [_line(one, getattr(settings, one.name), given.get(one.name)) for one in fields(settings)]


def setting_facts(settings: ServerSettings, given: Mapping[str, GivenValue]) -> list[dict[str, Any]]:
    """The same with the default and the meaning of each setting, as JSON values."""
    described = {one.name: one for one in fields(settings)}
    return [
        line._asdict() | {"default": described[line.name].default, "about": described[line.name].metadata["about"]}
        for line in lines_of(settings, given)
    ]


def _line(one: Field[Any], value: Any, source: GivenValue | None) -> SettingLine:
    if is_secret(one):
        value = HIDDEN if value else ""
    elif one.name == "store" and value:
        value = shown(value)
    origin, place = ("default", "") if source is None else (source.origin, source.place)
    return SettingLine(one.name, value, origin, place)
