"""Parser of the members of a submission that bind it to other submissions and jobs."""

from __future__ import annotations

from hashlib import sha256

from semel.kernel.keys import pack
from semel.surfaces.jobs.commands import GroupPlace, SingleRule
from semel.surfaces.jobs.ids import parse_job
from semel.surfaces.jobs.limits import MAX_DELAY_MS, MAX_KEY_CHARACTERS, MAX_MEMBERS, MAX_NAME_CHARACTERS, MAX_UNIQUE_MS
from semel.surfaces.jobs.rules.states import JobState
from semel.surfaces.jobs.wire.fields import Members

STATES = tuple(state.value for state in JobState if state is not JobState.NONE)
ACTIVE = frozenset({JobState.SCHEDULED.value, JobState.QUEUED.value, JobState.LEASED.value})
BY_PAYLOAD, BY_KEY, DEBOUNCED = b"p", b"k", b"d"
"""First bytes of the names of rows, so that keys of different kinds never meet."""


def parse_place(members: Members) -> GroupPlace | None:
    """The members `group`, `parent` and `join`; the first two cannot both be given."""
    given = [name for name in ("group", "parent", "join") if members.raw(name) is not None]
    if not given:
        return None
    others = ("unique", "debounce", *(("parent",) if "group" in given else ()))
    for name in others:
        if members.raw(name) is not None:
            raise members.refuse(name, f"and {given[0]} cannot both be given")
    place = GroupPlace()
    if "group" in given:
        place = place._replace(of=_job_id(members, "group"))
    if "parent" in given:
        place = _parent(members)
    return _join(members, place) if "join" in given else place


def _job_id(members: Members, name: str) -> bytes:
    text = members.text(name, MAX_NAME_CHARACTERS)
    found = None if text is None else parse_job(text)
    if found is None:
        raise members.refuse(name, "must be the job_id of a job that was submitted here")
    return found


def _parent(members: Members) -> GroupPlace:
    parent = members.object("parent")
    assert parent is not None
    job_id, token = _job_id(parent, "job_id"), parent.token()
    name = parent.text("name", MAX_NAME_CHARACTERS)
    if name is None:
        raise parent.refuse("name", f"must be a string of 1 to {MAX_NAME_CHARACTERS} characters")
    if token is None:
        raise parent.refuse("lease_token", "must be the lease_token of a claim")
    return GroupPlace(job_id, token, name)


def _join(members: Members, place: GroupPlace) -> GroupPlace:
    join = members.object("join")
    assert join is not None
    for name in ("delay_ms", "run_at"):
        if members.raw(name) is not None:
            raise members.refuse(name, "and join cannot both be given: a join starts when its members have ended")
    on_failure = join.raw("on_failure")
    if on_failure not in (None, "wait", "cancel"):
        raise join.refuse("on_failure", "must be wait or cancel")
    size = join.integer("size", 1, MAX_MEMBERS) or 0
    return place._replace(joins=True, size=size, cancels=on_failure == "cancel")


def parse_single(members: Members, kind: bytes, payload_hash: bytes) -> SingleRule | None:
    """The members `unique` and `debounce`, of which one may be given."""
    is_unique, is_debounced = (members.raw(name) is not None for name in ("unique", "debounce"))
    if is_unique and is_debounced:
        raise members.refuse("debounce", "and unique cannot both be given")
    if is_debounced:
        return _debounce(members, kind)
    return _unique(members, payload_hash) if is_unique else None


def _unique(members: Members, payload_hash: bytes) -> SingleRule:
    unique = members.object("unique")
    assert unique is not None
    key = unique.text("key", MAX_KEY_CHARACTERS)
    for_ms = unique.integer("for_ms", 1, MAX_UNIQUE_MS) or 0
    name = BY_PAYLOAD + payload_hash if key is None else BY_KEY + pack(key.encode())
    return SingleRule(name, key or "", _states(unique, for_ms), for_ms)


def _states(unique: Members, for_ms: int) -> frozenset[str]:
    """The states in which an earlier job counts: by default those before the end, and with a window completed too."""
    value = unique.raw("states")
    if value is None:
        return ACTIVE | {JobState.COMPLETED.value} if for_ms else ACTIVE
    is_list = isinstance(value, list) and 1 <= len(value) <= len(STATES)
    if not is_list or not all(isinstance(one, str) and one in STATES for one in value):
        raise unique.refuse("states", f"must be a list of some of {', '.join(STATES)}")
    return frozenset(value)


def _debounce(members: Members, kind: bytes) -> SingleRule:
    debounce = members.object("debounce")
    assert debounce is not None
    for name in ("delay_ms", "run_at"):
        if members.raw(name) is not None:
            raise members.refuse(name, "and debounce cannot both be given")
    key = debounce.text("key", MAX_KEY_CHARACTERS)
    if key is None:
        raise debounce.refuse("key", f"must be a string of 1 to {MAX_KEY_CHARACTERS} characters")
    delay_ms = debounce.integer("delay_ms", 1, MAX_DELAY_MS)
    if delay_ms is None:
        raise debounce.refuse("delay_ms", f"must be a whole number from 1 to {MAX_DELAY_MS}")
    max_ms = debounce.integer("max_ms", delay_ms, MAX_DELAY_MS) or 0
    row = DEBOUNCED + sha256(kind + b"\0" + key.encode()).digest()
    return SingleRule(row, key, debounces=True, delay_ms=delay_ms, max_ms=max_ms)
