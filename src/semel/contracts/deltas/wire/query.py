"""Query strings of a pull, a checkpoint and a listing (pagination)."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl

from semel.contracts.deltas.limits import DEFAULT_PAGE, MAX_CLIENT_CHARACTERS, MAX_PAGE
from semel.contracts.deltas.refusals import RefusedDeltas
from semel.kernel.delta_id import json_text
from semel.kernel.hlc import read_hlc

_DIGITS = re.compile(r"[0-9]+")
PLAIN = "plain"
"""The dialect of clients that fold entries by their positions."""
_LONGEST = 18
"""Digits of a number that is read; one with more is more than anything here."""


class PullQuery(NamedTuple):
    """The query of a pull."""

    client: str
    """Text of its id."""
    since: int
    limit: int
    is_plain: bool = False
    """Whether the answer is to be in the plain dialect."""
    own_after: int | None = None
    """Entries of the client's own behind this position are left out; None for none of them."""


class CheckpointQuery(NamedTuple):
    """The query of a checkpoint."""

    client: str | None
    """Text of its id, if given."""
    is_plain: bool


class ListQuery(NamedTuple):
    """The query of a listing (pagination): the names behind one, and how many."""

    after: str | None
    limit: int


def parse_pull(query: bytes) -> PullQuery:
    """A pull; a source outside of this server is not here."""
    given = _parameters(query)
    since, client = read_hlc(given.get("since", "")), given.get("clientId", "")
    if since is None:
        raise _invalid("since is required: 0, or a serverHlc as it was given.")
    if not 1 <= len(client) <= MAX_CLIENT_CHARACTERS:
        raise _invalid(f"clientId is required, with at most {MAX_CLIENT_CHARACTERS} characters.")
    limit = _limit(given)
    if given.get("source"):
        raise RefusedDeltas("NOT_FOUND", "There is no such source here.")
    return PullQuery(json_text(client), since, limit, _is_plain(given), _own_after(given))


def parse_checkpoint(query: bytes) -> CheckpointQuery:
    """The query of a checkpoint, with the client that it is for, if given."""
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


def parse_listing(query: bytes) -> ListQuery:
    """A page of a listing."""
    given = _parameters(query)
    return ListQuery(given.get("after") or None, _limit(given))


def _parameters(query: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError:  # a UnicodeDecodeError is one; so is a query of too many parameters
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


def _invalid(message: str) -> RefusedDeltas:
    return RefusedDeltas("VALIDATION_ERROR", message)
