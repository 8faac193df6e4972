"""Loads the application's validator: `module:callable`, or the name of an entry point."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points

from semel.contracts.events.validation import Validator
from semel.server.setting_values import SettingsError

GROUP = "semel.events.validators"


def load_validator(name: str) -> Validator | None:
    """The validator of that name; None for no name."""
    if not name:
        return None
    try:
        found = _imported(name) if ":" in name else _installed(name)
    except Exception as error:
        raise SettingsError(f"The validator {name} cannot be loaded: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise SettingsError(f"The validator {name} is not callable.")
    return found


def _imported(name: str) -> object:
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def _installed(name: str) -> object:
    found = entry_points(group=GROUP, name=name)
    if not found:
        raise LookupError(f"there is no entry point of this name in the group {GROUP}")
    return next(iter(found)).load()
