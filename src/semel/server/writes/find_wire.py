"""Look-ups of writes as JSON: requests to queries, and lives of writes to answers. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote_to_bytes

import orjson

from semel.kernel.clock import utc_text
from semel.kernel.errors import Refused
from semel.kernel.json.parse import parse
from semel.kernel.json.text import JsonError
from semel.kernel.verdict import Verdict
from semel.server.writes.lookup import MAX_ID_BYTES, MAX_PLACE_BYTES, FoundWrite, FoundWrites

_MEMBERS = frozenset({"id", "in"})


class AskedWrite(NamedTuple):
    """What a request asks for."""

    id: bytes
    place: bytes | None


class SeenRetry(NamedTuple):
    """One retry that was answered from the receipt."""

    at: int
    principal: str
    address: str


class SeenRetries(NamedTuple):
    """The retries of a write: their number, and the last of them, oldest first."""

    total: int = 0
    last: Sequence[SeenRetry] = ()


def parse_path(raw_id: bytes, query: bytes) -> AskedWrite:
    """The look-up of a GET: a percent-encoded id, and `in` in the query. Raises `Refused`."""
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, encoding="utf-8", errors="strict")
    except ValueError:
        raise _invalid("The query must be percent-encoded UTF-8.") from None
    if any(name != "in" for name, _ in pairs) or len(pairs) > 1:
        raise _invalid("The query of a look-up may have `in`, once.")
    return _checked(unquote_to_bytes(raw_id), pairs[0][1].encode() if pairs else None)


def parse_find(body: bytes) -> AskedWrite:
    """The look-up of a POST: an object with `id` and perhaps `in`. Raises `Refused`."""
    try:
        members = parse(body)
    except JsonError:
        raise _invalid("The body must be a JSON object with id, and perhaps in.") from None
    if not isinstance(members, dict) or not members.keys() <= _MEMBERS:
        raise _invalid("The body must be a JSON object with id, and perhaps in.")
    given, place = members.get("id"), members.get("in")
    if not isinstance(given, str) or not (place is None or isinstance(place, str)):
        raise _invalid("id and in must be strings.")
    try:
        return _checked(given.encode(), None if place is None else place.encode())
    except UnicodeEncodeError:
        raise _invalid("id and in must not hold half of a surrogate pair.") from None


def _checked(given: bytes, place: bytes | None) -> AskedWrite:
    if not 1 <= len(given) <= MAX_ID_BYTES:
        raise _invalid(f"The id of a look-up has 1 to {MAX_ID_BYTES} bytes; this one has {len(given)}.")
    if place is not None and not 1 <= len(place) <= MAX_PLACE_BYTES:
        raise _invalid(f"The place of a look-up has 1 to {MAX_PLACE_BYTES} bytes; this one has {len(place)}.")
    return AskedWrite(given, place)


def lives_body(asked: AskedWrite, found: FoundWrites, retries: Mapping[int, SeenRetries]) -> bytes:
    """The answer; `retries` has those of a match by its place in the list."""
    return orjson.dumps(
        {
            "id": _shown(asked.id),
            "in": None if asked.place is None else _shown(asked.place),
            "writes": [_life(one, retries.get(place, SeenRetries())) for place, one in enumerate(found.writes)],
            "complete": found.is_complete,
            "hint": " ".join(found.hints) or None,
        }
    )


def _life(one: FoundWrite, retries: SeenRetries) -> dict[str, Any]:
    return {
        "surface": one.surface,
        "identity": one.identity,
        "in": one.place or None,
        "first": {"at": _time(one.at), "principal": one.principal, "verdict": Verdict.FRESH.value},
        "effect": one.effect,
        "answer": one.answer or None,
        "retries": {"count": retries.total, "last": [_retry(retry) for retry in retries.last]},
        "expires_at": _time(one.expires_at),
    }


def _retry(retry: SeenRetry) -> dict[str, Any]:
    return {"at": _time(retry.at), "principal": retry.principal or None, "address": retry.address or None}


LAST_MS = 253_402_300_799_999
"""The end of the year 9999: a later time has no text."""


def _time(ms: int | None) -> str | None:
    return None if ms is None or not 0 <= ms <= LAST_MS else utc_text(ms)


def _shown(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _invalid(detail: str) -> Refused:
    return Refused("INVALID_REQUEST", detail)
