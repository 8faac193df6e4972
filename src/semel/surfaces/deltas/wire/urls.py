"""URLs of deltas: paths, with or without the version prefix, and query parameters of pulls, checkpoints and lists."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl

from semel.kernel.errors import Refused
from semel.kernel.hashes import json_text
from semel.kernel.hlc import read_hlc
from semel.surfaces.deltas.limits import (
    DEFAULT_PAGE,
    MAX_CLIENT_CHARACTERS,
    MAX_GATEWAY_CHARACTERS,
    MAX_PAGE,
    MAX_ROW_CHARACTERS,
    MAX_TABLE_CHARACTERS,
)

AREAS = (b"sync", b"admin", b"connectors")
_VERSION = b"/v1/"
ROOTS = tuple(root + area for area in AREAS for root in (_VERSION, b"/"))
PREFIXES = tuple(root + b"/" for root in ROOTS)

_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})?")


class DeltaRoute(NamedTuple):
    """A parsed path."""

    call: str
    """The path without its version, and with `{}` in place of the gateway, such as `sync/{}/push`."""
    gateway: str
    """Empty if the path names no gateway."""


def is_of_deltas(raw_path: bytes) -> bool:
    """Whether a path belongs to deltas, with or without a suffix."""
    return raw_path.startswith(PREFIXES) or raw_path in ROOTS


def split_path(raw_path: bytes) -> DeltaRoute | None:
    """Parse a path of deltas; None for an invalid gateway name or an unknown form."""
    area, *pieces = raw_path.removeprefix(_VERSION).lstrip(b"/").decode("latin-1").split("/")
    if len(pieces) == 1:
        return DeltaRoute(f"{area}/{pieces[0]}", "")
    if len(pieces) != 2:
        return None
    place = 0 if area == "sync" else 1
    gateway = gateway_name(pieces[place].encode("latin-1"))
    pieces[place] = "{}"
    return None if gateway is None else DeltaRoute("/".join((area, *pieces)), gateway)


def gateway_name(piece: bytes) -> str | None:
    """The gateway that a path segment names, percent-decoded once; None for an invalid name."""
    if any(found.group(1) is None for found in _ESCAPE.finditer(piece)):
        return None
    try:
        name = _ESCAPE.sub(lambda found: bytes.fromhex(found.group(1).decode()), piece).decode()
    except UnicodeDecodeError:
        return None
    return name if 1 <= len(name) <= MAX_GATEWAY_CHARACTERS else None


_DIGITS = re.compile(r"[0-9]+")
PLAIN = "plain"
"""The dialect of clients that merge entries by position."""
_LONGEST = 18
"""Limit of digits of a number; a longer number exceeds every valid value."""


class PullQuery(NamedTuple):
    """The query of a pull."""

    client: str
    """Text of the client's id."""
    since: int
    limit: int
    is_plain: bool = False
    """Whether to answer in the plain dialect."""
    own_after: int | None = None
    """The client's own entries after this position are omitted; None omits none."""


class CheckpointQuery(NamedTuple):
    """The query of a checkpoint."""

    client: str | None
    """Text of the client's id, if given."""
    is_plain: bool


class DeltaListQuery(NamedTuple):
    """The query of a listing (pagination): the name to continue after, and the limit."""

    after: str | None
    limit: int


class RowQuery(NamedTuple):
    """The query of a read of rows, or of the entries of one row."""

    table: str
    row: str | None
    """Text of the row's id; None for all rows."""
    column: str
    """Empty for all columns."""
    after: int | None
    limit: int


def parse_pull(query: bytes) -> PullQuery:
    """Parse the query of a pull; a source outside of this server is refused."""
    given = _parameters(query)
    since, client = read_hlc(given.get("since", "")), given.get("clientId", "")
    if since is None:
        raise _invalid("since is required: 0, or a serverHlc as it was given.")
    if not 1 <= len(client) <= MAX_CLIENT_CHARACTERS:
        raise _invalid(f"clientId is required, with at most {MAX_CLIENT_CHARACTERS} characters.")
    limit = _limit(given)
    if given.get("source"):
        raise Refused("deltas:NOT_FOUND", "There is no such source here.")
    return PullQuery(json_text(client), since, limit, _is_plain(given), _own_after(given))


def parse_checkpoint(query: bytes) -> CheckpointQuery:
    """Parse the query of a checkpoint, with its client, if given."""
    given = _parameters(query)
    client = given.get("clientId")
    if client is not None and not 1 <= len(client) <= MAX_CLIENT_CHARACTERS:
        raise _invalid(f"clientId has 1 to {MAX_CLIENT_CHARACTERS} characters.")
    return CheckpointQuery(None if client is None else json_text(client), _is_plain(given))


def _is_plain(given: dict[str, str]) -> bool:
    dialect = given.get("dialect", "")
    if dialect not in ("", PLAIN):
        raise _invalid(f"dialect is {PLAIN}, or absent.")
    return dialect == PLAIN


def _own_after(given: dict[str, str]) -> int | None:
    text = given.get("ownAfter")
    position = None if text is None else read_hlc(text)
    if text is not None and position is None:
        raise _invalid("ownAfter is 0, or a position as it was given.")
    return position


def parse_listing(query: bytes) -> DeltaListQuery:
    """Parse the query of a listing."""
    given = _parameters(query)
    return DeltaListQuery(given.get("after") or None, _limit(given))


def parse_row_query(query: bytes, *, needs_row: bool = False) -> RowQuery:
    """Parse the query of a read of rows; `after` is the `next` or the `position` of the page before."""
    given = _parameters(query)
    table, row, after = given.get("table", ""), given.get("row"), given.get("after")
    if not 1 <= len(table) <= MAX_TABLE_CHARACTERS:
        raise _invalid(f"table is required, with at most {MAX_TABLE_CHARACTERS} characters.")
    if (row is None and needs_row) or (row is not None and not 1 <= len(row) <= MAX_ROW_CHARACTERS):
        raise _invalid(f"row is the id of a row, with at most {MAX_ROW_CHARACTERS} characters.")
    position = None if after is None else read_hlc(after)
    if after is not None and position is None:
        raise _invalid("after is a number as it was given.")
    return RowQuery(table, None if row is None else json_text(row), given.get("column", ""), position, _limit(given))


def _parameters(query: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError:  # includes UnicodeDecodeError, and a query with too many parameters
        raise _invalid("The query is UTF-8, percent-encoded where need be.") from None
    given = dict(pairs)
    if len(given) != len(pairs):
        raise _invalid("A parameter of the query is given twice.")
    return given


def _limit(given: dict[str, str]) -> int:
    text = given.get("limit")
    if text is None:
        return DEFAULT_PAGE
    if _DIGITS.fullmatch(text) is None or not text.strip("0"):
        raise _invalid("limit is a number, and at least 1.")
    digits = text.lstrip("0")
    return MAX_PAGE if len(digits) > _LONGEST else min(int(digits), MAX_PAGE)


def _invalid(message: str) -> Refused:
    return Refused("deltas:VALIDATION_ERROR", message)
