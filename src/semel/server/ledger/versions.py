"""The API version that a caller asks for, checked alike on every transport."""

from __future__ import annotations

import re

from semel.contracts.fields import Fields
from semel.contracts.ledger.refusals import RefusedLedger, invalid

API_VERSION = b"x-ledger-api-version"
VERSION = 1
_NUMBER = re.compile(rb"[0-9]{1,20}")
_NAME = API_VERSION.decode()


def api_version(value: bytes | None) -> int:
    """The API version of a header, ours if it is absent; no number, or another version, is refused."""
    if value is None:
        return VERSION
    if _NUMBER.fullmatch(value) is None:
        raise invalid(f"{_NAME} must be a whole number.", _NAME)
    if int(value) != VERSION:
        message = f"This server speaks version {VERSION} of the interface."
        raise RefusedLedger("failed_precondition", message, {"field": _NAME})
    return VERSION


def check_version(fields: Fields) -> None:
    """Check every header of that name in a request: a client that repeats it means each of them."""
    for value in fields.all(API_VERSION):
        api_version(value)
