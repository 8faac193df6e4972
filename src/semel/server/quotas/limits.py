"""The limits of a principal: defaults from the settings, and `[[quota]]` tables of the token file.

A `[[quota]]` names a principal: the name of a token, or `user:NAME` for the subject of a JWT. Each limit that it does
not give is the default. The file is read at the start and again on SIGHUP; an invalid file changes nothing then.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from semel.server.setting_values import MANY, SettingsError, setting

MOST_BYTES = 2**53 - 1


class QuotaLimits(NamedTuple):
    """The limits of one principal; 0 means no limit."""

    requests_per_second: int = 0
    body_bytes_per_second: int = 0
    in_flight_writes: int = 0
    connections: int = 0
    live_readers: int = 0
    subscriptions: int = 0


class QuotaFileError(SettingsError):
    """A `[[quota]]` is invalid; the message says what to correct, and `flaw` the same without quoting the file."""

    def __init__(self, message: str, flaw: str) -> None:
        super().__init__(message)
        self.flaw = flaw


def quota_setting(about: str, *, is_bytes: bool = False) -> Any:
    """Declare the default of a limit."""
    return setting(0, f"{about}; 0 is no limit", 0, MOST_BYTES if is_bytes else MANY)


def default_limits(settings: object) -> QuotaLimits:
    """The limits of every principal that no `[[quota]]` names."""
    return QuotaLimits(*(getattr(settings, f"quota_{name}") for name in QuotaLimits._fields))


def read_quotas(path: str, default: QuotaLimits) -> dict[str, QuotaLimits] | None:
    """The limits of named principals, by actor; `QuotaFileError` if one is invalid.

    None if the file cannot be read or is no TOML: those who read the tokens in it tell that.
    """
    if not path:
        return {}
    try:
        entries = tomllib.loads(Path(path).read_text("utf-8")).get("quota", [])
    except (OSError, ValueError):
        return None
    if not isinstance(entries, list):
        raise QuotaFileError(f"{path}: write quotas as [[quota]] tables.", "its quotas are no list of tables")
    found: dict[str, QuotaLimits] = {}
    for number, entry in enumerate(entries, start=1):
        actor, limits = _entry(path, number, entry, default)
        if actor in found:
            raise QuotaFileError(f"{path}: {actor} has two [[quota]] tables.", f"quota {number} occurs twice")
        found[actor] = limits
    return found


def _entry(path: str, number: int, entry: Mapping[str, Any], default: QuotaLimits) -> tuple[str, QuotaLimits]:
    """Read one `[[quota]]`; logs name it by its number only."""

    def refused(what: str, part: str) -> QuotaFileError:
        return QuotaFileError(f"{path}: {what}", f"quota {number} has an unusable {part}")

    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise refused("every [[quota]] needs the name of a token, or user:NAME.", "name")
    given = {limit: value for limit, value in entry.items() if limit != "name"}
    for limit, value in given.items():
        if limit not in QuotaLimits._fields:
            known = ", ".join(QuotaLimits._fields)
            raise refused(f"the quota of {name!r} has the unknown limit {limit!r}; use some of {known}.", "limit")
        if type(value) is not int or not 0 <= value <= MOST_BYTES:
            raise refused(f"{limit} of {name!r} must be a whole number of 0 or more; 0 is no limit.", "number")
    actor = name if name.startswith(("client:", "user:")) else f"client:{name}"
    return actor, default._replace(**given)
