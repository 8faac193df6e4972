"""The tables of all settings, from their declarations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import Field
from typing import Any

from semel.server.setting_values import MANY, is_secret
from semel.server.settings_loader import ALIASES, PREFIX, setting_sections
from semel.surfaces.registry import SURFACES

UNITS: Mapping[str, Sequence[tuple[int, str]]] = {
    "bytes": ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB")),
    "ms": ((86_400_000, "day"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")),
    "s": ((86_400, "day"), (3_600, "h"), (60, "min")),
}
"""Larger units, the largest first."""
ENDS = {"_bytes": "bytes", "_ms": "ms", "_sec": "s"}
"""The unit of a setting, by the end of its name."""


def settings_tables() -> Iterator[str]:
    """A table for each heading of the server and for each surface of the registry, as in `semel serve --help`."""
    about = {surface.name.capitalize(): surface.about for surface in SURFACES}
    for number, (heading, listed) in enumerate(setting_sections().items()):
        yield from ([""] if number else [])
        yield from (f"## {heading}", "")
        if heading in about:
            yield from (f"{about[heading]}.", "")
        yield from _table(listed)


def settings_aliases() -> Iterator[str]:
    """The other variables of settings."""
    yield "| variable | also |"
    yield "|---|---|"
    for name, aliases in ALIASES.items():
        yield f"| `{PREFIX}{name.upper()}` | {', '.join(f'`{alias}`' for alias in aliases)} |"


def larger_unit(units: Sequence[tuple[int, str]], value: float) -> str:
    """A value in the largest unit of which it is a whole number; empty if there is none."""
    for size, unit in units:
        if value >= size and value % size == 0:
            count = int(value // size)
            return f"{count} {unit}s" if unit == "day" and count > 1 else f"{count} {unit}"
    return ""


def _table(listed: Iterable[Field[Any]]) -> Iterator[str]:
    yield "| variable | flag | TOML | default | meaning |"
    yield "|---|---|---|---|---|"
    for one in listed:
        flag = "none" if is_secret(one) else f"`--{one.name.replace('_', '-')}`"
        meaning = f"{one.metadata['about']}{_range(one)}"
        yield f"| `{PREFIX}{one.name.upper()}` | {flag} | `{one.name}` | {_default(one)} | {meaning} |"


def _default(one: Field[Any]) -> str:
    """A default as TOML has it, and in a larger unit where there is one."""
    if one.default == "":
        return "(empty)"
    text = str(one.default).lower() if isinstance(one.default, bool) else str(one.default)
    unit = next((unit for end, unit in ENDS.items() if one.name.endswith(end)), "")
    larger = larger_unit(UNITS[unit], one.default) if unit and isinstance(one.default, int | float) else ""
    return f"`{text}`" + (f" ({larger})" if larger else "")


def _range(one: Field[Any]) -> str:
    """The bounds of a number; empty where they say nothing."""
    least, most = one.metadata.get("least"), one.metadata.get("most")
    if most is not None and most < MANY:
        return f" ({least} to {most})"
    return f" (at least {least})" if least is not None and least > 1 else ""
