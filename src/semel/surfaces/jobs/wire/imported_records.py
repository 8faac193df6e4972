"""The records of a Sheratan key store in a JSON file: the layouts of the file, and the validation of records.

A file is a list of records, an object of records by key (the whole file, or its member `records`), one record per line,
or a single record. In a file of lines a syntax error concerns its line; elsewhere the whole file. A record is a key to
import, an expired key, or an error. An error names the line and the field but no content, because keys are not shown.
Pure functions: the time is an argument.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, NamedTuple

from semel.kernel.hashes import parsed_bytes
from semel.kernel.json.parse import parse
from semel.kernel.json.text import MAX_DEPTH, JsonError, depth_of
from semel.surfaces.jobs.ids import parse_foreign, parse_own, parse_request
from semel.surfaces.jobs.limits import MAX_ERROR_BYTES, MAX_KEY_CHARACTERS

RECORDS = "records"
_OWN = frozenset({"key", "payload_hash"})
_SPACE = re.compile(r"[ \t\r\n]*")
_LEVELS = MAX_DEPTH + 8
"""Maximum nesting of a whole file; the depth of a record is checked with the record."""

# Only the end of a value matters, so numbers of any size are accepted.
_scanner = json.JSONDecoder(parse_int=float, parse_float=float)


class LayoutError(Exception):
    """The file has no records; the message says where parsing stopped, without content."""


class ImportEntry(NamedTuple):
    """The text of one record, its position, and its name if it has one."""

    line: int
    name: str | None
    text: str


def entries(raw: bytes) -> list[ImportEntry]:
    """All records of a file, in order."""
    try:
        text = raw.decode("utf-8-sig")  # some editors write a byte order mark
    except UnicodeDecodeError as error:
        raise LayoutError(f"it is not UTF-8 at byte {error.start}") from None
    if depth_of(raw) > _LEVELS:
        raise LayoutError(f"it is nested more than {_LEVELS} levels deep")
    start = _skip(text, 0)
    if text[start : start + 1] == "[":
        return list(_numbered(text, _elements(text, start)))
    if text[start : start + 1] != "{":
        raise LayoutError("it holds neither an object nor a list")
    if _is_lines(text, start):
        lines = enumerate(text.split("\n"), start=1)
        return [ImportEntry(number, None, line.strip()) for number, line in lines if line.strip()]
    return list(_numbered(text, _object(text, start)))


class _Piece(NamedTuple):
    at: int
    name: str | None
    end: int


def _is_lines(text: str, start: int) -> bool:
    """Whether the file has one object per line: the first object is complete and not the whole file."""
    try:
        end = _value(text, start)
    except LayoutError:
        line = text[start:].partition("\n")[0].rstrip()
        return line.endswith("}")
    return _skip(text, end) != len(text)


def _object(text: str, start: int) -> Iterator[_Piece]:
    """The records of an object: a single record, its member `records`, or its members."""
    members = list(_members(text, start))
    names = {piece.name for piece in members}
    inside = next((piece for piece in members if piece.name == RECORDS), None)
    if names >= _OWN:
        yield _Piece(start, None, _value(text, start))
    elif inside is not None and text[inside.at] == "[":
        yield from _elements(text, inside.at)
    elif inside is not None and text[inside.at] == "{":
        yield from _members(text, inside.at)
    else:
        yield from members


def _elements(text: str, start: int) -> Iterator[_Piece]:
    at = _skip(text, start + 1)
    while text[at : at + 1] != "]":
        end = _value(text, at)
        yield _Piece(at, None, end)
        at = _next(text, end, "]")


def _members(text: str, start: int) -> Iterator[_Piece]:
    at = _skip(text, start + 1)
    while text[at : at + 1] != "}":
        name, after = _string(text, at)
        colon = _skip(text, after)
        if text[colon : colon + 1] != ":":
            raise _broken(text, colon)
        begin = _skip(text, colon + 1)
        end = _value(text, begin)
        yield _Piece(begin, name, end)
        at = _next(text, end, "}")


def _next(text: str, end: int, bracket: str) -> int:
    """The position of the next item, or of the closing bracket."""
    at = _skip(text, end)
    if text[at : at + 1] == ",":
        following = _skip(text, at + 1)
        if text[following : following + 1] != bracket:
            return following
    elif text[at : at + 1] == bracket:
        return at
    raise _broken(text, at)


def _string(text: str, at: int) -> tuple[str, int]:
    if text[at : at + 1] != '"':
        raise _broken(text, at)
    end = _value(text, at)
    name: str = json.loads(text[at:end])
    return name, end


def _value(text: str, at: int) -> int:
    try:
        return _scanner.raw_decode(text, at)[1]
    except json.JSONDecodeError as error:
        raise _broken(text, error.pos) from None


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return at if space is None else space.end()


def _broken(text: str, at: int) -> LayoutError:
    return LayoutError(f"it is not JSON at line {text.count(chr(10), 0, at) + 1}")


def _numbered(text: str, pieces: Iterator[_Piece]) -> Iterator[ImportEntry]:
    line, counted = 1, 0
    for piece in pieces:
        line += text.count("\n", counted, piece.at)
        counted = piece.at
        yield ImportEntry(line, piece.name, text[piece.at : piece.end])


STATUSES = ("accepted", "in_progress", "completed", "failed")
_HASH = re.compile(r"(?:sha256:)?([0-9A-Fa-f]{64})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SECONDS_END = 100_000_000_000
"""Numbers below this are seconds, others milliseconds."""

UNFINISHED = {
    "code": "imported",
    "message": "The job had not ended when its key was imported: its outcome is unknown.",
    "outcome": "unknown",
}
NO_ERROR = {"code": "imported", "message": "The store from which this key was imported has no error for the job."}
NO_RESULT = {"imported": True, "result": "missing in the store from which this key was imported"}


class ImportRecordError(Exception):
    """The record cannot be imported; the message says why."""


class ImportRecord(NamedTuple):
    """A key with the outcome of its job."""

    line: int
    key: str
    payload_hash: bytes
    request: bytes | None
    """The 16 bytes of the request id, if it is a UUID."""
    job: str | None
    """The id of its job, if it can be kept."""
    has_odd_job: bool
    """Whether its job has an id that cannot be kept."""
    created_ms: int
    ended_ms: int
    """The last use of the key in the source store; its job ended no later."""
    is_unfinished: bool
    ok: bool
    value: bytes
    """The canonical result or error."""

    def id_of(self, principal: str) -> bytes:
        """The id of the job, the same in every run: its own if it has our form, else one made of the request id."""
        own = None if self.job is None else parse_own(self.job)
        if own is not None:
            return own
        request = self.request if self.request is not None else self._made_id(principal)
        return request + (parse_foreign(self.job or "") or b"")

    def _made_id(self, principal: str) -> bytes:
        """A UUID of version 8 with the job's creation time, and a hash instead of random bits."""
        named = b"\0".join((b"sheratan", principal.encode(), self.key.encode(), self.payload_hash))
        drawn = int.from_bytes(sha256(named).digest()[:10], "big")
        high, low = drawn >> 68, drawn & (2**62 - 1)
        return (self.created_ms << 80 | 8 << 76 | high << 64 | 2 << 62 | low).to_bytes(16, "big")


class ImportLimits(NamedTuple):
    """The time and the size limits of an import."""

    now_ms: int
    ttl_ms: int
    max_result_bytes: int


def read_record(entry: ImportEntry, limits: ImportLimits) -> ImportRecord:
    """Parse a record. Raises `ImportRecordError` if it cannot be used."""
    fields = _fields(entry)
    status = fields.get("status")
    if status not in STATUSES:
        raise ImportRecordError(f"status must be one of {', '.join(STATUSES)}")
    created, seen = (_instant(fields, name, limits.now_ms) for name in ("created_utc", "last_seen_utc"))
    ended = seen if seen is not None else created
    if ended is None:
        raise ImportRecordError("it has neither created_utc nor last_seen_utc")
    job = fields.get("job_id")
    is_kept = isinstance(job, str) and parse_foreign(job) is not None
    cached = fields.get("cached_result")
    ok, value = _end(status, fields.get("cached_response") if cached is None else cached, limits)
    return ImportRecord(
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


def is_expired(record: ImportRecord, limits: ImportLimits) -> bool:
    """Whether the key has expired."""
    return limits.now_ms >= record.ended_ms + limits.ttl_ms


def _fields(entry: ImportEntry) -> dict[str, Any]:
    try:
        fields = parse(entry.text.encode("utf-8", "surrogatepass"))
    except JsonError as error:
        raise ImportRecordError(f"it is not a JSON object that can be read ({error.kind.value})") from None
    if not isinstance(fields, dict):
        raise ImportRecordError("it is not a JSON object")
    return fields


def _key(entry: ImportEntry, fields: dict[str, Any]) -> str:
    key = fields.get("key", entry.name)
    if entry.name is not None and key != entry.name:
        raise ImportRecordError("key differs from the member name of the record")
    if not isinstance(key, str) or not key.strip():
        raise ImportRecordError("key is not a non-empty string")
    if len(key) > MAX_KEY_CHARACTERS or _CONTROL.search(key):
        raise ImportRecordError(f"key has more than {MAX_KEY_CHARACTERS} characters, or a control character")
    try:
        key.encode()
    except UnicodeEncodeError:
        raise ImportRecordError("key has a lone surrogate") from None
    return key


def _hash(text: object) -> bytes:
    found = _HASH.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise ImportRecordError("payload_hash is not a SHA-256 of 64 hexadecimal digits")
    return bytes.fromhex(found[1])


def _request(text: object) -> bytes | None:
    return parse_request(text) if isinstance(text, str) else None


def _instant(fields: dict[str, Any], name: str, now_ms: int) -> int | None:
    """Milliseconds since 1970, not in the future."""
    given = fields.get(name)
    if given is None:
        return None
    ms = _of_number(given) if isinstance(given, int | float) else _of_text(given)
    if ms is None or ms < 0:
        raise ImportRecordError(f"{name} is not a time")
    return min(ms, now_ms)


def _of_number(given: float) -> int | None:
    if isinstance(given, bool) or not math.isfinite(given):
        return None
    return round(given * 1_000 if given < _SECONDS_END else given)


def _of_text(given: object) -> int | None:
    """Parse RFC 3339. Without a zone it is UTC; a Z after an offset, as some programs write it, is ignored."""
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


def _end(status: str, cached: Any, limits: ImportLimits) -> tuple[bool, bytes]:
    """Whether the job succeeded, and its result or error."""
    ok = status == "completed"
    if status in ("accepted", "in_progress"):
        value: Any = UNFINISHED
    else:
        value = _result(cached) if ok else _error(cached)
    try:
        content = parsed_bytes(value)
    except JsonError as error:
        raise ImportRecordError(f"the cached result cannot be kept ({error.kind.value})") from None
    most = limits.max_result_bytes if ok else min(MAX_ERROR_BYTES, limits.max_result_bytes)
    if len(content) > most:
        raise ImportRecordError(f"the cached result has {len(content)} bytes, more than the limit of {most}")
    return ok, content


def _result(cached: Any) -> Any:
    """The member `result` of the cached value, or the cached value itself."""
    if cached is None:
        return NO_RESULT
    return cached["result"] if isinstance(cached, dict) and "result" in cached else cached


def _error(cached: Any) -> Any:
    error = cached.get("error", cached) if isinstance(cached, dict) else cached
    if error is None:
        return NO_ERROR
    return error if isinstance(error, dict) else {"code": "failed", "message": str(error)}
