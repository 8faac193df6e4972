"""Pagination: a page token says where a list goes on, and is valid for that list alone.

It carries the key to go on from and the height that the list is read at, under a MAC over both and over the query: a
token that was altered, or is used for another list, is refused. The secret is in the store, so every node accepts the
tokens of every other.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from struct import Struct
from typing import Generic, NamedTuple, TypeVar

from semel.contracts.ledger.limits import DEFAULT_PAGE, MAX_PAGE
from semel.contracts.ledger.refusals import RefusedLedger, invalid
from semel.contracts.ledger.tables import ALONE, LEDGER_TERM
from semel.engine.reading import Reading

T = TypeVar("T")

MAC_BYTES = 16
MAX_TOKEN_CHARACTERS = 32_768
_HEIGHT = Struct(">Q")
_LENGTH = Struct(">I")


class Page(NamedTuple, Generic[T]):
    """A page of a list, the height it was read at, and the token of the next page; empty at the end."""

    items: Sequence[T]
    height: int
    token: str


class Mark(NamedTuple):
    """The position of a page token: this key, at this height; 0 is the current one."""

    height: int
    start: bytes


def page_size(limit: int) -> int:
    """How many to give."""
    if not 0 <= limit <= MAX_PAGE:
        raise invalid(f"A page has at most {MAX_PAGE} items.", "limit")
    return limit or DEFAULT_PAGE


def write_token(reading: Reading, asked: Sequence[bytes], mark: Mark) -> str:
    """The page token for the rest of a list."""
    body = _HEIGHT.pack(mark.height) + mark.start
    return urlsafe_b64encode(_mac(reading, asked, body) + body).decode().rstrip("=")


def read_token(reading: Reading, asked: Sequence[bytes], token: str) -> Mark | None:
    """Where to go on; None without a token."""
    if not token:
        return None
    try:
        raw = urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4))
    except (Base64Error, ValueError, UnicodeEncodeError):
        raise _foreign() from None
    mac, body = raw[:MAC_BYTES], raw[MAC_BYTES:]
    is_ours = urlsafe_b64encode(raw).decode().rstrip("=") == token and len(body) >= _HEIGHT.size
    if not is_ours or len(token) > MAX_TOKEN_CHARACTERS or not hmac.compare_digest(mac, _mac(reading, asked, body)):
        raise _foreign()
    return Mark(_HEIGHT.unpack_from(body)[0], body[_HEIGHT.size :])


def _foreign() -> RefusedLedger:
    return invalid("This page token is not of this list.", "page_token")


def _mac(reading: Reading, asked: Sequence[bytes], body: bytes) -> bytes:
    term = reading.get(LEDGER_TERM, ALONE)
    assert term is not None, "the ledger was opened at the start"
    bound = b"".join(_LENGTH.pack(len(part)) + part for part in (*asked, body))
    return hmac.digest(term.secret, bound, "sha256")[:MAC_BYTES]
