"""A submission: a kind, params and options, whose text stays as it was written.

What would make a server refuse a whole batch is found here, so that one bad line is named and spoils no others. What
concerns one job alone (a kind with a blank in it, a number that no double holds) is for the server to judge.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from semel.cli.events.members import members
from semel.cli.jobs.asking import Facts
from semel.kernel.json_error import JsonError
from semel.kernel.json_marks import parse_marked
from semel.kernel.json_text import MAX_DEPTH, depth_of, too_deep

_LINE_LEVELS = MAX_DEPTH + 1
"""The params of a job may have the full depth, and are nested in an object."""

_START = frozenset({"delay_ms", "run_at"})
"""Two ways to say when a job may start, of which a job has one."""


class DraftError(Exception):
    """The text cannot be submitted; the message says why."""


class Draft(NamedTuple):
    """One submission as JSON; `key` is the one that makes it safe to send again, if it has one."""

    key: str | None
    text: bytes


def draft_job(kind: str, params: bytes, options: Facts, key: str | None) -> Draft:
    """A job of a kind, with the text of its params."""
    _object(params, MAX_DEPTH, "The params of a job are a JSON object.")
    parts = {"kind": json.dumps(kind), "params": params.decode()}
    return _draft(parts, options, key)


def draft_line(raw: bytes, options: Facts, key: str | None) -> Draft:
    """A job as an object with a kind; its own members win over the options and the key."""
    value = _object(raw, _LINE_LEVELS, "A job is a JSON object with a kind.")
    own = value.get("idempotency_key")
    parts = {name: text for name, text in members(raw.decode()).items() if name != "idempotency_key" or own is not None}
    if own is None:
        return _draft(parts, options, key)
    # A key that is no string is the server's to refuse, and what is refused can be sent again.
    return _draft(parts, options, None)._replace(key=str(own))


def _draft(parts: dict[str, str], options: Facts, key: str | None) -> Draft:
    named = parts.keys() | (_START if parts.keys() & _START else frozenset())
    added = {name: json.dumps(value) for name, value in options.items() if name not in named}
    if key is not None:
        added["idempotency_key"] = json.dumps(key)
    text = ",".join(f"{json.dumps(name)}:{value}" for name, value in {**parts, **added}.items())
    return Draft(key, f"{{{text}}}".encode())


def _object(raw: bytes, levels: int, sentence: str) -> dict[str, Any]:
    """The value of a text that is a JSON object, read as strictly as a server reads it."""
    if depth_of(raw) > levels:
        raise DraftError(str(too_deep()))
    try:
        value = parse_marked(raw, levels).value
    except JsonError as error:
        raise DraftError(str(error)) from None
    if not isinstance(value, dict):
        raise DraftError(sentence)
    return value
