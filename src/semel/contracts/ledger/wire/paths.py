"""Parsing of paths: segments, decoded after they were split, and what they name."""

from __future__ import annotations

import re
from typing import NamedTuple

from semel.contracts.ledger.model import Place
from semel.contracts.ledger.refusals import RefusedLedger, invalid
from semel.contracts.ledger.wire.members import digits, unbase64

PREFIX = b"/ledger/v1/"

_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})?")
_HEX_ID = re.compile(r"[0-9a-fA-F]{32}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_ID_BYTES = 16


class Route(NamedTuple):
    """A parsed path: the names in it, and the words between them with an empty string in place of each name.

    `call` is what is asked of the organization or the vault; empty for itself.
    """

    org: str | None
    vault: str | None
    call: tuple[str, ...]
    name: str


def split_path(raw_path: bytes) -> Route | None:
    """Parse a path below `PREFIX`; None for an unknown one."""
    things, *pieces = [_decoded(piece) for piece in raw_path[len(PREFIX) :].split(b"/")]
    if things != "orgs":
        return None
    if not pieces:
        return _route(None, None, [])
    org, *rest = pieces
    if len(rest) >= 2 and rest[0] == "vaults":
        return _route(org, rest[1], rest[2:])
    return _route(org, None, rest)


def _route(org: str | None, vault: str | None, rest: list[str]) -> Route:
    call = tuple("" if place == 1 else word for place, word in enumerate(rest))
    return Route(org, vault, call, rest[1] if len(rest) > 1 else "")


def _decoded(piece: bytes) -> str:
    if b"%" in piece:
        piece = _ESCAPE.sub(_byte, piece)
    try:
        return piece.decode()
    except UnicodeDecodeError:
        raise invalid("The path is UTF-8, percent-encoded where need be.", "path") from None


def _byte(found: re.Match[bytes]) -> bytes:
    if found.group(1) is None:
        raise invalid("The path has a percent sign that is not followed by two hex digits.", "path")
    return bytes.fromhex(found.group(1).decode())


def place_in(route: Route) -> Place:
    """The place that a path names; the organization's own has no vault in its path, not even 0."""
    org = _slug(route.org or "", "organization")
    if route.vault is None:
        return Place(org)
    vault = _slug(route.vault, "vault")
    if vault == 0:
        raise RefusedLedger("vault_not_found", "There is no such vault in this organization.")
    return Place(org, vault)


def _slug(given: str, what: str) -> int:
    found = digits(given)
    if found is None:
        raise invalid(f"The {what} in the path must be its slug, a whole number.", what)
    return found


def height_in(given: str) -> int:
    """The height of a block."""
    found = digits(given)
    if found is None:
        raise invalid("The height in the path must be a whole number.", "height")
    return found


def tx_id(given: str, field: str = "txId") -> bytes:
    """The id of a transaction: hexadecimal, the text of a UUID, or base64."""
    found = bytes.fromhex(given.replace("-", "")) if _HEX_ID.fullmatch(given) else unbase64(given)
    if found is None or len(found) != _ID_BYTES:
        raise invalid(f"{field} must be {_ID_BYTES} bytes in hexadecimal, as a UUID or in base64.", field)
    return found
