"""One record of a Sheratan key store: parsed to a key, an expired key, or a named fault.

Pure: the time is an argument. A fault names the field and never its content, because keys are not shown.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, NamedTuple

from semel.cli.importing.layout import Entry
from semel.contracts.jobs.ids import parse_foreign, parse_own, parse_request
from semel.contracts.jobs.limits import MAX_ERROR_BYTES, MAX_KEY_CHARACTERS
from semel.kernel.job_report import parsed_bytes
from semel.kernel.json_error import JsonError
from semel.kernel.json_parse import parse

STATUSES = ("accepted", "in_progress", "completed", "failed")
_HASH = re.compile(r"(?:sha256:)?([0-9A-Fa-f]{64})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SECONDS_END = 100_000_000_000
"""A number of seconds below this; of milliseconds from there on."""

UNFINISHED = {
    "code": "imported",
    "message": "The job had not ended when its key was imported: what became of it is not known.",
    "outcome": "unknown",
}
NO_ERROR = {"code": "imported", "message": "The store that this key was imported from kept no error."}
NO_RESULT = {"imported": True, "result": "not kept by the store that this key was imported from"}


class RecordError(Exception):
    """The record cannot be taken over; the message says why."""


class Record(NamedTuple):
    """A key with the end of its job."""

    line: int
    key: str
    payload_hash: bytes
    request: bytes | None
    """The sixteen bytes of the request id, when that is a UUID."""
    job: str | None
    """The id of its job, when it is one that can be kept."""
    has_odd_job: bool
    """Whether its job has an id that cannot be kept."""
    created_ms: int
    ended_ms: int
    """The last use of the key in the source store: its job ended then or before."""
    is_unfinished: bool
    ok: bool
    value: bytes
    """The canonical result or error."""

    def id_of(self, principal: str) -> bytes:
        """The same bytes at every run: an id of the form that is ours as it is, another one behind a request id."""
        own = None if self.job is None else parse_own(self.job)
        if own is not None:
            return own
        request = self.request if self.request is not None else self._made_id(principal)
        return request + (parse_foreign(self.job or "") or b"")

    def _made_id(self, principal: str) -> bytes:
        """A UUID of version 8 that stands where the job was created, with a hash in the place of chance."""
        named = b"\0".join((b"sheratan", principal.encode(), self.key.encode(), self.payload_hash))
        drawn = int.from_bytes(sha256(named).digest()[:10], "big")
        high, low = drawn >> 68, drawn & (2**62 - 1)
        return (self.created_ms << 80 | 8 << 76 | high << 64 | 2 << 62 | low).to_bytes(16, "big")


class Limits(NamedTuple):
    """What is told apart by the time, and by the size."""

    now_ms: int
    ttl_ms: int
    max_result_bytes: int


def read_record(entry: Entry, limits: Limits) -> Record:
    """The record in a text; a RecordError for one that cannot be used."""
    fields = _fields(entry)
    status = fields.get("status")
    if status not in STATUSES:
        raise RecordError(f"status is none of {', '.join(STATUSES)}")
    created, seen = (_instant(fields, name, limits.now_ms) for name in ("created_utc", "last_seen_utc"))
    ended = seen if seen is not None else created
    if ended is None:
        raise RecordError("it has neither created_utc nor last_seen_utc")
    job = fields.get("job_id")
    is_kept = isinstance(job, str) and parse_foreign(job) is not None
    cached = fields.get("cached_result")
    ok, value = _end(status, fields.get("cached_response") if cached is None else cached, limits)
    return Record(
        entry.line,
        _key(entry, fields),
        _hash(fields.get("payload_hash")),
        _request(fields.get("request_id")),
        job if is_kept else None,
        job is not None and not is_kept,
        ended if created is None else min(created, ended),
        ended,
        status in ("accepted", "in_progress"),
        ok,
        value,
    )


def is_expired(record: Record, limits: Limits) -> bool:
    """Whether the key would be new again by now."""
    return limits.now_ms >= record.ended_ms + limits.ttl_ms


def _fields(entry: Entry) -> dict[str, Any]:
    try:
        fields = parse(entry.text.encode("utf-8", "surrogatepass"))
    except JsonError as error:
        raise RecordError(f"it is not a JSON object that can be read ({error.kind.value})") from None
    if not isinstance(fields, dict):
        raise RecordError("it is not a JSON object")
    return fields


def _key(entry: Entry, fields: dict[str, Any]) -> str:
    key = fields.get("key", entry.name)
    if entry.name is not None and key != entry.name:
        raise RecordError("key is not the name that it stands under")
    if not isinstance(key, str) or not key.strip():
        raise RecordError("key is not a string with something in it")
    if len(key) > MAX_KEY_CHARACTERS or _CONTROL.search(key):
        raise RecordError(f"key has more than {MAX_KEY_CHARACTERS} characters, or a control character")
    try:
        key.encode()
    except UnicodeEncodeError:
        raise RecordError("key holds half of a surrogate pair") from None
    return key


def _hash(text: object) -> bytes:
    found = _HASH.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise RecordError("payload_hash is not a SHA-256 of 64 hexadecimal digits")
    return bytes.fromhex(found[1])


def _request(text: object) -> bytes | None:
    return parse_request(text) if isinstance(text, str) else None


def _instant(fields: dict[str, Any], name: str, now_ms: int) -> int | None:
    """Milliseconds since 1970, none of them in the future."""
    given = fields.get(name)
    if given is None:
        return None
    ms = _of_number(given) if isinstance(given, int | float) else _of_text(given)
    if ms is None or ms < 0:
        raise RecordError(f"{name} is not a time")
    return min(ms, now_ms)


def _of_number(given: float) -> int | None:
    if isinstance(given, bool) or not math.isfinite(given):
        return None
    return round(given * 1_000 if given < _SECONDS_END else given)


def _of_text(given: object) -> int | None:
    """RFC 3339; without a zone it is UTC, and a Z behind an offset, as some programs write it, is passed over."""
    if not isinstance(given, str):
        return None
    text = given.strip()
    if text[-1:] in ("Z", "z") and re.search(r"[+-]\d\d:?\d\d$", text[:-1]):
        text = text[:-1]
    try:
        at = datetime.fromisoformat(text)
        return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1_000)
    except (ValueError, OverflowError):
        return None


def _end(status: str, cached: Any, limits: Limits) -> tuple[bool, bytes]:
    """Whether the job went well, and its result or error."""
    ok = status == "completed"
    if status in ("accepted", "in_progress"):
        value: Any = UNFINISHED
    else:
        value = _result(cached) if ok else _error(cached)
    try:
        content = parsed_bytes(value)
    except JsonError as error:
        raise RecordError(f"the cached result cannot be kept ({error.kind.value})") from None
    most = limits.max_result_bytes if ok else min(MAX_ERROR_BYTES, limits.max_result_bytes)
    if len(content) > most:
        raise RecordError(f"the cached result has {len(content)} bytes, and {most} are the most")
    return ok, content


def _result(cached: Any) -> Any:
    """The member `result` of what was cached; where there is none, what was cached is the result."""
    if cached is None:
        return NO_RESULT
    return cached["result"] if isinstance(cached, dict) and "result" in cached else cached


def _error(cached: Any) -> Any:
    error = cached.get("error", cached) if isinstance(cached, dict) else cached
    if error is None:
        return NO_ERROR
    return error if isinstance(error, dict) else {"code": "failed", "message": str(error)}
