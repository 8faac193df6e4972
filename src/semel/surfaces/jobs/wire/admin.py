"""Parsers of the requests of owners and administrators: look-ups, lists with pagination, keys, queues and schedules."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qsl

from semel.kernel.keys import key_prefix, pack
from semel.surfaces.jobs.commands import LimitQueue, PutSchedule, RateLimit, ReleaseKey
from semel.surfaces.jobs.ids import job_name, parse_digits, parse_request
from semel.surfaces.jobs.limits import (
    DEFAULT_LIST_JOBS,
    DEFAULT_PRIORITY,
    MAX_ATTEMPTS,
    MAX_LIST_JOBS,
    MAX_NAME_CHARACTERS,
    MAX_QUEUE_CHARACTERS,
    MAX_QUEUE_LIMIT,
    MAX_RATE_COUNT,
    MAX_RATE_MS,
    MAX_TIMEOUT_MS,
    MAX_WAIT_MS,
)
from semel.surfaces.jobs.lists import JobFilter
from semel.surfaces.jobs.rules.cron import MAX_ZONE_CHARACTERS, CronError, next_after, parse, zone_of
from semel.surfaces.jobs.rules.schedules import CATCH_UPS, LAST
from semel.surfaces.jobs.rules.states import JobState
from semel.surfaces.jobs.wire.fields import CONTROL, KIND_RULE, Members, invalid
from semel.surfaces.jobs.wire.submission import checked_key, parse_params

_MAX_FIELDS = 32
MAX_PRINCIPAL_CHARACTERS = 256
_STATES = tuple(state.value for state in JobState if state is not JobState.NONE)


class JobQuery:
    """The fields of a query string."""

    def __init__(self, raw: bytes, known: tuple[str, ...]) -> None:
        try:
            pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS)
        except ValueError:
            what = f"The query must be percent-encoded UTF-8 with at most {_MAX_FIELDS} fields."
            raise invalid("query", what) from None
        self._fields: dict[str, str] = {}
        for name, value in pairs:
            if name not in known:
                raise invalid(name[:64], f"There is no field {name[:64]} here; known are {', '.join(known)}.")
            if name in self._fields:
                raise invalid(name, f"{name} may be given once.")
            self._fields[name] = value

    def text(self, name: str) -> str | None:
        """A text field."""
        return self._fields.get(name)

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """An integer field."""
        value = self._fields.get(name)
        if value is None:
            return default
        if not (value.isascii() and value.isdigit() and len(value) <= 9 and least <= int(value) <= most):
            raise invalid(name, f"{name} must be a whole number from {least} to {most}.")
        return int(value)


class JobListRequest(NamedTuple):
    """The query of a list; the caller of the parser sets `principal`."""

    wanted: JobFilter
    before: bytes | None
    limit: int


def parse_list(raw: bytes, principal: bytes | None) -> JobListRequest:
    """Parse the query of a list."""
    query = JobQuery(raw, ("state", "queue", "kind", "after", "limit"))
    state = query.text("state")
    if state is not None and state not in _STATES:
        raise invalid("state", f"state is one of {', '.join(_STATES)}.")
    queue, kind = query.text("queue"), query.text("kind")
    if queue is not None and not 1 <= len(queue) <= MAX_QUEUE_CHARACTERS:
        raise invalid("queue", f"queue must have 1 to {MAX_QUEUE_CHARACTERS} characters.")
    if kind is not None and KIND_RULE.fullmatch(kind) is None:
        raise invalid("kind", f"kind must have 1 to {MAX_NAME_CHARACTERS} characters of A-Za-z0-9_.:-.")
    wanted = JobFilter(
        principal, state, None if queue is None else queue.encode(), None if kind is None else kind.encode()
    )
    limit = query.number("limit", DEFAULT_LIST_JOBS, 1, MAX_LIST_JOBS)
    return JobListRequest(wanted, _list_cursor(query.text("after")), limit)


def list_cursor(job_id: bytes) -> str:
    """The cursor of a list (pagination)."""
    return "l" + job_id.hex()


def _list_cursor(text: str | None) -> bytes | None:
    if text is None:
        return None
    found = parse_digits(text[1:]) if text[:1] == "l" else None
    if found is None:
        raise invalid("after", "after must be the `next` of an earlier page.")
    return found


def parse_members_page(raw: bytes) -> tuple[bytes | None, int]:
    """Parse the query of a list of members: the id to continue after, and the limit."""
    query = JobQuery(raw, ("after", "limit"))
    return _list_cursor(query.text("after")), query.number("limit", DEFAULT_LIST_JOBS, 1, MAX_LIST_JOBS)


class DeadLetterRequest(NamedTuple):
    """The query of the dead letter queue."""

    before: tuple[int, bytes] | None
    limit: int


def parse_dead(raw: bytes) -> DeadLetterRequest:
    """Parse the query of the dead letter queue."""
    query = JobQuery(raw, ("after", "limit"))
    limit = query.number("limit", DEFAULT_LIST_JOBS, 1, MAX_LIST_JOBS)
    text = query.text("after")
    if text is None:
        return DeadLetterRequest(None, limit)
    died_at, _, name = text[1:].partition("-")
    job_id = parse_digits(name)
    if text[:1] != "d" or job_id is None or not (died_at.isascii() and died_at.isdigit() and len(died_at) < 19):
        raise invalid("after", "after must be the `next` of an earlier page.")
    return DeadLetterRequest((int(died_at), job_id), limit)


def dead_cursor(died_at: int, job_id: bytes) -> str:
    """The cursor of the dead letter queue (pagination)."""
    return f"d{died_at}-{job_id.hex()}"


def parse_wait(raw: bytes) -> int:
    """The time in milliseconds that a read may wait for the end of the job."""
    return JobQuery(raw, ("wait_ms",)).number("wait_ms", 0, 0, MAX_WAIT_MS)


class JobLookup(NamedTuple):
    """A packed key, or the bytes of a request id."""

    key: bytes | None
    request: bytes | None
    principal: bytes | None = None
    """The principal of the key; None for the caller."""


def parse_lookup(members: Members) -> JobLookup:
    """Parse a look-up by key or by request id; both together are refused."""
    key = checked_key(members)
    request = members.text("request_id", MAX_NAME_CHARACTERS)
    if (key is None) == (request is None):
        raise members.refuse("idempotency_key", "or request_id must be given, and not both")
    principal = members.text("principal", MAX_PRINCIPAL_CHARACTERS)
    if key is not None:
        return JobLookup(pack(key.encode()), None, None if principal is None else principal.encode())
    if principal is not None:
        raise members.refuse("principal", "goes with an idempotency_key: a request id says by itself whose it is")
    found = parse_request(request or "")
    if found is None:
        raise members.refuse("request_id", "must be a UUID")
    return JobLookup(None, found)


def parse_release(members: Members) -> ReleaseKey:
    """The key to release, and its principal."""
    principal = members.text("principal", MAX_PRINCIPAL_CHARACTERS)
    key = checked_key(members)
    if principal is None:
        raise members.refuse("principal", "must be given")
    if key is None:
        raise members.refuse("idempotency_key", "must be given")
    return ReleaseKey(principal.encode(), pack(key.encode()), key_prefix(key), members.flag("force") or False)


def checked_queue(name: str) -> bytes:
    """The name of a queue in a path."""
    if not 1 <= len(name) <= MAX_QUEUE_CHARACTERS or CONTROL.search(name):
        what = f"queue must have 1 to {MAX_QUEUE_CHARACTERS} characters, none of them a control character."
        raise invalid("queue", what)
    return name.encode()


def parse_limit(queue: bytes, members: Members) -> LimitQueue:
    """The new limits of a queue."""
    most = members.integer("max_inflight", 0, MAX_QUEUE_LIMIT)
    timeout_ms = members.integer("default_timeout_ms", 0, MAX_TIMEOUT_MS)
    if most is None and timeout_ms is None and "rate_limit" not in members:
        raise members.refuse("max_inflight", f"must be a whole number from 0 to {MAX_QUEUE_LIMIT}")
    return LimitQueue(queue, most, timeout_ms, _rate(members) if "rate_limit" in members else None)


def _rate(members: Members) -> RateLimit:
    """The rate limit of a queue; null and 0 remove it."""
    value = members.raw("rate_limit")
    if value is None or (type(value) is int and value == 0):
        return RateLimit(0, 0)
    limit = members.object("rate_limit")
    assert limit is not None
    count = limit.integer("count", 0, MAX_RATE_COUNT)
    if count is None:
        raise limit.refuse("count", f"must be a whole number from 0 to {MAX_RATE_COUNT}")
    per_ms = limit.integer("per_ms", 1, MAX_RATE_MS)
    if per_ms is None and count:
        raise limit.refuse("per_ms", f"must be a whole number from 1 to {MAX_RATE_MS}")
    return RateLimit(count, per_ms or 0) if count else RateLimit(0, 0)


def parse_schedule(name: bytes, owner: bytes, members: Members) -> PutSchedule:
    """Parse a schedule."""
    cron = members.text("cron", 1_000)
    if cron is None:
        raise members.refuse("cron", "must be given: minute hour day month weekday")
    time_zone = members.text("time_zone", MAX_ZONE_CHARACTERS) or ""
    if time_zone and time_zone != "UTC" and zone_of(time_zone) is None:
        raise members.refuse("time_zone", "must be the name of an IANA time zone, such as Europe/Berlin")
    try:
        if next_after(parse(cron, time_zone), 0) is None:
            raise members.refuse("cron", "names a day that never comes")
    except CronError as error:
        raise invalid("cron", f"cron: {error}") from None
    catch_up = members.raw("catch_up")
    if catch_up is not None and catch_up not in [way.decode() for way in CATCH_UPS]:
        raise members.refuse("catch_up", "must be last, all or none")
    priority = members.priority()
    return PutSchedule(
        name=name,
        owner=owner,
        cron=cron.encode(),
        kind=members.kind(),
        params=parse_params(members),
        queue=members.queue() or b"default",
        priority=DEFAULT_PRIORITY if priority is None else priority,
        max_attempts=members.integer("max_attempts", 1, MAX_ATTEMPTS) or 0,
        catch_up=LAST if catch_up is None else catch_up.encode(),
        paused=members.flag("paused") or False,
        time_zone=b"" if time_zone == "UTC" else time_zone.encode(),
    )


def result_url(job_id: bytes) -> str:
    """The path of the whole result of a job."""
    return f"/v1/jobs/{job_name(job_id)}/result"
