"""A quick parser of plain bodies: the same result as the full parsers, or None.

A body is plain if it is ASCII without escapes, control characters, floats, long integers and repeated names, and if it
has only the usual members. orjson alone then gives the exact values and the canonical text of each:

- without a backslash and without U+007F no string has an escape or a control character;
- a repeated name would be dropped, so the text printed again would have fewer colons;
- outside strings, a number has a fraction if there is a point, and an exponent if there is an `e` that is not the end
  of `true` or `false`; an integer of at most 15 digits is exact for every reader.

Every other body is left to the full parsers, which give the refusals too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import orjson

from semel.kernel.json.text import MAX_DEPTH, trimmed
from semel.kernel.keys import key_prefix, pack
from semel.surfaces.jobs.commands import ClaimJobs, JobDraft, JobReport
from semel.surfaces.jobs.limits import (
    DEFAULT_PRIORITY,
    LEVELS,
    MAX_BATCH_JOBS,
    MAX_CLAIM_JOBS,
    MAX_KEY_CHARACTERS,
    MAX_NAME_CHARACTERS,
    MAX_QUEUE_CHARACTERS,
    JobPolicy,
)
from semel.surfaces.jobs.rules.completion import digest_of
from semel.surfaces.jobs.rules.idempotency import payload_hash
from semel.surfaces.jobs.tables import INLINE_BYTES, NO_TIMEOUT_GIVEN
from semel.surfaces.jobs.wire.fields import KIND_RULE, TOKEN_RULE
from semel.surfaces.jobs.wire.submission import DEFAULT_QUEUE
from semel.surfaces.jobs.wire.worker_calls import ClaimCaller

_SORTED = orjson.OPT_SORT_KEYS
_LONG = 16
_LEAST_LONG = 10 ** (_LONG - 1)
"""The least integer with too many digits."""
_DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
_SUBMITTED = frozenset({"idempotency_key", "generated_key", "kind", "params", "queue", "priority"})
_MANY = frozenset({"jobs"})
_PLACE = frozenset({"queue", "priority", "generated_key"})
_NOT_GIVEN: frozenset[str] = frozenset()
_GENERATED = frozenset({"generated_key"})
_NO_PARAMS: dict[str, Any] = {}
_new_tuple = tuple.__new__
"""Makes a named tuple in a third of the time of its constructor."""
_CLAIMED = frozenset({"worker_id", "max", "wait_ms"})
_REPORTED = frozenset({"lease_token", "result"})
_REPORT_DEFAULTS = tuple(JobReport._field_defaults.values())
_TOKEN_START, _TOKEN_DIGITS = b'{"lease_token":"', 32
_TOKEN_END = len(_TOKEN_START) + _TOKEN_DIGITS
_SHORT = 96
"""Bodies up to this many bytes are parsed once and then known; longer ones are seldom the same."""


def _members(body: bytes, names: frozenset[str]) -> dict[str, Any] | None:
    """The members of a plain body, if they are among these."""
    if not body.isascii() or b"\\" in body or b"\x7f" in body:
        return None
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH:
        return None
    try:
        value = orjson.loads(body)
        if type(value) is not dict or not value.keys() <= names:
            return None
        printed = orjson.dumps(value)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return None
    if printed.count(b":") != body.count(b":"):
        return None
    return value if _has_only_integers(_outside_strings(body)) else None


def _outside_strings(body: bytes) -> bytes:
    """A JSON text without its strings: none of them has a quote, because none has an escape."""
    return b"".join(body.split(b'"')[::2])


def _has_only_integers(outside: bytes) -> bool:
    """Whether the numbers of a JSON text, given without its strings, are integers of at most 15 digits."""
    if b"." in outside or b"E" in outside or outside.count(b"e") != outside.count(b"t") + outside.count(b"f"):
        return False
    return len(outside) < _LONG or b"0" * _LONG not in outside.translate(_DIGITS_TO_ZERO)


def quick_draft(body: bytes, principal: bytes, policy: JobPolicy, chance: bytes) -> JobDraft | None:
    """The draft of a plain submission.

    As `_members`, but with one print, that of the params, because this runs for every submission.
    """
    members = _loaded(body)
    found = _draft(members, principal, policy, chance) if type(members) is dict else None
    return found[0] if found is not None and found[1] == body.count(b":") else None


def quick_drafts(
    body: bytes, principal: bytes, policy: JobPolicy, chances: Callable[[], bytes]
) -> tuple[JobDraft, ...] | None:
    """The drafts of many plain submissions in one body."""
    members = _loaded(body)
    if type(members) is not dict or members.keys() != _MANY:
        return None
    items = members["jobs"]
    if type(items) is not list or not 1 <= len(items) <= MAX_BATCH_JOBS:
        return None
    drafts, colons = [], 1
    for item in items:
        found = _draft(item, principal, policy, chances()) if type(item) is dict else None
        if found is None:
            return None
        drafts.append(found[0])
        colons += found[1]
    return tuple(drafts) if colons == body.count(b":") else None


def _loaded(body: bytes) -> Any:
    """The value of a body that is ASCII without escapes and control characters; None for any other."""
    if not body.isascii() or b"\\" in body or b"\x7f" in body:
        return None
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def _draft(members: dict[str, Any], principal: bytes, policy: JobPolicy, chance: bytes) -> tuple[JobDraft, int] | None:
    """The draft in these members, and the number of colons in their text if no name in it is repeated."""
    key, kind, params = members.get("idempotency_key"), members.get("kind"), members.get("params", _NO_PARAMS)
    if type(kind) is not str or KIND_RULE.fullmatch(kind) is None or type(params) is not dict:
        return None
    colons = kind.count(":") + len(members)
    if key is not None:
        if type(key) is not str or not 1 <= len(key) <= MAX_KEY_CHARACTERS or not key.strip():
            return None
        colons += key.count(":")
    is_generated = members.get("generated_key", False)
    if is_generated is not False and (is_generated is not True or key is None):
        return None
    queue, priority, given = DEFAULT_QUEUE, DEFAULT_PRIORITY, _GENERATED if is_generated else _NOT_GIVEN
    if len(members) - is_generated != 3 or key is None or params is _NO_PARAMS:
        place = _place(members)
        if place is None:
            return None
        queue, priority, given = place
        colons += queue.count(b":")
    printed = _printed(params)
    if printed is None:
        return None
    text, name = trimmed(printed), kind.encode()
    draft = _new_tuple(
        JobDraft,
        (
            principal,
            b"" if key is None else pack(key.encode()),
            "" if key is None else key_prefix(key),
            payload_hash(name, text),
            name,
            text,
            queue,
            priority,
            b"",
            b"",
            0,
            None,
            policy.max_attempts,
            policy.lease_ms,
            False,
            given,
            chance,
            NO_TIMEOUT_GIVEN,
            None,
            None,
            is_generated,
        ),
    )
    return draft, colons + printed.count(b":")


def _printed(params: dict[str, Any]) -> bytes | None:
    """The canonical text of params; None if they are not plain, or too long for a row.

    orjson reads no number as infinity, and prints a float with a point or an exponent, so the numbers in the printed
    text are integers if and only if those in the text of the request are.
    """
    try:
        printed = orjson.dumps(params, option=_SORTED)
    except orjson.JSONEncodeError:
        return None
    if len(printed) > INLINE_BYTES:
        return None
    for value in params.values():
        kind = type(value)
        if kind is str or value is None or kind is bool or (kind is int and -_LEAST_LONG < value < _LEAST_LONG):
            continue
        # An array, an object or another number.
        is_deep = printed.count(b"{") + printed.count(b"[") > MAX_DEPTH
        return None if is_deep or not _has_only_integers(_outside_strings(printed)) else printed
    return printed


def _place(members: dict[str, Any]) -> tuple[bytes, int, frozenset[str]] | None:
    """Queue and priority, and which of them are given; None if they are not plain, or if there are other members."""
    if not members.keys() <= _SUBMITTED:
        return None
    queue, priority = members.get("queue"), members.get("priority")
    given = frozenset(name for name in _PLACE if members.get(name) is not None)
    if queue is None:
        queue = DEFAULT_QUEUE.decode()
    elif type(queue) is not str or not 1 <= len(queue) <= MAX_QUEUE_CHARACTERS:
        return None
    if priority is None:
        priority = DEFAULT_PRIORITY
    elif type(priority) is str and priority in LEVELS:
        priority = LEVELS[priority]
    elif type(priority) is not int or not 0 <= priority <= 9:
        return None
    return queue.encode(), priority, given


def quick_claim(body: bytes, caller: ClaimCaller, reap_until: int) -> ClaimJobs | None:
    """A plain claim, which does not wait."""
    asked = _known_claim(body) if len(body) <= _SHORT else _claim_of(body)
    if asked is None:
        return None
    worker, most = asked
    principal, _, asked_at, secret = caller
    return _new_tuple(
        ClaimJobs, (principal, worker, most, (), (), None, None, b"", reap_until, asked_at, secret, False)
    )


def _claim_of(body: bytes) -> tuple[bytes, int] | None:
    """The worker of a plain claim, and how many jobs it asks for."""
    members = _members(body, _CLAIMED)
    if members is None:
        return None
    worker, most, wait_ms = members.get("worker_id"), members.get("max", 1), members.get("wait_ms", 0)
    if type(wait_ms) is not int or wait_ms:
        return None
    if type(worker) is not str or not 1 <= len(worker) <= MAX_NAME_CHARACTERS:
        return None
    if type(most) is not int or not 1 <= most <= MAX_CLAIM_JOBS:
        return None
    return worker.encode(), most


_known_claim = lru_cache(maxsize=2_048)(_claim_of)
"""The body of a worker's claims is always the same."""


def quick_report(job_id: bytes, body: bytes, policy: JobPolicy) -> JobReport | None:
    """A plain completion without a checksum."""
    rest = body[_TOKEN_END:]
    if len(rest) <= _SHORT and body.startswith(_TOKEN_START):
        token: str | None = body[len(_TOKEN_START) : _TOKEN_END].decode("latin-1")
        value = _known_result(rest)
    else:
        token, value = _report_of(body)
    if value is None or token is None or TOKEN_RULE.fullmatch(token) is None or len(value) > policy.max_result_bytes:
        return None
    report = (job_id, bytes.fromhex(token), True, value, digest_of(job_id, True, value))
    return _new_tuple(JobReport, (*report, *_REPORT_DEFAULTS))


def _report_of(body: bytes) -> tuple[str | None, bytes | None]:
    """The token of a plain completion, and its canonical result; None for what is not plain."""
    members = _members(body, _REPORTED)
    if members is None or len(members) < len(_REPORTED):
        return None, None
    token = members["lease_token"]
    value = trimmed(orjson.dumps(members["result"], option=_SORTED))
    if type(token) is not str or len(value) > INLINE_BYTES:
        return None, None
    return token, value


@lru_cache(maxsize=2_048)
def _known_result(rest: bytes) -> bytes | None:
    """The canonical result of a completion that has this text behind its token: short results are often the same.

    The token is checked for each request. Whatever token of its form is in this place, the rest is read as here. None
    if the rest goes on with the token.
    """
    token, value = _report_of(_TOKEN_START + b"0" * _TOKEN_DIGITS + rest)
    return value if token == "0" * _TOKEN_DIGITS else None
