"""Jobs as JSON text, for programs that pass on text of others: params keep their original text, so no number changes.

Errors that would make a server refuse a whole batch are found here. Errors of a single job (a kind with a space, a
number that a double cannot hold) are left to the server, which judges each job of a batch separately.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from semel.client.errors import SemelError
from semel.client.jobs.submission import members_of
from semel.client.jobs.values import JobRequest
from semel.client.json_text import members
from semel.kernel.json.parse import parse_marked
from semel.kernel.json.text import MAX_DEPTH, JsonError, depth_of, too_deep

_LINE_LEVELS = MAX_DEPTH + 1
"""The params may have the full depth, and are one level below the object."""

_START = frozenset({"delay_ms", "run_at"})
"""Members that set the start time; a job has at most one of them."""


class JobTextError(SemelError):
    """The text is not a job; nothing was sent."""


class JobText(NamedTuple):
    """One submission as JSON; without a key it is not retried after an attempt that may have taken effect."""

    key: str | None
    body: bytes
    protected_until: None = None
    """The key is the caller's, so it is kept as long as others."""


def job_text(job: JobRequest, params: bytes, key: str | None) -> JobText:
    """A job with the text of its params; those of `job`, and its key, do not count."""
    parts = {"kind": json.dumps(job.kind), "params": checked_params(params).decode()}
    return _joined(parts, job, key)


def line_text(raw: bytes, defaults: JobRequest, key: str | None) -> JobText:
    """A job from the text of an object with a kind. Its members override the defaults and the key."""
    value = _object(raw, _LINE_LEVELS, "A job must be a JSON object with a kind.")
    own = value.get("idempotency_key")
    parts = {name: text for name, text in members(raw.decode()).items() if name != "idempotency_key" or own is not None}
    if own is None:
        return _joined(parts, defaults, key)
    # The server refuses a key that is not a string, and a refused job can be sent again.
    return _joined(parts, defaults, None)._replace(key=str(own))


def checked_params(raw: bytes) -> bytes:
    """The text, if it is a JSON object that a server accepts as params."""
    _object(raw, MAX_DEPTH, "The params of a job must be a JSON object.")
    return raw


def _joined(parts: dict[str, str], defaults: JobRequest, key: str | None) -> JobText:
    named = parts.keys() | (_START if parts.keys() & _START else frozenset())
    added = {name: json.dumps(value) for name, value in members_of(defaults).items() if name not in named}
    if key is not None:
        added["idempotency_key"] = json.dumps(key)
    text = ",".join(f"{json.dumps(name)}:{value}" for name, value in {**parts, **added}.items())
    return JobText(key, f"{{{text}}}".encode())


def _object(raw: bytes, levels: int, sentence: str) -> dict[str, Any]:
    """The value of a text that is a JSON object, read as strictly as a server reads it."""
    if depth_of(raw) > levels:
        raise JobTextError(str(too_deep()))
    try:
        value = parse_marked(raw, levels).value
    except JsonError as error:
        raise JobTextError(str(error)) from None
    if not isinstance(value, dict):
        raise JobTextError(sentence)
    return value
