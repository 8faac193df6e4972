"""Requests that submit events: drafts that keep their original text, and batches that are retried until answered.

Errors that would make a server refuse a whole request are found here, so that a bad line is named and the others are
sent. Errors of a single item (an event without a type, a number that a double cannot hold) are left to the server.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from semel.cli.connection import CliAnswer, CliConnection, not_semel
from semel.cli.output import printable, shown_time
from semel.cli.requests import send_until_answered
from semel.cli.source import members
from semel.kernel.json.parse import parse_marked
from semel.kernel.json.text import JsonError, depth_of, too_deep
from semel.surfaces.events.limits import FRAME_LEVELS


class CliEventDraftError(Exception):
    """The text cannot be submitted; the message says why."""


class CliEventDraft(NamedTuple):
    """One item of a submission, as JSON."""

    id: str
    text: bytes


def draft_event(raw: bytes, name: str, partitions: Sequence[str]) -> CliEventDraft:
    """An event with an id."""
    _object(raw)
    return _draft(name, json.dumps(partitions), raw.decode())


def draft_line(raw: bytes, name: str, partitions: Sequence[str]) -> CliEventDraft:
    """An event, or an item with its own id and partitions, as `semel events read` prints it.

    An event has a type. So an object without a type and with an `event` is an item; its other members are dropped.
    """
    value = _object(raw)
    if "type" in value or "event" not in value:
        _refuse_nowhere(partitions)
        return draft_event(raw, name, partitions)
    _refuse_shape(value)
    parts = members(raw.decode())
    if "partitions" not in parts:
        _refuse_nowhere(partitions)
    return _draft(value.get("id", name), parts.get("partitions", json.dumps(partitions)), parts["event"])


def _draft(name: str, partitions: str, event: str) -> CliEventDraft:
    return CliEventDraft(name, f'{{"id":{json.dumps(name)},"partitions":{partitions},"event":{event}}}'.encode())


def _object(raw: bytes) -> dict[str, Any]:
    """The value of a text that is a JSON object, read as strictly as a server reads it."""
    if depth_of(raw) > FRAME_LEVELS:
        raise CliEventDraftError(str(too_deep()))
    try:
        value = parse_marked(raw, FRAME_LEVELS).value
    except JsonError as error:
        raise CliEventDraftError(str(error)) from None
    if not isinstance(value, dict):
        raise CliEventDraftError("An event must be a JSON object.")
    return value


def _refuse_shape(item: dict[str, Any]) -> None:
    if not isinstance(item["event"], dict):
        raise CliEventDraftError("The event of an item must be a JSON object.")
    if "id" in item and (not isinstance(item["id"], str) or not item["id"]):
        raise CliEventDraftError("The id of an item must be a non-empty string.")
    if "partition" in item:
        raise CliEventDraftError("An item must have partitions, a list of names, and not partition.")
    names = item.get("partitions", [])
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        raise CliEventDraftError("The partitions of an item must be a list of strings.")


def _refuse_nowhere(partitions: Sequence[str]) -> None:
    if not partitions:
        raise CliEventDraftError("It has no partitions: name them in the line or on the command line.")


PATH = "/v1/events"
SURFACE = "events"


class CliEventVerdict(NamedTuple):
    """The server's result for one item."""

    facts: dict[str, Any]
    """The server's own result."""
    committed_id: int | None
    """The item's committed_id; None if it was rejected."""
    sentence: str
    """For people."""


class CliEventTarget(NamedTuple):
    """The partitions and client id of events, and the number of retries."""

    connection: CliConnection
    client_id: str | None
    retries: int

    def submit(self, drafts: Sequence[CliEventDraft]) -> list[CliEventVerdict]:
        """One verdict per draft, in order."""
        events = b",".join(draft.text for draft in drafts)
        sender = b"" if self.client_id is None else b'"client_id":%s,' % json.dumps(self.client_id).encode()
        body = b'{%s"events":[%s]}' % (sender, events)
        headers = {"Content-Type": b"application/json"}
        answer = send_until_answered(lambda: self.connection.request("POST", PATH, headers, body), self.retries)
        try:
            return _verdicts(answer, drafts)
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise not_semel(self.connection.address, SURFACE) from error


def _verdicts(answer: CliAnswer, drafts: Sequence[CliEventDraft]) -> list[CliEventVerdict]:
    results = json.loads(answer.body)["results"]
    return [_verdict(result, draft.id) for result, draft in zip(results, drafts, strict=True)]


def _verdict(result: dict[str, Any], name: str) -> CliEventVerdict:
    if result["id"] != name:
        raise ValueError("this is the result of another item")
    if result["status"] == "committed":
        committed_id, at = int(result["committed_id"]), shown_time(result["status_updated_at"])
        return CliEventVerdict(result, committed_id, f"Committed {printable(name)} as {committed_id} ({at})")
    flaws = "; ".join(f"{flaw['field']}: {flaw['message']}" for flaw in result.get("errors", ()))
    return CliEventVerdict(result, None, printable(f"Rejected {name}: {flaws} [{result['reason']}]"))
