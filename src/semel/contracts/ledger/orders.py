"""Validation of admin calls: names, settings and retention within their limits."""

from __future__ import annotations

from semel.contracts.ledger.commands import OrgSettings, Quota
from semel.contracts.ledger.drafts import CONTROLS
from semel.contracts.ledger.limits import MAX_INTERVAL, MAX_NAME_CHARACTERS, MAX_TTL_SECONDS
from semel.contracts.ledger.refusals import invalid

MAX_RETAINED = 2**62
"""More bodies than this cannot be counted off a height."""


MAX_QUOTA_BYTES = 2**62
MAX_QUOTA = 2**32 - 1
"""Limit of vaults, and of transactions a second."""


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
    """Validate the settings of an organization to be changed."""
    for value, field, most in (
        (settings.eviction_interval, "eviction_interval", MAX_INTERVAL),
        (settings.ttl_seconds, "ttl_seconds", MAX_TTL_SECONDS),
    ):
        if value is not None and not 1 <= value <= most:
            raise invalid(f"{field} is a number from 1 to {most}.", field)


def check_quota(
    max_storage_bytes: int, max_vaults: int, max_write_ops_per_sec: int, max_read_ops_per_sec: int
) -> Quota:
    """Validate the limits of a new organization; a limit that is not enforced here is refused rather than ignored."""
    quota = Quota(max_storage_bytes, max_vaults, max_write_ops_per_sec)
    for (field, value), most in zip(quota._asdict().items(), (MAX_QUOTA_BYTES, MAX_QUOTA, MAX_QUOTA), strict=True):
        if not 0 <= value <= most:
            raise invalid(f"{field} is a number from 0, which is no limit, to {most}.", f"quota.{field}")
    if max_read_ops_per_sec:
        message = "Reads are not counted here: leave max_read_ops_per_sec out of the quota."
        raise invalid(message, "quota.max_read_ops_per_sec")
    return quota


def check_retention(retain: int) -> None:
    """How many bodies a vault keeps; 0 is all."""
    if not 0 <= retain <= MAX_RETAINED:
        raise invalid(f"retention_blocks is a number from 1 to {MAX_RETAINED}.", "retention_blocks")
