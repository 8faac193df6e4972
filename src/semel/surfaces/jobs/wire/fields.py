"""Members of a request body, each checked by its rule; a refusal names the member that breaks its rule.

The body of a refusal is `{"ok": false, "error": code, "message": sentence}` with further facts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, KeysView
from typing import Any, NamedTuple

import orjson

from semel.kernel.errors import Refusal, Refused
from semel.kernel.hashes import parsed_bytes
from semel.kernel.json.canonical import MAX_DEPTH, Integers, JsonError, Surrogates
from semel.kernel.json.large import SMALL_BYTES, JsonPrinter, LargeJson, is_light, read_json
from semel.kernel.json.members import OBJECT_RULE, UTF8_RULE, MemberReader, is_utf8, matching, members_of
from semel.kernel.json.parse import first_mark, parse, parse_marked
from semel.kernel.json.text import depth_of, is_flaw_of_value
from semel.surfaces.jobs.limits import LEVELS, MAX_NAME_CHARACTERS, MAX_QUEUE_CHARACTERS
from semel.surfaces.jobs.rules.completion import python_print


def invalid(field: str, message: str) -> Refused:
    """The refusal of an invalid field; the message is a sentence that names the field."""
    return Refused("jobs:invalid_request", message, {"field": field})


def refusal_members(refusal: Refusal) -> dict[str, Any]:
    """The members of the body of a refusal."""
    members = {"ok": False, "error": refusal.name, "message": refusal.message, **refusal.facts}
    if refusal.retry_after_ms is not None:
        members["retry_after_ms"] = refusal.retry_after_ms
    return members


_LEVELS_AROUND = 4
"""Levels of nesting around a job's params, which may have the full depth themselves."""
KIND_RULE = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_KIND_WORDS = f"must be a string of 1 to {MAX_NAME_CHARACTERS} characters of A-Za-z0-9_.:-"
_as_kind = matching(KIND_RULE)
TOKEN_RULE = re.compile(r"[0-9a-f]{32}")
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
MISSPELLED_KEY = re.compile(r"idempotency[-_]?key", re.IGNORECASE)
NAMES = frozenset(
    (
        "catch_up",
        "claim_id",
        "client",
        "code",
        "count",
        "cron",
        "debounce",
        "default_timeout_ms",
        "delay_ms",
        "error",
        "for_ms",
        "force",
        "generated_key",
        "group",
        "idempotency_key",
        "integrity",
        "job_id",
        "jobs",
        "join",
        "key",
        "kind",
        "kinds",
        "lease_sec",
        "lease_token",
        "max",
        "max_attempts",
        "max_inflight",
        "max_ms",
        "members",
        "message",
        "mode",
        "name",
        "node_id",
        "ok",
        "on_failed",
        "on_failure",
        "params",
        "parent",
        "paused",
        "per_ms",
        "principal",
        "priority",
        "progress",
        "queue",
        "queues",
        "rate_limit",
        "reason",
        "request_id",
        "result",
        "retry_after_ms",
        "retryable",
        "run_at",
        "sha256",
        "sig",
        "size",
        "states",
        "step_key",
        "time_zone",
        "timeout_ms",
        "unique",
        "wait_children",
        "wait_ms",
        "worker_id",
    )
)
"""All members that calls of jobs read; of a large body, other members are dropped."""


_PYTHON = JsonPrinter(python_print, str)


class LargeText(NamedTuple):
    """An array or object that is too large to be parsed into Python values."""

    text: bytes
    """Canonical JSON."""
    source: LargeJson


class Members(MemberReader[Refused]):
    """The members of one JSON object."""

    def __init__(self, members: dict[str, Any], is_plain: bool, path: str = "") -> None:
        super().__init__(members, _refused, path)
        self._members = members
        self._is_plain = is_plain
        """Whether checks of single values can be skipped: every value is serialized in canonical form, and the whole
        text is within the limit of depth.
        """

    @property
    def names(self) -> KeysView[str]:
        """The names of all members."""
        return self._members.keys()

    def raw(self, name: str) -> Any:
        """A parsed value; None when it is absent. A value without a canonical form is refused."""
        value = self._members.get(name)
        if isinstance(value, LargeJson):
            value = self._members[name] = self._settled(name, value)
        mark = None if self._is_plain else first_mark(value)
        if mark is not None:
            raise self.refuse(name, f"cannot be taken: {mark}".rstrip("."))
        return value

    def _settled(self, name: str, large: LargeJson) -> Any:
        """The parsed value if its canonical form is small; otherwise `LargeText`."""
        try:
            text = large.canonical(Integers.EXACT, Surrogates.REFUSE)
        except JsonError as error:
            raise self._flaw(name, error) from None
        return parse(text) if len(text) <= SMALL_BYTES else LargeText(text, large)

    def _flaw(self, name: str, error: JsonError) -> Refused:
        if is_flaw_of_value(error):
            return self.refuse(name, f"cannot be taken: {error}".rstrip("."))
        return not_json(error)

    def canonical(self, name: str, value: Any) -> bytes:
        """The canonical bytes of a value."""
        if isinstance(value, LargeText):
            return value.text
        if self._is_plain:
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        try:
            return parsed_bytes(value)
        except JsonError as error:
            raise self.refuse(name, f"cannot be taken: {error}".rstrip(".")) from None

    def python_text(self, name: str) -> bytes:
        """A value as Python's `json` module writes it; a checksum of a result may be over this text."""
        value = self.raw(name)
        return value.source.printed(_PYTHON) if isinstance(value, LargeText) else python_print(value)

    def is_too_deep(self, text: bytes) -> bool:
        """Whether a value, given as canonical bytes, is nested too deep."""
        return not self._is_plain and depth_of(text) > MAX_DEPTH

    def object(self, name: str) -> Members | None:
        """A member that is an object; None when it is absent."""
        value = self._members.get(name)
        if name not in self._members:
            return None
        if isinstance(value, LargeJson):
            value = self.raw(name)
        if isinstance(value, LargeText) and value.source.is_object:
            return Members(value.source.members(_is_kept), False, self.path(name))
        if not isinstance(value, dict):
            raise self.refuse(name, OBJECT_RULE)
        return Members(value, self._is_plain, self.path(name))

    def text(self, name: str, most: int, least: int = 1) -> str | None:
        """A member that is a string without control characters; None when it is absent or null."""
        value = self.string(name, least, most)
        if value is not None:
            if CONTROL.search(value):
                raise self.refuse(name, "may not hold control characters")
            self.check_utf8(name, value)
        return value

    def kind(self, name: str = "kind") -> bytes:
        """The kind of a job."""
        return self.required(name, _as_kind, _KIND_WORDS).encode()

    def queue(self, name: str = "queue") -> bytes | None:
        """The name of a queue."""
        value = self.text(name, MAX_QUEUE_CHARACTERS)
        return None if value is None else value.encode()

    def priority(self, name: str = "priority") -> int | None:
        """A priority, as a number or by name."""
        value = self._members.get(name)
        if isinstance(value, str):
            if value not in LEVELS:
                raise self.refuse(name, f"must be a number from 0 to 9 or one of {', '.join(LEVELS)}")
            return LEVELS[value]
        return self.integer(name, 0, 9)

    def token(self, name: str = "lease_token") -> bytes | None:
        """A lease token; None when it is absent. A malformed token becomes a token that no lease has."""
        value = self.string(name, 1, MAX_NAME_CHARACTERS, "must be the lease_token of a claim")
        if value is None:
            return None
        return bytes.fromhex(value) if TOKEN_RULE.fullmatch(value) else b"\0"

    def names_of(self, name: str, most: int, rule: re.Pattern[str] | None, longest: int) -> tuple[bytes, ...]:
        """A list of names without duplicates; empty when it is absent."""
        value = self._members.get(name)
        if value is None:
            return ()
        what = f"must be a list of 1 to {most} names of 1 to {longest} characters"
        what += "" if rule is None else " of A-Za-z0-9_.:-"
        if not isinstance(value, list) or not 1 <= len(value) <= most:
            raise self.refuse(name, what)
        for one in value:
            if not isinstance(one, str) or not 1 <= len(one) <= longest or CONTROL.search(one):
                raise self.refuse(name, what)
            if rule is not None and rule.fullmatch(one) is None:
                raise self.refuse(name, what)
        if not all(map(is_utf8, value)):
            raise self.refuse(name, UTF8_RULE)
        return tuple(dict.fromkeys(one.encode() for one in value))

    def items(self, name: str, most: int) -> Iterator[Members | Refused]:
        """The objects of a list; an item that is not an object is refused without the others."""
        rule = f"must be a list of 1 to {most} objects"

        def check(count: int) -> None:
            if count > most:
                raise self.refuse(name, rule)

        is_empty = True
        for place, one in enumerate(self.elements(name, rule, check)):
            yield self._item(f"{name}[{place}]", one)
            is_empty = False
        if is_empty:
            raise self.refuse(name, rule)

    def _item(self, path: str, one: Any) -> Members | Refused:
        members = members_of(one, _is_kept)
        if members is None:
            if isinstance(one, LargeJson):
                one.check()
            return self.refuse(path, OBJECT_RULE)
        return Members(members, self._is_plain and members is one)


def _refused(path: str, rule: str) -> Refused:
    return invalid(path, f"{path} {rule}.")


def is_object(value: Any) -> bool:
    """Whether a value is an object, large or not."""
    return isinstance(value, dict) or (isinstance(value, LargeText) and value.source.is_object)


def _is_kept(name: str) -> bool:
    return name in NAMES or MISSPELLED_KEY.fullmatch(name) is not None


def not_json(error: JsonError) -> Refused:
    """The refusal of a body that is not JSON."""
    return invalid("body", f"The body is not valid JSON: {error}")


def parse_members(body: bytes) -> Members:
    """The members of a body, which must be a JSON object; an empty body has no members."""
    if not body:
        return Members({}, True)
    try:
        if not is_light(body):
            return _large_members(body)
        value, is_plain = parse_marked(body, MAX_DEPTH + _LEVELS_AROUND)
    except JsonError as error:
        raise not_json(error) from None
    if not isinstance(value, dict):
        raise invalid("body", "The body must be a JSON object.")
    return Members(value, is_plain)


def _large_members(body: bytes) -> Members:
    """The members of a large body; large values are parsed on demand."""
    value = read_json(body)
    members = members_of(value, _is_kept)
    if members is None:
        if isinstance(value, LargeJson):
            value.check()
        raise invalid("body", "The body must be a JSON object.")
    return Members(members, False)
