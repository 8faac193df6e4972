"""What administrators may ask for: names, settings and retention within their bounds."""

from __future__ import annotations

from semel.contracts.ledger.commands import OrgSettings
from semel.contracts.ledger.drafts import CONTROLS
from semel.contracts.ledger.limits import MAX_INTERVAL, MAX_NAME_CHARACTERS, MAX_TTL_SECONDS
from semel.contracts.ledger.refusals import invalid

MAX_RETAINED = 2**62
"""More bodies than this cannot be counted off a height."""


def check_name(name: bytes) -> None:
    """The name of an organization."""
    try:
        text = name.decode()
    except UnicodeDecodeError:
        raise invalid("The name is not UTF-8.", "name") from None
    if not 1 <= len(text) <= MAX_NAME_CHARACTERS:
        raise invalid(f"A name has 1 to {MAX_NAME_CHARACTERS} characters.", "name")
    if CONTROLS.search(text):
        raise invalid("A name has no control characters.", "name")


def check_settings(settings: OrgSettings) -> None:
    """What of an organization is to be changed."""
    for value, field, most in (
        (settings.eviction_interval, "eviction_interval", MAX_INTERVAL),
        (settings.ttl_seconds, "ttl_seconds", MAX_TTL_SECONDS),
    ):
        if value is not None and not 1 <= value <= most:
            raise invalid(f"{field} is a number from 1 to {most}.", field)


def check_retention(retain: int) -> None:
    """How many bodies a vault keeps; 0 is all."""
    if not 0 <= retain <= MAX_RETAINED:
        raise invalid(f"retention_blocks is a number from 1 to {MAX_RETAINED}.", "retention_blocks")
