"""Parser of a submission: JSON members and headers to a draft."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from semel.kernel.clock import utc_ms
from semel.kernel.errors import Refused
from semel.kernel.header_fields import HeaderFields
from semel.kernel.json.canonical import MAX_DEPTH
from semel.kernel.keys import key_prefix, pack, unwrap
from semel.surfaces.jobs.commands import JobDraft
from semel.surfaces.jobs.limits import (
    DEFAULT_PRIORITY,
    MAX_ATTEMPTS,
    MAX_CLIENT_BYTES,
    MAX_DELAY_MS,
    MAX_KEY_CHARACTERS,
    MAX_LEASE_SEC,
    MAX_NAME_CHARACTERS,
    MAX_PARAMS_BYTES,
    MAX_TIMEOUT_MS,
    MAX_WAIT_MS,
    JobPolicy,
)
from semel.surfaces.jobs.rules.idempotency import payload_hash
from semel.surfaces.jobs.tables import NO_TIMEOUT_GIVEN
from semel.surfaces.jobs.wire.fields import CONTROL, MISSPELLED_KEY, Members, invalid, is_object
from semel.surfaces.jobs.wire.relations import parse_place, parse_single

_UNHASHED = frozenset(
    {"client", "queue", "priority", "delay_ms", "run_at", "max_attempts", "lease_sec", "timeout_ms", "generated_key"}
)
_READ = _UNHASHED | {"idempotency_key", "kind", "params", "on_failed", "wait_ms"}
_WAIT = re.compile(rb"(?:^|[,;\s])wait\s*=\s*([0-9]{1,9})(?:$|[,;\s])")
_UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|\+00:00)", re.ASCII)
DEFAULT_QUEUE = b"default"


class JobSubmission(NamedTuple):
    """A draft, and the milliseconds that its answer may wait for the end of the job."""

    draft: JobDraft
    wait_ms: int


def parse_draft(
    members: Members, header_key: str | None, principal: bytes, policy: JobPolicy, chance: bytes
) -> JobDraft:
    """Parse the draft in a body; the key may be in the body or the header."""
    key = _key(members, header_key)
    kind = members.kind()
    params = parse_params(members)
    fingerprint = payload_hash(kind, params)
    single, place = parse_single(members, kind, fingerprint), parse_place(members)
    if place is not None and place.child and key is not None:
        raise members.refuse("idempotency_key", "and parent cannot both be given: the name of a child is its key")
    child = "" if place is None else place.child
    delay_ms, run_at = (single.delay_ms, None) if single is not None and single.debounces else _start(members)
    lease_sec = members.integer("lease_sec", 1, MAX_LEASE_SEC)
    timeout_ms = members.integer("timeout_ms", 0, MAX_TIMEOUT_MS)
    priority = members.priority()
    return JobDraft(
        principal=principal,
        key=b"" if key is None else pack(key.encode()),
        key_prefix=key_prefix(key or child) if key or child else "",
        payload_hash=fingerprint,
        kind=kind,
        params=params,
        queue=members.queue() or DEFAULT_QUEUE,
        priority=DEFAULT_PRIORITY if priority is None else priority,
        client=_client(members),
        start=_as_given(delay_ms, run_at),
        delay_ms=delay_ms or 0,
        run_at=run_at,
        max_attempts=members.integer("max_attempts", 1, MAX_ATTEMPTS) or policy.max_attempts,
        lease_ms=lease_sec * 1_000 if lease_sec else policy.lease_ms,
        retries_failed=_retries_failed(members),
        given=frozenset(name for name in members.names & _UNHASHED if members.raw(name) is not None),
        chance=chance,
        timeout_ms=NO_TIMEOUT_GIVEN if timeout_ms is None else timeout_ms,
        single=single,
        place=place,
        is_generated=_is_generated(members, has_key=key is not None),
    )


def _is_generated(members: Members, *, has_key: bool) -> bool:
    """Whether the client has made up the key for this one call."""
    value = members.raw("generated_key")
    if value is not None and not isinstance(value, bool):
        raise members.refuse("generated_key", "must be true or false")
    if value and not has_key:
        raise members.refuse("generated_key", "needs the generated key in idempotency_key")
    return bool(value)


def wait_of(members: Members, fields: HeaderFields) -> int:
    """The milliseconds that the answer may wait: from the member, or the preference in a header."""
    wait_ms = members.integer("wait_ms", 0, MAX_WAIT_MS)
    if wait_ms is not None:
        return wait_ms
    preferred = _WAIT.search(fields.get(b"prefer") or b"")
    return 0 if preferred is None else min(MAX_WAIT_MS, int(preferred[1]) * 1_000)


def header_key(fields: HeaderFields) -> str | None:
    """The key in the header; None when it is absent."""
    values = fields.all(b"idempotency-key")
    if not values:
        return None
    if len(values) > 1:
        raise invalid("Idempotency-Key", "Send the Idempotency-Key header once.")
    try:
        key = unwrap(values[0].strip(b" \t")).decode()
    except UnicodeDecodeError:
        raise invalid("Idempotency-Key", "The Idempotency-Key header must be UTF-8.") from None
    return _checked("Idempotency-Key", key)


def checked_key(members: Members, name: str = "idempotency_key") -> str | None:
    """A key in a body; None when it is absent or null."""
    value = members.raw(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise members.refuse(name, f"must be a string of 1 to {MAX_KEY_CHARACTERS} characters")
    return _checked(members.path(name), value)


def _checked(field: str, key: str) -> str:
    if not 1 <= len(key) <= MAX_KEY_CHARACTERS or not key.strip():
        raise invalid(field, f"{field} must have 1 to {MAX_KEY_CHARACTERS} characters and not be blank.")
    if CONTROL.search(key):
        raise invalid(field, f"{field} may not hold control characters.")
    try:
        key.encode()
    except UnicodeEncodeError:
        raise invalid(field, f"{field} holds half of a surrogate pair.") from None
    return key


def _key(members: Members, header: str | None) -> str | None:
    for name in members.names - _READ:
        if MISSPELLED_KEY.fullmatch(name):
            raise members.refuse(name, "is not read: the key is sent as idempotency_key")
    key = checked_key(members)
    if header is not None and key is not None and header != key:
        message = "The Idempotency-Key header and the member idempotency_key name different keys."
        raise Refused("jobs:idempotency_key_mismatch", message, {"field": "idempotency_key"})
    return header if key is None else key


def parse_params(members: Members) -> bytes:
    """The canonical params of a job; an empty object when they are absent."""
    if "params" not in members:
        return b"{}"
    value: Any = members.raw("params")
    if not is_object(value):
        raise members.refuse("params", "must be an object")
    params = members.canonical("params", value)
    if len(params) > MAX_PARAMS_BYTES:
        raise members.refuse("params", f"may have at most {MAX_PARAMS_BYTES} bytes")
    if members.is_too_deep(params):
        raise members.refuse("params", f"may be nested at most {MAX_DEPTH} levels deep")
    return params


def _client(members: Members) -> bytes:
    client = members.object("client") if members.raw("client") is not None else None
    if client is None:
        return b""
    client.text("node_id", MAX_NAME_CHARACTERS, least=0)
    text = members.canonical("client", members.raw("client"))
    if len(text) > MAX_CLIENT_BYTES:
        raise members.refuse("client", f"may have at most {MAX_CLIENT_BYTES} bytes")
    return text


def _start(members: Members) -> tuple[int | None, int | None]:
    delay_ms = members.integer("delay_ms", 0, MAX_DELAY_MS)
    text = members.text("run_at", MAX_NAME_CHARACTERS)
    if text is None:
        return delay_ms, None
    if delay_ms is not None:
        raise members.refuse("run_at", "and delay_ms cannot both be given")
    try:
        return None, utc_ms(text if _UTC.fullmatch(text) else "")
    except ValueError:
        raise members.refuse("run_at", "must be an instant in UTC like 2026-01-01T00:00:00Z") from None


def _as_given(delay_ms: int | None, run_at: int | None) -> bytes:
    if run_at is not None:
        return b"at %d" % run_at
    return b"in %d" % delay_ms if delay_ms else b""


def _retries_failed(members: Members) -> bool:
    value = members.raw("on_failed")
    if value is not None and value not in ("return", "retry"):
        raise members.refuse("on_failed", "must be return or retry")
    return bool(value == "retry")
