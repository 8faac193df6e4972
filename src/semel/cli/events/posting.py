"""Submission of a batch of events, with retries under the same ids, so that none is committed twice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from semel.cli.connection import Answer, Connection
from semel.cli.events.drafts import Draft
from semel.cli.failures import not_semel
from semel.cli.output import printable
from semel.cli.retries import send_until_answered

PATH = "/v1/events"
SURFACE = "events"


class Verdict(NamedTuple):
    """The server's result for one item."""

    facts: dict[str, Any]
    """As it said it."""
    committed_id: int | None
    """The item's place in the order; None if it was rejected."""
    sentence: str
    """For people."""


class Target(NamedTuple):
    """The partitions and client id of events, and the number of retries."""

    connection: Connection
    client_id: str | None
    retries: int

    def submit(self, drafts: Sequence[Draft]) -> list[Verdict]:
        """One verdict a draft, in their order."""
        events = b",".join(draft.text for draft in drafts)
        sender = b"" if self.client_id is None else b'"client_id":%s,' % json.dumps(self.client_id).encode()
        body = b'{%s"events":[%s]}' % (sender, events)
        headers = {"Content-Type": b"application/json"}
        answer = send_until_answered(lambda: self.connection.request("POST", PATH, headers, body), self.retries)
        try:
            return _verdicts(answer, drafts)
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise not_semel(self.connection.address, SURFACE) from error


def _verdicts(answer: Answer, drafts: Sequence[Draft]) -> list[Verdict]:
    results = json.loads(answer.body)["results"]
    return [_verdict(result, draft.id) for result, draft in zip(results, drafts, strict=True)]


def _verdict(result: dict[str, Any], name: str) -> Verdict:
    if result["id"] != name:
        raise ValueError("this is the result of another item")
    if result["status"] == "committed":
        committed_id, at = int(result["committed_id"]), shown_time(result["status_updated_at"])
        return Verdict(result, committed_id, f"Committed {printable(name)} as {committed_id} ({at})")
    flaws = "; ".join(f"{flaw['field']}: {flaw['message']}" for flaw in result.get("errors", ()))
    return Verdict(result, None, printable(f"Rejected {name}: {flaws} [{result['reason']}]"))


def shown_time(ms: int) -> str:
    """Milliseconds since 1970 as people write them."""
    return datetime.fromtimestamp(ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
