"""Typed members of a request body; the refusal names the member that breaks its rule."""

from __future__ import annotations

import re
from collections.abc import Iterator, KeysView
from typing import Any, NamedTuple

import orjson

from semel.contracts.jobs.limits import LEVELS, MAX_NAME_CHARACTERS, MAX_QUEUE_CHARACTERS
from semel.contracts.jobs.rules.integrity import python_print
from semel.contracts.jobs.wire.refusals import RefusedJob, invalid
from semel.kernel.canonical import MAX_DEPTH, Integers, JsonError, Surrogates
from semel.kernel.job_report import parsed_bytes
from semel.kernel.json_error import is_flaw_of_value
from semel.kernel.json_marks import first_mark, parse_marked
from semel.kernel.json_parse import parse
from semel.kernel.json_text import depth_of
from semel.kernel.large_json import SMALL_BYTES, LargeJson, Printer, is_light, read_json

_LEVELS_AROUND = 4
"""Levels of a body around a job's params, which may have the full depth."""
KIND_RULE = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_TOKEN = re.compile(r"[0-9a-f]{32}")
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
MISSPELLED_KEY = re.compile(r"idempotency[-_]?key", re.IGNORECASE)
NAMES = frozenset(
    (
        "catch_up",
        "claim_id",
        "client",
        "code",
        "cron",
        "default_timeout_ms",
        "delay_ms",
        "error",
        "force",
        "idempotency_key",
        "integrity",
        "job_id",
        "jobs",
        "kind",
        "kinds",
        "lease_sec",
        "lease_token",
        "max",
        "max_attempts",
        "max_inflight",
        "message",
        "mode",
        "node_id",
        "ok",
        "on_failed",
        "params",
        "paused",
        "principal",
        "priority",
        "progress",
        "queue",
        "queues",
        "reason",
        "request_id",
        "result",
        "retry_after_ms",
        "retryable",
        "run_at",
        "sha256",
        "sig",
        "step_key",
        "time_zone",
        "timeout_ms",
        "wait_ms",
        "worker_id",
    )
)
"""Every member that some body of jobs has; of a large body no others are kept."""


_PYTHON = Printer(python_print, str)


class LargeText(NamedTuple):
    """An array or an object that is too large to be a value."""

    text: bytes
    """In canonical form."""
    source: LargeJson


class Members:
    """The members of one JSON object."""

    def __init__(self, members: dict[str, Any], is_plain: bool, path: str = "") -> None:
        self._members = members
        self._is_plain = is_plain
        """Whether nothing in the text needs a second look: every value prints as its canonical form, and none is too
        deep, because the whole text is not.
        """
        self._path = path

    def __contains__(self, name: str) -> bool:
        return name in self._members

    @property
    def names(self) -> KeysView[str]:
        """The names of all members."""
        return self._members.keys()

    def path(self, name: str) -> str:
        """How a member is named in a refusal."""
        return f"{self._path}.{name}" if self._path else name

    def refuse(self, name: str, rule: str) -> RefusedJob:
        """A member that breaks its rule."""
        return invalid(self.path(name), f"{self.path(name)} {rule}.")

    def raw(self, name: str) -> Any:
        """A parsed value, None when it is absent; one that JSON cannot carry is refused."""
        value = self._members.get(name)
        if isinstance(value, LargeJson):
            value = self._members[name] = self._settled(name, value)
        mark = None if self._is_plain else first_mark(value)
        if mark is not None:
            raise self.refuse(name, f"cannot be taken: {mark}".rstrip("."))
        return value

    def _settled(self, name: str, large: LargeJson) -> Any:
        """Large text as a value, if the value is small."""
        try:
            text = large.canonical(Integers.EXACT, Surrogates.REFUSE)
        except JsonError as error:
            raise self._flaw(name, error) from None
        return parse(text) if len(text) <= SMALL_BYTES else LargeText(text, large)

    def _flaw(self, name: str, error: JsonError) -> RefusedJob:
        if is_flaw_of_value(error):
            return self.refuse(name, f"cannot be taken: {error}".rstrip("."))
        return not_json(error)

    def canonical(self, name: str, value: Any) -> bytes:
        """The canonical bytes of one of the values."""
        if isinstance(value, LargeText):
            return value.text
        if self._is_plain:
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        try:
            return parsed_bytes(value)
        except JsonError as error:
            raise self.refuse(name, f"cannot be taken: {error}".rstrip(".")) from None

    def python_text(self, name: str) -> bytes:
        """A value as Python's own printer prints it, which is another way to prove a result."""
        value = self.raw(name)
        return value.source.printed(_PYTHON) if isinstance(value, LargeText) else python_print(value)

    def is_too_deep(self, text: bytes) -> bool:
        """Whether the canonical bytes of one of the values are nested deeper than allowed."""
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
            raise self.refuse(name, "must be an object")
        return Members(value, self._is_plain, self.path(name))

    def text(self, name: str, most: int, least: int = 1) -> str | None:
        """A member that is a string without control characters; None when it is absent or null."""
        value = self._members.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or not least <= len(value) <= most:
            raise self.refuse(name, f"must be a string of {least} to {most} characters")
        if CONTROL.search(value):
            raise self.refuse(name, "may not hold control characters")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise self.refuse(name, "holds half of a surrogate pair") from None
        return value

    def number(self, name: str, least: int, most: int) -> int | None:
        """A member that is a whole number; None when it is absent or null."""
        value = self._members.get(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.refuse(name, f"must be a whole number from {least} to {most}")
        return value

    def flag(self, name: str) -> bool | None:
        """A member that is true or false; None when it is absent or null."""
        value = self._members.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.refuse(name, "must be true or false")
        return value

    def kind(self, name: str = "kind") -> bytes:
        """The kind of a job."""
        value = self._members.get(name)
        if not isinstance(value, str) or KIND_RULE.fullmatch(value) is None:
            raise self.refuse(name, f"must be a string of 1 to {MAX_NAME_CHARACTERS} characters of A-Za-z0-9_.:-")
        return value.encode()

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
        return self.number(name, 0, 9)

    def token(self, name: str = "lease_token") -> bytes | None:
        """A lease token; None when it is absent. One of another shape is simply one that no worker holds."""
        value = self._members.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or not 1 <= len(value) <= MAX_NAME_CHARACTERS:
            raise self.refuse(name, "must be the lease_token of a claim")
        return bytes.fromhex(value) if _TOKEN.fullmatch(value) else b"\0"

    def names_of(self, name: str, most: int, rule: re.Pattern[str] | None, longest: int) -> tuple[bytes, ...]:
        """A list of names without repetition; empty when it is absent."""
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
        try:
            return tuple(dict.fromkeys(one.encode() for one in value))
        except UnicodeEncodeError:
            raise self.refuse(name, "holds half of a surrogate pair") from None

    def items(self, name: str, most: int) -> Iterator[Members | RefusedJob]:
        """A list of objects, one by one; an item that is none is refused alone."""
        value = self._members.get(name)
        is_large = isinstance(value, LargeJson) and not value.is_object
        if not is_large and (not isinstance(value, list) or not 1 <= len(value) <= most):
            raise self.refuse(name, f"must be a list of 1 to {most} objects")
        is_empty = True
        elements = value.elements() if isinstance(value, LargeJson) else iter(value or ())
        for place, one in enumerate(elements):
            if place == most:
                raise self.refuse(name, f"must be a list of 1 to {most} objects")
            yield self._item(f"{name}[{place}]", one)
            is_empty = False
        if is_empty:
            raise self.refuse(name, f"must be a list of 1 to {most} objects")

    def _item(self, path: str, one: Any) -> Members | RefusedJob:
        if isinstance(one, LargeJson) and one.is_object:
            return Members(one.members(_is_kept), False)
        if isinstance(one, LargeJson):
            one.check()
        return Members(one, self._is_plain) if isinstance(one, dict) else self.refuse(path, "must be an object")


def is_object(value: Any) -> bool:
    """Whether a value is an object, large or not."""
    return isinstance(value, dict) or (isinstance(value, LargeText) and value.source.is_object)


def _is_kept(name: str) -> bool:
    return name in NAMES or MISSPELLED_KEY.fullmatch(name) is not None


def not_json(error: JsonError) -> RefusedJob:
    """The refusal of a body that is no JSON."""
    return invalid("body", f"The body is not valid JSON: {error}")


def parse_members(body: bytes) -> Members:
    """The members of a body, which must be one JSON object; an empty body is one without members."""
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
    """The same for a body that is too large for values: large members are parsed on demand."""
    value = read_json(body)
    if isinstance(value, LargeJson) and value.is_object:
        value = value.members(_is_kept)
    elif isinstance(value, LargeJson):
        value.check()
    if not isinstance(value, dict):
        raise invalid("body", "The body must be a JSON object.")
    return Members(value, False)
